"""Small pieces of wording that every message about a spec shares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

LONGEST_QUOTE = 60


def quoted(text: str) -> str:
    """`text` in double quotes on one line: control characters escaped, cut after 60 characters."""
    short = text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short) + '"'


def listed(words: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word `word` is most probably a misspelling of, whatever its case; None if there is none."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`: did you mean "x"?`, or nothing when no known word is close to `word`."""
    match = closest(word, known)
    return f": did you mean {quoted(match)}?" if match else ""
