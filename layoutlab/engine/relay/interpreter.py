"""The interpreter of a Relay-era TVM: where it is, what it says of itself, and how it is asked.

TVM is not imported, neither this one nor that.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.errors import DeviceError, StageError

VARIABLE = "LAYOUTLAB_RELAY_PYTHON"
FOLDER = ".relay"
# The tests' own, which `make test` makes once where Python 3.10 is.
CACHE = Path("~/.cache/layoutlab/relay")

_INSIDE = Path(__file__).parent
# A candidate takes seconds, lowering a large network a minute; what says nothing for so long hangs.
_SILENT_S = 900.0

Report = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class RelayEngine:
    """A Relay-era TVM: what `inside.probe.describe` says of it for the target.

    Runs record it, so it has no path of the interpreter: that tells nothing on another machine.
    """

    described: Mapping[str, Any]

    @property
    def version(self) -> str:
        """`TVM 0.16.dev0 (git 847d53fdc0, hhb-tvm 3.2.3)`."""
        about = [f"git {self.described['git'][:10]}"]
        about += [str(self.described["package"])] if self.described.get("package") else []
        return f"TVM {self.described['tvm']} ({', '.join(about)})"

    @property
    def line(self) -> str:
        """All of it in one line, as tables say it."""
        kind = ", a fork's wheel" if str(self.described.get("package", "")).startswith("hhb-tvm") else ""
        return (
            f"Relay of {self.version}{kind}, LLVM {self.described['llvm']}, Python {self.described['python']}, "
            f"target {self.described['target']}"
        )

    @property
    def behaviours(self) -> list[str]:
        """What TVM's own hook does with each kind of convolution, and its schedule where nothing is tuned."""
        none = "keeps the convolution" if self.described["none_keeps"] else "changes it all the same"
        return [
            *(
                f"{name} is {found['schedule']}, and TVM's own hook {_did(found['hook'])}"
                for name, found in self.described["convs"].items()
            ),
            f"None from a hook {none}",
            *(
                ["its own hook forgets the layout of an NHWC kernel, which is told it"]
                if self.described["completed"]
                else []
            ),
        ]


def _did(hook: str) -> str:
    return hook if hook.startswith(("keeps", "fails")) else f"makes it {hook}"


def find_python(wanted: str | None = None) -> str:
    """The interpreter: the one that the spec wants, that of the variable, or the one that `make relay` made.

    Raises DeviceError, which says how to get one.
    """
    for named, where in ((wanted, "engine.python"), (os.environ.get(VARIABLE), VARIABLE)):
        if named:
            path = Path(named).expanduser()
            if not os.access(path, os.X_OK) or path.is_dir():
                raise DeviceError(f"{where} names {named}, which is no program: name the python of a Relay-era TVM")
            # Not resolved: an environment's python is a link, and knows its packages by where the link is.
            return str(path.absolute())
    for folder in (Path(FOLDER), Path(__file__).parents[3] / FOLDER):
        python = folder / "bin" / "python"
        # Its environment is whole only once it says so, see `provision`.
        if python.exists() and (folder / ".installed").exists():
            return str(python.absolute())
    raise DeviceError(
        "engine: relay needs a TVM with Relay in an interpreter of its own, and there is none. Run `make relay`, which "
        f"makes one, or name yours: engine: {{kind: relay, python: PATH}}, or {VARIABLE}"
    )


def describe(python: str, target: Mapping[str, Any], log: Path | None) -> RelayEngine:
    """What an interpreter's TVM is, and how it behaves for a target. Raises DeviceError when it has none."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = ask(python, "describe", {"target": dict(target)}, folder=Path(folder), log=log, silent_s=180)
    except StageError as error:
        raise DeviceError(f"{python} does not start a TVM with Relay: {error}") from error
    return RelayEngine(described=found)


def ask(
    python: str,
    verb: str,
    arguments: Mapping[str, Any],
    *,
    folder: Path,
    report: Report = lambda event, **fields: None,
    log: Path | None = None,
    tophub: bool = False,
    silent_s: float = _SILENT_S,
) -> Any:
    """Do a verb of `inside.verbs` in a process of the interpreter and return its result.

    Its events are passed to `report`; what it prints goes to `log`, or to standard error. It runs in a folder within
    `folder`, which is gone afterwards, and in this process' group. Raises StageError for what failed there, and for
    a process that died or was silent for `silent_s`.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="ask-") as name:
        request, result = Path(name) / "request.json", Path(name) / "result.json"
        request.write_text(json.dumps({"verb": verb, "arguments": dict(arguments)}))
        command = [python, "-m", "inside", str(request.resolve()), str(result.resolve())]
        with contextlib.ExitStack() as stack:
            output = None if log is None else stack.enter_context(_appended(log))
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                # TVM leaves a cache in the folder it runs in.
                cwd=name,
                env=_environment(tophub),
                text=True,
            )
            stage = _follow(process, report, silent_s, log)
        if not result.exists():
            cause = f"{python} ended with code {process.returncode} and no result"
            raise StageError(stage, cause, str(log or ""))
        return _result(json.loads(result.read_text()), log)


def _appended(log: Path) -> Any:
    log.parent.mkdir(parents=True, exist_ok=True)
    return open(log, "ab")


def _environment(tophub: bool) -> dict[str, str]:
    """Ours, without what is meant for our own interpreter."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    kept.setdefault("TVM_NUM_THREADS", "1")
    # The folder of `inside` alone: layoutlab's own packages are for another Python. AutoTVM would download records.
    return {**kept, "PYTHONPATH": str(_INSIDE), **({} if tophub else {"TOPHUB_LOCATION": "NONE"})}


def _follow(process: subprocess.Popen[str], report: Report, silent_s: float, log: Path | None) -> str:
    """Pass events on until the process ends; returns the stage it was in last."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    stage = "start"
    try:
        while (line := _next(lines, silent_s, stage, log)) is not None:
            event = json.loads(line)
            stage = event["name"] if event["event"] == "stage" else stage
            report(event.pop("event"), **event)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.wait()
    return stage


def _next(lines: queue.SimpleQueue[str | None], silent_s: float, stage: str, log: Path | None) -> str | None:
    try:
        return lines.get(timeout=silent_s)
    except queue.Empty:
        cause = f"no sign of life for {silent_s:.0f} s; the process was ended"
        raise StageError(stage, cause, str(log or "")) from None


def _result(result: Mapping[str, Any], log: Path | None) -> Any:
    if "ok" in result:
        return result["ok"]
    error = result["error"]
    raise StageError(error["stage"], error["message"], str(log or ""))
