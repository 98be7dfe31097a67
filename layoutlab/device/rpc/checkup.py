"""Every link of the chain from this machine to a device over RPC, tried in order. Imports TVM: for worker processes."""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NoReturn

from layoutlab.device.rpc import tracker
from layoutlab.device.rpc.address import split_address
from layoutlab.device.rpc.choose import wrong_target, wrong_versions
from layoutlab.device.rpc.device import litert_version
from layoutlab.device.rpc.features import known_features, missing_features
from layoutlab.device.rpc.links import LEASE_S, Wanted, links, not_tried
from layoutlab.device.rpc.remote import Remote, open_remote
from layoutlab.errors import DeviceError, DeviceLost, StageError, first_message
from layoutlab.findings import Finding, State
from layoutlab.spec.target import architecture, format_target

_TRANSFER_BYTES = 1 << 20
# About two seconds in all, after a sample that warms up. A spread (largest less smallest, of the median) beyond this
# makes differences of layouts hard to see.
_CLOCK_SAMPLES, _CLOCK_SAMPLE_MS = 10, 200
_STEADY = 0.10
_AGENT_S = 5.0


class _Broken(Exception):
    """A link that failed: its detail, and what to do."""

    def __init__(self, detail: str, *todo: str) -> None:
        self.detail, self.todo = detail, todo


def check_up(wanted: Wanted, begin: Callable[[str], None]) -> Iterator[Finding]:
    """Try each link; `begin` is told of each before it is tried. One device is leased until the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="layoutlab-")))
        checkup = _Checkup(wanted, folder, stack)
        before: dict[str, Finding] = {}
        for part, needs in links(wanted.address).items():
            finding = not_tried(part, needs, before)
            if finding is None:
                begin(part)
                finding = _try(part, checkup.looks[part])
            before[part] = finding
            yield finding


# What a look at a link answers: its state and detail, then what to do.
_Seen = tuple[State, str, tuple[str, ...]]


def _try(part: str, look: Callable[[], _Seen]) -> Finding:
    try:
        state, detail, todo = look()
    except _Broken as broken:
        state, detail, todo = "failed", broken.detail, broken.todo
    except StageError as error:
        state, detail, todo = "failed", f"{error.stage} failed", (error.cause,)
    except DeviceLost as error:
        state, detail, todo = "failed", "the device went away", (str(error),)
    except Exception as error:
        state, detail, todo = "failed", type(error).__name__, (first_message(error),)
    return Finding(part=part, state=state, detail=detail, todo=todo)


class _Checkup:
    """What has been found on the way: each link uses what those before it left here."""

    def __init__(self, wanted: Wanted, folder: Path, stack: ExitStack) -> None:
        self._wanted, self._address, self._folder, self._stack = wanted, wanted.address, folder, stack
        self._remote: Remote | None = None
        self._probe: Any = None
        self.looks: dict[str, Callable[[], _Seen]] = {
            "tracker": self._tracker,
            "agent": self._agent,
            "key": self._key,
            "device": self._device,
            "versions": self._versions,
            "architecture": self._architecture,
            "CPU features": self._features,
            "transfer": self._transfer,
            "kernel": self._kernel,
            "baseline": self._baseline,
            "clock": self._clock,
        }

    def _tracker(self) -> _Seen:
        where = self._address.tracker
        assert where is not None
        try:
            keys = [state for state in tracker.summary(where) if state.devices]
        except DeviceError as error:
            raise _Broken(where, str(error)) from error
        return "ok", f"{where}, {len(keys)} key{'' if len(keys) == 1 else 's'} with devices", ()

    def _agent(self) -> _Seen:
        """Of several agents one that answers is enough."""
        problems = []
        for agent in self._address.agents:
            try:
                socket.create_connection(split_address(agent), timeout=_AGENT_S).close()
            except OSError as error:
                problems.append(
                    f"nobody listens at {agent}: {error.strerror or 'no answer'}. Start an agent on the device: "
                    "layoutlab agent, and forward its port to this machine (docs/phones.md)"
                )
        if len(problems) == len(self._address.agents):
            raise _Broken(", ".join(self._address.agents), *problems)
        return ("warning" if problems else "ok"), ", ".join(self._address.agents), tuple(problems)

    def _key(self) -> _Seen:
        assert self._address.tracker is not None
        try:
            return "ok", str(tracker.state_of(self._address.tracker, self._address.key)), ()
        except DeviceError as error:
            raise _Broken(self._address.key, str(error)) from error

    def _device(self) -> _Seen:
        try:
            self._remote = self._stack.enter_context(closing(open_remote(self._address, wait_s=LEASE_S)))
        except (DeviceError, StageError) as error:
            trackers = [agent for agent in self._address.agents if _is_tracker(agent)]
            todo = [f"what listens at {where} is a tracker: say rpc://{where}/KEY instead" for where in trackers]
            raise _Broken("none could be had", *(todo or [str(error)])) from error
        if "cpu" not in self._description:
            return "ok", f"{self._description['id']}, a plain TVM RPC server: it says nothing of itself", ()
        return "ok", f"{self._description['id']}, {self._description['cpu']}", ()

    def _versions(self) -> _Seen:
        found = self._description["versions"]
        if problems := wrong_versions(self._description):
            raise _Broken("of another version", *problems)
        if not found:
            return "unknown", "a plain TVM RPC server does not say; it has to have this machine's TVM", ()
        shown = {"layoutlab": found.get("layoutlab", "unknown"), "TVM": found.get("apache-tvm", "unknown")}
        known = [f"{name} {version}" for name, version in shown.items() if version != "unknown"]
        return "ok", f"{', '.join(known)}, as here", ()

    def _architecture(self) -> _Seen:
        machine = self._description.get("machine")
        if problems := wrong_target(self._wanted.target, self._description):
            raise _Broken(str(machine or "unknown"), *problems)
        if machine is None:
            return "unknown", f"a plain TVM RPC server does not say; the target is {format_target(self._target)}", ()
        return "ok", f"{machine}, as the target's", ()

    def _features(self) -> _Seen:
        used, there = _features_of(self._target), self._description.get("features")
        kind = architecture(self._target)
        if not there:
            return "unknown", "the device does not say what its CPU can do", ()
        if missing := missing_features(kind, used, there):
            raise _Broken(
                f"missing: {', '.join(missing)}",
                f"the target ({format_target(self._target)}) uses what this CPU does not have, and its code would end "
                "with an illegal instruction. Name the device's own CPU with -mcpu, or switch them off: "
                f"-mattr={','.join(f'-{feature}' for feature in missing)}",
            )
        return "ok", f"all {known_features(kind, used)} that the target uses", ()

    def _transfer(self) -> _Seen:
        sent = os.urandom(_TRANSFER_BYTES)
        path = self._folder / "transfer.bin"
        path.write_bytes(sent)
        back, took_s = self._leased.echo(path)
        if back != sent:
            raise _Broken("1 MiB came back changed", "look at what forwards the connection: cable, adb, ssh, router")
        return "ok", f"1 MiB there and back, {2 * _TRANSFER_BYTES / took_s / 1e6:.0f} MB/s", ()

    def _kernel(self) -> _Seen:
        # TVM's compiler takes seconds to load: not where the chain ends before.
        from layoutlab.device.rpc import probe

        try:
            self._probe = probe.build_probe(self._target, self._wanted.threads, self._folder)
        except StageError:
            raise
        except Exception as error:
            self._refuse_target(error)
        threads = self._wanted.threads
        try:
            self._leased.require_cores(self._cores, threads)
        except DeviceLost:
            raise
        except DeviceError as error:
            raise _Broken("no such cores", str(error)) from error
        probe.require_right(self._probe, self._leased, self._address.timeout_s)
        return "ok", f"built here, right there; {threads} thread{'' if threads == 1 else 's'}", ()

    def _refuse_target(self, error: Exception) -> NoReturn:
        raise _Broken(
            "TVM cannot build it", f"the target {format_target(self._target)}: {first_message(error)}"
        ) from error

    def _baseline(self) -> _Seen:
        if self._wanted.baseline == "benchmark_model":
            return "ok", "benchmark_model, as the spec says; not tried here", ()
        found = litert_version(self._description)
        if found is None:
            raise _Broken(
                "no LiteRT on the device",
                "run layoutlab agent there, with pip install ai-edge-litert; or take the baseline from "
                "benchmark_model (docs/phones.md)",
            )
        return "ok", f"LiteRT {found}", ()

    def _clock(self) -> _Seen:
        taken = self._sample(1 + _CLOCK_SAMPLES, _CLOCK_SAMPLE_MS)
        samples = taken["samples_ms"][1:]
        spread = (max(samples) - min(samples)) / statistics.median(samples)
        detail = ", ".join([f"spread {100 * spread:.0f} % over {len(samples)} samples", *_clock_words(taken)])
        disturbed = list(taken.get("disturbed") or ())
        if spread <= _STEADY and not disturbed:
            return "ok", detail, ()
        advice = (
            "figures will be unsteady: set the governor to performance, let the device cool down "
            "(measure.cooldown_ms, measure.cooldown_until_c), end what else runs there"
        )
        return "warning", detail, ("; ".join([*disturbed, advice]),)

    def _sample(self, repeats: int, min_repeat_ms: int) -> dict[str, Any]:
        from layoutlab.device.rpc.probe import take_probe_samples

        # Repeats get longer by steps, up to three times what is asked for.
        limit_s = self._address.timeout_s + 3 * repeats * min_repeat_ms / 1e3
        return take_probe_samples(self._probe, self._leased, self._cores, repeats, min_repeat_ms, limit_s)

    @property
    def _cores(self) -> str | list[int]:
        return self._wanted.cores if isinstance(self._wanted.cores, str) else list(self._wanted.cores)

    @property
    def _leased(self) -> Remote:
        assert self._remote is not None
        return self._remote

    @property
    def _description(self) -> dict[str, Any]:
        return self._leased.description

    @property
    def _target(self) -> dict[str, Any]:
        if isinstance(self._wanted.target, dict):
            return self._wanted.target
        from layoutlab.device.host import llvm_target

        return llvm_target()


def _is_tracker(address: str) -> bool:
    try:
        tracker.summary(address)
    except DeviceError:
        return False
    return True


def _features_of(target: dict[str, Any]) -> list[str]:
    """LLVM's words for the CPU features that code for the target uses."""
    from tvm.target import Target, codegen

    return [str(feature) for feature in codegen.llvm_get_cpu_features(Target(target))]


def _clock_words(taken: dict[str, Any]) -> Iterator[str]:
    """Frequency and governor, where they can be read."""
    for conditions in taken.get("conditions", [])[-1:]:
        if conditions.get("frequency_khz"):
            yield f"{conditions['frequency_khz'] / 1e3:.0f} MHz"
        if conditions.get("governor"):
            yield f"governor {conditions['governor']}"
