"""YAML 1.1 scalars, read as the field's type says."""

from __future__ import annotations

import pytest

BASE = "name: a\nmodel: {build: resnet50}\nvariants: [{name: v}]\n"


@pytest.mark.parametrize(
    "written",
    ["no", "1e3", "017", "null", "~", "1:30", "true", "3.5", ".nan", "2024-01-01", "0x1f", "1_000", "="],
)
def test_text_is_what_is_written(load, written: str):
    assert load(BASE + f"description: {written}\n").spec.description == written


@pytest.mark.parametrize("written", ["no", "1e3", "017", "null", "2024-01-01"])
def test_names_are_what_is_written(load, written: str):
    spec = load(BASE.replace("name: a", f"name: {written}").replace("name: v", f"name: {written}")).spec
    assert (spec.name, spec.variants[0].name) == (written, written)


def test_quoted_text_may_be_empty_but_nothing_is_no_text(load, messages):
    assert load(BASE + 'description: ""\n').spec.description == ""
    assert messages(BASE + "description:\n") == ["x.yaml:4:13: description: expected text, found nothing"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 1e-3),
        ("1E-3", 1e-3),
        (".5", 0.5),
        ("1.", 1.0),
        ("0", 0.0),
        ("2", 2.0),
        ("+1e3", 1e3),
        ("1_0.5", 10.5),
    ],
)
def test_floats(load, written: str, value: float):
    assert load(BASE + f"check: {{rtol: {written}}}\n").spec.check.rtol == value


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (".nan", 'found ".nan": it must be a finite number'),
        (".inf", 'found ".inf": it must be a finite number'),
        ("-.INF", 'found "-.INF": it must be a finite number'),
        ("1e999", "found 1e999: it must be a finite number"),
        ("nan", 'found "nan"'),
        ('"1e-3"', 'found the text "1e-3": remove the quotes'),
        ("1:30.5", "found 1:30.5: YAML 1.1 reads this as a base-60 number; write it in decimal"),
        ("017", "found 017: a leading zero is ambiguous (octal in YAML 1.1); write 17 if that is meant"),
        ("0x1f", "found 0x1f: write it in decimal"),
        ("-1", "found -1"),
        ("yes", 'found "yes"'),
        ("[1]", "found a list of 1"),
    ],
)
def test_refused_floats(messages, written: str, problem: str):
    assert messages(BASE + f"check:\n  rtol: {written}\n") == [
        f"x.yaml:5:9: check.rtol: expected a number of at least 0, {problem}"
    ]


@pytest.mark.parametrize(("written", "value"), [("9", 9), ("+9", 9), ("1_000", 1000)])
def test_whole_numbers(load, written: str, value: int):
    assert load(BASE + f"measure: {{rounds: {written}}}\n").spec.measure.rounds == value


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("1:30", "found 1:30: YAML 1.1 reads this as a base-60 number; write it in decimal"),
        ("017", "found 017: a leading zero is ambiguous (octal in YAML 1.1); write 17 if that is meant"),
        ("08", "found 08: a leading zero is ambiguous (octal in YAML 1.1); write 8 if that is meant"),
        ("0x10", "found 0x10: write it in decimal"),
        ("0b11", "found 0b11: write it in decimal"),
        ('"9"', 'found the text "9": remove the quotes'),
        ("'9'", 'found the text "9": remove the quotes'),
        ('"many"', 'found the text "many"'),
        ("1e3", "found 1e3: write it as 1000"),
        ("9.0", "found 9.0: write it as 9"),
        ("9.5", "found 9.5"),
        ("0", "found 0"),
        ("1001", "found 1001"),
        ("9" * 30, "found " + "9" * 30),
        ("9" * 5000, 'found "' + "9" * 59 + '…"'),
        ("٩", 'found "٩"'),
        ("true", 'found "true"'),
        (".inf", 'found ".inf"'),
        ("null", 'found "null"'),
        ("", "found nothing"),
        ("{}", "found a mapping"),
        ("[]", "found an empty list"),
    ],
)
def test_refused_whole_numbers(messages, written: str, problem: str):
    column = 11 if written else 10
    assert messages(BASE + f"measure:\n  rounds: {written}\n") == [
        f"x.yaml:5:{column}: measure.rounds: expected a whole number from 1 to 1000, {problem}"
    ]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", True),
        ("no", False),
        ("on", True),
        ("off", False),
        ("true", True),
        ("false", False),
        ("NO", False),
    ],
)
def test_bools(load, written: str, value: bool):
    assert load(BASE + f"tuning: {{pack_weights: {written}}}\n").spec.tuning.pack_weights is value


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('"no"', 'found the text "no": remove the quotes'),
        ("'x'", 'found the text "x"'),
        ("1", "found 1"),
        ("y", 'found "y"'),
        ("nO", 'found "nO"'),
    ],
)
def test_refused_bools(messages, written: str, problem: str):
    assert messages(BASE + f"tuning:\n  pack_weights: {written}\n") == [
        f"x.yaml:5:17: tuning.pack_weights: expected true or false, {problem}"
    ]


def test_keys_are_text_too(messages):
    known = "name, description, model, target, device, engine, baseline, variants, tuning, check or measure"
    assert messages(BASE + "on: 1\n<<: {a: 1}\n? [b]\n: 1\n") == [
        f'x.yaml:4:1: unknown key "on": expected {known}',
        f'x.yaml:5:1: unknown key "<<": expected {known}',
        "x.yaml:6:3: a key is plain text, found a list of 1",
    ]


def test_a_hash_of_digits_is_text(load):
    digits = "0" * 10 + "1e2" + "3" * 51
    assert load(BASE + "").spec.model.sha256 is None
    assert load(BASE.replace("resnet50", f"resnet50, sha256: {digits}")).spec.model.sha256 == digits
