"""From a file to a tree of YAML nodes: what is refused before any field is looked at.

A spec may come from someone else, so nothing in it may run code, expand without bound, or recurse deeply.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.reader import Reader

from layoutlab.errors import SpecError

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
# A file that is no spec at all may have a problem on each of its lines; nobody reads thousands.
MAX_PROBLEMS = 100
# Lines longer than this are shown cut, around the place in question.
SHOWN_WIDTH = 110

# The line breaks PyYAML counts; str.splitlines knows others, and its lines would drift from the marks.
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class Problem(NamedTuple):
    """One problem of the file; line and column count from 1."""

    line: int
    column: int
    message: str


@dataclass(frozen=True)
class Source:
    """The text of a spec and where it came from."""

    path: Path
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines, split where PyYAML splits them."""
        return _LINE_BREAK.split(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(line_break.end() for line_break in _LINE_BREAK.finditer(self.text))]

    def place(self, index: int) -> tuple[int, int]:
        """Line and column (from 1) of the character at `index`."""
        line = bisect_right(self._starts, index)
        return line, index - self._starts[line - 1] + 1

    def error(self, problems: list[Problem]) -> SpecError:
        """A SpecError of these problems, in file order, each with its source line and a caret."""
        ordered = sorted(problems, key=lambda problem: problem[:2])
        shown, rest = ordered[:MAX_PROBLEMS], ordered[MAX_PROBLEMS:]
        if rest:
            shown.append(rest[0]._replace(message=f"and {len(rest)} more problems from here on"))
        return SpecError([self.render(problem) for problem in shown])

    def render(self, problem: Problem) -> str:
        """`path:line:column: message`, the source line, and a caret below the column."""
        line, column, message = problem
        head = f"{self.path}:{line}:{column}: {message}"
        if line > len(self.lines):
            return head
        text = self.lines[line - 1]
        start = max(0, column - SHOWN_WIDTH // 2) if len(text) > SHOWN_WIDTH else 0
        shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text[start:][:SHOWN_WIDTH])
        # A tab is as wide under the caret as above it only if it is a tab there, too.
        pad = "".join(c if c == "\t" else " " for c in shown[: column - 1 - start])
        number = str(line)
        return f"{head}\n  {number} | {shown}".rstrip() + f"\n  {' ' * len(number)} | {pad}^"


def read_source(path: Path) -> Source:
    """The file's text. Raises FileNotFoundError, or SpecError when it is no UTF-8 text of at most 1 MiB."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError([f"{path}:1:1: cannot be read: {reason}"]) from None
    if len(raw) > MAX_BYTES:
        raise SpecError([f"{path}:1:1: the file is larger than 1 MiB, which no spec needs to be"])
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        source = Source(path, raw.decode())
    except UnicodeDecodeError as error:
        source = Source(path, raw.decode(errors="replace"))
        line, column = source.place(len(raw[: error.start].decode()))
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8 text"
        raise source.error([Problem(line, column, message)]) from None
    if control := Reader.NON_PRINTABLE.search(source.text):
        message = f"control character U+{ord(control[0]):04X}: a spec is plain text"
        raise source.error([Problem(*source.place(control.start()), message)])
    return source


def compose(source: Source) -> yaml.MappingNode:
    """The file's only document as a mapping node. Raises SpecError for everything else."""
    if problems := list(_hazards(source)):
        raise source.error(problems)
    node = yaml.compose(source.text, Loader=yaml.SafeLoader)
    if isinstance(node, yaml.MappingNode):
        return node
    if node is None or node.value == "":
        message = "the file is empty: a spec needs at least name, model and variants"
        raise source.error([Problem(1, 1, message)])
    found = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
    message = f"expected a mapping (name: …, model: …, variants: …), found {found}"
    raise source.error([problem_at(node.start_mark, message)])


def problem_at(mark: Any, message: str) -> Problem:
    """A problem at a PyYAML mark, whose numbers count from 0."""
    return Problem(mark.line + 1, mark.column + 1, message)


def _hazards(source: Source) -> Iterator[Problem]:
    """What YAML allows and a spec does not, found before any tree is built."""
    depth = documents = 0
    for event in _events(source):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                yield problem_at(event.start_mark, "a second document starts here: a spec is one document")
        elif isinstance(event, yaml.NodeEvent) and (message := _node_hazard(event)):
            yield problem_at(event.start_mark, message)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                yield problem_at(event.start_mark, f"nested more than {MAX_DEPTH} levels deep")
                return
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _node_hazard(event: Any) -> str | None:
    if isinstance(event, yaml.AliasEvent):
        return f'alias "*{event.anchor}": a spec has no anchors and aliases, write the value out'
    if event.anchor is not None:
        return f'anchor "&{event.anchor}": a spec has no anchors and aliases, remove it'
    if event.tag is not None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        return f'tag "{tag}": a spec has no tags, remove it'
    if isinstance(event, yaml.ScalarEvent) and (control := Reader.NON_PRINTABLE.search(event.value)):
        # Written as an escape. It would reach terminals and file names, and half a surrogate pair no file.
        return f"escaped control character U+{ord(control[0]):04X}: a spec is plain text"
    return None


def _events(source: Source) -> Iterator[yaml.Event]:
    loader = yaml.SafeLoader(source.text)
    try:
        while loader.check_event():
            yield loader.get_event()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark or loader.get_mark()
        context = f" {error.context}" if error.context else ""
        hint = ": indent with spaces, not tabs" if "'\\t'" in (error.problem or "") else ""
        raise source.error([problem_at(mark, f"not valid YAML{context}: {error.problem}{hint}")]) from None
    except (ValueError, OverflowError):
        # PyYAML lets these escape, e.g. for "\UFFFFFFFF" or a version number of thousands of digits.
        message = "not valid YAML: a number or an escape is out of range"
        raise source.error([problem_at(loader.get_mark(), message)]) from None
