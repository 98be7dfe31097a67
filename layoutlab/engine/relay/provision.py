"""`make relay`: an environment with a TVM that still has Relay, from PyPI.

No release of Apache TVM with Relay is on PyPI any more. What is there is hhb-tvm, a fork for RISC-V chips: TVM 0.16
with Relay, AutoTVM, and an LLVM 17 that makes code for x86 and Arm too. docs/relay.md says where it differs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from layoutlab.engine.relay.interpreter import FOLDER
from layoutlab.errors import DeviceError, first_message

# For which there are wheels, the first first.
PYTHONS = ("3.10", "3.8")
# xgboost as AutoTVM knows it; numpy before it dropped the names that TVM 0.16 uses.
PACKAGES = (
    "hhb-tvm==3.2.3",
    "numpy<1.24",
    "xgboost<1.6",
    "scipy<1.11",
    "decorator",
    "attrs",
    "psutil",
    "cloudpickle",
    "tornado",
    "typing_extensions",
    "tflite==2.10",
    "ml_dtypes",
    "tqdm",
)
_MARK = ".installed"


def provide(folder: Path, say: Callable[[str], None]) -> Path:
    """The python of the environment in `folder`, which is made when it is not there; it is whole or absent.

    Raises DeviceError where no suitable Python is, or the packages cannot be had.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_whole(folder):
            _make(folder, say)
    return folder / "bin" / "python"


def is_whole(folder: Path) -> bool:
    """Whether the environment in a folder has all that it should have."""
    mark = folder / _MARK
    return mark.is_file() and mark.read_text() == "\n".join(PACKAGES)


def _make(folder: Path, say: Callable[[str], None]) -> None:
    base = find_base()
    if base is None:
        raise DeviceError(
            f"no Python {' or '.join(PYTHONS)} found, for which alone there is a TVM with Relay on PyPI: install one "
            "(uv python install 3.10, pyenv install 3.10) and run `make relay` again, or name a build of your own in "
            "LAYOUTLAB_RELAY_PYTHON"
        )
    say(f"making {folder} with {base}: hhb-tvm, a fork's wheel of TVM 0.16, and what it needs (1 GB)")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _run([base, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES])
    except DeviceError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / _MARK).write_text("\n".join(PACKAGES))


def find_base() -> str | None:
    """A Python for which there are wheels: this one, or one on the path that runs."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" in PYTHONS:
        return sys.executable
    for version in PYTHONS:
        for name in (shutil.which(f"python{version}"), *_managed(version)):
            if name and _is(name, version):
                return name
    return None


def _managed(version: str) -> list[str]:
    """Those that uv and pyenv keep besides the path."""
    places = (
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python")),
        Path(os.environ.get("PYENV_ROOT", "~/.pyenv")) / "versions",
    )
    return [
        str(found) for place in places for found in sorted(place.expanduser().glob(f"*{version}*/bin/python{version}"))
    ]


def _is(name: str, version: str) -> bool:
    # A shim of pyenv is there for versions that are not chosen, and fails.
    done = subprocess.run(
        [name, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    return done.returncode == 0 and done.stdout.strip() == version


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        said = first_message("\n".join(errors) or done.stderr)
        raise DeviceError(f"{' '.join(command[:4])} ... failed: {said}")


def main() -> int:
    """Make the environment in the folder that is named, or in the project's; say what it has."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
    try:
        python = provide(folder, lambda text: print(text, file=sys.stderr))
    except DeviceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{python}: ready for engine: relay", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
