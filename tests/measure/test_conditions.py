"""The machine's state from sysfs trees and Android's texts, cool-downs, and what counts as disturbed."""

from __future__ import annotations

import json
import threading

import pytest

from layoutlab.measure import android
from layoutlab.measure.conditions import hottest_cpu_c, read_conditions
from layoutlab.measure.cooldown import cool_down
from layoutlab.measure.disturbed import disturbances

from .trees import core, four_and_four, plain_x86, write_cores, write_zones


def test_a_phone(tmp_path):
    root = write_zones(
        four_and_four(tmp_path),
        [("battery", 31_000), ("cpu-1-0-usr", 44_500), ("cpu-0-0-usr", 41_200), ("aoss", -274_000)],
    )
    state = read_conditions(root, cores=(4, 5, 6, 7))
    assert (state["governor"], state["frequency_khz"]) == ("schedutil", 1_200_000)
    assert state["cores"][7] == {
        "core": 7,
        "online": True,
        "governor": "schedutil",
        "frequency_khz": 1_200_000,
        "max_khz": 2_803_200,
        "limit_khz": 2_803_200,
    }
    assert state["temperatures_c"] == [("battery", 31.0), ("cpu-1-0-usr", 44.5), ("cpu-0-0-usr", 41.2)]
    assert hottest_cpu_c(state["temperatures_c"]) == 44.5
    assert read_conditions(root)["frequency_khz"] == 600_000


def test_a_desktop_has_throttle_counters(tmp_path):
    found = read_conditions(plain_x86(tmp_path))["cores"][0]
    assert (found["throttled"], found["package_throttled"], found["governor"]) == (0, 2, "powersave")


def test_what_cannot_be_read_is_left_out(tmp_path):
    state = read_conditions(tmp_path)
    assert (state["governor"], state["frequency_khz"], state["cores"], state["temperatures_c"]) == (None, None, [], [])
    root = write_cores(tmp_path, [{"cpufreq/scaling_cur_freq": "<unsupported>", "online": 0}])
    assert read_conditions(root)["cores"] == [{"core": 0, "online": False}]


def test_this_machine_can_be_read():
    state = read_conditions()
    assert state["load_1min"] >= 0
    assert json.loads(json.dumps(state))["cores"] == state["cores"]


@pytest.mark.parametrize(
    "kind", ["cpu-thermal", "cpu0-silver-usr", "mtktscpu", "x86_pkg_temp", "BIG", "LITTLE", "soc-thermal"]
)
def test_zones_of_the_cpu(kind):
    assert hottest_cpu_c([("battery", 50.0), (kind, 40.0)]) == 40.0


def test_zones_in_whole_degrees(tmp_path):
    assert read_conditions(write_zones(tmp_path, [("cpu", 45)]))["temperatures_c"] == [("cpu", 45.0)]


# As Android 13 writes them, shortened.
THERMAL = """\
IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 2
Thermal Status: 2
Cached temperatures:
\tTemperature{mValue=46.1, mType=0, mName=CPU0, mStatus=0}
"""
BATTERY = """\
Current Battery Service state:
  AC powered: false
  USB powered: true
  status: 2
  health: 2
  level: 85
  scale: 100
"""


def test_what_android_says():
    assert android.thermal_status(THERMAL) == 2
    assert android.battery(BATTERY) == {"level_percent": 85, "charging": True}
    assert android.battery(BATTERY.replace("status: 2", "status: 3")) == {"level_percent": 85, "charging": False}
    assert (android.thermal_status(""), android.battery("Can't find service: battery")) == (None, None)


@pytest.mark.parametrize(
    ("does", "status"),
    [
        ("[ $1 = thermalservice ] && echo 'Thermal Status: 3'", 3),
        ("echo 'Thermal Status: 3'; exit 1", None),
        ("exec sleep 60", None),
    ],
    ids=["answers", "fails", "hangs"],
)
def test_the_program_that_says_it(tmp_path, monkeypatch, does, status):
    program = tmp_path / "dumpsys"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(android, "_LIMIT_S", 0.5)
    assert android.read_thermal_status() == status


def test_a_pause_alone_looks_at_no_temperature(tmp_path):
    assert list(cool_down(0, None, 300, tmp_path)) == ["waited_s"]
    assert cool_down(20, None, 300, tmp_path)["waited_s"] >= 0.02


def test_a_cool_cpu_is_not_waited_for(tmp_path):
    root = write_zones(tmp_path, [("cpu", 38_000), ("battery", 45_000)])
    cooled = cool_down(0, 40, 300, root)
    assert (cooled["until_c"], cooled["hottest_c"], cooled["reached"]) == (40, 38.0, True)


def test_a_hot_cpu_is_waited_for_until_it_cooled_down(tmp_path):
    root = write_zones(tmp_path, [("cpu", 60_000)])
    threading.Timer(0.2, write_zones, (root, [("cpu", 39_000)])).start()
    cooled = cool_down(0, 40, 300, root)
    assert (cooled["hottest_c"], cooled["reached"]) == (39.0, True)
    assert 0 < cooled["waited_s"] < 300


def test_the_wait_has_a_limit_and_says_so(tmp_path):
    cooled = cool_down(0, 40, 0.1, write_zones(tmp_path, [("cpu", 60_000)]))
    assert (cooled["hottest_c"], cooled["reached"]) == (60.0, False)
    assert cooled["waited_s"] >= 0.1


def test_where_no_temperature_can_be_read_nothing_is_waited_for(tmp_path):
    root = write_zones(tmp_path, [("battery", 45_000)])
    cooled = cool_down(0, 40, 300, root)
    assert (cooled["hottest_c"], cooled["reached"]) == (None, None)
    assert cooled["waited_s"] < 300


def states(tmp_path, before: list[dict], after: list[dict]) -> tuple[dict, dict]:
    return read_conditions(write_cores(tmp_path / "before", before)), read_conditions(
        write_cores(tmp_path / "after", after)
    )


FAST = core(2_800_000, 2_800_000)
COOLED = core(2_500_000, 2_800_000)  # 10.7 % less
HOT = core(1_800_000, 2_800_000, limit_khz=1_900_000)


def test_an_even_round_is_not_disturbed(tmp_path):
    less = core(2_600_000, 2_800_000)  # 7 %
    assert disturbances(*states(tmp_path, [FAST] * 2, [less] * 2), (0, 1), 2) == []
    assert disturbances({}, {}, None, 1) == []


def test_frequencies_and_limits_that_fell(tmp_path):
    before, after = states(tmp_path, [FAST] * 4, [FAST, HOT, HOT, COOLED])
    assert disturbances(before, after, (1, 2, 3), 3) == [
        "cores 1-2: frequency fell from 2800000 to 1800000 kHz",
        "core 3: frequency fell from 2800000 to 2500000 kHz",
        "cores 1-2: frequency limit fell from 2800000 to 1900000 kHz",
    ]
    assert disturbances(before, after, (0,), 1) == []


def test_idle_cores_may_slow_down(tmp_path):
    idle = core(600_000, 2_800_000)
    before, after = states(tmp_path, [FAST] * 2, [FAST, idle])
    assert disturbances(before, after, (0, 1), 1) == []
    assert disturbances(before, after, None, 1) == []
    before, after = states(tmp_path, [FAST] * 2, [COOLED, idle])
    assert disturbances(before, after, (0, 1), 1) == ["fastest core: frequency fell from 2800000 to 2500000 kHz"]


def test_throttle_counters_that_rose(tmp_path):
    def counted(core_count: int, package: int) -> dict:
        return {"thermal_throttle/core_throttle_count": core_count, "thermal_throttle/package_throttle_count": package}

    before, after = states(tmp_path, [counted(4, 7)] * 2, [counted(4, 9), counted(5, 9)])
    assert disturbances(before, after, None, 1) == [
        "core 1: throttled for heat 1 time",
        "cores 0-1: package throttled for heat 2 times",
    ]


@pytest.mark.parametrize(("before", "after"), [(2, 0), (1, 2)])
def test_a_thermal_status_above_none(before, after):
    assert disturbances({"thermal_status": before}, {"thermal_status": after}, None, 1) == [
        "thermal status 2 (moderate)"
    ]
    assert disturbances({"thermal_status": 0}, {"thermal_status": None}, None, 1) == []
