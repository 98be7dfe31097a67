"""AutoTVM's log of a variant, one trial a line, as `autotvm.apply_history_best` reads it; and why trials failed."""

import json
import os
import time

from tvm import autotvm
from tvm.autotvm.measure import MeasureInput, MeasureResult

from .tasks import workload_key

LOG = "autotvm.log"
FAILURES = "autotvm_failures.jsonl"
TORN = LOG + ".torn"


class Trial:
    """One line of a log: the point of its task's design space, seconds of one call (None: failed), the error's number.

    `line` is the text it was read from.
    """

    def __init__(self, index, seconds, error_no, line):
        self.index, self.seconds, self.error_no, self.line = index, seconds, error_no, line


class Sorted:
    """What a log has for the tasks of a module, and how many of its lines are of no use for them.

    `trials`: by `workload_key`, in the order of the log. `other_task`: valid lines of other workloads; `other_target`:
    of a kind of target this one is not; `other_space`: of a design space that this TVM builds otherwise; `unreadable`.
    """

    def __init__(self):
        self.trials = {}
        self.other_task = self.other_target = self.other_space = self.unreadable = 0

    @property
    def fitting(self):
        """Lines that fit a task."""
        return sum(len(trials) for trials in self.trials.values())

    def text(self):
        """`120 lines fit, 3 are of other workloads`."""
        left = (
            (self.other_task, "of other workloads"),
            (self.other_target, "for other targets"),
            (self.other_space, "of design spaces that this TVM has not"),
            (self.unreadable, "unreadable"),
        )
        return ", ".join(["%d lines fit" % self.fitting] + ["%d are %s" % item for item in left if item[0]])


def read_log(path, tasks, target):
    """`Sorted` lines of a log. Nothing for a file that is not there; a line that cannot be read is only counted."""
    found = Sorted()
    by_key = {task.key: task for task in tasks}
    if not os.path.exists(path):
        return found
    with open(path, errors="replace") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                _sort(line.rstrip("\n"), by_key, target, found)
    return found


def _sort(line, by_key, target, found):
    try:
        row = json.loads(line)
        target_text, name, arguments = row["input"][:3]
        point, (costs, error_no) = row["config"], row["result"][:2]
        index, cost = int(point["index"]), sum(costs) / len(costs)
    except (ValueError, TypeError, KeyError, ZeroDivisionError):
        found.unreadable += 1
        return
    task = by_key.get(workload_key(name, arguments))
    if task is None:
        found.other_task += 1
    elif not _same_kind(target_text, target):
        found.other_target += 1
    elif not _same_point(task.task.config_space, index, point):
        found.other_space += 1
    else:
        trial = Trial(index, cost if error_no == 0 else None, error_no, line)
        found.trials.setdefault(task.key, []).append(trial)


def _same_kind(text, target):
    """Whether a record's target has a key in common with ours, `arm_cpu` before `cpu`: what AutoTVM itself goes by."""
    if text == str(target):
        return True
    try:
        keys = autotvm.record.Target(text).keys
    except Exception:
        return False
    return bool(keys) and str(keys[0]) == str(target.keys[0])


def _same_point(space, index, point):
    """Whether the point of that number is what the line says: spaces differ between releases."""
    if not 0 <= index < _range(space):
        return False
    ours = json.loads(json.dumps(space.get(index).to_json_dict()["entity"]))
    return ours == (point.get("entity") or point.get("e"))


def _range(space):
    """The number of indices, of which filters may leave out some; older releases have no filters."""
    return getattr(space, "range_length", None) or len(space)


def load_records(path):
    """AutoTVM's own (input, result) of each line of a log that this TVM can read; nothing where there is no file."""
    found = []
    if not os.path.exists(path):
        return found
    with open(path, errors="replace") as file:
        for line in file:
            if not line.strip() or line.startswith("#"):
                continue
            try:
                record = autotvm.record.decode(line)
            except Exception:
                continue
            if record is not None:
                found.append(record)
    return found


class Log:
    """The log in a folder, to which whole lines are appended, each on disk before the next trial is proposed."""

    def __init__(self, folder):
        self._path = os.path.join(folder, LOG)
        self._failures = os.path.join(folder, FAILURES)
        self._folder = folder

    def mend(self):
        """Move half a line that a kill left at the end to a file of its own; returns its bytes, 0 for none."""
        if not os.path.exists(self._path):
            return 0
        with open(self._path, "r+b") as file:
            data = file.read()
            whole = data.rfind(b"\n") + 1
            if whole == len(data):
                return 0
            with open(os.path.join(self._folder, TORN), "ab") as torn:
                torn.write(data[whole:] + b"\n")
            file.truncate(whole)
        return len(data) - whole

    def append(self, task, outcomes):
        """Add `(config, Outcome)` pairs of a `TunableTask`; reasons of failures first, for the log has none."""
        errors = [outcome.text() for _, outcome in outcomes if outcome.seconds is None]
        _append(self._failures, [json.dumps({"workload": task.key, "error": error}) for error in errors])
        _append(self._path, [_line(task.task, config, outcome) for config, outcome in outcomes])

    def first_failures(self):
        """The first reason of each workload that had one, by `workload_key`."""
        found = {}
        if not os.path.exists(self._failures):
            return found
        with open(self._failures, errors="replace") as file:
            for line in file:
                try:
                    failure = json.loads(line)
                    found.setdefault(failure["workload"], failure["error"])
                except (ValueError, TypeError, KeyError):
                    continue
        return found


def _line(task, config, outcome):
    costs = () if outcome.seconds is None else (outcome.seconds,)
    result = MeasureResult(costs, outcome.error_no, outcome.all_cost_s, time.time())
    return autotvm.record.encode(MeasureInput(task.target, task, config), result)


def _append(path, lines):
    if not lines:
        return
    data = "".join(line + "\n" for line in lines).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
