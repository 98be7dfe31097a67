"""Specs with mistakes of every kind, given to the command line one after the other.

    python -m tests.spec.mutations COUNT SEED

runs in a process of its own, so that it can tell what was imported. It ends with an error where a spec leads to
anything but exit code 0 or 2 with places, and prints what it did as JSON.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from .texts import FULL, SMALLEST

_CHARACTERS = list("\n\t\r :-[]{},'\"#&*!|>%@`~?.0e\0\x07\\é\x85\u2028\ufeff\u202e")
_VALUES: list[Any] = [
    None, True, 0, -1, 10**30, 1e308, -0.0, float("nan"), float("inf"), "", " ", "no", "a" * 10_000, "../../etc/passwd",
    "/", "a/b", "a\\b", "\x1b[2J", "\u202e", "host", "kryo", "llvm", "llvm -mcpu", "-", [], [None], [[[[[[]]]]]], {},
    {"": ""}, {"a": {"b": {"c": []}}}, {1: 2}, ["x"] * 500, "os:system", "a.b:c", "dask://x:1", "rpc://x:1/y", "agent://",
    "*x", "!!int 3",
]  # fmt: skip
_HOSTILE = [
    "!!python/object/apply:os.system [id]", "!!binary aGk=", "&a [*a]", "*nothing", "<<: *x", "[" * 5000, "{a: " * 5000,
    "- " * 5000, "? " * 3000, "|\n  text", ">-\n  text", "%YAML 3.0", "---\n", "...\n", '"\\UFFFFFFFF"', '"\\x00"',
    "\x00", "0x" + "f" * 5000, "9" * 5000, "1:" * 2000 + "1", "2001-12-14t21:59:43.10-05:00", "~", "=", "'", '"',
    "\t- a", "@", "`",
]  # fmt: skip
_BOMB = "".join(
    f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9) if level else 'lol'}]\n" for level in range(12)
)


def mutated(draw: random.Random) -> str:
    """One spec with one to four mistakes, of the text or of the tree."""
    text = draw.choice([FULL, FULL, SMALLEST])
    for _ in range(draw.randint(1, 4)):
        text = draw.choice(_MUTATIONS)(text, draw)
    return text


def _edit_characters(text: str, draw: random.Random) -> str:
    place = draw.randrange(len(text) + 1)
    new = draw.choice([*_CHARACTERS, ""])
    return text[:place] + new + text[place + draw.randrange(3) :]


def _edit_lines(text: str, draw: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    place = draw.randrange(len(lines))
    lines[place : place + 1] = draw.choice([[], [lines[place]] * 2, [lines[-1 - place]], ["  " + lines[place]]])
    return "".join(lines)


def _edit_tree(text: str, draw: random.Random) -> str:
    if "*" in text:  # an alias, which may stand for a billion values, or for itself
        return text
    try:
        tree = yaml.safe_load(text)
    except Exception:  # broken by an earlier mutation
        return text
    places = _places(tree)
    if not places:
        return text
    parent, key = draw.choice(places)
    action = draw.randrange(4)
    if action == 0:
        del parent[key]
    elif action == 1 and isinstance(parent, dict):
        parent[draw.choice(["nane", "", str(key) + "s", "tune", "x" * 300])] = copy.deepcopy(parent[key])
    else:
        parent[key] = copy.deepcopy(draw.choice(_VALUES))
    try:
        return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=draw.random() < 0.5))
    except ValueError:  # a number of thousands of digits, from an earlier mutation
        return text


def _places(tree: Any) -> list[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found = [(tree, key) for key, _ in items]
    return found + [place for parent, key in list(found) for place in _places(parent[key])]


def _insert_hostile(text: str, draw: random.Random) -> str:
    lines = text.splitlines(keepends=True) or ["\n"]
    place = draw.randrange(len(lines))
    hostile = draw.choice(_HOSTILE)
    if draw.random() < 0.5 and ":" in lines[place]:
        lines[place] = f"{lines[place].partition(':')[0]}: {hostile}\n"
    else:
        lines.insert(place, f"{hostile}\n")
    return "".join(lines)


def _insert_bomb(text: str, draw: random.Random) -> str:
    return _BOMB + text if draw.random() < 0.2 else _edit_lines(text, draw)


_MUTATIONS: list[Callable[[str, random.Random], str]] = [
    _edit_characters, _edit_lines, _edit_tree, _edit_tree, _insert_hostile, _insert_bomb,
]  # fmt: skip

_PLACE = re.compile(r"x\.yaml:[1-9][0-9]*:[1-9][0-9]*: \S")
_HEAVY = ("tvm", "numpy", "scipy", "ai_edge_litert", "xgboost")


def _refused_with_places(errors: str) -> bool:
    """Whether a problem begins the text, and each of its lines belongs to one (a snippet is indented)."""
    lines = errors.splitlines()
    return (
        bool(lines) and all(_PLACE.match(line) or line.startswith("  ") for line in lines) and not lines[0][0].isspace()
    )


def check_one(main: Callable[[list[str]], int], text: str) -> int:
    """Validate the spec of this text, and try to run it when it is wrong; returns the exit code of both."""
    Path("x.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    code, errors = _run(main, "validate")
    assert code in (0, 2), (code, text)
    assert (code == 0) == (errors == ""), (errors, text)
    if code:
        assert _refused_with_places(errors), (errors, text)
        assert _run(main, "run") == (code, errors), text
    return code


def _run(main: Callable[[list[str]], int], command: str) -> tuple[int, str]:
    errors, output = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        code = main([command, "x.yaml"])
    return code, errors.getvalue()


def check_many(count: int, seed: int) -> dict[str, Any]:
    """Check `count` mutated specs in the current folder; the longest CPU time of one, and what was imported."""
    from layoutlab.cli import main

    codes, slowest_s = [], 0.0
    for number in range(count):
        text = mutated(random.Random(f"{seed}/{number}"))
        began = time.process_time()
        codes.append(check_one(main, text))
        slowest_s = max(slowest_s, time.process_time() - began)
    return {
        "specs": count,
        "refused": sum(code == 2 for code in codes),
        "slowest_s": round(slowest_s, 3),
        "heavy": [name for name in _HEAVY if name in sys.modules],
        "made": sorted(path.name for path in Path().iterdir()),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(json.dumps(check_many(int(sys.argv[1]), int(sys.argv[2]))))
