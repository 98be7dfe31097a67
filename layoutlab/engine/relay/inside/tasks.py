"""AutoTVM's tuning tasks of a module: which there are, which calls each can serve, what it computes."""

import json

import tvm
from tvm import autotvm, relay

# The log's errors have the names of this enumeration.
from tvm.autotvm.measure import MeasureErrorNo

from .convs import calls_of, shape_of

_KINDS = (
    ("conv2d_transpose", "conv2d_transpose"),
    ("conv3d", "conv3d"),
    ("conv1d", "conv1d"),
    ("conv2d", "conv2d"),
    ("dense", "matmul"),
    ("matmul", "matmul"),
)


class TunableTask:
    """A task, and the calls it can serve.

    `index`: its number in the order its calls run in; `name`: unique, a template's name with the shapes of its first
    tensors; `key`: its workload as text, as `workload_key` makes it; `ops`: calls that could use it; `kind`, `layout`:
    what these compute and on which layout; `rivals`: keys of the tasks that can serve the same calls, its own too: of
    one convolution TVM may know several implementations, and takes the one with the fastest record.
    """

    def __init__(self, index, task, key, kind, layout):
        self.index, self.task, self.key = index, task, key
        self.kind, self.layout = kind, layout
        self.name = task.name
        self.ops = 0
        self.rivals = {key}

    @property
    def space(self):
        """Points of the design space that its filters leave."""
        return len(self.task.config_space)


def extract_tasks(mod, target):
    """The `TunableTask`s of a module whose layouts are final, in the order in which their first calls run.

    The same tasks that `autotvm.task.extract_from_program` finds, which does not say what they belong to. As there,
    AlterOpLayout does not run: what it makes of a tuned convolution takes over the record of what that was before.
    """
    found = {}
    for call, keys in tunable_calls(_without_altering(mod, target), target):
        tasks = [_task_of(found, key, call, target) for key in keys]
        tasks = [task for task in tasks if task is not None]
        for task in tasks:
            task.ops += 1
            task.rivals.update(other.key for other in tasks)
    tasks = list(found.values())
    _name_apart(tasks)
    return tasks


def tunable_calls(mod, target):
    """`(call, [(task name, arguments), ...])` of each call in a module for which TVM knows templates of AutoTVM."""
    trace = _Trace(target)
    for call in calls_of(mod["main"]):
        keys = trace.tasks_of(call)
        if keys:
            yield call, keys


def workload_key(name, arguments):
    """A task's name and arguments as text: equal for what the log has and for what TVM gives."""
    return json.dumps([name, arguments])


def error_name(number):
    """`RUN_TIMEOUT` for 7, as `MeasureErrorNo` has it."""
    try:
        return MeasureErrorNo(number).name
    except ValueError:
        return "error %s" % number


class _Trace:
    """Asks TVM for the implementations of calls, each kind of call once."""

    def __init__(self, target):
        self._target, self._known = target, {}
        self._lower = tvm._ffi.get_global_func("relay.backend.lower_call")

    def tasks_of(self, call):
        signature = call_signature(call)
        if signature is None:
            return []
        if signature not in self._known:
            self._known[signature] = self._ask(call)
        return self._known[signature]

    def _ask(self, call):
        env = autotvm.task.TaskExtractEnv.get()
        env.reset(None)
        with env, self._target:
            try:
                self._lower(call, placeholders_of(call), self._target)
            except Exception:
                # An operator that has no code of its own, such as one on shapes only, has no task either.
                return []
        return list(env.get_tasks())


def call_signature(call):
    """What makes two calls the same for a tuner; None for a call that no template can serve."""
    if not all(isinstance(arg.checked_type, relay.TensorType) for arg in call.args):
        return None
    attrs = call.attrs
    said = () if attrs is None else tuple((str(key), str(attrs[key])) for key in attrs.keys())
    shapes = tuple((tuple(shape_of(arg)), arg.checked_type.dtype) for arg in call.args)
    return (call.op.name, said, shapes)


def placeholders_of(call):
    """Tensors like a call's arguments."""
    return [tvm.te.placeholder(shape_of(arg), arg.checked_type.dtype) for arg in call.args]


def _without_altering(mod, target):
    context = tvm.transform.PassContext(opt_level=3, disabled_pass=["AlterOpLayout", "FuseOps"])
    with context, autotvm.FallbackContext():
        lowered, _ = relay.optimize(mod, target=target, params={})
    return relay.transform.InferType()(lowered)


def _task_of(found, key, call, target):
    name, arguments = key
    text = workload_key(name, arguments)
    if text not in found:
        try:
            task = autotvm.task.create(name, arguments, target=target)
        except Exception:
            # TVM leaves such tasks out as well: the template does not take these shapes.
            return None
        found[text] = TunableTask(len(found), task, text, kind_of(call), layout_of(call))
    return found[text]


def kind_of(call):
    """`conv2d`, `depthwise_conv2d`, `matmul`, ... of a call."""
    name = call.op.name
    kind = next((kind for word, kind in _KINDS if word in name), name.split(".")[-1])
    groups = _groups(call)
    if kind != "conv2d" or groups == 1:
        return kind
    return "depthwise_conv2d" if groups == int(call.attrs.channels or groups) else "group_conv2d"


def _groups(call):
    return int(call.attrs.groups) if call.attrs is not None and "groups" in call.attrs.keys() else 1


def layout_of(call):
    """`NHWC`, `NCHW`, `NCHW8c` or None of a call."""
    if call.attrs is None or "data_layout" not in call.attrs.keys():
        return None
    return str(call.attrs.data_layout)


def _name_apart(tasks):
    """Names that say the shapes; what differs in a stride or a padding only gets a number besides."""
    taken = {}
    for task in tasks:
        tensors = [arg for arg in task.task.args if isinstance(arg, tuple) and arg and arg[0] == "TENSOR"]
        name = "_".join([task.task.name] + ["x".join(str(extent) for extent in tensor[1]) for tensor in tensors[:2]])
        taken[name] = taken.get(name, 0) + 1
        task.name = name if taken[name] == 1 else "%s_%d" % (name, taken[name])
