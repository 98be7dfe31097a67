"""Which record each operator of a build gets, told by the queries themselves instead of by what TVM logs."""

import os

import tvm
from tvm import autotvm
from tvm.autotvm.task.dispatcher import ApplyHistoryBest

from .convs import calls_of
from .graph import GRAPH_LOG
from .records import LOG, load_records
from .tasks import call_signature, placeholders_of, workload_key


class Collector(ApplyHistoryBest):
    """Applies the best records of a folder's log, and of lent logs for what has none of its own; silent.

    `queries`: what `look_at` found. Without `use_records` every template gets its fallback configuration. `borrowed`
    are `{"source", "folder"}` or `{"source", "log"}`, the first first. `graph_tuned`: with the graph tuner's choices.
    """

    def __init__(self, folder, use_records, borrowed=(), graph_tuned=False):
        super().__init__(None)
        self.queries = []
        self._origin, self._given = {}, {}
        self._lenders = {}
        if use_records:
            self.load(load_records(os.path.join(folder, LOG)))
            if graph_tuned:
                self._prefer(load_records(os.path.join(folder, GRAPH_LOG)))
            for lent in borrowed:
                self._borrow(lent)

    def query(self, target, workload):
        """The record of a workload, or a fallback configuration; without TVM's warning."""
        silent, autotvm.GLOBAL_SCOPE.silent = autotvm.GLOBAL_SCOPE.silent, True
        try:
            config = super().query(target, workload)
        finally:
            autotvm.GLOBAL_SCOPE.silent = silent
        # Kept alive, so that no other object can take its identity.
        self._given[id(config)] = (config, self._origin.get(_key(workload), _key(workload)))
        return config

    def update(self, target, workload, cfg):
        """A hook has put another workload in the place of one that was asked for: it takes over its record."""
        _, origin = self._given.get(id(cfg), (cfg, _key(workload)))
        self._origin[_key(workload)] = origin
        super().update(target, workload, cfg)

    def look_at(self, lowered, target):
        """Collect what each operator of a module is lowered with; call it in this context.

        `lowered` is the module as the build lowers it, not fused. `queries` gets a dict for each operator that has a
        template: `op`, `implementation`, `workload` and its `name`, `hit` (a record is used) or `fallback`, the
        `source` of a borrowed record, and the `task` (a workload as text) whose record it is.
        """
        known = {}
        self.queries = []
        for call in calls_of(lowered["main"]):
            signature = call_signature(call)
            if signature is None:
                continue
            if signature not in known:
                known[signature] = self._ask(call, target)
            if known[signature] is not None:
                self.queries.append(dict(known[signature]))

    def mark(self, tasks):
        """Coverage (dicts) with `hit`, `borrowed`, and as `ops` the operators that really use a task's implementation.

        Of a convolution's rival implementations TVM takes one; the others get 0 ops.
        """
        used = {}
        for query in self.queries:
            used.setdefault(query["task"], []).append(query)
        return [_marked(task, used.get(task["workload"], [])) for task in tasks]

    def _prefer(self, records):
        """What the graph tuner chose comes before what is fastest alone; of one workload the first choice is taken."""
        for inp, result in reversed(records):
            for key in inp.target.keys:
                self.best_by_targetkey[key, inp.task.workload] = (inp, result)
            self.best_by_model.pop((inp.target.model, inp.task.workload), None)

    def _borrow(self, lent):
        path = lent.get("log") or os.path.join(lent["folder"], LOG)
        have = set(key[1] for key in self.best_by_targetkey)
        records = [(inp, res) for inp, res in load_records(path) if inp.task.workload not in have and res.error_no == 0]
        self.load(records)
        for inp, _ in records:
            self._lenders[_key(inp.task.workload)] = lent["source"]

    def _ask(self, call, target):
        lower = tvm._ffi.get_global_func("relay.backend.lower_call")
        try:
            with target:
                chosen = lower(call, placeholders_of(call), target)
        except Exception:
            return None
        workload = autotvm.task.get_workload(list(chosen.outputs))
        if workload is None:
            return None
        hit = not self.query(target, workload).is_fallback
        task = self._origin.get(_key(workload), _key(workload))
        return {
            "op": call.op.name,
            "implementation": str(chosen.implementation.name),
            "target": str(target),
            "workload": list(workload),
            "name": workload[0],
            "task": task,
            "hit": hit,
            "fallback": not hit,
            "source": self._lenders.get(task) if hit else None,
        }


def _marked(task, queries):
    marked = dict(task, ops=len(queries), hit=any(query["hit"] for query in queries))
    sources = [query["source"] for query in queries if query["source"]]
    marked["borrowed"] = sources[0] if sources else None
    return marked


def _key(workload):
    return workload_key(workload[0], workload[1:])
