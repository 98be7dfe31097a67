"""What tests of every part share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "experiments" / "models" / "tiny"


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The folder of the tiny models."""
    return TINY
