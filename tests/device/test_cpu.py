"""What /proc/cpuinfo of several machines says, in words."""

from __future__ import annotations

import pytest

from layoutlab.device.cpu import features_of, name_of


def cores(count: int, implementer: int, part: int) -> str:
    """The paragraphs of cores on Arm, where kernels name no model."""
    return "".join(
        f"processor\t: {number}\nBogoMIPS\t: 38.00\nFeatures\t: fp asimd crc32\nCPU implementer\t: {implementer:#x}\n"
        f"CPU architecture: 8\nCPU variant\t: 0xa\nCPU part\t: {part:#x}\nCPU revision\t: 1\n\n"
        for number in range(count)
    )


PIXEL_2 = cores(4, 0x51, 0x801) + cores(4, 0x51, 0x800) + "Hardware\t: Qualcomm Technologies, Inc MSM8998\n"
RASPBERRY = cores(4, 0x41, 0xD08) + "Revision\t: c03111\nModel\t\t: Raspberry Pi 4 Model B Rev 1.1\n"
XEON = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R)  Xeon(R)\nflags\t\t: fpu sse2 avx2\n\n"


@pytest.mark.parametrize(
    "cpuinfo, machine, board, name",
    [
        (PIXEL_2, "aarch64", "Pixel 2", "Pixel 2, 4 x Kryo 2xx Silver + 4 x Kryo 2xx Gold"),
        (PIXEL_2, "aarch64", None, "Qualcomm Technologies, Inc MSM8998, 4 x Kryo 2xx Silver + 4 x Kryo 2xx Gold"),
        (RASPBERRY, "aarch64", None, "Raspberry Pi 4 Model B Rev 1.1, 4 x Cortex-A72"),
        (cores(2, 0x41, 0xD03), "aarch64", None, "2 x Cortex-A53"),
        (cores(1, 0x61, 0x22), "aarch64", None, "1 x ARMv8 implementer 0x61 part 0x022"),
        (XEON * 2, "x86_64", None, "Intel(R) Xeon(R)"),
        (XEON, "aarch64", None, "emulated aarch64 on Intel(R) Xeon(R)"),
        ("", "aarch64", None, None),
    ],
)
def test_a_cpu_has_the_name_that_its_kernel_gives_it(cpuinfo, machine, board, name):
    assert name_of(cpuinfo, machine, board) == name


@pytest.mark.parametrize(
    "cpuinfo, machine, features",
    [
        (PIXEL_2, "aarch64", ["asimd", "crc32", "fp"]),
        (PIXEL_2, "armv8l", ["asimd", "crc32", "fp"]),
        (XEON, "x86_64", ["avx2", "fpu", "sse2"]),
        # An emulator's programs see the file of its host.
        (XEON, "aarch64", []),
        ("", "x86_64", []),
    ],
)
def test_features_are_those_of_the_architecture(cpuinfo, machine, features):
    assert features_of(cpuinfo, machine) == features
