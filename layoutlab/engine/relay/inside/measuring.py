"""Where candidates get their times: built side by side, then timed on this machine or priced on the simulated core."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import TimeoutError as FutureTimeout

from tvm.autotvm.measure import MeasureErrorNo
from tvm.contrib.popen_pool import PopenPoolExecutor

from .candidate import build, measure, reason
from .refused import Refused
from .tasks import error_name

BUILD_S = 30.0
_STALL_S = 60.0


class Outcome:
    """A candidate's time: seconds of one call, or the number of AutoTVM's MeasureErrorNo and one line that says why.

    `all_cost_s`: seconds that building and measuring took, which AutoTVM's log has as well.
    """

    def __init__(self, seconds=None, error_no=0, error=None, all_cost_s=0.0):
        self.seconds, self.error_no, self.error, self.all_cost_s = seconds, error_no, error, all_cost_s

    def text(self):
        """`RUN_TIMEOUT: the run took longer than 30 s`."""
        return "%s: %s" % (error_name(self.error_no), self.error)


class Runner:
    """Gives built candidates their times; `shared`: whether it wants libraries, or object files."""

    shared = True

    def run(self, builds):
        """An `Outcome` for each `{"library": path, "arguments": [(shape, dtype), ...]}`, in order."""
        raise NotImplementedError

    def close(self):
        """End what it started."""


class HostRunner(Runner):
    """Times candidates on this machine, one after the other, in a process of its own."""

    def __init__(self, repeats, min_repeat_ms, cold_cache, cores):
        self._arguments = (repeats, min_repeat_ms, cold_cache, cores)
        self._timeout_s = 20.0 + repeats * max(1.0, 3e-3 * min_repeat_ms)
        self._pool = PopenPoolExecutor(1, timeout=self._timeout_s)

    def run(self, builds):
        """One after the other: nothing else of the tuner runs meanwhile."""
        return [self._run_one(built) for built in builds]

    def _run_one(self, built):
        future = self._pool.submit(measure, built["library"], built["arguments"], *self._arguments)
        seconds, error = _result_of(future, self._timeout_s, "the run", MeasureErrorNo.RUN_TIMEOUT)
        if error is None:
            return Outcome(seconds=seconds)
        number, text = error
        return Outcome(error_no=int(number or MeasureErrorNo.RUNTIME_DEVICE), error=text)


class PricingRunner(Runner):
    """Prices candidates on simulated cores, by a helper in the interpreter that has these."""

    shared = False

    def __init__(self, command, path):
        # Its own packages, not those of this interpreter.
        environment = dict(os.environ, PYTHONPATH=path)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, universal_newlines=True, bufsize=1, **pipes)
        self._asked = 0

    def run(self, builds):
        """All at once: the helper takes them side by side and answers in any order."""
        first = self._asked
        for built in builds:
            request = {
                "id": self._asked,
                "library": built["library"],
                "function": "default_function",
                "args": built["arguments"],
            }
            self._asked += 1
            self._write(json.dumps(request) + "\n")
        answers = {}
        while len(answers) < len(builds):
            answer = self._read()
            answers[answer["id"]] = answer
        return [_priced(answers[first + number]) for number in range(len(builds))]

    def _write(self, line):
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise Refused("tune", self._ended())

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise Refused("tune", self._ended())
        return json.loads(line)

    def _ended(self):
        return "the simulated core's helper ended with code %s: see the log" % self._process.wait()

    def close(self):
        """End of its input is the end of the helper."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _priced(answer):
    if "us" in answer:
        return Outcome(seconds=answer["us"] * 1e-6)
    return Outcome(error_no=int(MeasureErrorNo.RUNTIME_DEVICE), error=str(answer["error"]))


def open_runner(options):
    """The runner for `options["device_kind"]`. Raises Refused where candidates cannot be measured there."""
    if options["device_kind"] == "host":
        return HostRunner(
            options["repeats"], options["min_repeat_ms"], options["cold_cache"], options.get("core_numbers")
        )
    if options["pricing"]:
        return PricingRunner(options["pricing"], options["pricing_path"])
    advice = "tune where you can and give the log (tuning.logs), or set tune: false"
    raise Refused("tune", "a variant of the Relay engine cannot be tuned on a device over RPC: " + advice)


class Measurer:
    """Builders and a runner; what they write lies in a folder of their own, which goes away with them."""

    def __init__(self, target, options, runner=None):
        self._target = str(target)
        self._runner = runner or open_runner(options)
        self._builders = PopenPoolExecutor(_processors(), timeout=BUILD_S)
        self._folder = tempfile.mkdtemp(prefix="layoutlab-relay-")
        self._built = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self._runner.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def measure(self, task, configs):
        """An `Outcome` for each configuration of a `TunableTask`, in order."""
        started = time.time()
        builds = self._build(task, configs)
        good = [built for built in builds if "library" in built]
        timed = iter(self._runner.run(good))
        outcomes = [next(timed) if "library" in built else _not_built(built) for built in builds]
        each_s = (time.time() - started) / max(1, len(configs))
        for outcome in outcomes:
            outcome.all_cost_s = each_s
        for name in os.listdir(self._folder):
            os.remove(os.path.join(self._folder, name))
        return outcomes

    def _build(self, task, configs):
        futures = []
        for config in configs:
            self._built += 1
            path = os.path.join(self._folder, "candidate%d.o" % self._built)
            arguments = (self._target, task.key, int(config.index), path, self._runner.shared)
            futures.append(self._builders.submit(build, *arguments))
        builds = []
        for future in futures:
            # Those before it in the queue may take their time as well.
            limit_s = BUILD_S * (1 + len(configs))
            built, error = _result_of(future, limit_s, "the build", MeasureErrorNo.BUILD_TIMEOUT)
            if error is not None:
                built = {"error": (int(error[0] or MeasureErrorNo.COMPILE_HOST), error[1])}
            builds.append(built)
        return builds


def _not_built(built):
    number, text = built["error"]
    return Outcome(error_no=number, error=text)


def _result_of(future, limit_s, what, timeout_no):
    """(value, None), or (None, (number or None, why)) when the process ended, took too long or raised."""
    try:
        return future.result(timeout=limit_s + _STALL_S), None
    except (TimeoutError, FutureTimeout):
        return None, (timeout_no, "%s took longer than %d s" % (what, limit_s))
    except ChildProcessError:
        return None, (None, "the process of %s ended without an answer" % what)
    except Exception as error:
        return None, (None, reason(error))


def _processors():
    return len(os.sched_getaffinity(0))
