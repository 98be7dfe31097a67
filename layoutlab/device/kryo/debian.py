"""Debian packages with everything they need, downloaded and unpacked without root and without installing them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from layoutlab.device.kryo.commands import Done, check, run
from layoutlab.errors import DeviceError

_ADVICE = "Check the network and the package sources (`apt-get update` says more), then run again"

# Everything apt keeps is in a folder of ours. With an empty status file nothing counts as installed, so that
# closures are whole. The machine's own hooks are for its own state and may need root.
_CONFIGURATION = """\
APT::Architecture "{architecture}";
#clear APT::Architectures;
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::Assume-Yes "true";
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Acquire::Languages "none";
Acquire::Retries "2";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
"""


class Apt:
    """apt-get for one architecture, with all its state in `folder`."""

    def __init__(
        self, folder: Path, architecture: str, sources: Mapping[str, str] | None = None, hint: str = ""
    ) -> None:
        """`sources` are files of package sources, name and text; None means those of the machine.

        `hint` ends the advice when packages cannot be had.
        """
        self.architecture = architecture
        self._advice = _ADVICE + hint
        self.archives = folder / "archives"
        self._configuration = folder / "apt.conf"
        self._complaints = ""
        for name in ("lists/partial", "archives/partial", "sources"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        text = _CONFIGURATION.format(architecture=architecture, folder=folder)
        if os.geteuid() == 0:
            # apt's own user cannot write below a home.
            text += 'APT::Sandbox::User "root";\n'
        if sources is not None:
            text += f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{folder}/sources";\n'
            for name, content in sources.items():
                (folder / "sources" / name).write_text(content)
        self._configuration.write_text(text)

    def update(self) -> None:
        """Download the lists of packages. A source that fails is an error only if its packages are missed later."""
        self._complaints = self._run("update").stderr

    def closure(self, packages: Sequence[str]) -> dict[str, int]:
        """The file names and bytes of the packages with all they need. Raises DeviceError when one is not there."""
        done = self._run("install", "--print-uris", "-qq", *packages)
        text = check(done, f"finding {self._what(packages)}", self._advice, before=self._complaints)
        return {name: int(size) for name, size in re.findall(r"^'[^']*' (\S+) (\d+)", text, re.MULTILINE)}

    def download(self, packages: Sequence[str], tick: Callable[[], None]) -> list[Path]:
        """The packages with all they need, as files. Raises DeviceError when one cannot be had."""
        done = self._run("install", "--download-only", "-qq", *packages, tick=tick)
        check(done, f"downloading {self._what(packages)}", self._advice)
        return sorted(self.archives.glob("*.deb"))

    def _what(self, packages: Sequence[str]) -> str:
        return f"the {self.architecture} packages {', '.join(packages)}"

    def _run(self, *arguments: str, tick: Callable[[], None] = lambda: None) -> Done:
        return run(["apt-get", "-c", str(self._configuration), *arguments], tick=tick)


def unpack(debs: Sequence[Path], root: Path, tick: Callable[[int], None]) -> None:
    """Unpack the files of packages below `root`, as a system whose /lib is in /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        # Relative, or they would lead to this machine's own files.
        (root / name).symlink_to(Path("usr") / name)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for count, _ in enumerate(pool.map(lambda deb: _unpack(deb, root), debs), start=1):
            tick(count)


def _unpack(deb: Path, root: Path) -> None:
    # dpkg-deb --extract would replace the links from /lib to /usr/lib by folders.
    unpacking = ["tar", "-x", "-C", str(root), "--keep-directory-symlink", "--no-same-owner", "--exclude=./usr/share"]
    reader = ["dpkg-deb", "--fsys-tarfile", str(deb)]
    with subprocess.Popen(reader, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reading:
        done = subprocess.run(unpacking, stdin=reading.stdout, capture_output=True, text=True)
    if done.returncode or reading.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["dpkg-deb cannot read it"]
        raise DeviceError(
            f"unpacking {deb.name} failed: {said[0]}. Check the space left in {root.parent}, then run again"
        )


def keep_only(root: Path, pattern: str) -> None:
    """Remove every file below `root` whose path there does not match, and folders that are empty then."""
    kept = re.compile(pattern)
    for folder, folders, files in os.walk(root, topdown=False):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*files, *links]:
            path = Path(folder, name)
            if not kept.fullmatch(str(path.relative_to(root))):
                path.unlink()
        if not os.listdir(folder):
            os.rmdir(folder)


def versions(names: Sequence[str]) -> dict[str, str]:
    """Package and version of each `.deb` file name."""
    split = [unquote(name).split("_") for name in names]
    return {package: version for package, version, *_ in split}


def lacking() -> list[str]:
    """The programs used here that this machine does not have."""
    return [name for name in ("apt-get", "dpkg-deb", "tar") if not shutil.which(name)]
