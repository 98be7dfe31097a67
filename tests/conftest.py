"""Where things are, for tests of every part, and in which order files are run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "experiments" / "models" / "tiny"
# Tables of real runs, without coverage: those under results/ are made anew now and then.
TABLES = ROOT / "tests" / "tables"


def heed_interrupts() -> None:
    """For `preexec_fn`: a shell makes what it runs in the background deaf to SIGINT, and that is inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, the longest first. A file runs in one worker, so that what it shares is made once, and a
# worker that begins a long file last leaves the other idle.
LONGEST = (
    "test_experiment_kryo.py",
    "test_experiment.py",
    "engine/test_third_party.py",
    "engine/test_random_graphs.py",
    "engine/test_layouts.py",
    "test_kill.py",
    "device/kryo/test_provision.py",
    "device/kryo/test_core.py",
    "test_cli_tune.py",
    "test_cli_layouts.py",
    "records/test_run.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
