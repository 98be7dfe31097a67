"""Names and texts of others in Markdown: shown as they are, never markup."""

from __future__ import annotations

import re

import pytest

from layoutlab.report.markdown import code, plain
from layoutlab.report.table import markdown_table
from layoutlab.store import Store

from .test_table import SPEC, record

NASTY = "<img src=x> [a](http://x) ![b](http://y) | `c` **d** &lt; [e]: http://z [f][g] \x1b[2J \u202e"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.85 [0.83, 0.89] of 2 (1 free)", "0.85 [0.83, 0.89] of 2 (1 free)"),
        ("<b> & | * `x`", "&lt;b> &amp; \\| \\* \\`x\\`"),
        ("![a](http://x)", "![a]\\(http://x)"),
        ("[a][b] [a]: http://x", "[a]\\[b] [a]\\: http://x"),
        ("two\nlines\t\\", "two lines \\\\"),
        ("\x1b[2J\u202e\x07", "\ufffd[2J\ufffd\ufffd"),
    ],
)
def test_plain_text(text, shown):
    assert plain(text) == shown


def test_code():
    assert code("llvm -mcpu=a`b\x1b") == "`llvm -mcpu=a'b\ufffd`"


def test_a_page_takes_nothing_of_a_spec_or_a_model_as_markup(tmp_path):
    from layoutlab.report.comparison import compare

    with Store(tmp_path) as store:
        record(store, SPEC.model_copy(update={"description": NASTY}))
        for event in store.events:
            if event["kind"] == "run":
                event.update(model=NASTY, device=NASTY, device_reason=NASTY)
        page = markdown_table(compare(store))
    assert page.count("img src=x") >= 2
    assert re.search(r"<|\]\(|(?<!\\)`c|(?<!\\)\*\*d|\x1b|\u202e", page) is None
    (widths,) = {
        len(re.findall(r"(?<!\\)\|", line)) for line in page.split("## ")[0].splitlines() if line.startswith("|")
    }
    assert widths > 3
