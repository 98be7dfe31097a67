"""What tables say of variants that another TVM compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from layoutlab.engine.relay.interpreter import RelayEngine

_ENGINES: TypeAdapter[dict[str, RelayEngine]] = TypeAdapter(dict[str, RelayEngine])


def engine_notes(engines: Mapping[str, Any]) -> list[str]:
    """Of each TVM the variants it compiled, and how it behaves; `engines` as a run records it."""
    variants: dict[str, list[str]] = {}
    known: dict[str, RelayEngine] = {}
    for variant, engine in _ENGINES.validate_python(dict(engines)).items():
        variants.setdefault(engine.line, []).append(variant)
        known[engine.line] = engine
    notes = []
    for line, names in variants.items():
        notes.append(f"{', '.join(names)}: compiled by {line}")
        notes.append(f"this TVM, where nothing is tuned: {'; '.join(known[line].behaviours)}")
    return notes
