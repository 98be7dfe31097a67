"""The output of `benchmark_model` as lines with their severity, whatever it went through on its way here.

That is: builds that prefix lines with `INFO: ` and builds that do not, `adb logcat` in its usual forms, `adb shell`
with carriage returns, terminals with colours, and PowerShell, whose `>` writes UTF-16.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TIME = r"\d[\d-]* [\d:.]+"
_LOGCAT = (
    # 07-14 13:14:52.859  2283  2283 I tflite  : text  (threadtime, the usual one)
    re.compile(rf"{_TIME} +\d+ +\d+ (?P<level>[VDIWEF]) (?P<tag>[^:]*?) *: ?(?P<text>.*)"),
    # 07-14 13:14:52.859 I/tflite  ( 2283): text  (time, brief, tag)
    re.compile(rf"(?:{_TIME} )?(?P<level>[VDIWEF])/(?P<tag>[^(:]*?) *(?:\( *\d+\))?: ?(?P<text>.*)"),
    # 2023-04-04 17:24:18.428 19036-19036 tflite   pid-19036   I  text  (Android Studio)
    re.compile(rf"{_TIME} +\d+-\d+ +(?P<tag>\S+) +\S+ +(?P<level>[VDIWEF])  ?(?P<text>.*)"),
)
# LiteRT's own lines say the place in the source too: INFO: [benchmark_litert_model.h:94] text
_SEVERITY = re.compile(r"(?P<level>VERBOSE|INFO|WARN|WARNING|ERROR|FATAL): ?(?:\[[\w./]+:\d+\] ?)?(?P<text>.*)")
_TAGS = ("tflite", "litert")


class Line(NamedTuple):
    """One line; `level` is I, W, E or F, and empty where the build does not say it."""

    level: str
    text: str


def is_text(data: bytes) -> bool:
    """Whether this is a text: a result proto has control characters that no text has."""
    return data.startswith((b"\xff\xfe", b"\xfe\xff")) or not re.search(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]", data)


def decode(data: bytes) -> str:
    """The text, in UTF-8 or in the UTF-16 of PowerShell; a byte that is neither becomes a replacement character."""
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if utf16 else "utf-8-sig", errors="replace")


def tool_lines(text: str) -> list[Line]:
    """The tool's lines without prefixes, colours and blank ends; empty ones, and other programs' in a logcat, left out.

    A log of Android holds lines of every program. TFLite's have a tag that begins with `tflite` or
    `litert`.
    """
    found = []
    for raw in text.splitlines():
        line = _COLOUR.sub("", raw).strip()
        logcat = next((match for form in _LOGCAT if (match := form.fullmatch(line))), None)
        if logcat and not logcat["tag"].startswith(_TAGS):
            continue
        level, line = (logcat["level"], logcat["text"].strip()) if logcat else ("", line)
        if prefixed := _SEVERITY.fullmatch(line):
            level, line = prefixed["level"][0], prefixed["text"].strip()
        if line:
            found.append(Line(level, line))
    return found
