"""The simulated core against published latencies of a real one: `python -m layoutlab.device.kryo.validate`.

Counts one warm inference of each of four MobileNets under TFLite, compares the milliseconds with what XNNPACK's authors
measured on a phone with this core, and fits PENALTY anew. Ends with 1 when a network is off by more than a tenth, or
when the networks come in another order. `docs/kryo.md` has the results.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from scipy.optimize import least_squares
from tabulate import tabulate

from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.device.kryo.cycles import Cycles, Totals, estimate
from layoutlab.device.kryo.device import KryoDevice
from layoutlab.device.kryo.provision import provision
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import EXIT_INTERRUPTED, EXIT_OK, DeviceError, LayoutlabError, StageError
from layoutlab.measure.inputs import make_inputs, save_sets
from layoutlab.model.build import DEFAULT_DIRECTORY
from layoutlab.model.resolve import built_model
from layoutlab.progress import Progress

# Milliseconds of one thread on a Pixel 2, whose Snapdragon 835 has Kryo 280 cores, by the name that `model.build` gives
# the network: XNNPACK's README, section Performance, "Benchmarked on March 27, 2020" with XNNPACK's own end2end_bench.
PUBLISHED_MS = {"mobilenet_v1": 86.0, "mobilenet_v2": 53.0, "mobilenet_v3_large": 42.0, "mobilenet_v3_small": 14.0}
# How far a network may be off.
TOLERANCE = 0.10

_EXIT_BEYOND = 1
_INPUT = {"name": "input", "shape": (1, 224, 224, 3), "dtype": "float32"}
# Some seconds are needed; this is for a machine that is busy with something else.
_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A network against its published latency; `ratio` is simulated over published.

    `others_penalty` is the penalty that fits the other networks best, and `others_ratio` what the ratio of this one is
    with it: how far off the model is for a network that it was not fitted to.
    """

    name: str
    cycles: Cycles
    published_ms: float
    ratio: float
    others_penalty: float
    others_ratio: float


@dataclass(frozen=True, kw_only=True)
class Validation:
    """All networks with PENALTY as it is, and the penalty that would fit them best."""

    fitted_penalty: float
    networks: tuple[Checked, ...]

    @property
    def problems(self) -> list[str]:
        """What does not hold."""
        off = [
            f"{network.name}: {network.cycles.ms:.1f} ms is {network.ratio:.3f} of the published "
            f"{network.published_ms:g} ms; expected {1 - TOLERANCE:.2f} to {1 + TOLERANCE:.2f}"
            for network in self.networks
            if abs(network.ratio - 1) > TOLERANCE
        ]
        simulated = _names(sorted(self.networks, key=lambda network: network.cycles.ms))
        published = _names(sorted(self.networks, key=lambda network: network.published_ms))
        return off if simulated == published else [*off, f"the order is {simulated}; expected {published}"]


def validate(counted: Mapping[str, Totals], published_ms: Mapping[str, float] = PUBLISHED_MS) -> Validation:
    """Compare the counts of one inference of each network with its published latency."""
    return Validation(
        fitted_penalty=fit_penalty(counted, published_ms),
        networks=tuple(_check(name, counted, published_ms) for name in counted),
    )


def fit_penalty(counted: Mapping[str, Totals], published_ms: Mapping[str, float]) -> float:
    """The penalty with the least sum of squares of log(simulated / published): 10 % count alike above and below."""

    def errors(penalty: Sequence[float]) -> list[float]:
        return [math.log(_ms(totals, penalty[0]) / published_ms[name]) for name, totals in counted.items()]

    return float(least_squares(errors, x0=PENALTY, bounds=(0, math.inf), xtol=1e-12, ftol=1e-12, gtol=1e-12).x[0])


def _check(name: str, counted: Mapping[str, Totals], published_ms: Mapping[str, float]) -> Checked:
    others = fit_penalty({other: totals for other, totals in counted.items() if other != name}, published_ms)
    cycles = estimate(counted[name])
    return Checked(
        name=name,
        cycles=cycles,
        published_ms=published_ms[name],
        ratio=cycles.ms / published_ms[name],
        others_penalty=others,
        others_ratio=_ms(counted[name], others) / published_ms[name],
    )


def _ms(totals: Totals, penalty: float) -> float:
    """`estimate(totals).ms` with another penalty."""
    return (totals.compute_cycles + penalty * totals.l1_nonsequential) / (CLOCK_GHZ * 1e6)


def _names(networks: Sequence[Checked]) -> str:
    return " < ".join(network.name for network in networks)


def count_networks(
    toolchain: Toolchain, folder: Path, progress: Progress, log: TextIO
) -> tuple[dict[str, Totals], str]:
    """The counts of each network, and what ran them. Networks that `folder` lacks are built with TensorFlow first.

    The core's output goes to `log`. Raises ModelError when a network cannot be built. Imports TVM.
    """
    from layoutlab.device.kryo.core import PricedCore

    models = {name: built_model(name, folder.resolve(), progress) for name in PUBLISHED_MS}
    counted, runtime = {}, ""
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as temporary, PricedCore(toolchain, log) as core:
        inputs = Path(temporary) / "inputs.npz"
        save_sets(inputs, make_inputs([_INPUT], (-1.0, 1.0), sets=1, seed=1))
        for name, model in models.items():
            progress.show(f"counting one inference of {name}")
            runner = {"kind": "tflite", "path": str(model), "threads": 1}
            done = core.run_inference(runner, inputs, _TIMEOUT_S)
            counted[name], runtime = done.cycles.totals, done.runtime
    return counted, runtime


def as_text(validation: Validation, what: str) -> str:
    """Two tables and the fit; `what` says what was run."""
    lines = [
        f"{what}.",
        "",
        "Compute and memory in millions of cycles:",
        "",
        _table(_RESULTS, map(_result_cells, validation.networks)),
        "",
    ]
    lines += ["Raw counts in millions:", "", _table(_COUNTS, map(_count_cells, validation.networks)), ""]
    lines.append(f"Best penalty for all of them: {validation.fitted_penalty:.2f} cycles; in use: {PENALTY:g}.")
    return "\n".join(lines)


_RESULTS = (
    "model",
    "compute",
    "memory",
    "simulated ms",
    "published ms",
    "ratio",
    "others' fit",
    "ratio then",
)
_COUNTS = ("model", "instructions", "accesses", "L1 misses", "not sequential", "L2 misses")


def _result_cells(network: Checked) -> list[str]:
    cycles = network.cycles
    return [
        network.name,
        f"{cycles.compute / 1e6:.1f}",
        f"{cycles.memory / 1e6:.1f}",
        f"{cycles.ms:.1f}",
        f"{network.published_ms:g}",
        f"{network.ratio:.3f}",
        f"{network.others_penalty:.1f}",
        f"{network.others_ratio:.3f}",
    ]


def _count_cells(network: Checked) -> list[str]:
    totals = network.cycles.totals
    counts = (totals.instructions, totals.accesses, totals.l1_misses, totals.l1_nonsequential, totals.l2_misses)
    return [network.name, *(f"{count / 1e6:.2f}" for count in counts)]


def _table(headers: Sequence[str], rows: Any) -> str:
    alignment = ("left", *["right"] * (len(headers) - 1))
    return tabulate(list(rows), headers, tablefmt="github", disable_numparse=True, colalign=alignment)


def as_json(validation: Validation, what: str) -> str:
    """The same as JSON, with the raw counts as they are."""
    networks = [
        {
            "name": network.name,
            "simulated_ms": network.cycles.ms,
            "published_ms": network.published_ms,
            "ratio": network.ratio,
            "others_penalty": network.others_penalty,
            "others_ratio": network.others_ratio,
            "counts": asdict(network.cycles.totals),
        }
        for network in validation.networks
    ]
    data = {
        "what": what,
        "clock_ghz": CLOCK_GHZ,
        "penalty": PENALTY,
        "fitted_penalty": validation.fitted_penalty,
        "networks": networks,
        "problems": validation.problems,
    }
    return json.dumps(data, indent=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Validate the core and print the result; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with Progress() as progress:
            toolchain = provision(progress.say, progress.show)
            counted, runtime = _count(toolchain, options.models, progress)
    except LayoutlabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    validation = validate(counted)
    what = f"{KryoDevice(toolchain).name} ({toolchain.summary()}), one warm inference of {runtime}"
    print(as_json(validation, what) if options.json else as_text(validation, what))
    for problem in validation.problems:
        print(f"error: {problem}", file=sys.stderr)
    return _EXIT_BEYOND if validation.problems else EXIT_OK


def _count(toolchain: Toolchain, folder: Path, progress: Progress) -> tuple[dict[str, Totals], str]:
    """`count_networks`; what the core says is shown when it fails."""
    with tempfile.TemporaryFile("w+") as log:
        try:
            return count_networks(toolchain, folder, progress, log)
        except (DeviceError, StageError):
            log.seek(0)
            print(log.read(), file=sys.stderr, end="")
            raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m layoutlab.device.kryo.validate",
        description="Compare the simulated Kryo core with the published latencies of four MobileNets.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--models",
        type=Path,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="where the networks are, or are built with TensorFlow (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
