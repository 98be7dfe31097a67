"""A variant's budget spent over its AutoTVM tasks, and what came of it, as layoutlab's `TaskCoverage`.

The tuners are AutoTVM's. The loop is ours: AutoTVM tunes one task after the other with as many trials each, counts a
resumed budget from zero, and keeps no reason of a failure.
"""

import time

from . import graph
from .measuring import Measurer
from .records import LOG, Log, read_log
from .search import TaskSearch
from .tasks import extract_tasks

NOT_TUNED = "not tuned by the spec"
SKIPPED = "skipped by the spec"
ONE_POINT = "space of one point"
EVERY_FAILED = "every candidate failed"
NOT_REACHED = "no trial reached it within the budget"


def list_tasks(mod, params, target, folder, options):
    """The tasks of a module with what the log in `folder` knows of them, as dicts with the fields of `TaskCoverage`.

    Besides these they have their `workload` as text.
    """
    tasks = extract_tasks(mod, target)
    return _coverage(_searches(tasks, folder, target, options), folder, options)


def tune(mod, params, target, folder, options, report, measurer=None):
    """Spend what is left of `options["trials"]` on the tasks; trials in the log of `folder` count.

    Returns `{"tasks", "ended", "tune_s"}`: the coverage, "budget", "time limit", "early stop" or "nothing left", and
    seconds. After each batch `report("trials", done=, total=, failed=, tuned=, tasks=, stopped_early=, best_us=)`.

    Raises Refused where candidates cannot be measured.
    """
    started = time.monotonic()
    torn = Log(folder).mend()
    if torn:
        report("say", text="the last line of %s was torn (%d bytes) and was dropped" % (LOG, torn))
    tasks = extract_tasks(mod, target)
    for lent in options["borrowed"]:
        if "log" in lent:
            report("say", text="%s: %s" % (lent["source"], read_log(lent["log"], tasks, target).text()))
    searches = _searches(tasks, folder, target, options)
    loop = _Loop(_chosen(searches, options), options, Log(folder), report, started)
    loop.show()
    open_tasks = loop.left() > 0 and loop.open_searches()
    chosen_by_graph = options.get("graph_tuner") and options["chosen"] is None
    if chosen_by_graph:
        graph.require_possible(tasks)
    if open_tasks or chosen_by_graph:
        with measurer or Measurer(target, options) as ready:
            loop.run(ready)
            if chosen_by_graph:
                graph.choose(mod, target, folder, ready)
    return {
        "tasks": _coverage(searches, folder, options),
        "ended": loop.why_ended(),
        "tune_s": time.monotonic() - started,
    }


class _Loop:
    """First some trials of each task, then a batch of the one that promises most, until something ends it."""

    def __init__(self, searches, options, log, report, started):
        self._searches, self._options, self._log, self._report = searches, options, log, report
        limit_s = options["time_limit_s"]
        self._ends_at = float("inf") if limit_s is None else started + limit_s
        self._by_key = {search.task.key: search for search in searches}

    def left(self):
        """Trials of the budget that are not done."""
        return self._options["trials"] - sum(search.trials for search in self._searches)

    def open_searches(self):
        """Tasks that can get more trials."""
        return [search for search in self._searches if not search.exhausted]

    def run(self, measurer):
        """Spend the budget."""
        first = max(1, min(self._options["batch"], self._options["trials"] // (4 * len(self._searches))))
        for search in self.open_searches():
            if not search.trials:
                self._batch(measurer, search, first)
        while self._goes_on():
            best = max(self.open_searches(), key=lambda search: search.promise(self._rivals_best_s(search)))
            self._batch(measurer, best, self._options["batch"])

    def _goes_on(self):
        return self.left() > 0 and not self._late() and bool(self.open_searches())

    def _late(self):
        return time.monotonic() >= self._ends_at

    def _batch(self, measurer, search, count):
        count = min(count, self.left())
        if count <= 0 or self._late():
            return
        configs = search.propose(count)
        if configs:
            outcomes = list(zip(configs, measurer.measure(search.task, configs)))
            # On disk before they count.
            self._log.append(search.task, outcomes)
            search.add(outcomes)
        self.show()

    def _rivals_best_s(self, search):
        return min((best for best in self._rival_times(search) if best is not None), default=0.0)

    def _rival_times(self, search):
        return [self._by_key[key].best_s for key in search.task.rivals if key in self._by_key]

    def show(self):
        """Report where the tuning stands; `best_us` takes of each call the fastest implementation."""
        tuned = [search for search in self._searches if search.best_s is not None]
        fastest = {}
        for search in tuned:
            group = frozenset(search.task.rivals)
            if group not in fastest or search.best_s < fastest[group].best_s:
                fastest[group] = search
        self._report(
            "trials",
            done=sum(search.trials for search in self._searches),
            total=self._options["trials"],
            failed=sum(search.failed for search in self._searches),
            tuned=len(tuned),
            tasks=sum(not search.one_point for search in self._searches),
            stopped_early=sum(search.stopped_early for search in self._searches),
            best_us=1e6 * sum(search.task.ops * search.best_s for search in fastest.values()),
        )

    def why_ended(self):
        """As `tune` returns it."""
        if self.left() <= 0:
            return "budget"
        if self._late() and self.open_searches():
            return "time limit"
        return "early stop" if any(search.stopped_early for search in self._searches) else "nothing left"


def _searches(tasks, folder, target, options):
    """A search for each task, with the trials of the log behind it."""
    Log(folder).mend()
    trials = read_log("%s/%s" % (folder, LOG), tasks, target).trials
    searches = []
    for task in tasks:
        search = TaskSearch(task, options)
        search.resume(trials.get(task.key, []))
        if options["additional"]:
            search.try_again()
        searches.append(search)
    return searches


def _chosen(searches, options):
    chosen = options["chosen"]
    return [search for search in searches if chosen is None or search.task.index in chosen]


def _coverage(searches, folder, options):
    failures = Log(folder).first_failures()
    return [_covered(search, failures.get(search.task.key), options) for search in searches]


def _covered(search, failure, options):
    task = search.task
    best_us = None if search.best_s is None else 1e6 * search.best_s
    return {
        "name": task.name,
        "workload": task.key,
        "ops": task.ops,
        "trials": search.trials,
        "failed": search.failed,
        "best_us": best_us,
        "index": task.index,
        "kind": task.kind,
        "layout": task.layout,
        "space": task.space,
        "flop": float(task.task.flop or 0),
        "first_failure": failure,
        "untuned_because": None if best_us is not None else _reason(search, failure, options),
        "hit": None,
    }


def _reason(search, failure, options):
    if not options["tune"]:
        return NOT_TUNED
    if options["chosen"] is not None and search.task.index not in options["chosen"]:
        return SKIPPED
    if search.trials:
        return "%s: %s" % (EVERY_FAILED, failure or "its message was not kept")
    return ONE_POINT if search.one_point else NOT_REACHED
