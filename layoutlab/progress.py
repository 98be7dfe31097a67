"""Progress on standard error: one changing line on a terminal, plain lines elsewhere; and as events, for programs."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

# Without a terminal a changing line becomes plain lines, at most one in so many seconds.
_PLAIN_EVERY_S = 15.0


class Progress:
    """`say` prints a line that stays, `show` replaces the changing one. Use as a context manager."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        # Redrawn only when there is news: a redrawing thread would disturb what is being measured.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._last_plain = 0.0

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(text))
        self._last_plain = 0.0

    def show(self, text: str) -> None:
        """What is going on right now."""
        if self._console.is_terminal:
            self._live.update(Text(text, overflow="ellipsis", no_wrap=True), refresh=True)
        elif time.monotonic() - self._last_plain >= _PLAIN_EVERY_S:
            self._console.print(Text(text))
            self._last_plain = time.monotonic()

    def record(self, event: dict[str, Any]) -> None:
        """Something that the run's record now holds."""
        self.tell("recorded", **event)

    def tell(self, event: str, **fields: Any) -> None:
        """An event for programs; here none listens."""


def progress_of(json_events: bool) -> Progress:
    """On standard error, and as events on standard output where they are asked for."""
    return JsonProgress(sys.stdout) if json_events else Progress()


class JsonProgress(Progress):
    """The same, and each line and each event of the run's record as a line of JSON on `out` as well.

    `{"event": "said" | "doing", "text": ...}` are lines that stay and that change, `{"event": "recorded", "kind": ...}`
    what events.jsonl now holds.
    """

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def say(self, text: str) -> None:
        """A line that stays."""
        super().say(text)
        self.tell("said", text=text)

    def show(self, text: str) -> None:
        """What is going on right now."""
        super().show(text)
        self.tell("doing", text=text)

    def tell(self, event: str, **fields: Any) -> None:
        """One event, at once."""
        print(json.dumps({"event": event, **fields}, separators=(",", ":")), file=self._out, flush=True)


class TuningLine:
    """Makes the line shown while a variant is tuned from its `trials` events."""

    def __init__(self, heading: str) -> None:
        self._heading = heading
        self._first: tuple[float, int] | None = None

    def text(self, event: dict[str, Any]) -> str:
        """`variant 1 of 3 (nhwc): tuning, trials 120 of 600, best 6.1 ms, 5 min left`."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, event["done"])
        parts = [f"trials {event['done']} of {event['total']}"]
        if event["failed"]:
            parts.append(f"{event['failed']} failed")
        if event["tuned"] < event["tasks"]:
            parts.append(f"{event['tuned']} of {event['tasks']} tasks tuned")
        else:
            parts.append(f"best sum of ops {event['best_us'] / 1e3:.2f} ms")
        if event.get("stopped_early"):
            parts.append(f"{event['stopped_early']} of {event['tasks']} tasks stopped early")
        left = self._time_left(now, event)
        if left:
            parts.append(left)
        return f"{self._heading}: tuning, " + ", ".join(parts)

    def _time_left(self, now: float, event: dict[str, Any]) -> str:
        assert self._first is not None
        started, at = self._first
        done = event["done"] - at
        if done <= 0:
            return ""
        return f"{duration((now - started) / done * (event['total'] - event['done']))} left"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
