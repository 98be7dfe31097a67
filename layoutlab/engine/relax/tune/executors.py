"""Warm processes behind Python's `Executor` interface, and waiting for what they do."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from layoutlab.errors import StageError, first_message

# When of several calls not one finishes for so long, nobody is working on them any more.
STALL_S = 180.0
_PRELOADED = ["layoutlab.engine.relax.tune.candidates"]
_T = TypeVar("_T")


class WarmExecutor(Executor):
    """Processes that live as long as the tuning, forks of a server that has TVM imported.

    A call that crashes its process or takes longer than `timeout_s` ends with the process, which is replaced. Files
    that calls make with `tempfile` lie in `folder` when it is given: whoever removes it removes what was left in it by
    processes that were ended.
    """

    def __init__(self, workers: int, timeout_s: float, folder: str | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self.timeout_s = timeout_s
        self._pool = ProcessPool(max_workers=workers, context=context, initializer=_work_in, initargs=(folder,))
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def submit(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Schedule a call. Its future raises TimeoutError, ProcessExpired after a crash, or what the call raised."""
        future: Future[_T] = self._pool.schedule(function, args=args, kwargs=kwargs, timeout=self.timeout_s)
        self._futures.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: after the calls scheduled so far, or at once with `cancel_futures`."""
        if cancel_futures:
            # Whoever waits for them should not wait for ever.
            for future in list(self._futures):
                future.cancel()
            self._pool.stop()
        else:
            self._pool.close()
        if wait:
            self._pool.join()


def _work_in(folder: str | None) -> None:
    tempfile.tempdir = folder  # None is the system's


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def as_finished(
    futures: Sequence[Future[_T]],
    what: str,
    stall_s: float = STALL_S,
    require_alive: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, _T | None, str | None]]:
    """(index, result, None) of each call as it finishes, or (index, None, one line that says why there is no result).

    Calls of which none finished for `stall_s` are given up, unless `require_alive` raises first: it is asked then
    whether there is still somebody who works on them. Raises StageError when a call was cancelled by somebody else.
    """
    places = {future: index for index, future in enumerate(futures)}
    waiting = set(futures)
    while waiting:
        finished, waiting = wait(waiting, timeout=stall_s, return_when=FIRST_COMPLETED)
        if not finished:
            require_alive()
            break
        for future in sorted(finished, key=places.__getitem__):
            if future.cancelled():
                require_alive()
                raise StageError(
                    "tune", f"{what} was cancelled from elsewhere. Run again: the run goes on where it was"
                )
            yield places[future], *_result(future, what)
    for future in sorted(waiting, key=places.__getitem__):
        future.cancel()
        yield places[future], None, f"{what} gave no sign of life for {stall_s:.0f} s"


def _result(future: Future[_T], what: str) -> tuple[_T | None, str | None]:
    """(result, None) of a finished call, or (None, why there is none)."""
    try:
        return future.result(timeout=0), None
    except FutureTimeout as error:
        return None, f"{what} took longer than {_limit_s(error):.0f} s"
    except ProcessExpired as error:
        return None, f"{what} crashed its process (exit code {error.exitcode})"
    except Exception as error:
        if type(error).__name__ == "KilledWorker":  # dask's; it is imported only where it is used
            return None, f"{what} ended every worker of the dask cluster that tried it"
        return None, f"{what} failed: {type(error).__name__}: {first_message(error)}"


def _limit_s(error: BaseException) -> float:
    """Pebble's timeouts carry the limit that was exceeded."""
    return float(error.args[1]) if len(error.args) > 1 else float("nan")
