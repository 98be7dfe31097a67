"""Where layoutlab may be run: without UTF-8, a home, a network, or the usual time zone, under any path."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from .runs import LAYOUTLAB, TUNED, UNTUNED, rows, write

NO_UTF_8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def no_network() -> list[str]:
    """What runs a command without any network, loopback included; nothing where that is not possible."""
    command = ["unshare", "--net"]
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []


@pytest.mark.parametrize(
    ("locale", "variants"),
    [
        ({**NO_UTF_8, "TZ": "Pacific/Kiritimati"}, [UNTUNED]),
        pytest.param({**NO_UTF_8, "TZ": ""}, [TUNED, UNTUNED], marks=pytest.mark.slow),
        pytest.param({"LC_ALL": "POSIX", "TZ": "nonsense"}, [TUNED, UNTUNED], marks=pytest.mark.slow),
        pytest.param({"LC_ALL": "tr_TR.UTF-8", "TZ": ":Asia/Kolkata"}, [TUNED, UNTUNED], marks=pytest.mark.slow),
    ],
    ids=["no UTF-8", "no UTF-8, tuned", "POSIX", "Turkish"],
)
def test_a_whole_run_in_awkward_surroundings(tmp_path, locale, variants):
    folder = write(tmp_path / "Größe ist 重要 'und' $mehr", variants, trials=4)
    home = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "LANG")}
    results = os.fsencode(folder / "Ergebnisse äöü")
    done = subprocess.run(
        [*no_network(), *LAYOUTLAB, "run", os.fsencode(folder / "x.yaml"), "--results", results],
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        env={**home, **locale},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stdout + done.stderr
    (folder / "Ergebnisse äöü").rename(folder / "results")
    assert all(row["failure"] == "" for row in rows(folder).values())
    page = (folder / "results" / "x" / "table.md").read_text(encoding="utf-8")
    assert re.search(r"^\| nchw +\| 2 NCHW ", page, re.M)


def test_what_cannot_be_said_in_ascii_is_said_all_the_same(tmp_path):
    """An error that names a path is shown, whatever the locale."""
    done = subprocess.run(
        [*LAYOUTLAB, "validate", "Größe.yaml".encode()],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        env={**os.environ, **NO_UTF_8},
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        'no spec "Größe.yaml": SPEC names a file under experiments/ (.yaml may be left out) or a path\n'
    )
