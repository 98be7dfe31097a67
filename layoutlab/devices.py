"""`layoutlab devices`: everything that a spec could run on, and how each is named."""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutlab.errors import EXIT_NO_DEVICE, EXIT_OK, StageError, UsageError

if TYPE_CHECKING:
    from layoutlab.device.rpc.address import RpcAddress
    from layoutlab.device.rpc.listed import KeyCount, Listed, Survey

# After so long the list is shown, whatever is missing then; the worker ends a little earlier.
_WITHIN_S, _MARGIN_S = 14.0, 2.0
# As TVM's own programs read them.
_TRACKER_HOST, _TRACKER_PORT, _DEFAULT_PORT = "TVM_TRACKER_HOST", "TVM_TRACKER_PORT", "9190"
_NO_TRACKER = f"no tracker is known: name one with --tracker HOST:PORT, a SPEC, or {_TRACKER_HOST} and {_TRACKER_PORT}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `layoutlab devices`."""
    parser.add_argument("spec", metavar="SPEC", nargs="?", help="also where this spec finds its devices")
    parser.add_argument(
        "--tracker", action="append", default=[], metavar="HOST:PORT", help="a TVM RPC tracker; repeatable"
    )
    parser.add_argument(
        "--agent", action="append", default=[], metavar="HOST:PORT[/KEY]", help="an agent or RPC server; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    """Show the list; exit code 3 when a tracker or an agent that is named does not answer.

    Raises UsageError for what is no address, SpecError for a spec that is wrong.
    """
    from layoutlab.device.rpc.listed import Survey

    trackers, agents = _named(options)
    found = Survey(devices=tuple(_here())) + _survey(trackers, agents)
    print(_json(found) if options.json else _text(found, has_tracker=bool(trackers)), end="")
    return EXIT_NO_DEVICE if any(listed.state == "unreachable" for listed in found.devices) else EXIT_OK


def _named(options: argparse.Namespace) -> tuple[list[str], list[RpcAddress]]:
    """The trackers and the agents that are named anywhere, each once."""
    trackers = [_tracker(text, "--tracker") for text in options.tracker]
    agents = [_agent(text) for text in options.agent]
    if options.spec is not None:
        from layoutlab.spec.load import find_spec, load_spec

        address = load_spec(find_spec(options.spec)).spec.device.address
        if address is not None and address.tracker is not None:
            trackers.append(address.tracker)
        elif address is not None:
            agents += [address.single(number) for number in range(len(address.agents))]
    if not trackers and os.environ.get(_TRACKER_HOST):
        port = os.environ.get(_TRACKER_PORT, _DEFAULT_PORT)
        trackers = [_tracker(f"{os.environ[_TRACKER_HOST]}:{port}", f"{_TRACKER_HOST} and {_TRACKER_PORT}")]
    return list(dict.fromkeys(trackers)), list(dict.fromkeys(agents))


def _tracker(text: str, where: str) -> str:
    from layoutlab.spec.words import quoted

    if not re.fullmatch(r"[A-Za-z0-9_.-]+:[0-9]{1,5}", text):
        raise UsageError(f"{where}: expected HOST:PORT, found {quoted(text)}")
    return text


def _agent(text: str) -> RpcAddress:
    from layoutlab.spec.models import DeviceSpec, parse_device
    from layoutlab.spec.words import quoted

    try:
        address = DeviceSpec.model_validate(parse_device(f"agent://{text}")).address
    except ValueError:
        address = None
    if address is None or len(address.agents) != 1:
        raise UsageError(f"--agent: expected HOST:PORT or HOST:PORT/KEY, found {quoted(text)}")
    return address


def _here() -> Iterator[Listed]:
    """This machine and the simulated core, without starting TVM."""
    from layoutlab.agent import describe
    from layoutlab.device.rpc.listed import Listed
    from layoutlab.doctor import linker, litert, simulated_core

    description = describe("this machine")
    missing = [finding.part for finding in (litert(), linker()) if finding.state == "missing"]
    if description["versions"]["apache-tvm"] == "unknown":
        missing.insert(0, "TVM")
    if missing:
        detail = f"lacks {' and '.join(missing)}: see layoutlab doctor"
        yield Listed(device="host", state="not provisioned", description=description, detail=detail)
    else:
        yield Listed(device="host", state="ready", description=description)
    core = simulated_core()
    state: Any = "ready" if core.state == "ok" else "not provisioned"
    yield Listed(device="kryo", state=state, detail=core.detail)


def _survey(trackers: Sequence[str], agents: Sequence[RpcAddress]) -> Survey:
    """What a worker finds, which imports TVM."""
    from dataclasses import asdict

    from layoutlab.device.rpc.listed import Listed, Survey
    from layoutlab.engine.base import from_json
    from layoutlab.process import run_job

    if not trackers and not agents:
        return Survey()
    until = time.time() + _WITHIN_S - _MARGIN_S
    arguments = {"trackers": trackers, "agents": [asdict(agent) for agent in agents], "until": until}
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        try:
            found = run_job("survey_remote", arguments, log=Path(folder) / "devices.log", timeout_s=_WITHIN_S)
        except StageError as error:
            names = [f"rpc://{tracker}/KEY" for tracker in trackers] + [str(agent) for agent in agents]
            lost = (Listed(device=name, state="unreachable", detail=error.cause) for name in names)
            return Survey(devices=tuple(lost))
    return from_json(Survey, found)


def _text(found: Survey, has_tracker: bool) -> str:
    """A table, then how many devices each key has."""
    from tabulate import tabulate

    rows = [(listed.device, _id(listed), listed.state, _what(listed)) for listed in found.devices]
    lines = [
        tabulate(rows, headers=("--device", "id", "state", "what it is"), tablefmt="simple", disable_numparse=True)
    ]
    counts = [_count(count) for count in found.keys] if has_tracker else [_NO_TRACKER]
    return "\n".join([*lines, *([""] if counts else []), *counts, ""])


def _count(count: KeyCount) -> str:
    if not count.devices:
        return (
            f"{count.device}: no device is registered there; on a device: layoutlab agent --tracker HOST:PORT --key KEY"
        )
    devices = f"{count.devices} device{'' if count.devices == 1 else 's'}"
    waiting = f"{count.waiting} client{'' if count.waiting == 1 else 's'} waiting"
    return f"{count.device}: {devices}, {count.free} free, {waiting}"


def _id(listed: Listed) -> str:
    return str(listed.description.get("id", "-"))


def _what(listed: Listed) -> str:
    """The machine in a few words, as far as it is known."""
    description = listed.description
    if description and "cpu" not in description:
        return "plain TVM RPC server: it says nothing of itself"
    words = [listed.detail] if listed.detail else []
    return ", ".join(words + list(_words(description))) or "in use"


def _words(description: Any) -> Iterator[str]:
    from layoutlab.device.rpc.device import litert_version
    from layoutlab.measure.conditions import hottest_cpu_c

    if not description:
        return
    conditions = description["conditions"]
    yield f"{description['cpu']} ({description['machine']})"
    yield f"{description['cores']} core{'' if description['cores'] == 1 else 's'}"
    yield f"TVM {description['versions']['apache-tvm']}"
    found = litert_version(description)
    yield f"LiteRT {found}" if found else "no LiteRT"
    if conditions.get("load_1min") is not None:
        yield f"load {conditions['load_1min']}"
    degrees = hottest_cpu_c(conditions.get("temperatures_c") or [])
    if degrees is not None:
        yield f"{degrees:.0f} °C"


def _json(found: Survey) -> str:
    from dataclasses import asdict

    return json.dumps(asdict(found), indent=1) + "\n"
