"""Does layoutlab install and run with each version of Python that it says it supports?

For each version an environment of its own is made (about 1 GB, minutes the first time; used again after that), the
project is installed into it with its tests' tools, and a part of the tests that touches everything is run there. This
script needs nothing installed: `make pythons`, or `make pythons ARGS="3.10 3.13"`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
# Specs, files, statistics, records, tables, workers, and a whole experiment: what differs between versions shows there.
TESTS = (
    "tests/spec",
    "tests/measure",
    "tests/records",
    "tests/report",
    "tests/test_store.py",
    "tests/test_process.py",
    "tests/test_hooks.py",
    "tests/reliability/test_reruns.py",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests with each version; 0 when all passed, 1 when some did not or a version is not there."""
    options = _parser().parse_args(arguments)
    results = {version: _try(version, options.folder) for version in options.versions or VERSIONS}
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return int(any(not result.startswith("passed") for result in results.values()))


def find_python(version: str) -> Path | None:
    """An interpreter of this version (`3.12`): one on PATH that runs, else one that pyenv has."""
    for candidate in _candidates(version):
        ask = [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            answered = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        except OSError:
            continue
        # What pyenv puts on PATH refuses to run for a version that is not chosen in this folder.
        if answered.returncode == 0 and answered.stdout.strip() == version:
            return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))


def _try(version: str, folder: Path) -> str:
    """Install and test with one version; says in words how that went."""
    python = find_python(version)
    if python is None:
        return "not found on this machine"
    environment = folder / version
    _say(f"Python {version}: {python}; installing into {environment}")
    own = environment / "bin" / "python"
    steps = [
        [str(python), "-m", "venv", str(environment)],
        [str(own), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e", ".[dev]"],
    ]
    for step in steps:
        if subprocess.run(step, cwd=ROOT).returncode:
            return f"cannot be installed: {' '.join(step)}"
    _say(f"Python {version}: testing")
    started = time.monotonic()
    tests = subprocess.run([str(own), "-m", "pytest", "-m", "not slow", *TESTS], cwd=ROOT)
    took_s = time.monotonic() - started
    return f"passed in {took_s:.0f} s" if tests.returncode == 0 else f"failed (pytest ended with {tests.returncode})"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make pythons ARGS=...", description="Test with several versions of Python.")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"such as 3.12 (default: {' '.join(VERSIONS)})")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".pythons", help="where the environments are (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
