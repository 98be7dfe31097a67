"""From YAML nodes to plain data for pydantic, guided by the models' fields, remembering every place.

A value that cannot be read becomes BAD in the data, and its problem is noted: pydantic then refuses BAD
too, but does not take the field for missing, and everything around it is still checked.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from layoutlab.spec.models import DeviceSpec, EngineSpec, Expected, HookSpec, HostTarget, TargetDict
from layoutlab.spec.rules import Loc
from layoutlab.spec.scalars import READERS, Unreadable, looks_like_number
from layoutlab.spec.source import Problem, problem_at
from layoutlab.spec.words import closest, did_you_mean, listed, quoted

# What may be written as one text instead of a mapping.
_TEXT_OR_MAPPING = (HookSpec, DeviceSpec, EngineSpec)


class Bad:
    """Stands in the data for a value whose problem is already noted."""

    def __repr__(self) -> str:
        return "BAD"


BAD = Bad()


class Place(NamedTuple):
    """Where a value of the data stands in the file, and what its field expects there."""

    node: yaml.Node
    expected: Expected

    def mismatch(self, hint: str = "") -> str:
        """`expected …, found …`, with the hint or else a did-you-mean behind it."""
        text = f"expected {self.expected.text}, found {found(self.node)}"
        if hint:
            return f"{text}: {hint}"
        scalar = isinstance(self.node, yaml.ScalarNode)
        return text + (did_you_mean(self.node.value, self.expected.known) if scalar else "")


class TreeReader:
    """Reads one document; afterwards `problems` and `places` (by path of keys and positions) are filled."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.places: dict[Loc, Place] = {}

    def mapping(self, node: yaml.MappingNode, model: type[BaseModel], loc: Loc = ()) -> dict[str, Any]:
        """The mapping's values by field of `model`; unknown and duplicate keys are noted and left out.

        A misspelt key is read as the key that was probably meant, so that its content is checked as well.
        """
        fields = model.model_fields
        written = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = self._key(key, lines, loc)
            if name is not None and name not in fields:
                name = self._unknown(key, list(fields), loc)
                if name in written or name in data:
                    name = None
            if name is not None:
                data[name] = self._value(value, fields[name], (*loc, name))
        return data

    def _key(self, key: yaml.Node, lines: dict[str, int], loc: Loc) -> str | None:
        """The key's text; None, and a problem, for a key that is no text or was there before."""
        if not isinstance(key, yaml.ScalarNode):
            self._note(key, loc, f"a key is plain text, found {found(key)}")
            return None
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines:
            where = f"first on line {lines[name]}, again on line {line}"
            self._note(key, loc, f"duplicate key {quoted(name)}: {where}")
            return None
        lines[name] = line
        return name

    def _unknown(self, key: yaml.ScalarNode, known: list[str], loc: Loc) -> str | None:
        hint = did_you_mean(key.value, known) or f": expected {listed(known)}"
        self._note(key, loc, f"unknown key {quoted(key.value)}{hint}")
        return closest(key.value, known)

    def _value(self, node: yaml.Node, field: FieldInfo, loc: Loc) -> Any:
        kind = _bare(field.annotation)
        place = self.places[loc] = Place(node, _expected(field, kind))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, kind, place, loc)
        if isinstance(node, yaml.MappingNode):
            if kind == TargetDict | HostTarget:
                return self._free(node, loc)
            if get_origin(kind) is dict:
                return self._texts(node, loc)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                return self.mapping(node, kind, loc)
        items = _tuple_of(kind)
        if items is not None and isinstance(node, yaml.SequenceNode):
            return self._items(node, get_args(items), place, loc)
        return self._refuse(place, loc)

    def _scalar(self, node: yaml.ScalarNode, kind: Any, place: Place, loc: Loc) -> Any:
        if node.value == "" and node.style is None:
            return self._refuse(place, loc)
        if get_origin(kind) in (Literal, Union, UnionType) or kind in _TEXT_OR_MAPPING:
            return node.value
        if kind not in READERS:
            return self._refuse(place, loc)
        try:
            return READERS[kind](node)
        except Unreadable as hint:
            return self._refuse(place, loc, str(hint))

    def _items(self, node: yaml.SequenceNode, kinds: tuple[Any, ...], place: Place, loc: Loc) -> Any:
        many = kinds[-1] is Ellipsis
        if not many and len(node.value) != len(kinds):
            return self._refuse(place, loc)
        item_fields = [FieldInfo.from_annotation(kinds[0 if many else i]) for i in range(len(node.value))]
        return tuple(
            self._value(item, field, (*loc, index))
            for index, (item, field) in enumerate(zip(node.value, item_fields, strict=True))
        )

    def _free(self, node: yaml.Node, loc: Loc) -> Any:
        """A value whose form the field itself checks: every scalar stays the text as written."""
        if isinstance(node, yaml.SequenceNode):
            return [self._free(item, loc) for item in node.value]
        if not isinstance(node, yaml.MappingNode):
            return node.value
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = self._key(key, lines, loc)
            if name is not None:
                inner = (*loc, name)
                self.places[inner] = Place(key, Expected(""))
                data[name] = self._free(value, inner)
        return data

    def _texts(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        """A mapping of any keys to scalars, each the text as written."""
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = self._key(key, lines, loc)
            if name is not None:
                inner = (*loc, name)
                place = self.places[inner] = Place(value, Expected("a value such as 3, true or a path"))
                scalar = isinstance(value, yaml.ScalarNode)
                data[name] = self._scalar(value, str, place, inner) if scalar else self._refuse(place, inner)
        return data

    def _refuse(self, place: Place, loc: Loc, hint: str = "") -> Bad:
        self._note(place.node, loc, place.mismatch(hint))
        return BAD

    def _note(self, node: yaml.Node, loc: Loc, message: str) -> None:
        prefix = f"{dotted(loc)}: " if loc else ""
        self.problems.append(problem_at(node.start_mark, prefix + message))


def dotted(loc: Loc) -> str:
    """The path as messages show it: `variants[0].name`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in loc).lstrip(".")


def found(node: yaml.Node) -> str:
    """What the file holds at this node, in a few words."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return f"a list of {len(node.value)}" if node.value else "an empty list"
    text = str(node.value)
    if isinstance(node, yaml.ScalarNode) and node.style is not None:
        return f"the text {quoted(text)}"
    return text if looks_like_number(text) and len(text) < 40 else quoted(text) if text else "nothing"


def _bare(annotation: Any) -> Any:
    """The annotation without Annotated and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def _tuple_of(kind: Any) -> Any:
    """The tuple that the field takes, perhaps besides a word; None if it takes none."""
    if get_origin(kind) is tuple:
        return kind
    if get_origin(kind) in (Union, UnionType):
        return next((bare for bare in map(_bare, get_args(kind)) if get_origin(bare) is tuple), None)
    return None


def _expected(field: FieldInfo, kind: Any) -> Expected:
    for mark in _marks(field):
        if isinstance(mark, Expected):
            return mark
    if get_origin(kind) is Literal:
        return Expected(listed(get_args(kind)), get_args(kind))
    if kind is bool:
        return Expected("true or false")
    if kind in (int, float):
        return Expected(("a whole number" if kind is int else "a number") + _bounds(field))
    return Expected("text" if kind is str else "a mapping")


def _marks(field: FieldInfo) -> list[Any]:
    """The field's own metadata, and that of the type inside `Annotated[…] | None`."""
    inner = [mark for arg in get_args(field.annotation) for mark in get_args(arg)[1:]]
    return [*field.metadata, *inner]


def _bounds(field: FieldInfo) -> str:
    low = next((mark.ge for mark in field.metadata if hasattr(mark, "ge")), None)
    high = next((mark.le for mark in field.metadata if hasattr(mark, "le")), None)
    if low is None:
        return ""
    return f" from {low} to {high}" if high is not None else f" of at least {low}"
