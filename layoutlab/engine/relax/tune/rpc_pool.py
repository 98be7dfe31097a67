"""Candidates on phones and boards over RPC: each device measures one at a time, all of them side by side."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

from pebble import ProcessExpired

from layoutlab.device.candidate_timing import Timing
from layoutlab.device.rpc.address import GRACE_S, RpcAddress
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.candidates import Arguments
from layoutlab.engine.relax.tune.executors import STALL_S, WarmExecutor
from layoutlab.engine.relax.tune.pool import BuildingPool, Collect, Outcome, arguments_of, threads_of
from layoutlab.engine.relax.tune.remote import find_device, measure_remote
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import DeviceLost, StageError, first_message

# A device that went away is asked for again after so many seconds each; then the others go on without it.
_TRY_AGAIN_S = (1.0, 3.0, 6.0)
_FREE_AGAIN_S = 1.0
# A candidate with which a device was lost so often may be the reason for it.
_MOST_LOSSES = 2

Say = Callable[[str], None]


class _Trial:
    """A built candidate on its way to a device."""

    def __init__(self, library: bytes, arguments: Arguments, outcome: Future[Outcome]) -> None:
        self.library, self.arguments, self.outcome = library, arguments, outcome
        self.losses = 0


class RpcPool(BuildingPool):
    """Builds candidates here and measures them on every device of an address, each leased as long as the tuning."""

    in_flight = 2

    def __init__(
        self, target: tvm.target.Target, folder: Path, options: TuningOptions, address: RpcAddress, say: Say
    ) -> None:
        super().__init__(target, folder, options, "rpc")
        self._address, self._say = address, say
        self._timing = Timing(
            repeats=options.repeats, min_repeat_ms=options.min_repeat_ms, cold_cache=options.cold_cache
        )
        self._options = {"threads": threads_of(target), "cores": options.cores}
        self._trials: queue.SimpleQueue[_Trial | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Why there is no device any more.
        self._ended: str | None = None
        self._devices = count_devices(address)
        self._alive = self._devices
        for number in range(self._devices):
            single = address.single(number)
            executor = WarmExecutor(1, single.deadline_s, self._folder)
            self._open.callback(executor.shutdown, cancel_futures=True)
            threading.Thread(target=self._serve, args=(executor, single), daemon=True).start()
        self._open.callback(self._end_devices)

    def submit(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> Collect:
        """Begin to build and measure. Raises StageError when no device is left."""
        self._require_device()
        builds = self._builders.start(candidates)
        arguments = [arguments_of(candidate) for candidate in candidates]
        outcomes: list[Future[Outcome]] = [Future() for _ in candidates]
        threading.Thread(target=self._feed, args=(builds, arguments, outcomes), daemon=True).start()
        return lambda: self._collect(outcomes)

    def _feed(
        self, builds: Sequence[Future[bytes]], arguments: Sequence[Arguments], outcomes: Sequence[Future[Outcome]]
    ) -> None:
        """Carry each library to the devices as soon as it is built."""
        try:
            for index, library, error in self._builders.as_finished(builds):
                if library is None:
                    outcomes[index].set_result(Outcome(error=error))
                    continue
                self._put(_Trial(library, arguments[index], outcomes[index]))
        except StageError as error:
            for outcome in outcomes:
                if not outcome.done():
                    outcome.set_exception(error)

    def _collect(self, outcomes: Sequence[Future[Outcome]]) -> list[Outcome]:
        # A build and a measurement end by themselves, however they end; this is for what nobody thought of.
        longest_s = STALL_S + _MOST_LOSSES * (self._address.deadline_s + sum(_TRY_AGAIN_S)) * (1 + len(outcomes))
        return [outcome.result(timeout=longest_s * self.in_flight) for outcome in outcomes]

    def _put(self, trial: _Trial) -> None:
        with self._lock:
            if self._ended is None:
                self._trials.put(trial)
                return
        trial.outcome.set_exception(self._no_device())

    def _require_device(self) -> None:
        if self._ended is not None:
            raise self._no_device()

    def _no_device(self) -> StageError:
        return StageError(
            "tune",
            f"no device is left at {self._address}: {self._ended}. Every finished trial is kept: attach a device and "
            "run again",
        )

    def _serve(self, executor: WarmExecutor, address: RpcAddress) -> None:
        """What one device does: candidate after candidate, until there are no more or it is lost."""
        while (trial := self._trials.get()) is not None:
            try:
                trial.outcome.set_result(self._measure(executor, trial, address))
            except DeviceLost as error:
                self._lose(trial, error)
                if not _found_again(executor, address):
                    self._give_up(str(error))
                    return

    def _measure(self, executor: WarmExecutor, trial: _Trial, address: RpcAddress) -> Outcome:
        """Raises DeviceLost, also when there is no answer within the deadline."""
        try:
            run = executor.submit(measure_remote, trial.library, trial.arguments, self._timing, self._options, address)
            return Outcome(seconds=run.result(timeout=address.deadline_s + STALL_S))
        except DeviceLost:
            raise
        except FutureTimeout:
            raise DeviceLost(f"the device gave no answer for {address.deadline_s:.0f} s") from None
        except ProcessExpired as error:
            raise DeviceLost(f"the process that spoke with the device ended with code {error.exitcode}") from error
        except StageError as error:
            return Outcome(error=f"the run {error.cause}")
        except Exception as error:
            return Outcome(error=f"the run failed: {type(error).__name__}: {first_message(error)}")

    def _lose(self, trial: _Trial, error: DeviceLost) -> None:
        """The candidate is tried on another device, or again; not for ever, for it may have been its fault."""
        trial.losses += 1
        if trial.losses >= _MOST_LOSSES:
            trial.outcome.set_result(Outcome(error=f"the device was lost {trial.losses} times with it: {error}"))
        else:
            self._put(trial)

    def _give_up(self, why: str) -> None:
        with self._lock:
            self._alive -= 1
            if self._alive:
                self._say(f"a device was lost, {self._alive} of {self._devices} go on: {why}")
                return
            self._ended = why
        with contextlib.suppress(queue.Empty):
            while (trial := self._trials.get_nowait()) is not None:
                trial.outcome.set_exception(self._no_device())

    def _end_devices(self) -> None:
        for _ in range(self._devices):
            self._trials.put(None)


def count_devices(address: RpcAddress) -> int:
    """How many devices there are, busy ones too. Raises DeviceError when there is none."""
    if address.tracker is None:
        return len(address.agents)
    from layoutlab.device.rpc.tracker import patiently, state_of

    tracker = address.tracker
    return len(patiently(lambda: state_of(tracker, address.key), GRACE_S).devices)


def _found_again(executor: WarmExecutor, address: RpcAddress) -> bool:
    for pause_s in _TRY_AGAIN_S:
        time.sleep(pause_s)
        with contextlib.suppress(Exception):
            executor.submit(find_device, address, _FREE_AGAIN_S).result(timeout=address.deadline_s + STALL_S)
            return True
    return False
