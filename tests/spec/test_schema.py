from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from layoutlab.spec.schema import json_schema

SCHEMA = json_schema()


def field(model: str, name: str) -> dict[str, Any]:
    return (SCHEMA if model == "Spec" else SCHEMA["$defs"][model])["properties"][name]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


def test_it_is_json_and_names_its_dialect():
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert SCHEMA["title"] == "layoutlab spec"
    assert SCHEMA["required"] == ["name", "model", "variants"]


def test_every_field_is_described_and_unknown_keys_are_refused():
    models = [SCHEMA, *SCHEMA["$defs"].values()]
    models = [model["anyOf"][1] if "anyOf" in model else model for model in models]
    assert len(models) == 13
    for model in models:
        assert model["additionalProperties"] is False
        assert model["description"] and model["title"]
        assert all(entry.get("description") for entry in model["properties"].values()), model["title"]


def test_bounds_and_defaults():
    trials = field("TuningSpec", "trials")
    assert (trials["default"], trials["minimum"], trials["maximum"]) == (1000, 1, 1_000_000)
    assert field("VariantSpec", "convert_layout")["enum"] == ["NHWC", "NCHW"]
    assert field("CheckSpec", "rtol")["type"] == "number"
    assert field("Spec", "variants")["minItems"] == 1


def test_target_is_a_string_or_a_mapping():
    text, mapping = field("Spec", "target")["anyOf"]
    assert text["type"] == "string"
    assert mapping["properties"]["num-cores"] == {"type": "integer", "minimum": 1, "maximum": 9999}
    assert mapping["properties"]["mattr"]["anyOf"][1]["type"] == "array"


def test_a_hook_is_a_string_or_a_mapping():
    text, mapping = SCHEMA["$defs"]["HookSpec"]["anyOf"]
    assert text["anyOf"][0] == {"enum": ["keep", "nhwc", "nchw", "nchwc"]}
    assert set(mapping["properties"]) == {"hook", "block", "channels", "rules"}


def test_a_model_is_a_file_or_a_build():
    assert SCHEMA["$defs"]["ModelSpec"]["oneOf"] == [{"required": ["file"]}, {"required": ["build"]}]
    assert field("ModelSpec", "input_range")["items"] == {"type": "number"}


def test_cores_are_a_word_or_numbers():
    word, numbers = field("MeasureSpec", "cores")["oneOf"]
    assert word["enum"] == ["big", "little", "all"]
    assert (numbers["minItems"], numbers["items"]) == (1, {"type": "integer", "minimum": 0, "maximum": 9999})


def test_null_is_nowhere_offered():
    assert not [found for found in objects(SCHEMA) if found.get("type") == "null"]
    assert not [found for found in objects(SCHEMA) if "default" in found and found["default"] is None]


def test_every_reference_leads_somewhere():
    for found in objects(SCHEMA):
        if "$ref" in found:
            assert found["$ref"].removeprefix("#/$defs/") in SCHEMA["$defs"]
