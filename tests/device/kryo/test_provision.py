"""Provisioning for real: from the machine's own package sources, without mocks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from layoutlab.device.kryo import make, recipe, requirements
from layoutlab.device.kryo.provision import found, missing, provision
from layoutlab.device.kryo.toolchain import Toolchain, upstream
from layoutlab.doctor import diagnose
from layoutlab.errors import DeviceError

from ...conftest import heed_interrupts

PROVISION = """\
import signal, sys
from layoutlab.cli import _interrupt
from layoutlab.device.kryo.provision import provision
from layoutlab.errors import DeviceError
signal.signal(signal.SIGTERM, _interrupt)
try:
    print(provision(lambda text: print("say", text, flush=True), lambda text: print("show", text, flush=True)).folder)
except DeviceError as error:
    sys.exit(str(error))
"""


def silent(text: str) -> None:
    pass


def start(cache: Path, **environment: str) -> subprocess.Popen[str]:
    """Another process that provisions into `cache`."""
    return subprocess.Popen(
        [sys.executable, "-c", PROVISION],
        env={**os.environ, "LAYOUTLAB_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    assert any(words in line for line in process.stdout), process.stderr and process.stderr.read()


def names(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty cache of the test's own."""
    monkeypatch.setenv("LAYOUTLAB_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # pytest would keep gigabytes


@pytest.fixture
def downloaded(toolchain, cache) -> Path:
    """A cache of the test's own that has the downloads and nothing compiled."""
    cache.mkdir()
    base = recipe.base_folder()
    base.symlink_to(toolchain.site.parent)
    return cache


def test_every_part_is_there(toolchain: Toolchain):
    assert toolchain.folder == recipe.folder()
    for path in (toolchain.python, toolchain.zig, toolchain.counter, toolchain.marks):
        assert path.is_file()
    run = [*toolchain.qemu, toolchain.python, "-S", "-c", "import platform; print(platform.machine())"]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "aarch64\n"


def test_it_says_what_was_installed(toolchain: Toolchain):
    record = json.loads((toolchain.folder / "toolchain.json").read_text())
    assert record == {"versions": toolchain.versions, "sizes": toolchain.sizes}
    assert list(toolchain.versions) == [
        "qemu-user",
        "llvm",
        "libc6",
        "python3",
        "apache-tvm",
        "apache-tvm-ffi",
        "ai-edge-litert",
        "numpy",
        "ml_dtypes",
        "typing_extensions",
        "psutil",
        "ziglang",
    ]
    assert "unknown" not in toolchain.versions.values()
    number = r"\d+(\.\w+)*"
    assert re.fullmatch(
        rf"qemu-user {number}, LLVM {number}, Python {number}, TVM {number}, LiteRT {number}, zig {number}",
        toolchain.summary(),
    )
    base = toolchain.site.parent
    unpacked = sum(path.lstat().st_size for path in base.rglob("*") if path.is_file() or path.is_symlink())
    assert toolchain.sizes["unpacked_bytes"] == pytest.approx(unpacked, rel=0.01)
    assert 0.2e9 < toolchain.sizes["downloaded_bytes"] < 0.5e9


def test_the_doctor_describes_it(toolchain: Toolchain):
    core = diagnose()[-1]
    assert (core.part, core.state) == ("simulated Kryo core", "ok")
    unpacked = round(toolchain.sizes["unpacked_bytes"] / 1e6)
    assert core.detail == f"{toolchain.summary()}; {unpacked} MB in {toolchain.site.parent}"


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("1:7.2+dfsg-7+deb12u18+b3", "7.2"),
        ("1:14.0.6-12", "14.0.6"),
        ("3.11.2-6", "3.11.2"),
        ("0.27.0.post1", "0.27.0.post1"),
        ("1:10.0.2~rc1", "10.0.2"),
    ],
)
def test_shown_versions(version, shown):
    assert upstream(version) == shown


def test_the_second_time_does_nothing(toolchain: Toolchain):
    said: list[str] = []
    assert provision(said.append, said.append) == toolchain == found()
    assert said == []


def test_a_changed_source_is_compiled_without_any_download(downloaded, tmp_path, monkeypatch):
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in recipe.COMPILED:
        (sources / name).write_text((recipe.SOURCES / name).read_text() + "/* changed */\n")
    before = recipe.folder()
    monkeypatch.setattr(recipe, "SOURCES", sources)
    shown: list[str] = []
    core = provision(silent, shown.append)
    assert shown == ["simulated Kryo core: compiling the plugin"]
    assert core.folder != before
    assert names(downloaded) == sorted([recipe.base_folder().name, core.folder.name, "kryo.lock"])


def test_a_source_that_does_not_compile(downloaded, tmp_path, monkeypatch):
    (tmp_path / "counter.c").write_text("int x = ;\n")
    (tmp_path / "marks.c").write_text("")
    monkeypatch.setattr(recipe, "SOURCES", tmp_path)
    with pytest.raises(DeviceError) as caught:
        provision(silent, silent)
    assert f"compiling {tmp_path}/counter.c failed (exit code 1):\n" in str(caught.value)
    assert "error: expected expression" in str(caught.value)
    assert names(downloaded) == [recipe.base_folder().name, "kryo.lock"]


def test_one_of_two_processes_waits_for_the_other(downloaded):
    processes = [start(downloaded), start(downloaded)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    lines = [output[0].splitlines() for output in outputs]
    worked, waited = sorted(lines, key=lambda shown: "waiting" in shown[0])
    assert worked[0] == "show simulated Kryo core: compiling the plugin"
    assert waited == ["show simulated Kryo core: waiting for another process that provisions it", worked[-1]]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_download_leaves_nothing(cache, how):
    process = start(cache)
    wait_for(process, "downloading")
    process.send_signal(how)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert names(cache) == ["kryo.lock"]


def test_after_a_killed_process_the_next_succeeds(downloaded):
    process = start(downloaded)
    wait_for(process, "compiling")
    time.sleep(1)
    process.kill()
    process.communicate()
    assert any(name.endswith(".partial") for name in names(downloaded))
    core = provision(silent, silent)
    assert names(downloaded) == sorted([recipe.base_folder().name, core.folder.name, "kryo.lock"])


@pytest.mark.slow
def test_after_a_killed_download_the_next_succeeds(cache):
    process = start(cache)
    wait_for(process, "unpacked")
    process.kill()
    process.communicate()
    said: list[str] = []
    core = provision(said.append, silent)
    assert names(cache) == sorted([recipe.base_folder().name, core.folder.name, "kryo.lock"])
    assert re.fullmatch(
        r"simulated Kryo core: downloaded \d+ MB, \d+ MB unpacked in \S+, qemu-user .*, zig [\d.]+ \(once, \d+ s\)",
        said[0],
    )


def test_something_deleted_is_made_again(toolchain, downloaded):
    shutil.copytree(toolchain.folder, recipe.folder())
    core = found()
    assert core is not None
    core.marks.unlink()
    assert found() is None
    assert provision(silent, silent) == core
    assert core.marks.exists()


@pytest.mark.parametrize("name", ["mine.list", "mine.sources"])
def test_sources_that_cannot_be_reached(cache, tmp_path, monkeypatch, name):
    nowhere = f"file:{tmp_path}/nowhere"
    text = {
        "mine.list": f"deb {nowhere} stable main\n",
        "mine.sources": f"Types: deb\nURIs: {nowhere}\nSuites: stable\nComponents: main\n",
    }[name]
    (tmp_path / name).write_text(text)
    monkeypatch.setenv("LAYOUTLAB_ARM64_SOURCES", str(tmp_path / name))
    with pytest.raises(DeviceError) as caught:
        provision(silent, silent)
    assert str(caught.value) == (
        "finding the arm64 packages python3, libstdc++6 failed (exit code 100):\n"
        f"  E: The repository '{nowhere} stable Release' does not have a Release file.\n"
        "  E: Unable to locate package python3\n"
        "  E: Unable to locate package libstdc++6\n"
        "  E: Couldn't find any package by regex 'libstdc++6'\n"
        "Check the network and the package sources (`apt-get update` says more), then run again; "
        "LAYOUTLAB_ARM64_SOURCES names another file of package sources for arm64"
    )
    assert names(cache) == ["kryo.lock"]


def test_wheels_that_cannot_be_reached(cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(recipe, "HOST_PACKAGES", ("libc6",))
    with pytest.raises(DeviceError) as caught:
        provision(silent, silent)
    lines = str(caught.value).splitlines()
    assert lines[0] == "downloading ziglang==0.17.1 failed (exit code 1):"
    assert "  ERROR: No matching distribution found for ziglang==0.17.1" in lines
    assert lines[-1] == "Check the network and pip's settings (`python -m pip config list`), then run again"
    assert names(cache) == ["kryo.lock"]


def test_a_cache_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAYOUTLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DeviceError) as caught:
        provision(silent, silent)
    assert str(caught.value) == (
        f"{tmp_path}/file/cache: Not a directory. The simulated Kryo core needs a folder that can be written to and "
        "has 1.7 GB free; LAYOUTLAB_CACHE names another one"
    )


def test_without_apt_it_says_so_at_once(cache):
    process = start(cache, PATH="/nowhere")
    _, errors = process.communicate(timeout=60)
    assert errors == (
        "the simulated Kryo core cannot be provisioned on this machine:\n"
        "  no apt-get, dpkg-deb, tar: qemu, LLVM and an aarch64 Python come from Debian's or Ubuntu's packages. "
        "Use Debian 12, Ubuntu 22.04 or 24.04, or a container of one\n"
    )
    assert names(cache) == ["kryo.lock"]


def test_too_little_space(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(requirements, "NEEDED_BYTES", 10**18)
    free = requirements.size(shutil.disk_usage(tmp_path).free)
    (problem,) = missing()
    assert problem.what.endswith(f" free in {tmp_path}")
    assert problem.what.split()[1] == free.split()[1]
    assert problem.why == "provisioning needs 1000000000.0 GB"
    assert problem.todo == "Make space, or set LAYOUTLAB_CACHE to a folder with more"


def test_no_sources(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYOUTLAB_ARM64_SOURCES", str(tmp_path / "mine"))
    assert [str(problem) for problem in missing()] == [
        f"no package sources for arm64: LAYOUTLAB_ARM64_SOURCES names {tmp_path}/mine, which cannot be read: "
        "No such file or directory. It has to be a file of apt's, with package sources that have arm64. "
        "Correct it, or unset it"
    ]


def test_this_machine_lacks_nothing(cache):
    assert missing() == []


def test_an_arm64_python_without_wheels():
    with pytest.raises(DeviceError) as caught:
        make._guest_python({"python3-minimal_3.13.5-1_arm64.deb": 1, "python3.13-minimal_3.13.5-2_arm64.deb": 1})
    assert str(caught.value) == (
        "the package sources for arm64 have Python 3.13, and LiteRT 1.4.0 for aarch64 exists for Python 3.10, 3.11, "
        "3.12. Use Debian 12, Ubuntu 22.04 or 24.04, or a container of one"
    )


def test_without_pip_it_says_so(cache):
    script = "from layoutlab.device.kryo.provision import missing; print(*missing(), sep='|')"
    hidden = f"import sys; sys.modules['pip'] = None; {script}"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (
        f"no pip in {sys.prefix}: TVM's runtime and LiteRT for aarch64, and zig, are downloaded with it. "
        f"Run `{sys.executable} -m ensurepip`, or `uv pip install pip` if uv made the environment\n",
        "",
    )


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("LAYOUTLAB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert recipe.cache_folder() == Path("/home/me/.cache/layoutlab")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert recipe.cache_folder() == Path("/caches/layoutlab")
    monkeypatch.setenv("LAYOUTLAB_CACHE", "/mine")
    assert recipe.cache_folder() == Path("/mine")
