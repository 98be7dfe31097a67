"""What a target string in a log lacks, and the same target as a layoutlab spec takes it."""

from __future__ import annotations

import re

from layoutlab.spec.target import TargetError, format_target, parse_target

_FLAG = re.compile(r"--?([A-Za-z][\w-]*)[= ]([^\s]+)")
# What TVM's `tvm.target.arm_cpu(model)` knows by name, and LLVM's name of the (fastest) core in it.
_CORES = {
    "snapdragon835": "kryo",
    "snapdragon855": "kryo",
    "kirin970": "cortex-a73",
    "rk3399": "cortex-a72",
    "bcm2837": "cortex-a53",
    "bcm2711": "cortex-a72",
    "ultra96": "cortex-a53",
}
_KNOWN_FLAGS = ("device", "mtriple", "mcpu", "mattr", "num-cores")
HOST = "host"


def target_flags(target: str) -> dict[str, str]:
    """The flags of a target string; `-target` is what `-mtriple` was called before TVM 0.7."""
    flags = dict(_FLAG.findall(target))
    if "mtriple" not in flags and "target" in flags:
        flags["mtriple"] = flags["target"]
    return flags


def is_arm(target: str) -> bool:
    """Whether it is for an Arm CPU, by its device, keys or triple."""
    flags = target_flags(target)
    named = f"{flags.get('device', '')},{flags.get('keys', '')}".split(",")
    return "arm_cpu" in named or flags.get("mtriple", "").startswith(("aarch64", "arm"))


def target_problems(target: str) -> list[str]:
    """What the target leaves out, each with what that means."""
    flags = target_flags(target)
    if not target.startswith("llvm"):
        return []
    problems = []
    if "mcpu" not in flags:
        core = "the generic core of its triple" if "mtriple" in flags else "a generic core"
        model = f"; -model={flags['model']} only picks tuning records" if "model" in flags else ""
        problems.append(f"no -mcpu, so LLVM compiles for {core}{model}")
    if is_arm(target):
        if "mattr" not in flags:
            problems.append("no -mattr; TVM's arm_cpu schedules ask for +neon where the triple is not aarch64")
        if "mtriple" not in flags:
            problems.append("no -mtriple, so the code is for the machine that compiles")
    return problems


def spec_target(targets: list[str]) -> str:
    """The most frequent target of a log as a spec's `target`; `host` where a spec has no such target.

    Where the core is not named, it is that of the phone or board in `-model`, as far as that is known here.
    """
    for target in targets:
        flags = target_flags(target)
        if not target.startswith("llvm") or ("mtriple" not in flags and is_arm(target)):
            continue
        if (core := flags.get("mcpu") or _CORES.get(flags.get("model", ""))) is None:
            continue
        kept = {name: flags[name] for name in _KNOWN_FLAGS if name in flags} | {"mcpu": core}
        if is_arm(target):
            kept = {"device": "arm_cpu", "mattr": "+neon"} | kept
        kept.setdefault("num-cores", "1")
        try:
            return format_target(parse_target("llvm " + " ".join(f"-{name}={value}" for name, value in kept.items())))
        except TargetError:
            continue
    return HOST
