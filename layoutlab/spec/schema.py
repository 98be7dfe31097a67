"""The spec's JSON Schema, for editors (yaml-language-server) and for reading."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from layoutlab.spec.models import Spec


class _YamlSchema(GenerateJsonSchema):
    """Optional fields are left out in YAML, not set to null, so the schema does not offer null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """The schema of the value itself."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """The usual schema, without a null default, at the top or one level down."""
        described = super().default_schema(schema)
        default = described.get("default", "")
        if default is None:
            del described["default"]
        elif isinstance(default, dict):
            described["default"] = {key: value for key, value in default.items() if value is not None}
        return described


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file: every field with its type, bounds, default and description."""
    schema = Spec.model_json_schema(schema_generator=_YamlSchema)
    # Of the drafts pydantic's output is valid in, this is the one every editor knows.
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": "layoutlab spec"}
