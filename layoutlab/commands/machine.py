"""Verbs about this machine and devices: doctor, devices, peaks, provision, agent, tracker."""

from __future__ import annotations

import argparse
from typing import Any

from layoutlab import agent, devices, tracker
from layoutlab.commands.options import device_option, load, with_spec
from layoutlab.errors import EXIT_OK, UsageError


def add_commands(commands: Any) -> None:
    """Add doctor, devices, peaks, provision, agent and tracker."""
    peaks = with_spec(
        commands.add_parser("peaks", help="what the device that a spec runs on can do at most: arithmetic and memory"),
        _peaks,
    )
    device_option(peaks)
    peaks.add_argument("--again", action="store_true", help="measure again what was measured before")
    peaks.add_argument("--json", action="store_true", help="print it as JSON")
    listing = commands.add_parser("devices", help="list what a spec can run on: here, at trackers, at agents")
    devices.add_arguments(listing)
    listing.set_defaults(command=devices.run)
    doctor = commands.add_parser(
        "doctor", help="say what this machine has of what layoutlab needs, or a spec's device, and what to do"
    )
    doctor.add_argument("spec", metavar="SPEC", nargs="?", help="try everything between here and this spec's device")
    device_option(doctor)
    doctor.add_argument("--json", action="store_true", help="print it as JSON")
    doctor.set_defaults(command=_doctor)
    provision = commands.add_parser("provision", help="download and build the simulated Kryo core, without root")
    provision.set_defaults(command=_provision)
    serving = commands.add_parser(
        "agent", help="serve this device: TVM RPC, TFLite, conditions", description=agent.DESCRIPTION
    )
    agent.add_arguments(serving)
    serving.set_defaults(command=_agent)
    tracking = commands.add_parser(
        "tracker", help="bring agents of several devices and clients together", description=tracker.DESCRIPTION
    )
    tracker.add_arguments(tracking)
    tracking.set_defaults(command=tracker.run)


def _agent(options: argparse.Namespace) -> int:
    from layoutlab.engine.relay.executor.agent import run

    return run(options)


def _doctor(options: argparse.Namespace) -> int:
    if options.spec is not None:
        return _doctor_of_spec(options)
    if options.device is not None:
        raise UsageError("--device needs a spec as well: layoutlab doctor SPEC --device DEVICE")
    from layoutlab.doctor import diagnose, doctor_json, doctor_text, exit_code

    findings = diagnose()
    print(doctor_json(findings) if options.json else doctor_text(findings), end="")
    return exit_code(findings)


def _doctor_of_spec(options: argparse.Namespace) -> int:
    from layoutlab.doctor_spec import examine, examined_json, examined_text

    examined = examine(load(options).spec)
    print(examined_json(examined) if options.json else examined_text(examined), end="")
    return examined.exit_code


def _peaks(options: argparse.Namespace) -> int:
    loaded = load(options)
    from layoutlab.progress import Progress
    from layoutlab.report.peaks import peaks_json, peaks_text
    from layoutlab.roofline.measure import spec_peaks

    with Progress() as progress:
        found = spec_peaks(loaded, options.results, progress, options.again)
    print(peaks_json(found) if options.json else peaks_text(found), end="")
    return EXIT_OK


def _provision(options: argparse.Namespace) -> int:
    from layoutlab.device.kryo.provision import provision
    from layoutlab.progress import Progress

    with Progress() as progress:
        core = provision(progress.say, progress.show)
    print(f"simulated Kryo core: {core.summary()}, in {core.folder}")
    return EXIT_OK
