"""The rules that tie several fields of a spec together.

They work on plain, perhaps half-read data (fields may be missing or of any type), so that a file with
other mistakes still gets all of these reported in the same pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from layoutlab.spec.target import TargetError, parse_target
from layoutlab.spec.words import quoted

Loc = tuple[str | int, ...]


class BrokenRule(NamedTuple):
    """A broken rule: the path of keys and list positions it belongs to, and what to say."""

    loc: Loc
    message: str


def spec_problems(spec: Mapping[str, Any]) -> list[BrokenRule]:
    """Every broken rule of a whole spec, whatever else is wrong with it."""
    model = spec.get("model")
    problems = _within("model", model_problems(model)) if isinstance(model, Mapping) else []
    problems += _within("baseline", baseline_problems(_mapping(spec.get("baseline"))))
    if (
        _mapping(spec.get("baseline")).get("runtime") == "benchmark_model"
        and _device_word(spec.get("device")) == "kryo"
    ):
        message = "benchmark_model measures, and device: kryo counts: such figures never share a table"
        problems.append(BrokenRule(("baseline", "runtime"), message))
    problems += _thread_problems(spec)
    device = spec.get("device")
    problems += _within("device", device_problems(device)) if isinstance(device, Mapping) else []
    engine = spec.get("engine")
    problems += _within("engine", engine_problems(engine)) if isinstance(engine, Mapping) else []
    variants = spec.get("variants")
    variants = list(variants) if isinstance(variants, list | tuple) else []
    problems += _name_problems(variants)
    for index, variant in enumerate(variants):
        hook = _mapping(_mapping(variant).get("alter_op_layout"))
        problems += _within("variants", _within(index, _within("alter_op_layout", hook_problems(hook))))
        own = _mapping(_mapping(variant).get("engine"))
        problems += _within("variants", _within(index, _within("engine", engine_problems(own))))
    return problems + _within("tuning", tuning_problems(_mapping(spec.get("tuning"))))


def model_problems(model: Mapping[str, Any]) -> list[BrokenRule]:
    """Exactly one of file and build is given, and low < high."""
    problems = []
    given = [key for key in ("file", "build") if model.get(key) is not None]
    if len(given) == 2:
        problems.append(BrokenRule(("build",), "file is given too: a model has exactly one of file and build"))
    if not given:
        problems.append(BrokenRule((), "a model needs exactly one of file and build, found neither"))
    match model.get("input_range"):
        case (int() | float() as low, int() | float() as high) if not low < high:
            problems.append(BrokenRule(("input_range",), f"expected low < high, found [{low:g}, {high:g}]"))
    return problems


def device_problems(device: Mapping[str, Any]) -> list[BrokenRule]:
    """Exactly one of on, rpc and agent is given; a tracker knows devices by key; only RPC has a key."""
    given = [name for name in ("on", "rpc", "agent") if device.get(name) is not None]
    if len(given) > 1:
        return [BrokenRule((given[1],), f"{given[0]} is given too: a device has exactly one of on, rpc and agent")]
    if not given:
        return [BrokenRule((), "a device needs exactly one of on, rpc and agent, found none")]
    if given == ["rpc"] and device.get("key") is None:
        return [
            BrokenRule((), "rpc is a tracker, which needs the devices' key, e.g. {rpc: 127.0.0.1:9190, key: pixel}")
        ]
    if given == ["on"] and device.get("key") is not None:
        return [BrokenRule(("key",), "only rpc and agent take a key")]
    return []


def baseline_problems(baseline: Mapping[str, Any]) -> list[BrokenRule]:
    """The tool's options belong to the tool, which has either saved results or a program to run."""
    given = [key for key in ("results", "tool", "through", "flags") if baseline.get(key)]
    if baseline.get("runtime", "tflite") == "tflite":
        return [BrokenRule((key,), f"only runtime benchmark_model takes {key}") for key in given]
    if baseline.get("runtime") != "benchmark_model":
        return []
    if "tool" not in given:
        if "results" not in given:
            return [BrokenRule((), "runtime benchmark_model needs exactly one of tool and results, found neither")]
        return [BrokenRule((key,), f"{key} belongs to a tool, and results are of runs before") for key in given[1:]]
    problems = []
    if "results" in given:
        problems.append(BrokenRule(("results",), "tool is given too: there is either a tool or results"))
    tool = baseline["tool"]
    if isinstance(tool, str) and "benchmark_model" not in tool.rpartition("/")[2]:
        problems.append(BrokenRule(("tool",), f"expected a program named benchmark_model, found {quoted(tool)}"))
    return problems + _within("flags", _flag_problems(_mapping(baseline.get("flags"))))


# Where the spec says what these flags of benchmark_model say.
_FLAGS_OF_THE_SPEC = {
    "graph": "model",
    "num_threads": "baseline.threads",
    "num_runs": "measure",
    "min_secs": "measure",
    "max_secs": "measure",
    "warmup_runs": "measure",
    "warmup_min_secs": "measure",
}


def _flag_problems(flags: Mapping[str, Any]) -> list[BrokenRule]:
    problems = []
    for flag in flags:
        if not re.fullmatch("[a-z][a-z0-9_]*", flag):
            message = "expected the name of a flag without dashes in front, such as use_xnnpack"
            problems.append(BrokenRule((flag,), message))
        elif flag in _FLAGS_OF_THE_SPEC:
            message = f"layoutlab says this flag itself, from the spec's {_FLAGS_OF_THE_SPEC[flag]}"
            problems.append(BrokenRule((flag,), message))
        elif flag == "dry_run":
            problems.append(BrokenRule((flag,), "a dry run measures nothing"))
    return problems


def hook_problems(hook: Mapping[str, Any]) -> list[BrokenRule]:
    """Exactly one of hook and rules is given; hook nchwc needs a block, and nothing else takes its options."""
    name, block = hook.get("hook"), hook.get("block")
    if hook.get("rules") is not None and name is not None:
        return [BrokenRule(("rules",), "hook is given too: there is either a hook or a table of rules")]
    if name == "nchwc" and block is None:
        return [BrokenRule((), "hook nchwc needs a block, e.g. {hook: nchwc, block: 8}")]
    if hook and name is None and hook.get("rules") is None:
        return [BrokenRule((), "expected a hook or a table of rules, found neither")]
    if name == "nchwc":
        return []
    given = f"hook {quoted(name)}" if isinstance(name, str) else "a table of rules"
    return [
        BrokenRule((option,), f"only hook nchwc takes {'a block' if option == 'block' else option}, found {given}")
        for option in ("block", "channels")
        if hook.get(option) is not None and (isinstance(name, str) or hook.get("rules") is not None)
    ]


def engine_problems(engine: Mapping[str, Any]) -> list[BrokenRule]:
    """Only the Relay engine has an interpreter of its own, and records from elsewhere."""
    if engine.get("kind") != "relax":
        return []
    return [BrokenRule((key,), f"only engine relay takes {key}") for key in ("python", "tophub") if engine.get(key)]


def tuning_problems(tuning: Mapping[str, Any]) -> list[BrokenRule]:
    """A search that ranks candidates before they are measured needs what ranks them."""
    if tuning.get("cost_model") == "none" and tuning.get("search", "evolutionary") == "evolutionary":
        return [BrokenRule(("cost_model",), "evolutionary search needs a cost model")]
    return []


def _name_problems(variants: list[Any]) -> list[BrokenRule]:
    problems = []
    first: dict[str, int] = {}
    for index, variant in enumerate(variants):
        name = _mapping(variant).get("name")
        if isinstance(name, str) and first.setdefault(name, index) != index:
            message = f"{quoted(name)} is already the name of variants[{first[name]}]"
            problems.append(BrokenRule(("variants", index, "name"), message))
    return problems


def _thread_problems(spec: Mapping[str, Any]) -> list[BrokenRule]:
    if not isinstance(spec.get("baseline"), Mapping):
        return []
    threads = spec["baseline"].get("threads")
    cores = _cores(spec.get("target"))
    if not isinstance(threads, int) or cores in (None, threads):
        return []
    message = f"{threads}, but the target has num-cores {cores}: a comparison needs equal threads"
    return [BrokenRule(("baseline", "threads"), message)]


def _cores(target: Any) -> int | None:
    if not isinstance(target, str | dict) or target == "host":
        return None
    try:
        return parse_target(target).get("num-cores")
    except TargetError as error:
        return error.partial.get("num-cores")


def _device_word(device: Any) -> Any:
    """`auto`, `host` or `kryo`, in whichever form it is written."""
    return device.get("on") if isinstance(device, Mapping) else device


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _within(key: str | int, problems: list[BrokenRule]) -> list[BrokenRule]:
    return [BrokenRule((key, *rule.loc), rule.message) for rule in problems]
