"""AutoTVM's graph tuner: of each convolution the record that is best together with the layout transforms around it."""

import os

from tvm import autotvm, relay
from tvm.autotvm.measure import MeasureInput, MeasureResult

from .convs import shape_of
from .records import LOG, load_records
from .refused import Refused
from .tasks import TunableTask, workload_key

GRAPH_LOG = "autotvm_graph.log"
# Records of a convolution that differ in layout and are considered.
_CANDIDATES = 8
_TEMPLATES = ("conv2d_NCHWc.x86", "depthwise_conv2d_NCHWc.x86")


def require_possible(tasks):
    """Raises Refused where the graph tuner does not work: each convolution must have one template, an x86 one."""
    for task in tasks:
        if task.kind is None or "conv2d" not in task.kind:
            continue
        if len(task.rivals) > 1 or task.task.name not in _TEMPLATES:
            raise Refused(
                "tune",
                "graph_tuner needs one template for each convolution, of %s, and %s is one of %d: leave graph_tuner "
                "out, or convert to NCHW for an x86 target" % (" and ".join(_TEMPLATES), task.name, len(task.rivals)),
            )


def choose(mod, target, folder, measurer):
    """Write the chosen record of each convolution into GRAPH_LOG of the folder, in the order they run in.

    Raises Refused for a convolution without a valid record.
    """
    from tvm.autotvm.graph_tuner import DPTuner

    main = mod["main"]
    shapes = {str(param.name_hint): tuple(shape_of(param)) for param in main.params}
    records = [record for record in load_records(os.path.join(folder, LOG)) if record[1].error_no == 0]
    try:
        tuner = DPTuner(
            main,
            shapes,
            records,
            [relay.op.get("nn.conv2d")],
            target,
            max_sch_num=_CANDIDATES,
            verbose=False,
            log_file=os.path.join(folder, "graph_tuner.txt"),
        )
    except KeyError as error:
        raise Refused("tune", "graph_tuner needs a record of each convolution, and there is none of %s" % (error,))
    tuner.benchmark_layout_transform(layout_records=_transforms(tuner, target, measurer))
    tuner.run()
    with open(os.path.join(folder, GRAPH_LOG), "w") as file:
        for inp, result in tuner.get_optimal_records():
            file.write(autotvm.record.encode(inp, result) + "\n")


def _transforms(tuner, target, measurer):
    """Records of the layout transforms there can be, measured as candidates are."""
    wanted = {}
    tuner._iterate_layout_transform(lambda a, b, c, d, arguments: _want(wanted, arguments))
    found = []
    for key, arguments in wanted.items():
        task = autotvm.task.create("layout_transform", args=arguments, target=target)
        config = task.config_space.get(0)
        (outcome,) = measurer.measure(TunableTask(0, task, key, "layout_transform", None), [config])
        seconds = 10e9 if outcome.seconds is None else outcome.seconds
        found.append((MeasureInput(target, task, config), MeasureResult((seconds,), 0, outcome.all_cost_s, 0.0)))
    return found


def _want(wanted, arguments):
    if arguments[1] != arguments[2]:
        workload = autotvm.task.args_to_workload(arguments, "layout_transform")
        wanted[workload_key(workload[0], workload[1:])] = arguments
