"""Folder trees as sysfs has them on several machines, written from what is said about each core."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_cores(root: Path, cores: Sequence[dict[str, object]]) -> Path:
    """One folder per core with these files (paths below the core's folder); returns `root`."""
    for number, files in enumerate(cores):
        folder = root / "devices/system/cpu" / f"cpu{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{value}\n")
    # Folders beside them that are no cores.
    for name in ("cpufreq", "cpuidle"):
        (root / "devices/system/cpu" / name).mkdir(parents=True, exist_ok=True)
    return root


def write_zones(root: Path, zones: Sequence[tuple[str, int]]) -> Path:
    """Thermal zones, each of a type and the number in its file `temp`; returns `root`."""
    for number, (kind, raw) in enumerate(zones):
        folder = root / "class/thermal" / f"thermal_zone{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "type").write_text(f"{kind}\n")
        (folder / "temp").write_text(f"{raw}\n")
    return root


def core(frequency_khz: int, max_khz: int, limit_khz: int | None = None, governor: str = "schedutil") -> dict:
    """A core with cpufreq."""
    return {
        "online": 1,
        "cpufreq/scaling_governor": governor,
        "cpufreq/scaling_cur_freq": frequency_khz,
        "cpufreq/cpuinfo_max_freq": max_khz,
        "cpufreq/scaling_max_freq": max_khz if limit_khz is None else limit_khz,
    }


def four_and_four(root: Path) -> Path:
    """A phone with four little and four big cores, told apart by their frequencies."""
    return write_cores(root, [core(600_000, 1_766_400)] * 4 + [core(1_200_000, 2_803_200)] * 4)


def three_clusters(root: Path) -> Path:
    """A phone with four little, three middle cores and a big one, with capacities."""
    capacities = [261] * 4 + [871] * 3 + [1024]
    return write_cores(root, [{"cpu_capacity": capacity} for capacity in capacities])


def plain_x86(root: Path) -> Path:
    """A desktop CPU of four cores, one of which may boost a little higher, with throttle counters."""
    counters = {"thermal_throttle/core_throttle_count": 0, "thermal_throttle/package_throttle_count": 2}
    return write_cores(
        root, [core(3_400_000, khz, governor="powersave") | counters for khz in (5_000_000,) * 3 + (5_200_000,)]
    )
