"""Which CPU features a target's code uses that a device does not have: it would end there with an illegal instruction.

LLVM and Linux have different words for the same feature. Only those are here that LLVM uses by itself for arithmetic
on arrays: what is not in the tables (prefetching, protection keys, tuning hints) does not keep code from running.
"""

from __future__ import annotations

from collections.abc import Collection

# LLVM: llvm/lib/Target/{AArch64,ARM,X86}; Linux: arch/arm64/kernel/cpuinfo.c, arch/arm/kernel/setup.c,
# arch/x86/include/asm/cpufeatures.h.
_AARCH64 = {
    "fp-armv8": "fp",
    "neon": "asimd",
    "lse": "atomics",
    "rdm": "asimdrdm",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "complxnum": "fcma",
    "jsconv": "jscvt",
    "rcpc": "lrcpc",
    "rcpc-immo": "ilrcpc",
    "flagm": "flagm",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "fptoint": "frint",
    "sve": "sve",
    "sve2": "sve2",
    "f32mm": "svef32mm",
    "f64mm": "svef64mm",
    "sme": "sme",
}
_ARM = {
    "neon": "neon",
    "vfp3": "vfpv3",
    "vfp4": "vfpv4",
    "d32": "vfpd32",
    "hwdiv": "idivt",
    "hwdiv-arm": "idiva",
    "dotprod": "asimddp",
    "fullfp16": "fphp",
    "i8mm": "i8mm",
    "bf16": "asimdbf16",
}
_X86 = {
    "sse": "sse",
    "sse2": "sse2",
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "fma4": "fma4",
    "xop": "xop",
    "f16c": "f16c",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "popcnt": "popcnt",
    "movbe": "movbe",
    "gfni": "gfni",
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512bw": "avx512bw",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
_WORDS = {"aarch64": _AARCH64, "arm": _ARM, "x86_64": _X86}


def missing_features(architecture: str, used: Collection[str], there: Collection[str]) -> list[str]:
    """Those of the features `used` (LLVM's words) that are not `there` (words of /proc/cpuinfo), as LLVM calls them.

    `architecture` is as `spec.target.architecture` says it; of those without a table nothing is known to be missing.
    """
    words = _WORDS.get(architecture, {})
    return sorted(feature for feature in used if feature in words and words[feature] not in there)


def known_features(architecture: str, used: Collection[str]) -> int:
    """How many of the features `used` (LLVM's words) can be looked for on a device."""
    return len(set(used) & set(_WORDS.get(architecture, ())))
