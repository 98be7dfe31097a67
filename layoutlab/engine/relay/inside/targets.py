"""Targets as these TVMs take them: one line of options, as all of them read it."""

import platform

import tvm

# A TVM without a triple compiles for what its LLVM was built for, which need not be this machine.
_TRIPLES = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "armv7l": "armv7l-linux-gnueabihf"}
_ORDER = ("keys", "device", "model", "mtriple", "mcpu", "mattr", "mabi", "mfloat-abi", "opt-level", "num-cores")
# Older releases refuse what they do not know, and what these say is not needed to compile.
_NOT_TOLD = ("num-cores",)


def make_target(options):
    """A `tvm.target.Target` of a target's dict form; without a triple, it is for this machine."""
    return tvm.target.Target(target_text(options))


def target_text(options):
    """`llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon`."""
    filled = dict(options)
    if "mtriple" not in filled and platform.machine() in _TRIPLES:
        filled["mtriple"] = _TRIPLES[platform.machine()]
    words = [filled["kind"]]
    for name in _ORDER:
        value = filled.get(name)
        if value is None or name in _NOT_TOLD:
            continue
        words.append("-%s=%s" % (name, ",".join(value) if isinstance(value, list) else value))
    return " ".join(words)
