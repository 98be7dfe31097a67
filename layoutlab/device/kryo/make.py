"""Making the simulated core: what is downloaded and unpacked (`make_base`), and what is compiled (`make`)."""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from layoutlab.device.kryo import debian, installed, recipe, sources
from layoutlab.device.kryo.commands import bytes_below, check, run, size
from layoutlab.device.kryo.debian import Apt
from layoutlab.device.kryo.requirements import ELSEWHERE, why_not_python
from layoutlab.device.kryo.wheels import Wheels, guest_tags
from layoutlab.errors import DeviceError

Say = Callable[[str], None]

# What is kept of the unpacked packages, by path.
_KEEPS = {
    "host": (
        r"(bin|sbin|lib|lib64|usr/bin/qemu-aarch64|usr/lib/llvm-\d+/bin/llvm-mca?|usr/lib/llvm-\d+/lib/libLLVM[^/]*"
        r"|usr/lib/[^/]+-linux-gnu/[^/]+\.so[^/]*)"
    ),
    "guest": (
        r"(bin|sbin|lib|lib64|usr/bin/python3[^/]*|usr/lib/python3[^/]*/(?!test/|pydoc_data/).*|etc/python3[^/]*/.*"
        r"|usr/lib/ld-linux[^/]*|usr/lib/[^/]+-linux-gnu/[^/]+\.so[^/]*)"
    ),
}
# The guest has TVM's runtime alone; the compiler is 240 MB.
_SITE_DROPS = ("tvm/lib/libtvm_compiler.so", "tvm/lib/libtvm_runtime_cuda.so")
# zig compiles C for Linux alone.
_ZIG_DROPS = ("docs", "libcxx", "libcxxabi", "libtsan")
_ZIG_LIBC_DROPS = ("darwin", "freebsd", "mingw", "netbsd", "openbsd", "wasi")
_ZIG_HEADERS = r"(aarch64|x86|x86_64|any)-linux-(any|gnu|musl)|generic-(glibc|musl)"

# What programs on the core read of it; without, qemu shows them this machine's, and TFLite would choose its kernels by
# that. It says no more than that there is one processor: XNNPACK then takes its generic kernels for ARMv8. Told that
# this is a Kryo, it takes those that prefetch by prfm, which qemu does not show to plugins.
_CPU_FILES = {
    "proc/cpuinfo": "processor\t: 0\n\n",
    "sys/devices/system/cpu/possible": "0\n",
    "sys/devices/system/cpu/present": "0\n",
    "sys/devices/system/cpu/online": "0\n",
}

_GUEST_CHECK = """\
import tvm, tvm.rpc.server, psutil
from tvm.runtime.vm import VirtualMachine
from ai_edge_litert.interpreter import Interpreter
print(tvm.__version__)
"""


def make_base(folder: Path, show: Say) -> None:
    """Download and unpack everything into `folder`, and try it. Raises DeviceError when a step fails."""
    downloads = folder / "downloads"
    host, guest = _prepare_apt(downloads, show)
    python = _guest_python(guest.closure(recipe.GUEST_PACKAGES))
    debs = _download_debs(host, guest, show)
    _unpack_debs(folder, debs, show)
    zig = Wheels("zig", recipe.host_wheels(), [], downloads / "zig")
    _unpack_wheels(zig, folder / "zig", show)
    _prune_zig(folder / "zig" / "ziglang" / "lib")
    site = Wheels("TVM and LiteRT for aarch64", recipe.guest_wheels(), guest_tags(python), downloads / "site")
    _unpack_wheels(site, folder / "site", show)
    for name in _SITE_DROPS:
        (folder / "site" / name).unlink(missing_ok=True)
    downloaded = [*debs["host"], *debs["guest"], *zig.files(), *site.files()]
    downloaded_bytes = sum(file.stat().st_size for file in downloaded)
    shutil.rmtree(downloads)
    for name, text in _CPU_FILES.items():
        (folder / "guest" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "guest" / name).write_text(text)
    show("trying qemu, Python, TVM, LiteRT and LLVM")
    _try(folder)
    versions = _deb_versions(debs) | recipe.guest_wheels() | recipe.host_wheels()
    sizes = {"downloaded_bytes": downloaded_bytes, "unpacked_bytes": bytes_below(folder)}
    installed.write_record(folder, versions, sizes)


def make(folder: Path, base: Path, show: Say) -> None:
    """Compile the C sources into `folder` with what is in `base`, and try them. Raises DeviceError when that fails."""
    show("compiling the plugin")
    zig = installed.parts(base)["zig"]
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for name, output in recipe.COMPILED.items():
            done = run(
                recipe.compile_command(zig, recipe.SOURCES / name, folder / output),
                environment={"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
                folder=folder,
            )
            check(done, f"compiling {recipe.SOURCES / name}", "Correct it and run again")
    _try_plugin(folder, base)
    record = installed.read_record(base)
    installed.write_record(folder, record["versions"], record["sizes"])


def _prepare_apt(downloads: Path, show: Say) -> tuple[Apt, Apt]:
    host = Apt(downloads / "host", recipe.ARCHITECTURES[platform.machine()])
    hint = f"; {sources.OVERRIDE} names another file of package sources for arm64"
    guest = Apt(downloads / "guest", "arm64", sources.arm64_sources(), hint)
    for apt in (host, guest):
        show(f"reading the lists of {apt.architecture} packages")
        apt.update()
    return host, guest


def _guest_python(packages: Mapping[str, int]) -> str:
    """The version of the guest's Python, such as 3.11."""
    version = next((found[1] for name in packages if (found := re.match(r"python(3\.\d+)-minimal_", name))), "unknown")
    if version not in recipe.GUEST_PYTHONS:
        raise DeviceError(f"the package sources for arm64 have Python {version}, and {why_not_python()}. {ELSEWHERE}")
    return version


def _download_debs(host: Apt, guest: Apt, show: Say) -> dict[str, list[Path]]:
    wanted = {host: recipe.HOST_PACKAGES, guest: recipe.GUEST_PACKAGES}
    total = sum(sum(apt.closure(packages).values()) for apt, packages in wanted.items())

    def tick() -> None:
        done = sum(bytes_below(apt.archives) for apt in wanted)
        show(f"downloading {size(total)} of packages (qemu, LLVM, Python), {size(done)} done")

    tick()
    return {
        name: apt.download(packages, tick)
        for name, (apt, packages) in zip(("host", "guest"), wanted.items(), strict=True)
    }


def _unpack_debs(folder: Path, debs: Mapping[str, list[Path]], show: Say) -> None:
    total = sum(map(len, debs.values()))
    before = 0
    for root, files in debs.items():
        debian.unpack(files, folder / root, _counting(show, before, total))
        debian.keep_only(folder / root, _KEEPS[root])
        before += len(files)


def _counting(show: Say, before: int, total: int) -> Callable[[int], None]:
    return lambda count: show(f"unpacked {before + count} of {total} packages")


def _deb_versions(debs: Mapping[str, list[Path]]) -> dict[str, str]:
    """Exact versions of the packages that matter; `llvm` and `python3` name the packages that have the programs."""
    host, guest = (debian.versions([deb.name for deb in debs[root]]) for root in ("host", "guest"))
    return {
        "qemu-user": host["qemu-user"],
        "llvm": _only(host, r"llvm-[\d.]+"),
        "libc6": guest["libc6"],
        "python3": _only(guest, r"python3\.\d+"),
    }


def _only(versions: Mapping[str, str], pattern: str) -> str:
    return next((version for name, version in versions.items() if re.fullmatch(pattern, name)), "unknown")


def _unpack_wheels(wanted: Wheels, into: Path, show: Say) -> None:
    wanted.download(lambda: show(f"downloading {wanted.title}, {size(wanted.bytes_so_far())} done"))
    wanted.install(into, lambda: show(f"unpacking {wanted.title}"))


def _prune_zig(library: Path) -> None:
    headers = library / "libc" / "include"
    dropped = [library / name for name in _ZIG_DROPS] + [library / "libc" / name for name in _ZIG_LIBC_DROPS]
    dropped += [folder for folder in headers.iterdir() if not re.fullmatch(_ZIG_HEADERS, folder.name)]
    for folder in dropped:
        # Another version may have put things elsewhere; that costs space alone.
        shutil.rmtree(folder, ignore_errors=True)


def _try(base: Path) -> None:
    """Start everything once. Raises DeviceError with what the failing program says."""
    core = installed.toolchain(base, base, {}, {})
    # Compiled modules, left behind on one machine and not on another, would shift what is counted.
    environment = {"PYTHONPATH": str(core.site), "TVM_USE_RUNTIME_LIB": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    advice = "Please report this with the versions of your system (`cat /etc/os-release`)"
    done = run([*core.qemu, str(core.python), "-c", _GUEST_CHECK], environment=environment, folder=base)
    check(done, "importing TVM and LiteRT under qemu", advice)
    assembly = base / "try.s"
    assembly.write_text("fmla v0.4s, v1.4s, v2.s[0]\n")
    done = run([*core.llvm_mc, "-triple=aarch64", "-mcpu=kryo", str(assembly)])
    check(done, "assembling with llvm-mc", advice)
    done = run([*core.llvm_mca, "-mtriple=aarch64", "-mcpu=kryo", str(assembly)])
    check(done, "pricing with llvm-mca", advice)
    assembly.unlink()


def _try_plugin(folder: Path, base: Path) -> None:
    core = installed.toolchain(folder, base, {}, {})
    with tempfile.TemporaryDirectory() as out:
        done = run([*core.qemu, "-plugin", f"{core.counter},out={out}", str(core.python), "-S", "-c", "pass"])
    check(done, "loading the counting plugin into qemu", "Please report this with the output of `layoutlab doctor`")
