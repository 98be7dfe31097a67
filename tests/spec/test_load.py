from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from layoutlab.errors import SpecError
from layoutlab.spec.load import LoadedSpec, find_spec, load_spec
from layoutlab.spec.models import DeviceSpec, HookSpec, Spec

from ..conftest import ROOT
from .texts import FULL, SMALLEST

# --- what a valid spec becomes ---------------------------------------------------------------------------


def test_full_spec(load):
    loaded = load(FULL)
    spec = loaded.spec
    assert (loaded.path, loaded.text) == (Path("x.yaml"), FULL)
    assert spec.model.sha256 == "00112233445566778899aabbccddeeff" * 2
    assert spec.model.input_range == (-1.0, 1.5)
    assert spec.target == {
        "kind": "llvm",
        "keys": ["arm_cpu", "cpu"],
        "device": "arm_cpu",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": "kryo",
        "mattr": ["+neon"],
        "num-cores": 1,
    }
    assert spec.baseline is not None and spec.baseline.threads == 1
    assert [v.alter_op_layout.label() for v in spec.variants if v.alter_op_layout] == [
        "keep",
        "nchwc(block=8)",
        "nchwc(block=4)",
        "my.hooks:alter",
    ]
    assert [v.convert_layout for v in spec.variants] == [None, "NCHW", "NHWC", None]
    assert [v.tune for v in spec.variants] == [True, True, False, True]
    assert spec.tuning.search == "replay-trace" and spec.tuning.pack_weights is False
    assert (spec.check.rtol, spec.check.atol) == (1e-3, 0.0)
    assert (spec.measure.warmup_ms, spec.measure.seed) == (0, 0)
    assert (spec.measure.cores, spec.measure.cooldown_ms) == ((4, 5), 100)
    assert (spec.measure.cooldown_until_c, spec.measure.cooldown_limit_s) == (40.5, 60)


def test_threads_are_the_baselines_else_the_targets_cores_else_one(load):
    assert load(SMALLEST).spec.threads == 1
    assert load(SMALLEST + "target: llvm -num-cores=4\n").spec.threads == 4
    assert load(SMALLEST + "baseline: {threads: 2}\n").spec.threads == 2


def test_defaults(load):
    spec = load(SMALLEST).spec
    assert (spec.target, spec.device, spec.baseline.runtime, spec.description) == (
        "host",
        DeviceSpec(on="auto"),
        "tflite",
        None,
    )
    assert spec.model.input_range == (-1.0, 1.0)
    assert spec.variants[0].model_dump() == {
        "name": "v",
        "convert_layout": None,
        "alter_op_layout": None,
        "tune": True,
        "fuse": True,
        "passes": {"disabled": (), "opt_level": None},
        "engine": None,
    }
    assert spec.engine_of(spec.variants[0]).model_dump() == {"kind": "relax", "python": None, "tophub": False}
    assert spec.tuning.model_dump() == {
        "trials": 1000,
        "time_limit_s": None,
        "early_stop": None,
        "skip": (),
        "search": "evolutionary",
        "cost_model": "xgb",
        "pack_weights": True,
        "batch": 16,
        "population": 128,
        "seed": 1,
        "workers": None,
        "cold_cache": False,
        "repeats": 3,
        "min_repeat_ms": 15,
        "tuner": None,
        "graph_tuner": False,
        "logs": (),
    }
    assert spec.check.model_dump() == {"inputs": 5, "seed": 1, "rtol": 1e-3, "atol": 1e-4}
    assert spec.measure.model_dump() == {
        "rounds": 18,
        "repeats": 10,
        "min_repeat_ms": 100,
        "warmup_ms": 500,
        "retries": 2,
        "cores": "big",
        "cooldown_ms": 0,
        "cooldown_until_c": None,
        "cooldown_limit_s": 300,
        "seed": 1,
    }


def test_engine_of_a_spec_and_of_a_variant(load):
    text = SMALLEST.replace("[{name: v}]", "[{name: v}, {name: w, engine: {kind: relay, python: tvm/bin/python}}]")
    spec = load(text + "engine: relay\n").spec
    assert [spec.engine_of(variant).model_dump() for variant in spec.variants] == [
        {"kind": "relay", "python": None, "tophub": False},
        {"kind": "relay", "python": "tvm/bin/python", "tophub": False},
    ]


def test_passes_and_fusion_of_a_variant(load):
    passes = "{disabled: [FoldConstant, tirx.CommonSubexprElim], opt_level: 1}"
    (variant,) = load(SMALLEST.replace("{name: v}", f"{{name: v, fuse: false, passes: {passes}}}")).spec.variants
    assert not variant.fuse
    assert variant.passes.model_dump() == {"disabled": ("FoldConstant", "tirx.CommonSubexprElim"), "opt_level": 1}


def test_tasks_to_skip_are_texts(load):
    assert load(SMALLEST + "tuning: {skip: [3, 7-9, pool2d]}\n").spec.tuning.skip == ("3", "7-9", "pool2d")


@pytest.mark.parametrize("search", ["replay-trace", "random", "grid"])
def test_searches_that_rank_nothing_need_no_cost_model(load, search: str):
    assert load(SMALLEST + f"tuning: {{search: {search}, cost_model: none}}\n").spec.tuning.search == search


@pytest.mark.parametrize("text", [SMALLEST, FULL])
def test_a_spec_survives_json(load, text: str):
    spec = load(text).spec
    assert Spec.model_validate_json(spec.model_dump_json()) == spec
    assert Spec.model_validate(spec.model_dump()) == spec


def test_target_as_a_mapping(load):
    as_text = load(SMALLEST + "target: llvm -mcpu=x -mattr=+a,-b -num-cores=2\n").spec.target
    as_mapping = load(SMALLEST + "target: {kind: llvm, mcpu: x, mattr: [+a, -b], num-cores: 2}\n").spec.target
    assert as_text == as_mapping


def test_model_path(load, tmp_path: Path):
    assert load(FULL).model_path == tmp_path / "models/x.tflite"
    assert load(FULL.replace("models/x", "../x")).model_path == tmp_path.parent / "x.tflite"
    assert load(SMALLEST).model_path is None


def test_byte_order_mark_and_windows_lines_are_fine(load, messages):
    assert load(b"\xef\xbb\xbf" + SMALLEST.replace("\n", "\r\n").encode()).spec.name == "a"
    assert messages(b"\xef\xbb\xbfnane: a\r\n" + SMALLEST.replace("\n", "\r\n").encode()) == [
        'x.yaml:1:1: unknown key "nane": did you mean "name"?'
    ]


def test_models_refuse_what_files_may_not_say():
    with pytest.raises(ValidationError, match="hook nchwc needs a block"):
        HookSpec(hook="nchwc")
    with pytest.raises(ValidationError, match="found neither"):
        Spec.model_validate({"name": "a", "model": {"input_range": (0, 1)}, "variants": [{"name": "v"}]})


# --- finding a spec --------------------------------------------------------------------------------------


@pytest.fixture
def experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "experiments"
    folder.mkdir()
    for name in ("mobilenet.yaml", "resnet.yaml"):
        (folder / name).write_text(SMALLEST)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["mobilenet", "mobilenet.yaml", "experiments/mobilenet", "experiments/mobilenet.yaml"])
def test_find_by_name_or_path(experiments: Path, name: str):
    assert find_spec(name) == Path("experiments/mobilenet.yaml")
    assert find_spec(name, experiments).samefile(experiments / "mobilenet.yaml")


def test_a_path_comes_before_a_name(experiments: Path):
    Path("mobilenet.yaml").write_text(SMALLEST)
    assert find_spec("mobilenet") == Path("mobilenet.yaml")


@pytest.mark.parametrize("name", ["", ".", "..", "experiments", "a\0b", "x" * 5000, "none/at/all"])
def test_names_of_no_file(experiments: Path, name: str):
    with pytest.raises(SpecError, match="SPEC names a file under experiments/"):
        find_spec(name)


def test_a_missing_spec_gets_a_hint(experiments: Path):
    with pytest.raises(SpecError) as caught:
        find_spec("mobilnet")
    expected = (
        'no spec "mobilnet": SPEC names a file under experiments/ (.yaml may be left out) or a path: '
        'did you mean "mobilenet"?'
    )
    assert caught.value.problems == [expected]
    with pytest.raises(SpecError) as caught:
        load_spec(Path("experiments/mobilnet.yaml"))
    assert caught.value.problems == [expected.replace('"mobilnet"', '"experiments/mobilnet.yaml"')]


# --- whatever the file holds -----------------------------------------------------------------------------

CHARACTERS = st.sampled_from(list("\n\t\r :-[]{},'\"#&*!|>%@`~?.0e\0\x07\\é\x85\u2028\ufeff"))
EDITS = st.lists(
    st.tuples(st.sampled_from(["delete", "double", "replace"]), st.booleans(), st.floats(0, 1), CHARACTERS),
    min_size=1,
    max_size=6,
)


def mutated(edits: list[tuple[str, bool, float, str]]) -> str:
    """FULL after deleting, doubling or replacing lines and characters at the given fractions of it."""
    text = FULL
    for action, whole_line, where, character in edits:
        parts = text.splitlines(keepends=True) if whole_line else list(text)
        if not parts:
            break
        index = min(int(where * len(parts)), len(parts) - 1)
        other = parts[-1 - index] if whole_line else character
        parts[index : index + 1] = {"delete": [], "double": [parts[index]] * 2, "replace": [other]}[action]
        text = "".join(parts)
    return text


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(edits=EDITS)
def test_any_file_loads_or_is_refused_with_places(load, edits):
    try:
        assert isinstance(load(mutated(edits)), LoadedSpec)
    except SpecError as error:
        assert error.problems
        for problem in error.problems:
            assert re.match(r"x\.yaml:[1-9][0-9]*:[1-9][0-9]*: \S", problem), problem


def test_loading_needs_no_heavy_package():
    code = (
        "import sys, layoutlab.spec.load, layoutlab.spec.schema;"
        "print([name for name in ('tvm', 'numpy', 'scipy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# --- the whole command line ------------------------------------------------------------------------------


def check_mutations(count: int) -> dict:
    command = [sys.executable, "-m", "tests.spec.mutations", str(count), "1"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_mutated_specs_are_refused_by_the_command_line_with_places():
    done = check_mutations(60)
    assert done["refused"] > 50
    assert (done["heavy"], done["made"]) == ([], ["x.yaml"])


@pytest.mark.slow
def test_a_thousand_mutated_specs():
    done = check_mutations(1000)
    print(done)
    assert done["refused"] > 800
    assert (done["heavy"], done["made"]) == ([], ["x.yaml"])
