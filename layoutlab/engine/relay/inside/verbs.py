"""What can be asked of this interpreter. Each verb takes JSON data and returns JSON data."""

import time

from . import build as builder
from . import tuning
from .build import optimise
from .census import take_census
from .convs import find_convs, layout_label
from .dispatch import Collector
from .importer import import_model, module_text
from .layouts import alter_layouts, convert_layout, list_convs
from .probe import about
from .probe import describe as probe
from .refused import Refused
from .targets import make_target
from .trace import conv_numbers, list_executed, output_names


def describe(report, target):
    """This TVM and its behaviours for a target."""
    report("stage", name="start")
    return probe(target)


def convs(report, model, layout):
    """The convolutions before and after ConvertLayout to `layout` (None: none), for the hook."""
    report("stage", name="import")
    imported, _ = import_model(model)
    report("stage", name="layout")
    numbers = conv_numbers(imported, output_names(model))
    before = list_convs(imported, numbers)
    after = before if layout is None else list_convs(convert_layout(imported, layout), numbers)
    return {"before": before, "after": after}


def lay_out(report, job):
    """Both censuses and the text before and after; the convolutions' layouts at the end."""
    imported, _, converted = _lay_out(report, job)
    report("stage", name="lower")
    return _laid_out(imported, _lowered(converted, job)[0], job)


def list_tasks(report, job):
    """The tasks of a variant with what its records say of them."""
    _, _, converted = _lay_out(report, job)
    report("stage", name="tune")
    return tuning.list_tasks(converted, {}, make_target(job["target"]), job["folder"], job["options"])


def tune(report, job):
    """Tune a variant without building it: the tasks before and after, and why it ended."""
    _, _, converted = _lay_out(report, job)
    report("stage", name="tune")
    target, folder, options = make_target(job["target"]), job["folder"], job["options"]
    before = tuning.list_tasks(converted, {}, target, folder, options)
    done = tuning.tune(converted, {}, target, folder, options, report)
    return dict(done, before=before)


def compile(report, job):
    """A variant tuned and built: the files of `build.build` in the folder, and what went into them."""
    imported, inputs, converted = _lay_out(report, job)
    target, folder, options = make_target(job["target"]), job["folder"], job["options"]
    covered = {"tasks": [], "ended": None, "tune_s": 0.0}
    report("stage", name="tune")
    if options["tune"]:
        covered = tuning.tune(converted, {}, target, folder, options, report)
    else:
        covered["tasks"] = tuning.list_tasks(converted, {}, target, folder, options)
    report("stage", name="build")
    started = time.time()
    with _collector(job):
        graph = builder.build(converted, target, job["passes"], job["fuse"], job["keep"], folder)
    lowered, collector = _lowered(converted, job)
    return dict(
        _laid_out(imported, lowered, job),
        about=about(target),
        tasks=collector.mark(covered["tasks"]),
        queries=collector.queries,
        ended=covered["ended"],
        tune_s=covered["tune_s"],
        build_s=time.time() - started,
        inputs=inputs,
        functions=_functions(imported, lowered, graph, job),
    )


def _lay_out(report, job):
    """The module as imported, its inputs' names, and the module with its final layouts."""
    report("stage", name="import")
    imported, inputs = import_model(job["model"])
    report("stage", name="layout")
    mod = imported
    if job["convert_layout"] is not None:
        mod = convert_layout(mod, job["convert_layout"])
        if job["decisions"] is None:
            _require_change(imported, mod, job["convert_layout"])
    decisions = job["decisions"]
    if decisions is not None and any(decision is not None for decision in decisions):
        mod = alter_layouts(mod, make_target(job["target"]), decisions)
    return imported, inputs, mod


def _require_change(imported, converted, layout):
    """A variant that converts nothing would pass one layout off as another."""
    before, after = ([layout_label(call) for call in find_convs(mod)] for mod in (imported, converted))
    if not before:
        raise Refused("layout", "convert_layout: %s was asked for, but the model has no conv2d to convert" % layout)
    if before == after:
        message = "convert_layout: %s was asked for, but it changed nothing: all %d convolutions stay %s. Leave it out"
        raise Refused("layout", message % (layout, len(before), ", ".join(sorted(set(before)))))


def _lowered(converted, job):
    """The module as the build lowers it, and the collector that has seen what each operator gets."""
    target = make_target(job["target"])
    with _collector(job) as collector:
        lowered = optimise(converted, target, job["passes"], job["fuse"], job["keep"])
        collector.look_at(lowered, target)
    return lowered, collector


def _functions(imported, lowered, graph, job):
    fused = builder.fuse_as_built(lowered, job["passes"], job["fuse"])
    return list_executed(imported, lowered, fused, output_names(job["model"]), graph)


def _laid_out(imported, lowered, job):
    return {
        "census_before": take_census(imported),
        "census_after": take_census(lowered),
        "layouts_after": [layout_label(call) for call in find_convs(lowered)],
        "convs_before": list_convs(imported, conv_numbers(imported, output_names(job["model"]))),
        "ir_before": module_text(imported),
        "ir_after": module_text(lowered),
    }


def _collector(job):
    options = job["options"]
    return Collector(job["folder"], options["tune"], options["borrowed"], options["graph_tuner"])


VERBS = {
    "describe": describe,
    "convs": convs,
    "lay_out": lay_out,
    "list_tasks": list_tasks,
    "tune": tune,
    "compile": compile,
}
