"""The validation against published latencies: its arithmetic on stored counts, and once for real."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.device.kryo import validate as validation
from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.device.kryo.cycles import Totals, estimate
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.device.kryo.validate import PUBLISHED_MS, as_json, as_text, count_networks, fit_penalty, validate
from layoutlab.errors import ModelError
from layoutlab.model import build as builder
from layoutlab.progress import Progress
from tests.conftest import ROOT


def totals(compute: float, instructions: int, accesses: int, l1: int, nonsequential: int, l2: int) -> Totals:
    return Totals(
        compute_cycles=compute,
        instructions=instructions,
        unpriced=0,
        accesses=accesses,
        l1_misses=l1,
        l1_nonsequential=nonsequential,
        l2_misses=l2,
    )


# What a run of the validation counted.
COUNTED = {
    "mobilenet_v1": totals(152418823.5, 198960769, 104812839, 5445722, 1721718, 1473077),
    "mobilenet_v2": totals(86589068.625, 118297334, 69887162, 2640023, 1349434, 773374),
    "mobilenet_v3_large": totals(65043396.8125, 90178611, 57266965, 2155275, 1175425, 716322),
    "mobilenet_v3_small": totals(18838632.5, 27212476, 18842034, 663799, 370095, 212515),
}


def published_for(penalty: float) -> dict[str, float]:
    """Latencies of a phone for which the model with this penalty is exact."""
    return {
        name: (counts.compute_cycles + penalty * counts.l1_nonsequential) / (CLOCK_GHZ * 1e6)
        for name, counts in COUNTED.items()
    }


@pytest.mark.parametrize("penalty", [0.5, 12.0, PENALTY, 36.789, 400.0])
def test_a_planted_penalty_is_found(penalty: float) -> None:
    assert fit_penalty(COUNTED, published_for(penalty)) == pytest.approx(penalty, rel=1e-6)
    found = validate(COUNTED, published_for(penalty))
    assert found.fitted_penalty == pytest.approx(penalty, rel=1e-6)
    for network in found.networks:
        assert network.others_penalty == pytest.approx(penalty, rel=1e-6)
        assert network.others_ratio == pytest.approx(1)


def test_where_the_penalty_in_use_is_exact_every_ratio_is_one() -> None:
    found = validate(COUNTED, published_for(PENALTY))
    assert [network.ratio for network in found.networks] == pytest.approx([1] * 4)
    assert found.problems == []


def test_a_fit_weighs_ratios_and_not_milliseconds() -> None:
    """One network reads 10 % too much, the other as much too little: the fit lies between, however large one is."""
    counts = totals(0.0, 1, 1, 10**6, 10**6, 0)
    large = replace(counts, l1_nonsequential=10**8)
    exact = {"small": 10**6 * PENALTY / (CLOCK_GHZ * 1e6), "large": 10**8 * PENALTY / (CLOCK_GHZ * 1e6)}
    published = {"small": exact["small"] / 1.1, "large": exact["large"] * 1.1}
    assert fit_penalty({"small": counts, "large": large}, published) == pytest.approx(PENALTY)


def test_leave_one_out_does_not_see_the_network_itself() -> None:
    """A network whose published latency is wrong by half changes its own ratio and the others' penalties alone."""
    published = published_for(PENALTY)
    published["mobilenet_v2"] *= 1.5
    found = {network.name: network for network in validate(COUNTED, published).networks}
    assert found["mobilenet_v2"].others_penalty == pytest.approx(PENALTY)
    assert found["mobilenet_v2"].others_ratio == pytest.approx(1 / 1.5)
    assert all(found[name].others_penalty > PENALTY + 1 for name in COUNTED if name != "mobilenet_v2")


def test_of_stored_counts() -> None:
    found = validate(COUNTED)
    assert found.fitted_penalty == pytest.approx(35.37, abs=0.01)
    assert [network.name for network in found.networks] == list(PUBLISHED_MS)
    assert [network.cycles for network in found.networks] == [estimate(counts) for counts in COUNTED.values()]
    assert [network.others_penalty for network in found.networks] == pytest.approx([35.6, 36.4, 36.7, 32.5], abs=0.05)
    assert [network.others_ratio for network in found.networks] == pytest.approx(
        [1.015, 1.045, 1.051, 0.900], abs=0.0006
    )


def test_what_does_not_hold_is_named() -> None:
    published = published_for(PENALTY)
    published["mobilenet_v1"] *= 1.2
    published["mobilenet_v3_small"], published["mobilenet_v3_large"] = 43.4, 43.3
    assert validate(COUNTED, published).problems == [
        "mobilenet_v1: 86.8 ms is 0.833 of the published 104.169 ms; expected 0.90 to 1.10",
        "mobilenet_v3_small: 13.0 ms is 0.299 of the published 43.4 ms; expected 0.90 to 1.10",
        "the order is mobilenet_v3_small < mobilenet_v3_large < mobilenet_v2 < mobilenet_v1; "
        "expected mobilenet_v3_large < mobilenet_v3_small < mobilenet_v2 < mobilenet_v1",
    ]


def test_text() -> None:
    assert (
        as_text(validate(COUNTED), "what was run")
        == """\
what was run.

Compute and memory in millions of cycles:

| model              |   compute |   memory |   simulated ms |   published ms |   ratio |   others' fit |   ratio then |
|--------------------|-----------|----------|----------------|----------------|---------|---------------|--------------|
| mobilenet_v1       |     152.4 |     60.3 |           86.8 |             86 |   1.009 |          35.6 |        1.015 |
| mobilenet_v2       |      86.6 |     47.2 |           54.6 |             53 |   1.031 |          36.4 |        1.045 |
| mobilenet_v3_large |      65.0 |     41.1 |           43.3 |             42 |   1.032 |          36.7 |        1.051 |
| mobilenet_v3_small |      18.8 |     13.0 |           13.0 |             14 |   0.927 |          32.5 |        0.900 |

Raw counts in millions:

| model              |   instructions |   accesses |   L1 misses |   not sequential |   L2 misses |
|--------------------|----------------|------------|-------------|------------------|-------------|
| mobilenet_v1       |         198.96 |     104.81 |        5.45 |             1.72 |        1.47 |
| mobilenet_v2       |         118.30 |      69.89 |        2.64 |             1.35 |        0.77 |
| mobilenet_v3_large |          90.18 |      57.27 |        2.16 |             1.18 |        0.72 |
| mobilenet_v3_small |          27.21 |      18.84 |        0.66 |             0.37 |        0.21 |

Best penalty for all of them: 35.37 cycles; in use: 35."""
    )


def test_json_has_the_raw_counts() -> None:
    data = json.loads(as_json(validate(COUNTED), "what was run"))
    assert (data["penalty"], data["problems"]) == (PENALTY, [])
    assert {network["name"]: Totals(**network["counts"]) for network in data["networks"]} == COUNTED


@pytest.mark.parametrize(("wrong", "code"), [(1.0, 0), (1.2, 1)])
def test_exit_code(
    toolchain: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: float,
    code: int,
) -> None:
    """Only the counting is replaced, by what it once gave."""
    counted = {name: replace(t, compute_cycles=t.compute_cycles * wrong) for name, t in COUNTED.items()}
    monkeypatch.setattr(validation, "count_networks", lambda *_: (counted, "LiteRT"))
    assert validation.main(["--json"]) == code
    captured = capsys.readouterr()
    problems = json.loads(captured.out)["problems"]
    assert captured.err == "".join(f"error: {problem}\n" for problem in problems)
    assert bool(problems) == bool(code)


def test_networks_that_cannot_be_built(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The builder's own words, in one line. A keras that is none stands in for one that is not installed."""
    (tmp_path / "keras.py").write_text("raise ImportError('no keras here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert validation.main(["--models", str(tmp_path / "empty")]) == ModelError.exit_code
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: cannot build mobilenet_v1: building a model needs TensorFlow (no keras here): "
        "install the extra with .venv/bin/pip install -e '.[models]'"
    )


@pytest.mark.slow
def test_the_core_against_published_latencies(toolchain: Toolchain, tmp_path: Path) -> None:
    """The networks are built with TensorFlow (the extra `models`) unless they are there already."""
    with Progress() as progress, open(tmp_path / "core.log", "w") as log:
        counted, runtime = count_networks(toolchain, ROOT / builder.DEFAULT_DIRECTORY, progress, log)
    found = validate(counted)
    print(as_text(found, runtime))
    assert runtime.endswith("1 thread, XNNPACK on")
    assert found.problems == []
    assert all(network.cycles.totals.unpriced == 0 for network in found.networks)
    assert abs(PENALTY - round(found.fitted_penalty)) <= 1
    # As docs/kryo.md has it; what the packages of another system count differs a little.
    for name, stored in COUNTED.items():
        assert counted[name].instructions == pytest.approx(stored.instructions, rel=0.01)
        assert counted[name].l1_nonsequential == pytest.approx(stored.l1_nonsequential, rel=0.01)
