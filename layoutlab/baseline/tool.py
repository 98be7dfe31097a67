"""The baseline's rounds from TFLite's `benchmark_model`: run by layoutlab in each round, or run before, by hand.

It is for devices that have no LiteRT for Python. The tool reports statistics, not calls, so a round is one sample:
the average of its calls. The reference outputs are LiteRT's all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from layoutlab.baseline.benchmark_model import parse_output, read_result
from layoutlab.baseline.result import BenchmarkResult
from layoutlab.baseline.through import Through
from layoutlab.baseline.tool_log import decode
from layoutlab.begin import Run
from layoutlab.compiling import file_sha256, hash_json
from layoutlab.errors import BaselineError, DeviceError, UsageError
from layoutlab.measure.busy import busy_reasons, cores_of_others, read_cpu_times
from layoutlab.measure.conditions import read_conditions
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import BaselineSpec, MeasureSpec

# The tool ends a run after this time, if it is not told another.
_TOOLS_LONGEST_S = 150.0
# Loading a model and preparing its weights may take this long, besides ten times what was asked for.
_GRACE_S = 120.0
# The log rounds the model's size to six digits.
_SAME_SIZE = 1e-5


class ToolBaseline(Protocol):
    """Where the baseline's rounds come from."""

    @property
    def key(self) -> dict[str, Any]:
        """What figures depend on: with another one they are taken anew."""

    def take_round(self, number: int) -> dict[str, Any] | None:
        """Round `number`, from 0, as it goes into the record; None when there is no such round."""


def require_allowed_tool(loaded: LoadedSpec, allowed: Sequence[str]) -> None:
    """Raise UsageError when the spec runs a program that nobody allowed: by its path, as the spec has it."""
    tool = loaded.spec.baseline.tool
    if tool is not None and tool not in allowed:
        raise UsageError(
            f'baseline.tool "{tool}" is a program that the spec wants to run, and it is not allowed yet. If you trust '
            f'it, say --allow-hooks {tool}, or put allow-hooks = ["{tool}"] under [tool.layoutlab] in pyproject.toml'
        )


def open_tool_baseline(run: Run) -> ToolBaseline | None:
    """The baseline's rounds by benchmark_model; None when the spec's baseline is LiteRT.

    Saved results are read, and the tool is tried with one call, so that what is wrong is found before any tuning.
    Raises BaselineError, and DeviceError when the figures would be of another device than the variants'.
    """
    spec = run.spec.baseline
    if spec.runtime != "benchmark_model":
        return None
    device = run.choice.device
    if device.simulated:
        raise DeviceError(
            f"baseline.runtime benchmark_model measures, and the {device.name} counts: such figures never share a "
            "table. Choose another device, or runtime: tflite"
        )
    if spec.results is not None:
        return SavedRounds.read(run, spec.results)
    through = Through.parse(spec.through or "local")
    if (through.kind == "local") != (device.kind == "host"):
        raise DeviceError(
            f"baseline.through {through} would measure TFLite on another device than the variants, which run on "
            f"{device.name}: figures of two devices never share a table"
        )
    return ToolRounds.prepare(run, through)


@dataclass(frozen=True, kw_only=True)
class SavedRounds:
    """Results of runs made before: the file of a round, its sha256, and what it reports."""

    files: tuple[tuple[Path, str, BenchmarkResult], ...]

    @staticmethod
    def read(run: Run, names: Sequence[str]) -> SavedRounds:
        """Read the files, which are relative to the spec's folder, and refuse those of other models or threads."""
        if len(names) > run.rounds:
            raise BaselineError(
                f"baseline.results has {len(names)} files, and measure.rounds is {run.rounds}: "
                "there is one file for each round"
            )
        files = []
        for name in names:
            path = run.loaded.path.parent / name
            result = read_result(path)
            _refuse_other_run(result, str(path), run)
            files.append((path, file_sha256(path), result))
        _refuse_twice(files)
        return SavedRounds(files=tuple(files))

    @property
    def key(self) -> dict[str, Any]:
        """See `ToolBaseline`."""
        return {"results": [sha256 for _, sha256, _ in self.files]}

    def take_round(self, number: int) -> dict[str, Any] | None:
        """See `ToolBaseline`."""
        if number >= len(self.files):
            return None
        path, sha256, result = self.files[number]
        runtime = f"benchmark_model, {described(result)}, results saved before"
        return {**_round(result, runtime), "saved": {"file": path.name, "sha256": sha256}}


@dataclass(frozen=True, kw_only=True)
class ToolRounds:
    """Rounds by the tool itself; `program` and `model` are paths on the device, `sha256` is the program's if known."""

    run: Run
    through: Through
    program: str
    model: str
    sha256: str | None

    @staticmethod
    def prepare(run: Run, through: Through) -> ToolRounds:
        """Bring the model to the device, and see with one call that the tool does what is asked of it."""
        spec = run.spec.baseline
        assert spec.tool is not None
        log = run.log("benchmark_model.setup")
        if through.kind == "local":
            program, model = str((run.loaded.path.parent / spec.tool).resolve()), str(run.model.resolve())
            sha256 = file_sha256(Path(program)) if Path(program).is_file() else None
        else:
            program, model = spec.tool, f"{through.folder}/layoutlab-{run.model_sha256[:16]}.tflite"
            through.push(run.model, model, log)
            sha256 = through.sha256(program, log)
        rounds = ToolRounds(run=run, through=through, program=program, model=model, sha256=sha256)
        key = hash_json({**rounds.key, "model": run.model_sha256, "threads": run.spec.threads})
        if not run.store.find("benchmark_model", key=key):
            run.progress.show("baseline: one call of benchmark_model")
            result = rounds._run(_once(run.spec.measure), "trial")
            run.store.append("benchmark_model", key=key, runtime=rounds._runtime(result), warnings=result.warnings)
            for warning in result.warnings:
                run.progress.say(f"baseline: benchmark_model warns: {warning}")
        return rounds

    @property
    def key(self) -> dict[str, Any]:
        """See `ToolBaseline`."""
        spec = self.run.spec.baseline
        return {"tool": spec.tool, "through": str(self.through), "flags": spec.flags, "sha256": self.sha256}

    def take_round(self, number: int) -> dict[str, Any] | None:
        """See `ToolBaseline`."""
        here = self.through.kind == "local"
        before, idle = [read_conditions()] if here else [], read_cpu_times()
        result = self._run(self.run.spec.measure, f"round{number + 1}")
        # The program is a child of this process, whose time counts as its own.
        done, after = read_cpu_times(), [read_conditions()] if here else []
        taken = _round(result, self._runtime(result), [*before, *after])
        if not here:
            return taken
        return {
            **taken,
            "others_cores": cores_of_others(idle, done),
            "disturbed": busy_reasons(idle, done, self.run.spec.threads),
        }

    def _run(self, measure: MeasureSpec, name: str) -> BenchmarkResult:
        # Named as text, for it can be given to `results` as it is.
        log = self.run.store.folder / "logs" / f"benchmark_model.{name}.txt"
        arguments = tool_arguments(self.program, self.model, self.run.spec.threads, measure, self.run.spec.baseline)
        done = self.through.run(arguments, 10 * _expected_s(measure) + _GRACE_S, log)
        source = f"baseline ({self.through}, log: {log})"
        result = parse_output(decode(done.text), source)
        if done.code:
            raise BaselineError(f"{source}: benchmark_model ended with code {done.code} after its statistics")
        _refuse_other_run(result, source, self.run)
        return result

    def _runtime(self, result: BenchmarkResult) -> str:
        program = f"sha256 {self.sha256[:12]}…" if self.sha256 else "program's sha256 unknown"
        return f"benchmark_model, {described(result)}, through {self.through}, {program}"


def tool_arguments(program: str, model: str, threads: int, measure: MeasureSpec, baseline: BaselineSpec) -> list[str]:
    """The tool's command on the device. XNNPACK is always said, for its default differs between builds."""
    flags = {
        "graph": model,
        "num_threads": str(threads),
        "use_xnnpack": "true",
        "warmup_runs": "1",
        "warmup_min_secs": f"{measure.warmup_ms / 1e3:g}",
        "num_runs": str(measure.repeats),
        "min_secs": f"{measure.repeats * measure.min_repeat_ms / 1e3:g}",
    }
    if _expected_s(measure) > _TOOLS_LONGEST_S / 2:
        # Builds of 2018 and 2019 do not know it, so it is said only where it matters.
        flags["max_secs"] = f"{10 * _expected_s(measure):g}"
    flags |= baseline.flags
    return [*_taskset(measure), program, *(f"--{name}={value}" for name, value in flags.items())]


def _taskset(measure: MeasureSpec) -> list[str]:
    """Pinned to the cores that the spec lists; a mask is the one form that every taskset takes."""
    cores = getattr(measure, "cores", None)
    if not isinstance(cores, tuple | list):
        return []
    return ["taskset", f"{sum(1 << core for core in set(cores)):x}"]


def _expected_s(measure: MeasureSpec) -> float:
    return (measure.warmup_ms + measure.repeats * measure.min_repeat_ms) / 1e3


def _once(measure: MeasureSpec) -> MeasureSpec:
    return measure.model_copy(update={"repeats": 1, "min_repeat_ms": 0, "warmup_ms": 0})


def described(result: BenchmarkResult) -> str:
    """How TFLite ran: threads, XNNPACK and other delegates, as far as the tool said so."""
    threads = f"{result.threads} thread{'' if result.threads == 1 else 's'}" if result.threads else "threads unknown"
    xnnpack = {True: "on", False: "off", None: "unknown"}[result.xnnpack]
    return ", ".join([threads, f"XNNPACK {xnnpack}", *(f"{name} delegate" for name in result.delegates)])


def _round(result: BenchmarkResult, runtime: str, conditions: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {
        "samples_ms": [result.inference.avg_us / 1e3],
        "conditions": list(conditions),
        "runtime": runtime,
        "benchmark_model": asdict(result),
    }


def _refuse_other_run(result: BenchmarkResult, source: str, run: Run) -> None:
    if result.threads is not None and result.threads not in (run.spec.threads, -1):
        raise BaselineError(
            f"{source}: ran with {result.threads} threads, and the spec has {run.spec.threads}: "
            "a comparison needs equal threads"
        )
    model_mb = run.model.stat().st_size / 1e6
    if result.model_mb is not None and abs(result.model_mb - model_mb) > _SAME_SIZE * model_mb:
        raise BaselineError(
            f"{source}: ran another model, of {result.model_mb:g} MB; {run.model.name} has {model_mb:g} MB"
        )


def _refuse_twice(files: Sequence[tuple[Path, str, BenchmarkResult]]) -> None:
    """The same run given twice would look like two rounds that agree."""
    first: dict[str, Path] = {}
    for path, sha256, _ in files:
        if first.setdefault(sha256, path) is not path:
            raise BaselineError(f"{path} is the same run as {first[sha256]}: each round needs a run of its own")
