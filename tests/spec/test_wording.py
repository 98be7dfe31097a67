"""What is said about a wrong spec, as whole texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.errors import SpecError
from layoutlab.spec.load import load_spec

from .texts import SMALLEST

# --- what is said about a wrong one ----------------------------------------------------------------------


def test_one_misspelt_key(refused):
    assert (
        refused(SMALLEST.replace("variants", "varients"))
        == """\
x.yaml:3:1: unknown key "varients": did you mean "variants"?
  3 | varients: [{name: v}]
    | ^
"""
    )


def test_all_problems_in_one_pass_in_file_order(refused):
    text = """\
name: .a
model:
  file: x.tflite
  build: resnet51
  input_range: [1, 0]
target: llvm -device=arm_cpu -mcup=kryo -mattr=neon -num-cores=4
varients:
  - name: nhwc
    alter_op_layout: {hook: keep, block: 3}
    tune: "yes"
  - name: nhwc
    alter_op_layout: ncwhc
  - tune: false
tuning:
  trials: many
  trials: 3
\tseed: 0
"""
    assert (
        refused(text.replace("\tseed", "  seed"))
        == """\
x.yaml:1:7: name: expected 1 to 64 of A-Z a-z 0-9 . _ - (no . in front, no ..), found ".a"
  1 | name: .a
    |       ^
x.yaml:4:10: model.build: file is given too: a model has exactly one of file and build
  4 |   build: resnet51
    |          ^
x.yaml:4:10: model.build: expected mobilenet_v1, mobilenet_v2, mobilenet_v3_small, mobilenet_v3_large, \
mobilenet_v3_small_minimalistic, mobilenet_v3_large_minimalistic, resnet50 or inception_v3, \
found "resnet51": did you mean "resnet50"?
  4 |   build: resnet51
    |          ^
x.yaml:5:16: model.input_range: expected low < high, found [1, 0]
  5 |   input_range: [1, 0]
    |                ^
x.yaml:6:14: target: arm_cpu needs the mtriple of an ARM machine, e.g. -mtriple=aarch64-linux-gnu
  6 | target: llvm -device=arm_cpu -mcup=kryo -mattr=neon -num-cores=4
    |              ^
x.yaml:6:30: target: unknown flag "-mcup": did you mean "-mcpu"?
  6 | target: llvm -device=arm_cpu -mcup=kryo -mattr=neon -num-cores=4
    |                              ^
x.yaml:6:41: target: -mattr: each CPU feature starts with + or -, found "neon"
  6 | target: llvm -device=arm_cpu -mcup=kryo -mattr=neon -num-cores=4
    |                                         ^
x.yaml:7:1: unknown key "varients": did you mean "variants"?
  7 | varients:
    | ^
x.yaml:9:42: variants[0].alter_op_layout.block: only hook nchwc takes a block, found hook "keep"
  9 |     alter_op_layout: {hook: keep, block: 3}
    |                                          ^
x.yaml:10:11: variants[0].tune: expected true or false, found the text "yes": remove the quotes
  10 |     tune: "yes"
     |           ^
x.yaml:11:11: variants[1].name: "nhwc" is already the name of variants[0]
  11 |   - name: nhwc
     |           ^
x.yaml:12:22: variants[1].alter_op_layout: expected keep, nhwc, nchw, nchwc, package.module:function \
or {hook: …, block: …}, found "ncwhc": did you mean "nchwc"?
  12 |     alter_op_layout: ncwhc
     |                      ^
x.yaml:13:5: variants[2]: missing key "name"
  13 |   - tune: false
     |     ^
x.yaml:15:11: tuning.trials: expected a whole number from 1 to 1000000, found "many"
  15 |   trials: many
     |           ^
x.yaml:16:3: tuning: duplicate key "trials": first on line 15, again on line 16
  16 |   trials: 3
     |   ^
x.yaml:17:9: tuning.seed: expected a whole number from 1 to 2147483647 (TVM refuses the seed 0), found 0
  17 |   seed: 0
     |         ^
"""
    )


# Lines replaced or added in the smallest spec, and the first lines of what is said.
WRONG = [
    ("", "wobble: 1\n", ['4:1: unknown key "wobble": expected name, description, model, target, device, engine, '
                         "baseline, variants, tuning, check or measure"]),
    ("", "check: {rtoll: 1}\n", ['4:9: check: unknown key "rtoll": did you mean "rtol"?']),
    ("", "name: b\n", ['4:1: duplicate key "name": first on line 1, again on line 4']),
    ("name: a\n", "", ['1:1: missing key "name"']),
    ("name: a\n", "name: a..b\n",
     ['1:7: name: expected 1 to 64 of A-Z a-z 0-9 . _ - (no . in front, no ..), found "a..b"']),
    ("name: a\n", "name: [a]\n",
     ["1:7: name: expected 1 to 64 of A-Z a-z 0-9 . _ - (no . in front, no ..), found a list of 1"]),
    ("{build: resnet50}", "{}", ["2:8: model: a model needs exactly one of file and build, found neither"]),
    ("{build: resnet50}", "{input_range: [0, 1]}",
     ["2:8: model: a model needs exactly one of file and build, found neither"]),
    ("{build: resnet50}", "resnet50", ['2:8: model: expected a mapping, found "resnet50"']),
    ("{build: resnet50}", '{file: ""}',
     ['2:15: model.file: expected the path of a .tflite file, relative to this file, found the text ""']),
    ("{build: resnet50}", "{file: a, sha256: abc}",
     ['2:26: model.sha256: expected 64 hex digits, found "abc"']),
    ("{build: resnet50}", "{file: a, input_range: [0, 1, 2]}",
     ["2:31: model.input_range: expected two numbers, [low, high], found a list of 3"]),
    ("{build: resnet50}", "{file: a, input_range: [0, x]}",
     ['2:35: model.input_range[1]: expected a number, found "x"']),
    ("[{name: v}]", "[]", ["3:11: variants: expected a list of at least one variant, found an empty list"]),
    ("[{name: v}]", "{name: v}",
     ["3:11: variants: expected a list of at least one variant, found a mapping"]),
    ("[{name: v}]", "[v]", ['3:12: variants[0]: expected a mapping, found "v"']),
    ("name: a\n", "name: runs\n", ['1:7: name: "runs" is the folder of all runs in the results']),
    ("name: a\n", "name: a/b\n",
     ['1:7: name: expected 1 to 64 of A-Z a-z 0-9 . _ - (no . in front, no ..), found "a/b"']),
    ("[{name: v}]", "[{name: ../v}]",
     ['3:19: variants[0].name: expected 1 to 64 of A-Z a-z 0-9 . _ - (no . in front, no ..), found "../v"']),
    ("[{name: v}]", "[{name: tflite}]",
     ['3:19: variants[0].name: "tflite" is reserved for the row of the baseline']),
    ("{name: v}", "{name: v, convert_layout: nchw}",
     ['3:38: variants[0].convert_layout: expected NHWC or NCHW, found "nchw": did you mean "NCHW"?']),
    ("{name: v}", "{name: v, alter_op_layout: {hook: nchwc}}",
     ["3:39: variants[0].alter_op_layout: hook nchwc needs a block, e.g. {hook: nchwc, block: 8}"]),
    ("{name: v}", "{name: v, alter_op_layout: {hook: nchwc, block: 65}}",
     ["3:60: variants[0].alter_op_layout.block: expected a whole number from 2 to 64, or auto, found 65"]),
    ("{name: v}", "{name: v, alter_op_layout: {hook: nchvc}}",
     ["3:46: variants[0].alter_op_layout.hook: expected keep, nhwc, nchw, nchwc or package.module:function, "
      'found "nchvc": did you mean "nchwc"?']),
    ("{name: v}", "{name: v, alter_op_layout: a.b:c:d}",
     ["3:39: variants[0].alter_op_layout: expected keep, nhwc, nchw, nchwc, package.module:function or "
      '{hook: …, block: …}, found "a.b:c:d"']),
    ("{name: v}", "{name: v, alter_op_layout: {block: 4}}",
     ['3:39: variants[0].alter_op_layout: expected a hook or a table of rules, found neither']),
    ("", "target:\n",
     ['4:8: target: expected a target such as "llvm -mcpu=cortex-a72", a mapping, or host, found nothing']),
    ("", "target: []\n",
     ['4:9: target: expected a target such as "llvm -mcpu=cortex-a72", a mapping, or host, found an empty '
      'list']),
    ("", "target: llvm -mcpu=a -mcpu=b\n", ["4:22: target: -mcpu is given twice"]),
    ("", "target: 'cuda'\n", ['4:10: target: unknown target kind "cuda": code for a CPU needs "llvm"']),
    ("", "target: >\n  llvm\n  -mcup=x\n", ['4:9: target: unknown flag "-mcup": did you mean "-mcpu"?']),
    ("", "target: {mcpu: x}\n", ['4:9: target: a target starts with its kind, "llvm"']),
    ("", "target: {kind: c}\n", ['4:10: target: unknown target kind "c": code for a CPU needs "llvm"']),
    ("", "target: {kind: llvm, mcup: x, mcpu: a, mcpu: b}\n",
     ['4:22: target: unknown flag "mcup": did you mean "mcpu"?',
      '4:40: target: duplicate key "mcpu": first on line 4, again on line 4']),
    ("", "target: llvm -num-cores=4\nbaseline: {threads: 2}\n",
     ["5:21: baseline.threads: 2, but the target has num-cores 4: a comparison needs equal threads"]),
    ("", "target: {kind: llvm, num-cores: 4}\nbaseline: {threads: 1}\n",
     ["5:21: baseline.threads: 1, but the target has num-cores 4: a comparison needs equal threads"]),
    ("", "target: llvm -mcup=x -num-cores=4\nbaseline: {threads: 1}\n",
     ['4:14: target: unknown flag "-mcup": did you mean "-mcpu"?',
      "5:21: baseline.threads: 1, but the target has num-cores 4: a comparison needs equal threads"]),
    ("", "baseline: {runtime: tflight, threads: 257}\n",
     ['4:21: baseline.runtime: expected tflite or benchmark_model, found "tflight": did you mean "tflite"?',
      "4:39: baseline.threads: expected a whole number from 1 to 256, found 257"]),
    ("", "device: rpc://127.0.0.1\n", [
        "4:9: device: expected auto, host, kryo, rpc://host:port/key, agent://host:port or {rpc: host:port, key: …}, "
        'found "rpc://127.0.0.1"',
    ]),
    ("", "device: krio\n", [
        "4:9: device: expected auto, host, kryo, rpc://host:port/key, agent://host:port or {rpc: host:port, key: …}, "
        'found "krio": did you mean "kryo"?',
    ]),
    ("", "device: {}\n", ["4:9: device: a device needs exactly one of on, rpc and agent, found none"]),
    ("", "device: {rpc: '127.0.0.1:9190'}\n", [
        "4:9: device: rpc is a tracker, which needs the devices' key, e.g. {rpc: 127.0.0.1:9190, key: pixel}",
    ]),
    ("", "device: {rpc: here, key: a b}\n", [
        '4:15: device.rpc: expected host:port, found "here"',
        "4:26: device.key: expected a device's key: letters, digits and . _ - (no spaces), found \"a b\"",
    ]),
    ("", "device: {rpc: '127.0.0.1:9190', agent: '127.0.0.1:9191', key: k}\n", [
        "4:40: device.agent: rpc is given too: a device has exactly one of on, rpc and agent",
    ]),
    ("", "device: {on: host, key: k}\n", ["4:25: device.key: only rpc and agent take a key"]),
    ("", "device: {agent: '127.0.0.1:9190,board'}\n", [
        '4:17: device.agent: expected host:port of one or several agents, with commas between, '
        'found the text "127.0.0.1:9190,board"',
    ]),
    ("", "device: {agent: '127.0.0.1:9190', timeout_s: 1}\n", [
        "4:46: device.timeout_s: expected a whole number from 5 to 86400, found 1",
    ]),
    ("", "device: phone\n", [
        "4:9: device: expected auto, host, kryo, rpc://host:port/key, agent://host:port or {rpc: host:port, key: …}, "
        'found "phone"',
    ]),
    ("", "baseline: {tool: /d/benchmark_model, flags: {verbose: true}}\n",
     ["4:18: baseline.tool: only runtime benchmark_model takes tool",
      "4:45: baseline.flags: only runtime benchmark_model takes flags"]),
    ("", "baseline: {runtime: benchmark_model}\n",
     ["4:11: baseline: runtime benchmark_model needs exactly one of tool and results, found neither"]),
    ("", "baseline: {runtime: benchmark_model, results: [a.txt], through: adb, flags: {verbose: true}}\n",
     ["4:65: baseline.through: through belongs to a tool, and results are of runs before",
      "4:77: baseline.flags: flags belongs to a tool, and results are of runs before"]),
    ("", "baseline: {runtime: benchmark_model, results: [a.txt], tool: /d/benchmark_model}\n",
     ["4:47: baseline.results: tool is given too: there is either a tool or results"]),
    ("", "baseline: {runtime: benchmark_model, results: a.txt}\n",
     ['4:47: baseline.results: expected a list of files, one for each round, found "a.txt"']),
    ("", "baseline: {runtime: benchmark_model, tool: /bin/sh}\n",
     ['4:44: baseline.tool: expected a program named benchmark_model, found "/bin/sh"']),
    ("", "baseline: {runtime: benchmark_model, tool: --benchmark_model}\n",
     ["4:44: baseline.tool: expected the path of benchmark_model on the device; its name contains that word, "
      'found "--benchmark_model"']),
    ("", "baseline: {runtime: benchmark_model, tool: benchmark_model, through: ssh:-oProxyCommand=x}\n",
     ['4:70: baseline.through: expected local, adb, adb:SERIAL or ssh:HOST, found "ssh:-oProxyCommand=x"']),
    ("", "baseline: {runtime: benchmark_model, tool: benchmark_model, through: adb;reboot}\n",
     ['4:70: baseline.through: expected local, adb, adb:SERIAL or ssh:HOST, found "adb;reboot"']),
    ("", "baseline: {runtime: benchmark_model, tool: benchmark_model, flags: {--verbose: 1, num_runs: 3, dry_run: 1, "
     "x: [1]}}\n",
     ["4:80: baseline.flags.--verbose: expected the name of a flag without dashes in front, such as use_xnnpack",
      "4:93: baseline.flags.num_runs: layoutlab says this flag itself, from the spec's measure",
      "4:105: baseline.flags.dry_run: a dry run measures nothing",
      "4:111: baseline.flags.x: expected a value such as 3, true or a path, found a list of 1"]),
    ("", "baseline: {runtime: benchmark_model, tool: benchmark_model, flags: verbose}\n",
     ['4:68: baseline.flags: expected a mapping of the tool\'s flags, found "verbose"']),
    ("", "baseline: {runtime: benchmark_model, results: [a.txt]}\ndevice: kryo\n",
     ["4:21: baseline.runtime: benchmark_model measures, and device: kryo counts: such figures never share a table"]),
    ("", "tuning:\n", ["4:8: tuning: expected a mapping, found nothing"]),
    ("", "tuning: {cost_model: none}\n", ["4:22: tuning.cost_model: evolutionary search needs a cost model"]),
    ("", "tuning: {search: evolutionary, cost_model: none, trials: 0}\n",
     ["4:44: tuning.cost_model: evolutionary search needs a cost model",
      "4:58: tuning.trials: expected a whole number from 1 to 1000000, found 0"]),
    ("", "measure: {cores: litle}\n",
     ["4:18: measure.cores: expected big, little, all or a list of core numbers such as [4, 5], "
      'found "litle": did you mean "little"?']),
    ("", "measure: {cores: 4}\n",
     ["4:18: measure.cores: expected big, little, all or a list of core numbers such as [4, 5], found 4"]),
    ("", "measure: {cores: []}\n",
     ["4:18: measure.cores: expected big, little, all or a list of core numbers such as [4, 5], "
      "found an empty list"]),
    ("", "measure: {cores: [4, big]}\n",
     ['4:22: measure.cores[1]: expected a core number, from 0, found "big"']),
    ("", "measure: {cores: [-1]}\n", ["4:18: measure.cores: core -1: cores are numbered from 0"]),
    ("", "measure: {cores: [4, 5, 4]}\n", ["4:18: measure.cores: core 4 is named twice"]),
    ("", "measure: {cooldown_until_c: hot, cooldown_ms: -1, cooldown_limit_s: 0}\n",
     ['4:29: measure.cooldown_until_c: expected a number from 0 to 120, found "hot"',
      "4:47: measure.cooldown_ms: expected a whole number from 0 to 600000, found -1",
      "4:69: measure.cooldown_limit_s: expected a whole number from 1 to 3600, found 0"]),
    ("", "check: {seed: -1}\n",
     ["4:15: check.seed: expected a whole number from 0 to 2147483647, found -1"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), WRONG)
def test_wording(messages, old: str, new: str, expected: list[str]):
    text = SMALLEST.replace(old, new) if old else SMALLEST + new
    assert messages(text) == [f"x.yaml:{line}" for line in expected]


def test_a_hundred_problems_are_enough(messages):
    lines = messages(SMALLEST + "".join(f"x{number}: 1\n" for number in range(150)))
    assert len(lines) == 101
    assert lines[-1] == "x.yaml:104:1: and 50 more problems from here on"


def test_a_long_line_is_cut_around_the_caret(refused):
    text = SMALLEST + "description: &x " + "y" * 300 + "\n"
    assert refused(text) == (
        'x.yaml:4:14: anchor "&x": a spec has no anchors and aliases, remove it\n'
        f"  4 | description: &x {'y' * 94}\n"
        "    |              ^\n"
    )


def test_tabs_stay_above_the_caret(refused):
    assert refused(SMALLEST + 'description: "a\tb" x\n') == (
        "x.yaml:4:20: not valid YAML while parsing a block mapping: expected <block end>, "
        "but found '<scalar>'\n"
        '  4 | description: "a\tb" x\n'
        "    |                \t   ^\n"
    )


# --- what is refused before any field is looked at -------------------------------------------------------

UNSAFE = [
    (b"", "1:1: the file is empty: a spec needs at least name, model and variants"),
    (b"# nothing\n", "1:1: the file is empty: a spec needs at least name, model and variants"),
    (b"---\n", "1:1: the file is empty: a spec needs at least name, model and variants"),
    (b"- a\n", "1:1: expected a mapping (name: …, model: …, variants: …), found a list"),
    (b"a\n", "1:1: expected a mapping (name: …, model: …, variants: …), found a single value"),
    (b"name: a\n---\nname: b\n", "2:1: a second document starts here: a spec is one document"),
    (b"name: &x a\n", '1:7: anchor "&x": a spec has no anchors and aliases, remove it'),
    (b"name: *x\n", '1:7: alias "*x": a spec has no anchors and aliases, write the value out'),
    (b"name: !!python/object/apply:os.system [ls]\n",
     '1:7: tag "!!python/object/apply:os.system": a spec has no tags, remove it'),
    (b"name: !!str a\n", '1:7: tag "!!str": a spec has no tags, remove it'),
    (b"name: !own a\n", '1:7: tag "!own": a spec has no tags, remove it'),
    (b"name: ! a\n", '1:7: tag "!": a spec has no tags, remove it'),
    (b"name: " + b"[" * 40 + b"]" * 40, "1:38: nested more than 32 levels deep"),
    (b"name: " + b"[" * 500_000, "1:38: nested more than 32 levels deep"),
    (b"name: a\nx: \xff\n", "2:4: byte 0xff is not UTF-8: save the file as UTF-8 text"),
    ("näme: ".encode() + b"\xe4\n", "1:7: byte 0xe4 is not UTF-8: save the file as UTF-8 text"),
    ("name: a\n".encode("utf-16"), "1:1: byte 0xff is not UTF-8: save the file as UTF-8 text"),
    (b"name: a\x07b\n", "1:8: control character U+0007: a spec is plain text"),
    (b"name: a\n\x00", "2:1: control character U+0000: a spec is plain text"),
    (b"name: [a\n",
     "2:1: not valid YAML while parsing a flow sequence: expected ',' or ']', but got '<stream end>'"),
    (b"name: a: b\n", "1:8: not valid YAML: mapping values are not allowed here"),
    (b"check:\n\trtol: 1\n", "2:1: not valid YAML while scanning for the next token: found character '\\t' "
                            "that cannot start any token: indent with spaces, not tabs"),
    (b'name: "\\e[2J"\n', "1:7: escaped control character U+001B: a spec is plain text"),
    (b'name: "\\ud83d"\n', "1:7: escaped control character U+D83D: a spec is plain text"),
    (b'name: "\\UFFFFFFFF"\n', "1:10: not valid YAML: a number or an escape is out of range"),
    (b"%YAML 1." + b"1" * 5000 + b"\n---\nname: a\n",
     "1:9: not valid YAML: a number or an escape is out of range"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "expected"), UNSAFE, ids=[str(number) for number in range(len(UNSAFE))])
def test_unsafe_or_broken_files(messages, raw: bytes, expected: str):
    assert messages(raw) == ["x.yaml:" + expected]


def test_several_refusals_at_once(messages):
    assert len(messages(b"name: &x a\nmodel: !t b\ntarget: *x\n")) == 3


def test_syntax_errors_show_their_line(refused):
    assert refused(b"name: a: b\n") == (
        "x.yaml:1:8: not valid YAML: mapping values are not allowed here\n  1 | name: a: b\n    |        ^\n"
    )


def test_a_large_file(load, messages):
    filler = "#" * (1 << 20)
    assert load((SMALLEST + filler)[: 1 << 20]).spec.name == "a"
    assert messages(SMALLEST + filler) == ["x.yaml:1:1: the file is larger than 1 MiB, which no spec needs to be"]


def test_a_folder_is_no_spec(tmp_path: Path):
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path)
    assert str(caught.value) == f"{tmp_path}:1:1: cannot be read: Is a directory"


def test_passes_that_cannot_be(refused):
    assert (
        refused(SMALLEST.replace("{name: v}", "{name: v, fuse: maybe, passes: {disable: [a b], opt_level: 9}}"))
        == """\
x.yaml:3:28: variants[0].fuse: expected true or false, found "maybe"
  3 | variants: [{name: v, fuse: maybe, passes: {disable: [a b], opt_level: 9}}]
    |                            ^
x.yaml:3:44: variants[0].passes: unknown key "disable": did you mean "disabled"?
  3 | variants: [{name: v, fuse: maybe, passes: {disable: [a b], opt_level: 9}}]
    |                                            ^
x.yaml:3:54: variants[0].passes.disabled[0]: expected a pass of TVM, found "a b"
  3 | variants: [{name: v, fuse: maybe, passes: {disable: [a b], opt_level: 9}}]
    |                                                      ^
x.yaml:3:71: variants[0].passes.opt_level: expected a whole number from 0 to 4, found 9
  3 | variants: [{name: v, fuse: maybe, passes: {disable: [a b], opt_level: 9}}]
    |                                                                       ^
"""
    )
