"""`make pythons` where there is no such Python."""

from __future__ import annotations

from benchmarks.pythons import main


def test_a_version_that_is_not_there_is_said_and_is_no_success(capsys, tmp_path):
    assert main(["3.99", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "Python 3.99: not found on this machine\n"
    assert list(tmp_path.iterdir()) == []
