"""Everything that answers at trackers and agents, asked all at the same time. Imports TVM: for worker processes."""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from layoutlab.device.rpc import tracker
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.device.rpc.listed import KeyCount, Listed, Survey
from layoutlab.device.rpc.remote import Remote, open_remote, wrap
from layoutlab.errors import DeviceBusy, first_message

# What a device may take to say what it is, and how long a session is waited for.
_DESCRIBE_S, _LEASE_S = 5.0, 3.0
# So much earlier than all others those end that others wait for.
_MARGIN_S = 1.0
# However late it began: as long something is waited for.
_LEAST_S = 2.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Answer(Generic[_T]):
    """What a function returned, or why it did not."""

    value: _T | None = None
    error: Exception | None = None


def survey(trackers: Sequence[str], agents: Sequence[RpcAddress], until: float) -> Survey:
    """What is at each tracker ("host:port") and each agent at the time `until` (seconds of the epoch).

    Devices that are free are leased for a moment, all of them at once, and say what they are.
    """
    until = max(until, time.time() + _LEAST_S)
    looks = [partial(_at_tracker, where, until - _MARGIN_S) for where in trackers]
    looks += [partial(_at_agent, agent) for agent in agents]
    names = [f"rpc://{where}/KEY" for where in trackers] + [f"{agent}" for agent in agents]
    found = Survey()
    for name, answer in zip(names, _all_at_once(looks, until), strict=True):
        found += answer.value or Survey(devices=(_unreachable(name, answer.error),))
    return found


def _at_agent(address: RpcAddress) -> Survey:
    try:
        remote = open_remote(_patient(address), wait_s=_LEASE_S)
    except DeviceBusy:
        return Survey(devices=(Listed(device=str(address), state="busy"),))
    description = dict(remote.description)
    remote.close()
    return Survey(devices=(Listed(device=str(address), state="free", description=description),))


def _at_tracker(where: str, until: float) -> Survey:
    states = [state for state in tracker.summary(where) if state.devices]
    if not states:
        return Survey(keys=(KeyCount(device=f"rpc://{where}/KEY", devices=0, free=0, waiting=0),))
    # Sessions first, and all are held: a tracker would give one that was returned a second time.
    wanted = [state.key for state in states for _ in range(state.free)]
    sessions = _all_at_once([partial(tracker.request, where, key, wait_s=_LEASE_S) for key in wanted], until)
    describing = [partial(_described, where, key, answer) for key, answer in zip(wanted, sessions, strict=True)]
    described = _all_at_once(describing, until)
    taken = [answer.value[1] for answer in sessions if answer.value]
    # A session ends with the last reference to it, and TVM's objects refer to each other in circles.
    del sessions, describing
    gc.collect()
    found = Survey()
    for state in states:
        answers = [answer for key, answer in zip(wanted, described, strict=True) if key == state.key]
        found += _of_key(where, state, answers, taken)
    return found


def _described(where: str, key: str, answer: _Answer[tuple[Any, str]]) -> dict[str, Any]:
    if answer.value is None:
        assert answer.error is not None
        raise answer.error
    session, device = answer.value
    remote: Remote = wrap(session, device, _patient(RpcAddress(tracker=where, key=key)))
    description = dict(remote.description)
    remote.close()
    return description


def _of_key(
    where: str, state: tracker.KeyState, answers: Sequence[_Answer[dict[str, Any]]], taken: Sequence[str]
) -> Survey:
    name = f"rpc://{where}/{state.key}"
    free = [Listed(device=name, state="free", description=answer.value) for answer in answers if answer.value]
    failed = [answer.error for answer in answers if answer.error and not isinstance(answer.error, DeviceBusy)]
    # Those that nobody could lease: in use, but for as many as did not answer.
    others = sorted((Counter(state.devices) - Counter(taken)).elements())
    lost = [_unreachable(name, error) for error in failed]
    busy = [Listed(device=name, state="busy", detail=f"at {address}") for address in others[len(lost) :]]
    count = KeyCount(device=name, devices=len(state.devices), free=state.free, waiting=state.pending)
    free.sort(key=lambda listed: str(listed.description["id"]))
    return Survey(devices=(*free, *busy, *lost), keys=(count,))


def _unreachable(name: str, error: Exception | None) -> Listed:
    return Listed(device=name, state="unreachable", detail="no answer in time" if error is None else _said(error))


def _said(error: Exception) -> str:
    return str(error) if type(error).__module__.startswith("layoutlab.") else first_message(error)


def _patient(address: RpcAddress) -> RpcAddress:
    return replace(address, timeout_s=_DESCRIBE_S)


def _all_at_once(works: Sequence[Callable[[], _T]], until: float) -> list[_Answer[_T]]:
    """What each function returned, or raised; nothing of those that take longer than until then."""
    done: queue.SimpleQueue[tuple[int, _Answer[_T]]] = queue.SimpleQueue()

    def work(number: int) -> None:
        try:
            done.put((number, _Answer(value=works[number]())))
        except Exception as error:
            done.put((number, _Answer(error=error.with_traceback(None))))

    for number in range(len(works)):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    answers: list[_Answer[_T]] = [_Answer() for _ in works]
    for _ in works:
        try:
            number, answer = done.get(timeout=max(0.0, until - time.time()))
        except queue.Empty:
            break
        answers[number] = answer
    return answers
