from pathlib import Path

import pytest


@pytest.fixture
def models() -> Path:
    return Path(__file__).parents[2] / "experiments" / "models"
