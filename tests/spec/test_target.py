from __future__ import annotations

import platform

import pytest

from layoutlab.spec.target import TargetError, architecture, format_target, parse_target

KRYO = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"


def refused(target: str | dict) -> list[str]:
    with pytest.raises(TargetError) as caught:
        parse_target(target)
    return [problem.message for problem in caught.value.problems]


def test_the_familiar_string_becomes_the_mapping_tvm_takes():
    assert parse_target(KRYO) == {
        "kind": "llvm",
        "keys": ["arm_cpu", "cpu"],
        "device": "arm_cpu",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": "kryo",
        "mattr": ["+neon"],
        "num-cores": 1,
    }


def test_every_flag():
    text = (
        "llvm -keys=a,b -device=arm_cpu -model=m -mtriple=armv7a-linux-gnueabihf -mcpu=c"
        " -mattr=+neon,-dotprod -mabi=x -mfloat-abi=hard -opt-level=2 -num-cores=4"
    )
    assert parse_target(text) == {
        "kind": "llvm",
        "keys": ["a", "b", "arm_cpu", "cpu"],
        "device": "arm_cpu",
        "model": "m",
        "mtriple": "armv7a-linux-gnueabihf",
        "mcpu": "c",
        "mattr": ["+neon", "-dotprod"],
        "mabi": "x",
        "mfloat-abi": "hard",
        "opt-level": 2,
        "num-cores": 4,
    }


def test_flags_take_their_value_after_a_space_too():
    spaced = "llvm -device arm_cpu -mtriple aarch64-linux-gnu -mcpu kryo -mattr +neon -num-cores 1"
    assert parse_target(spaced) == parse_target(KRYO)


def test_without_a_device_the_only_key_is_cpu():
    assert parse_target("llvm") == {"kind": "llvm", "keys": ["cpu"]}


def test_mapping_form_takes_lists_numbers_and_text():
    mapping = {"kind": "llvm", "mattr": ["+a", "-b"], "num-cores": 4}
    text = {"kind": "llvm", "mattr": "+a,-b", "num-cores": "4"}
    assert parse_target(mapping) == parse_target(text) == parse_target("llvm -mattr=+a,-b -num-cores=4")


@pytest.mark.parametrize("text", ["llvm", KRYO, "llvm -keys=x,cpu -mattr=+a,-b -opt-level=0"])
def test_format_and_parse_undo_each_other(text: str):
    target = parse_target(text)
    assert format_target(target) == text
    assert parse_target(target) == target


def test_format_has_one_order_of_flags():
    assert format_target(parse_target("llvm -num-cores=2 -mcpu=x")) == "llvm -mcpu=x -num-cores=2"
    assert format_target("host") == "host"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("", ['a target starts with its kind, "llvm"']),
        ("-mcpu=x", ['a target starts with its kind, "llvm"']),
        ("cuda", ['unknown target kind "cuda": code for a CPU needs "llvm"']),
        ("llvm -mcup=x", ['unknown flag "-mcup": did you mean "-mcpu"?']),
        ("llvm --mcpu=x", ['unknown flag "--mcpu": did you mean "-mcpu"?']),
        (
            "llvm -zz",
            [
                'unknown flag "-zz": known are keys, device, model, mtriple, mcpu, mattr, mabi, '
                "mfloat-abi, opt-level or num-cores"
            ],
        ),
        ("llvm x", ['unexpected word "x": a flag starts with -']),
        ("llvm -mcpu=a -mcpu=b", ["-mcpu is given twice"]),
        ("llvm -mcpu", ["-mcpu has no value"]),
        ("llvm -mcpu= -mattr=+a", ["-mcpu has no value"]),
        (
            "llvm -mattr -neon",
            [
                "-mattr has no value",
                'unknown flag "-neon": known are keys, device, '
                "model, mtriple, mcpu, mattr, mabi, mfloat-abi, opt-level or num-cores",
            ],
        ),
        ("llvm -mattr=+a,neon", ['-mattr: each CPU feature starts with + or -, found "neon"']),
        ("llvm -mattr=+a,,+b", ['-mattr: expected words separated by commas, found "+a,,+b"']),
        ("llvm -num-cores=0", ['-num-cores: expected a whole number from 1 to 9999, found "0"']),
        ("llvm -num-cores=two", ['-num-cores: expected a whole number from 1 to 9999, found "two"']),
        ("llvm -num-cores=01", ['-num-cores: expected a whole number from 1 to 9999, found "01"']),
        ("llvm -opt-level=4", ['-opt-level: expected a whole number from 0 to 3, found "4"']),
        ("llvm -mfloat-abi=hrd", ['-mfloat-abi: expected soft or hard, found "hrd": did you mean "hard"?']),
        ("llvm -device=arm", ['-device: expected arm_cpu, found "arm": did you mean "arm_cpu"?']),
        (
            "llvm -device=arm_cpu",
            ["arm_cpu needs the mtriple of an ARM machine, e.g. -mtriple=aarch64-linux-gnu"],
        ),
        (
            "llvm -keys=arm_cpu -mtriple=x86_64-linux-gnu",
            ["arm_cpu needs the mtriple of an ARM machine, e.g. -mtriple=aarch64-linux-gnu"],
        ),
        # The missing triple is the misspelt one: nothing more to say.
        (
            "llvm -device=arm_cpu -mtripel=aarch64-linux-gnu",
            ['unknown flag "-mtripel": did you mean "-mtriple"?'],
        ),
        ({"mcpu": "x"}, ['a target starts with its kind, "llvm"']),
        ({"kind": "c"}, ['unknown target kind "c": code for a CPU needs "llvm"']),
        ({"kind": "llvm", "mcup": "x"}, ['unknown flag "mcup": did you mean "mcpu"?']),
        ({"kind": "llvm", "mcpu": None}, ["mcpu has no value"]),
        ({"kind": "llvm", "mcpu": "a b"}, ['mcpu: expected one word, found "a b"']),
        ({"kind": "llvm", "mattr": {}}, ["mattr: expected words separated by commas, found a mapping"]),
        ({"kind": "llvm", "mattr": ["neon"]}, ['mattr: each CPU feature starts with + or -, found "neon"']),
        (
            {"kind": "llvm", "num-cores": True},
            ['num-cores: expected a whole number from 1 to 9999, found "True"'],
        ),
    ],
)
def test_wording(target: str | dict, expected: list[str]):
    assert refused(target) == expected


def test_all_problems_at_once():
    assert refused("cuda -mcup=x -mattr=neon stray -num-cores=0") == [
        'unknown target kind "cuda": code for a CPU needs "llvm"',
        'unexpected word "stray": a flag starts with -',
        'unknown flag "-mcup": did you mean "-mcpu"?',
        '-mattr: each CPU feature starts with + or -, found "neon"',
        '-num-cores: expected a whole number from 1 to 9999, found "0"',
    ]


@pytest.mark.parametrize(
    ("triple", "expected"),
    [
        ("aarch64-linux-gnu", "aarch64"),
        ("arm64-apple-darwin", "aarch64"),
        ("armv7a-linux-gnueabihf", "arm"),
        ("thumbv7em-none-eabi", "arm"),
        ("x86_64-linux-gnu", "x86_64"),
        ("amd64-linux-gnu", "x86_64"),
        ("riscv64-linux-gnu", "riscv64"),
    ],
)
def test_architecture_of_a_triple(triple: str, expected: str):
    assert architecture({"kind": "llvm", "mtriple": triple}) == expected


@pytest.mark.parametrize(("machine", "expected"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("armv7l", "arm")])
def test_architecture_without_a_triple_is_this_machine(machine: str, expected: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert architecture({"kind": "llvm"}) == architecture("host") == expected
