"""Whether a spec can run where it says, and what to do if not. The parent's side: nothing here imports TVM."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from layoutlab.device.choose import choose
from layoutlab.device.rpc.address import GRACE_S, RpcAddress
from layoutlab.device.rpc.links import links, not_tried, wanted_by
from layoutlab.doctor import diagnose, what_runs
from layoutlab.errors import EXIT_NO_DEVICE, EXIT_OK, DeviceError, StageError
from layoutlab.findings import Finding, findings_text
from layoutlab.process import run_job
from layoutlab.spec.models import Spec

# What one link does: it builds a kernel here, and runs it twice there.
_TIMES = 3


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found for a spec, whether it can run, and a line that says where, or why not."""

    spec: str
    device: str
    findings: tuple[Finding, ...]
    can_run: bool
    verdict: str

    @property
    def exit_code(self) -> int:
        """0 when it can run."""
        return EXIT_OK if self.can_run else EXIT_NO_DEVICE


def examine(spec: Spec) -> Examined:
    """Look at everything between here and the spec's device."""
    if spec.device.address is None:
        return _examine_here(spec)
    return _examine_chain(spec, spec.device.address)


def examined_text(examined: Examined) -> str:
    """A table, what to do, and whether the spec can run."""
    return findings_text(examined.findings, examined.verdict)


def examined_json(examined: Examined) -> str:
    """The same as JSON."""
    data = asdict(examined)
    return json.dumps({"parts": data.pop("findings"), **data}, indent=1) + "\n"


def _examine_chain(spec: Spec, address: RpcAddress) -> Examined:
    findings = _try_links(spec, address)
    broken = [finding.part for finding in findings if finding.state == "failed"]
    where = next((finding.detail.split(",")[0] for finding in findings if finding.part == "device"), "")
    if broken:
        verdict = f"{spec.name} cannot run on {address}: see {', '.join(broken)}"
    else:
        verdict = f"{spec.name} can run on {where} at {address}"
    return Examined(spec=spec.name, device=str(address), findings=tuple(findings), can_run=not broken, verdict=verdict)


def _try_links(spec: Spec, address: RpcAddress) -> list[Finding]:
    """What a worker finds; when it dies of a link, that one failed."""
    found: dict[str, Finding] = {}

    def keep(event: dict[str, Any]) -> None:
        if event["event"] == "finding":
            found[event["part"]] = _finding(event)

    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        try:
            run_job(
                "check_up_remote",
                {"wanted": asdict(wanted_by(spec, address))},
                log=Path(folder) / "doctor.log",
                on_event=keep,
                timeout_s=_TIMES * address.timeout_s + GRACE_S,
            )
        except StageError as error:
            close_chain(found, address, error)
    return list(found.values())


def _finding(event: dict[str, Any]) -> Finding:
    return Finding(
        part=event["part"], state=event["state"], detail=event["detail"], todo=tuple(map(str, event["todo"]))
    )


def close_chain(found: dict[str, Finding], address: RpcAddress, error: StageError) -> None:
    """Add to what was found before a worker died of a link: that link, and those behind it."""
    for part, needs in links(address).items():
        if part in found:
            continue
        if part == error.stage or (error.stage == "start" and not found):
            found[part] = Finding(part=part, state="failed", detail="no answer", todo=(error.cause,))
        else:
            found[part] = not_tried(part, needs, found) or Finding(part=part, state="not tried", detail="not reached")


def _examine_here(spec: Spec) -> Examined:
    findings = diagnose()
    runnable, verdict = runs_on(spec, findings)
    return Examined(
        spec=spec.name, device=str(spec.device), findings=tuple(findings), can_run=runnable, verdict=verdict
    )


class _OnSimulatedCore(Exception):
    """The choice would be the simulated core."""


def runs_on(spec: Spec, findings: Sequence[Finding]) -> tuple[bool, str]:
    """Whether the spec can run, and on what it would."""
    runs = what_runs(findings)

    def simulated_core() -> NoReturn:
        if "the simulated Kryo core" in runs:
            raise _OnSimulatedCore
        raise DeviceError("the simulated Kryo core cannot be had")

    def describe(address: RpcAddress) -> NoReturn:
        raise AssertionError(f"{address} is not asked")

    try:
        # Which CPU LLVM takes this machine for makes no difference to the choice.
        choice = choose(spec, lambda: {"kind": "llvm"}, simulated_core, describe)
    except _OnSimulatedCore:
        return True, f"{spec.name} would run on the simulated Kryo core"
    except DeviceError as error:
        return False, f"{spec.name} cannot run: {error}"
    if "this machine itself" not in runs:
        return False, f"{spec.name} cannot run on this machine: see what is missing"
    return True, f"{spec.name}: {choice.reason}"
