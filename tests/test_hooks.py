"""Hooks are plain functions over plain data: no TVM here."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from layoutlab import hooks
from layoutlab.errors import UsageError
from layoutlab.hooks import Conv, ConvLayout, Rule
from layoutlab.settings import allowed_hooks


def conv(in_channels=16, out_channels=32, groups=1, kernel=(3, 3), layout="NCHW") -> Conv:
    shapes = {"N": 1, "C": in_channels, "H": 14, "W": 10}
    kernel_shape = (out_channels, in_channels // groups, *kernel)
    return Conv(
        index=0,
        op="nn.conv2d",
        data_layout=layout,
        kernel_layout="OIHW",
        out_layout=layout,
        data_shape=tuple(shapes[axis] for axis in layout),
        kernel_shape=kernel_shape,
        out_shape=tuple({**shapes, "C": out_channels}[axis] for axis in layout),
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=groups,
        dtype="float32",
    )


def test_a_conv_knows_its_channels_in_any_layout():
    for layout in ("NHWC", "NCHW"):
        found = conv(in_channels=16, out_channels=32, layout=layout)
        assert (found.in_channels, found.out_channels, found.kernel_size) == (16, 32, (3, 3))
    assert conv(in_channels=16, out_channels=16, groups=16).is_depthwise
    assert not conv(in_channels=16, out_channels=32, groups=4).is_depthwise
    assert not conv(in_channels=1, out_channels=32).is_depthwise


def test_keep_answers_none_for_everything():
    assert hooks.keep(conv()) is None


def test_nchw_and_nhwc_answer_always():
    assert hooks.nchw(conv()) == ConvLayout(data="NCHW", kernel="OIHW", out="NCHW")
    assert hooks.nhwc(conv()) == ConvLayout(data="NHWC", kernel="HWIO", out="NHWC")
    assert hooks.nhwc(conv(16, 16, groups=16)) == ConvLayout(data="NHWC", kernel="HWOI", out="NHWC")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (conv(16, 32), "NCHW8c/OIHW8o/NCHW8c"),
        (conv(3, 16), "NCHW3c/OIHW8o/NCHW8c"),
        (conv(1, 8), "NCHW1c/OIHW8o/NCHW8c"),
        (conv(16, 16, groups=16), "NCHW8c/OIHW8o/NCHW8c"),
        (conv(16, 12), None),
        (conv(12, 16), None),
        (conv(12, 12, groups=12), None),
        (conv(16, 32, groups=16), "NCHW8c/OIHW8o/NCHW8c"),
        (conv(16, 32, groups=2), "NCHW8c/OIHW8o/NCHW8c"),
        (conv(12, 24, groups=2), None),
        (conv(8, 1), None),
        (dataclasses.replace(conv(16, 32), constant_kernel=False), None),
    ],
    ids=lambda value: value and str(value)[:20],
)
def test_nchwc_packs_what_divides_and_keeps_the_rest(asked, expected):
    answer = hooks.Nchwc(8)(asked)
    assert (answer and f"{answer.data}/{answer.kernel}/{answer.out}") == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (conv(16, 32), "NCHW8c/OIHW8o/NCHW8c"),
        (conv(16, 12), "NCHW8c/OIHW8o/NCHW8c padded"),
        (conv(12, 16), "NCHW8c/OIHW8o/NCHW8c padded"),
        (conv(6, 16), "NCHW8c/OIHW8o/NCHW8c padded"),
        (conv(3, 10), "NCHW3c/OIHW8o/NCHW8c padded"),
        (conv(12, 12, groups=12), "NCHW8c/OIHW8o/NCHW8c padded"),
        (conv(12, 24, groups=2), None),
        (conv(8, 1), None),
    ],
    ids=lambda value: value and str(value)[:20],
)
def test_nchwc_with_padding_packs_all_but_groups_and_single_outputs(asked, expected):
    answer = hooks.Nchwc(8, pad=True)(asked)
    shown = answer and f"{answer.data}/{answer.kernel}/{answer.out}{' padded' if answer.pad else ''}"
    assert shown == expected


def test_nchwc_says_why_it_keeps_a_convolution():
    hook = hooks.Nchwc(8)
    assert hook.why_kept(conv(16, 32)) == ""
    assert hook.why_kept(conv(16, 12)) == "16 input and 12 output channels do not divide by 8"
    assert hook.why_kept(conv(8, 1)) == "it has one output channel"
    assert hook.why_kept(dataclasses.replace(conv(16, 32), constant_kernel=False)) == "its weights are not constant"
    assert (
        hooks.Nchwc(8, pad=True).why_kept(conv(12, 24, groups=2)) == "channels of a grouped convolution are not padded"
    )


def test_in_a_table_the_first_rule_that_matches_decides():
    table = hooks.Table(
        (
            Rule(layout="NHWC", kernel=(1, 1)),
            Rule(layout="keep", depthwise=True),
            Rule(layout="NCHW8c", min_in_channels=16, min_out_channels=16),
            Rule(layout="NCHW", indices=(0, 5)),
        )
    )
    assert str(table(conv(16, 32, kernel=(1, 1)))) == "NHWC"
    assert table(conv(16, 16, groups=16)) is None
    assert table.why_kept(conv(16, 16, groups=16)) == "rule 2 keeps it"
    assert str(table(conv(16, 32))) == "NCHW8c"
    assert table(conv(16, 20)) is None
    assert table.why_kept(conv(16, 20)) == "16 input and 20 output channels do not divide by 8"
    assert str(table(conv(4, 32))) == "NCHW"
    assert table(dataclasses.replace(conv(4, 32), index=1)) is None
    assert table.why_kept(dataclasses.replace(conv(4, 32), index=1)) == "no rule matches it"
    strided = dataclasses.replace(conv(4, 32), strides=(2, 2))
    assert Rule(layout="NCHW", stride=2).matches(strided)
    assert not Rule(layout="NCHW", stride=2).matches(conv(4, 32))


def test_a_layout_is_named_by_its_data_and_by_both_where_they_differ():
    assert str(hooks.Nchwc(4)(conv(16, 32))) == "NCHW4c"
    assert str(hooks.Nchwc(4)(conv(3, 32))) == "NCHW3c->NCHW4c"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nchv",
            'unknown hook "nchv": expected one of keep, nhwc, nchw, nchwc, or package.module:function',
        ),
        (
            "no_such_module:f",
            "hook \"no_such_module:f\": cannot import no_such_module: No module named 'no_such_module'",
        ),
        ("json:f", 'hook "json:f": module json has no function f'),
        ("layoutlab.hooks:BUILT_IN", 'hook "layoutlab.hooks:BUILT_IN": BUILT_IN is not a function'),
    ],
)
def test_what_is_wrong_with_a_hook_is_said(name, message):
    with pytest.raises(UsageError) as caught:
        hooks.resolve(name, ["no_such_module", "json", "layoutlab"])
    assert str(caught.value) == message


def test_a_users_hook_is_found_and_its_source_is_hashed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "my_hooks.py"
    source.write_text("def mine(conv):\n    return None\n")
    hook = hooks.resolve("my_hooks:mine", ["my_hooks"])
    assert hook(conv()) is None
    before = hooks.source_sha256(hook)
    source.write_text("def mine(conv):\n    return 1\n")
    assert hooks.source_sha256(hook) != before


NOT_ALLOWED = (
    'hook "my_hooks:mine" is code that the spec wants to run, and it is not allowed yet. If you trust it, say '
    '--allow-hooks my_hooks, or put allow-hooks = ["my_hooks"] under [tool.layoutlab] in pyproject.toml'
)


def test_a_users_hook_is_not_even_imported_unless_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_hooks.py").write_text("raise SystemExit('imported')")
    for allowed in ([], ["my"], ["my_hooks.mine.deeper"], ["other"], [""]):
        with pytest.raises(UsageError) as caught:
            hooks.resolve("my_hooks:mine", allowed)
        assert str(caught.value) == NOT_ALLOWED


def test_an_allowed_name_does_not_smuggle_in_what_others_define(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "innocent.py").write_text("from os import system as choose\n")
    with pytest.raises(UsageError, match=r'hook "innocent:choose" is defined in posix, which is not allowed'):
        hooks.resolve("innocent:choose", ["innocent"])


@pytest.mark.parametrize(
    ("name", "prefix", "expected"),
    [
        ("a.b:f", "a", True),
        ("a.b:f", "a.b", True),
        ("a.b:f", "a.b:f", True),
        ("a.b:f", "a.b.", True),
        ("a.bc:f", "a.b", False),
        ("a.b:f", "a.b:g", False),
        ("a.b:f", "", False),
    ],
)
def test_prefixes_end_at_dots(name, prefix, expected):
    assert hooks.is_allowed(name, [prefix]) is expected


def test_what_pyproject_allows(tmp_path):
    path = tmp_path / "pyproject.toml"
    assert allowed_hooks(path) == ()
    path.write_text("[tool.other]\n")
    assert allowed_hooks(path) == ()
    path.write_text('[tool.layoutlab]\nallow-hooks = ["a", "b.c"]\n')
    assert allowed_hooks(path) == ("a", "b.c")
    path.write_text('[tool.layoutlab]\nallow-hooks = "a"\n')
    with pytest.raises(UsageError, match=r"""expected a list such as \["my_hooks"\], found 'a'"""):
        allowed_hooks(path)
    path.write_text("[tool")
    with pytest.raises(UsageError, match="cannot read"):
        allowed_hooks(path)


def test_hooks_import_nothing_heavy():
    code = "import sys, layoutlab.hooks; print([m for m in ('tvm', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_hook_asked_about_a_part_is_told_the_numbers_of_the_whole():
    table = hooks.Table((hooks.Rule(layout="NCHW", indices=(7,)), hooks.Rule(layout="keep", indices=(8,))))
    part = hooks.Numbered(table, (7, 8, 9))
    convs = [dataclasses.replace(conv(), index=index) for index in range(3)]
    assert [part(found) for found in convs] == [hooks.nchw(convs[0]), None, None]
    assert [part.why_kept(found) for found in convs[1:]] == ["rule 2 keeps it", "no rule matches it"]
    assert hooks.Numbered(lambda asked: hooks.nchw(asked) if asked.index == 9 else None, (9,))(convs[0])
