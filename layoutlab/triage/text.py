"""From the bytes of a log to plain lines: encodings, colours, progress that overwrites itself, mangled quotes."""

from __future__ import annotations

import codecs
import html
import re

from layoutlab.errors import UsageError

MAX_BYTES = 64 << 20

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Colours and cursor movements of terminals; and what is left of a colour when the escape character was lost.
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]|\[[0-9]{1,2}(?:;[0-9]{1,3})*m"
)
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|quot|apos|lt|gt|amp|nbsp);")
# Quotes, dashes and spaces that forums and word processors put in place of the plain ones.
_MANGLED = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u2032\u00b4`", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u00a0\u2007\u202f\u2003\u2002", " "),
        "\u2026": "...",
        **dict.fromkeys("\u200b\u200c\u200d\ufeff\x00"),
    }
)
_QUOTED = re.compile(r"^\s*(?:>\s?)+")
_LINE_END = re.compile(r"\r\n|\r|\n")


def plain_lines(data: bytes) -> list[str]:
    """The lines of a log. A carriage return alone ends one too: what it would overwrite is a line of its own.

    UTF-8, UTF-16 and, where neither fits, Windows-1252. Raises UsageError above 64 MiB.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"the log has {len(data)} bytes, and at most {MAX_BYTES} are read: cut out the part in question"
        )
    return [_plain(line) for line in _LINE_END.split(_decode(data))]


def _decode(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    # Text of Latin letters in UTF-16 has a zero in every second byte.
    head = data[:2000]
    if len(head) > 3 and head[1::2].count(0) > len(head) // 3:
        return data.decode("utf-16-le", errors="replace")
    if len(head) > 3 and head[0::2].count(0) > len(head) // 3:
        return data.decode("utf-16-be", errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # A log that was cut within a character is still UTF-8.
        damaged = len(data) - error.start < 4
        return data.decode("utf-8" if damaged else "cp1252", errors="replace")


def _plain(line: str) -> str:
    if "\x1b" in line or "m" in line:
        line = _ANSI.sub("", line)
    if "&" in line:
        line = _ENTITY.sub(lambda found: html.unescape(found[0]), line)
    return _QUOTED.sub("", line.translate(_MANGLED)).rstrip()
