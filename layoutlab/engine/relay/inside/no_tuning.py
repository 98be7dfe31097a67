"""Stands in for tuning until it is there."""

from tvm import autotvm


def list_tasks(mod, params, target, folder, options):
    return []


def tune(mod, params, target, folder, options, report):
    return {"tasks": [], "ended": "nothing left", "tune_s": 0.0}


class Collector(autotvm.task.FallbackContext):
    def __init__(self, folder, use_records):
        super().__init__()
        autotvm.GLOBAL_SCOPE.silent = True
        self.queries = []

    def mark(self, tasks):
        return tasks
