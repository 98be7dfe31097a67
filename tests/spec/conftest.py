from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from layoutlab.errors import SpecError
from layoutlab.spec.load import LoadedSpec, load_spec


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], LoadedSpec]:
    """Load a spec from its text, as the file x.yaml of the working folder."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes) -> LoadedSpec:
        path = Path("x.yaml")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_spec(path)

    return load


@pytest.fixture
def refused(load: Callable[[str | bytes], LoadedSpec]) -> Callable[[str | bytes], str]:
    """The whole text with which a spec is refused."""

    def refused(text: str | bytes) -> str:
        with pytest.raises(SpecError) as caught:
            load(text)
        assert str(caught.value) == "\n".join(caught.value.problems)
        return str(caught.value) + "\n"

    return refused


@pytest.fixture
def messages(refused: Callable[[str | bytes], str]) -> Callable[[str | bytes], list[str]]:
    """The first lines of all problems of a spec, without the snippets."""
    return lambda text: [line for line in refused(text).splitlines() if line.startswith("x.yaml:")]
