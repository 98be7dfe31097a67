"""Which of LLVM's features are looked for in the words of a kernel."""

from __future__ import annotations

import pytest

from layoutlab.device.cpu import cpu_features
from layoutlab.device.rpc.features import known_features, missing_features

CORTEX_A73 = ["fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "cpuid"]
RASPBERRY_32 = [
    "half",
    "thumb",
    "vfp",
    "edsp",
    "neon",
    "vfpv3",
    "tls",
    "vfpv4",
    "idiva",
    "idivt",
    "vfpd32",
    "lpae",
    "crc32",
]


@pytest.mark.parametrize(
    ("architecture", "used", "there", "missing"),
    [
        ("aarch64", ["neon", "fp-armv8", "crc"], CORTEX_A73, []),
        ("aarch64", ["neon", "dotprod", "fullfp16", "lse"], CORTEX_A73, ["dotprod", "fullfp16", "lse"]),
        ("arm", ["neon", "vfp4", "d32", "hwdiv", "hwdiv-arm"], RASPBERRY_32, []),
        ("arm", ["neon", "dotprod"], RASPBERRY_32, ["dotprod"]),
        ("x86_64", ["sse3", "avx512vnni", "prefer-256-bit"], ["pni"], ["avx512vnni"]),
        # Tuning hints, and what only the system uses, keep no code from running.
        ("aarch64", ["alu-lsl-fast", "kryo", "perfmon"], [], []),
        ("riscv64", ["v"], [], []),
    ],
)
def test_what_a_device_lacks(architecture, used, there, missing):
    assert missing_features(architecture, used, there) == missing


def test_how_many_can_be_looked_for():
    assert known_features("aarch64", ["neon", "kryo", "dotprod"]) == 2
    assert known_features("riscv64", ["v"]) == 0


def test_this_machine_lacks_nothing_that_its_own_target_uses():
    from tvm.target import Target, codegen

    from layoutlab.device.host import llvm_target
    from layoutlab.spec.target import architecture

    used = [str(feature) for feature in codegen.llvm_get_cpu_features(Target(llvm_target()))]
    assert known_features(architecture("host"), used) > 1
    assert missing_features(architecture("host"), used, cpu_features()) == []
