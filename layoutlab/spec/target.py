"""Compiler targets: the familiar string `llvm -mcpu=… -mattr=+neon` and the mapping TVM takes instead."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from layoutlab.spec.words import closest, did_you_mean, listed, quoted

TargetDict = dict[str, Any]

KINDS = ("llvm",)
DEVICES = ("arm_cpu",)
FLOAT_ABIS = ("soft", "hard")

_WORD = re.compile(r"[^\s,]+")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,3}")


class TargetProblem(NamedTuple):
    """One thing wrong with a target.

    `token` is the flag (or the mapping's key) it is about, "" for the whole target; `position` is where
    that flag begins in a target string.
    """

    token: str
    message: str
    position: int = 0


class TargetError(ValueError):
    """The target cannot be used; `problems` holds everything that is wrong with it, `partial` the rest."""

    def __init__(self, problems: list[TargetProblem], partial: TargetDict) -> None:
        self.problems, self.partial = problems, partial
        super().__init__("; ".join(problem.message for problem in problems))


class _Flag(NamedTuple):
    """One flag as written: `token` is how the user spelt it (`-mcpu` or, in a mapping, `mcpu`)."""

    token: str
    name: str
    value: Any
    position: int = 0


def parse_target(text: str | TargetDict) -> TargetDict:
    """Turn a target string, or a mapping with the same flags as keys, into the mapping TVM takes.

    The result always has `kind` and `keys`; `mattr` and `keys` are lists, `num-cores` and `opt-level` ints.
    Raises TargetError with every problem found.
    """
    problems: list[TargetProblem] = []
    kind, flags = _split_text(text, problems) if isinstance(text, str) else _split_mapping(text)
    _check_kind(kind, problems)
    target: TargetDict = {"kind": "llvm"}
    for flag in flags:
        if problem := _add(flag, target):
            problems.append(TargetProblem(flag.token, problem, flag.position))
    _complete_keys(target)
    if "arm_cpu" in target["keys"] and _family_is_known(problems) and not _is_arm(target):
        device = next((flag for flag in flags if flag.name == "device"), _Flag("", "", None))
        problems.append(TargetProblem(device.token, _ARM_NEEDS_TRIPLE, device.position))
    if problems:
        raise TargetError(problems, target)
    return {name: target[name] for name in ("kind", *_READERS) if name in target}


def format_target(target: TargetDict | str) -> str:
    """The string form of a parsed target, flags in a fixed order; `host` stays `host`."""
    if isinstance(target, str):
        return target
    words = [target["kind"]]
    for name in _READERS:
        if name not in target or (name == "keys" and target["keys"] == _default_keys(target)):
            continue
        value = target[name]
        words.append(f"-{name}={','.join(value) if isinstance(value, list) else value}")
    return " ".join(words)


def architecture(target: TargetDict | str) -> str:
    """The CPU family the target's code runs on: `aarch64`, `arm`, `x86_64`, or the triple's first part.

    Without an mtriple (and for `host`) it is this machine's.
    """
    triple = target.get("mtriple") if isinstance(target, dict) else None
    machine = str(triple or platform.machine()).split("-")[0].lower()
    if machine.startswith(("aarch64", "arm64")):
        return "aarch64"
    if machine.startswith(("arm", "thumb")):
        return "arm"
    return "x86_64" if machine in ("x86_64", "amd64") else machine


_ARM_NEEDS_TRIPLE = "arm_cpu needs the mtriple of an ARM machine, e.g. -mtriple=aarch64-linux-gnu"


def _split_text(text: str, problems: list[TargetProblem]) -> tuple[Any, list[_Flag]]:
    """Cut the string into its kind and its flags; `-key=value` and `-key value` mean the same."""
    words = [(word[0], word.start()) for word in re.finditer(r"\S+", text)]
    kind = words.pop(0)[0] if words and not words[0][0].startswith("-") else None
    words.reverse()
    flags = []
    while words:
        word, position = words.pop()
        if not word.startswith("-"):
            message = f"unexpected word {quoted(word)}: a flag starts with -"
            problems.append(TargetProblem(word, message, position))
            continue
        token, has_value, value = word.partition("=")
        if not has_value and words and not words[-1][0].startswith("-"):
            value, _ = words.pop()
        flags.append(_Flag(token, token[1:], value, position))
    return kind, flags


def _split_mapping(mapping: TargetDict) -> tuple[Any, list[_Flag]]:
    flags = [_Flag(str(name), str(name), value) for name, value in mapping.items() if name != "kind"]
    return mapping.get("kind"), flags


def _check_kind(kind: Any, problems: list[TargetProblem]) -> None:
    if kind is None:
        problems.insert(0, TargetProblem("", 'a target starts with its kind, "llvm"'))
    elif kind not in KINDS:
        message = f'unknown target kind {quoted(str(kind))}: code for a CPU needs "llvm"'
        problems.insert(0, TargetProblem("kind", message))


def _add(flag: _Flag, target: TargetDict) -> str | None:
    """Read one flag into `target`; the problem's text when that is not possible."""
    if flag.name not in _READERS:
        dash = flag.token[: len(flag.token) - len(flag.name)]
        hint = did_you_mean(flag.token, [dash + name for name in _READERS])
        return f"unknown flag {quoted(flag.token)}" + (hint or f": known are {listed(list(_READERS))}")
    if flag.name in target:
        return f"{flag.token} is given twice"
    if flag.value in ("", None, []):
        return f"{flag.token} has no value"
    try:
        target[flag.name] = _READERS[flag.name](flag.value)
    except ValueError as error:
        return f"{flag.token}: {error}"
    return None


def _family_is_known(problems: list[TargetProblem]) -> bool:
    """Whether the machine can be judged: no problem is about a device or mtriple, however misspelt."""
    meant = {closest(problem.token.lstrip("-"), _READERS) for problem in problems}
    return not meant & {"device", "mtriple"}


def _is_arm(target: TargetDict) -> bool:
    return "mtriple" in target and architecture(target) in ("aarch64", "arm")


def _default_keys(target: TargetDict) -> list[str]:
    return [target["device"], "cpu"] if "device" in target else ["cpu"]


def _complete_keys(target: TargetDict) -> None:
    """TVM finds schedules by key, so a target needs its device's keys even when the user names others."""
    target["keys"] = list(dict.fromkeys([*target.get("keys", []), *_default_keys(target)]))


def _word(value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(f"expected one word, found {_shown(value)}")
    return value


def _words(value: Any) -> list[str]:
    return list(_each_word(value))


def _each_word(value: Any) -> Iterator[str]:
    for item in value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]:
        if not isinstance(item, str) or not _WORD.fullmatch(item):
            raise ValueError(f"expected words separated by commas, found {_shown(value)}")
        yield item


def _features(value: Any) -> list[str]:
    features = _words(value)
    for feature in features:
        if not re.fullmatch(r"[+-].+", feature):
            raise ValueError(f"each CPU feature starts with + or -, found {quoted(feature)}")
    return features


def _one_of(known: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in known:
            hint = did_you_mean(value, known) if isinstance(value, str) else ""
            raise ValueError(f"expected {listed(known)}, found {_shown(value)}{hint}")
        return str(value)

    return read


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not _WHOLE.fullmatch(str(value)) or not low <= int(value) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, found {_shown(value)}")
        return int(value)

    return read


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return quoted(",".join(map(str, value)) if isinstance(value, list) else str(value))


# Every flag with its reader, in the order format_target writes them.
_READERS: dict[str, Callable[[Any], Any]] = {
    "keys": _words,
    "device": _one_of(DEVICES),
    "model": _word,
    "mtriple": _word,
    "mcpu": _word,
    "mattr": _features,
    "mabi": _word,
    "mfloat-abi": _one_of(FLOAT_ABIS),
    "opt-level": _whole(0, 3),
    "num-cores": _whole(1, 9999),
}

_LIST_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

# The JSON Schema of the mapping form.
TARGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": list(KINDS)},
        **{name: {"type": "string"} for name in _READERS},
        "keys": _LIST_SCHEMA,
        "mattr": _LIST_SCHEMA,
        "device": {"enum": list(DEVICES)},
        "mfloat-abi": {"enum": list(FLOAT_ABIS)},
        "opt-level": {"type": "integer", "minimum": 0, "maximum": 3},
        "num-cores": {"type": "integer", "minimum": 1, "maximum": 9999},
    },
    "required": ["kind"],
    "additionalProperties": False,
}
