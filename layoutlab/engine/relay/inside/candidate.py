"""What a process of the pools does with one point of a design space: build it, or time what was built.

The functions get and return plain data, and each process makes a task once.
"""

import json
import os
import random

import numpy
import tvm
from tvm import autotvm
from tvm.contrib import cc

_TASKS = {}
# What TVM fills tensors with to measure them: never all zeros, for which some machines are faster.
_SEED = 1


def build(target, key, index, path, shared):
    """Compile the point `index` of the task `key` (a workload as text) into the object file `path`.

    With `shared` it is linked into a library beside it. Returns `{"library", "arguments": [(shape, dtype), ...]}`, or
    `{"error": (number of AutoTVM's MeasureErrorNo, message)}`.
    """
    try:
        task = _task(target, key)
        config = task.config_space.get(index)
        with task.target:
            schedule, tensors = task.instantiate(config)
    except autotvm.task.space.InstantiationError as error:
        return _failed("INSTANTIATION_ERROR", error)
    except Exception as error:
        kind = "INSTANTIATION_ERROR" if "InstantiationError" in str(error) else "COMPILE_HOST"
        return _failed(kind, error)
    if not config.valid():
        return _failed("INSTANTIATION_ERROR", "; ".join(str(error) for error in config.errors))
    try:
        function = tvm.build(schedule, tensors, target=task.target, name="default_function")
        function.save(path)
        if shared:
            library = os.path.splitext(path)[0] + ".so"
            cc.create_shared(library, [path])
            path = library
    except Exception as error:
        return _failed("COMPILE_HOST", error)
    arguments = [([int(extent) for extent in tensor.shape], str(tensor.dtype)) for tensor in tensors]
    return {"library": path, "arguments": arguments}


def measure(library, arguments, repeats, min_repeat_ms, cold_cache, cores):
    """Median seconds of one call of a built candidate on this machine, on the given cores (None: where it may run).

    With `cold_cache` the caches hold none of its arguments but the first.
    """
    if cores:
        os.sched_setaffinity(0, cores)
    module = tvm.runtime.load_module(library)
    generator = numpy.random.RandomState(_SEED)
    tensors = [tvm.nd.array(_values(generator, shape, dtype)) for shape, dtype in arguments]
    options = {"number": 1, "f_preproc": "cache_flush_cpu_non_first_arg"} if cold_cache else {"number": 1}
    if not cold_cache:
        options["min_repeat_ms"] = min_repeat_ms
    evaluator = module.time_evaluator("default_function", tvm.cpu(0), repeat=repeats, **options)
    return float(numpy.median(evaluator(*tensors).results))


def seed(number):
    """Seed what the tuners draw from."""
    random.seed(number)
    numpy.random.seed(number % 2**32)


def reason(error):
    """The line of an error that says what is wrong: TVM puts a stack trace before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "Error: " in line or "Check failed" in line]
    return (said or lines or [type(error).__name__])[-1][:300]


def _failed(kind, error):
    return {"error": (int(autotvm.measure.MeasureErrorNo[kind]), reason(error))}


def _task(target, key):
    if (target, key) not in _TASKS:
        # Templates are known once the operators' strategies are.
        import tvm.autotvm.graph_tuner
        import tvm.relay

        name, arguments = json.loads(key)
        made = tvm.target.Target(target)
        _TASKS[target, key] = autotvm.task.create(name, _tuples(arguments), target=made)
    return _TASKS[target, key]


def _tuples(value):
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def _values(generator, shape, dtype):
    if dtype.startswith("float"):
        return generator.uniform(-1, 1, shape).astype(dtype)
    return generator.randint(0, 2, shape).astype(dtype)
