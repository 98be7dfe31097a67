"""Text of others within Markdown: names, messages and descriptions are shown as they are, and never become markup."""

from __future__ import annotations

from layoutlab.errors import printable

# Not every bracket: intervals are full of them. A link or an image needs the two together.
_ESCAPES = (
    ("\\", "\\\\"),
    ("&", "&amp;"),
    ("<", "&lt;"),
    ("|", "\\|"),
    ("*", "\\*"),
    ("`", "\\`"),
    ("](", "]\\("),
    ("]:", "]\\:"),
    ("][", "]\\["),
)


def plain(text: str) -> str:
    """Text as it is, on one line, whatever Markdown or HTML would make of it."""
    for character, escaped in _ESCAPES:
        text = text.replace(character, escaped)
    return printable(" ".join(text.split()))


def code(text: str) -> str:
    """Text as code; a backtick in it would end the code and becomes a quote."""
    return f"`{printable(' '.join(text.replace('`', chr(39)).split()))}`"
