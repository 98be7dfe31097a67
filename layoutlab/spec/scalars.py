"""YAML scalars, read as the field's type says instead of as YAML 1.1 guesses.

YAML 1.1 takes `no` for false, `1:30` for 90, `017` for 15 and `1e-3` for text. Here the field decides:
text is what is written, numbers are decimal, and what could be read in two ways is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import yaml

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_INT = re.compile(rf"[+-]?{_DIGITS}")
_FLOAT = re.compile(rf"[+-]?(?:{_DIGITS}\.?|(?:{_DIGITS})?\.{_DIGITS})(?:[eE][+-]?[0-9]+)?")
_BASE_60 = re.compile(r"[+-]?[0-9]+(?::[0-5]?[0-9])+(?:\.[0-9]*)?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9_]+")
_BASE_2_OR_16 = re.compile(r"[+-]?0[xXbBoO][0-9a-fA-F_]+")
_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

# More digits than any field allows; Python itself refuses to convert thousands of them.
_MOST_DIGITS = 18


class Unreadable(ValueError):
    """The scalar is not of the field's type; the message is a hint for the user, or empty."""


def read_text(node: yaml.ScalarNode) -> str:
    """The text as written: `no`, `017` and `1e3` stay text."""
    return str(node.value)


def read_int(node: yaml.ScalarNode) -> int:
    """A decimal whole number; underscores between digits are allowed."""
    text = _unquoted(node, _INT)
    _refuse_traps(text)
    if _INT.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(text)
    if _FLOAT.fullmatch(text) and (value := float(text)).is_integer() and abs(value) < 1e15:
        raise Unreadable(f"write it as {value:.0f}")
    raise Unreadable


def read_float(node: yaml.ScalarNode) -> float:
    """A finite decimal number, with or without fraction and exponent (`1e-3` is a number)."""
    text = _unquoted(node, _FLOAT)
    _refuse_traps(text)
    if text.lower().lstrip("+-") in (".nan", ".inf"):
        raise Unreadable("it must be a finite number")
    if not _FLOAT.fullmatch(text):
        raise Unreadable
    if not math.isfinite(value := float(text)):
        raise Unreadable("it must be a finite number")
    return value


def read_bool(node: yaml.ScalarNode) -> bool:
    """true/false, yes/no or on/off, unquoted."""
    if node.style is not None:
        raise Unreadable("remove the quotes" if node.value.lower() in _BOOLS else "")
    if node.tag != "tag:yaml.org,2002:bool":
        raise Unreadable
    return _BOOLS[node.value.lower()]


READERS: dict[type, Callable[[yaml.ScalarNode], object]] = {
    str: read_text,
    int: read_int,
    float: read_float,
    bool: read_bool,
}


def looks_like_number(text: str) -> bool:
    """Whether a message shows the scalar as it is, without quotes."""
    return bool(_FLOAT.fullmatch(text) or _BASE_60.fullmatch(text) or _BASE_2_OR_16.fullmatch(text))


def _unquoted(node: yaml.ScalarNode, number: re.Pattern[str]) -> str:
    text = str(node.value)
    if node.style is not None:
        raise Unreadable("remove the quotes" if number.fullmatch(text) else "")
    return text


def _refuse_traps(text: str) -> None:
    if _BASE_60.fullmatch(text):
        raise Unreadable("YAML 1.1 reads this as a base-60 number; write it in decimal")
    if _LEADING_ZERO.fullmatch(text):
        decimal = text.replace("_", "").lstrip("+-").lstrip("0") or "0"
        raise Unreadable(f"a leading zero is ambiguous (octal in YAML 1.1); write {decimal} if that is meant")
    if _BASE_2_OR_16.fullmatch(text):
        raise Unreadable("write it in decimal")
