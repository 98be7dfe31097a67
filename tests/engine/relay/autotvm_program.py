"""Run by the interpreter of a Relay-era TVM: what layoutlab's AutoTVM tuning does on a tiny network, as JSON.

python autotvm_program.py MODEL FOLDER FACTS.json
"""

import json
import os
import sys

from inside import dispatch, graph, records, tasks, tuning
from inside.build import optimise
from inside.importer import import_model
from inside.layouts import convert_layout
from inside.measuring import Measurer, Outcome
from inside.targets import make_target
from tvm import autotvm

TARGET = {"kind": "llvm", "device": "arm_cpu", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"]}
HOST = {"kind": "llvm", "mcpu": "x86-64-v3"}
OPTIONS = {
    "trials": 40,
    "tuner": "random",
    "batch": 8,
    "seed": 1,
    "time_limit_s": None,
    "early_stop": None,
    "cold_cache": False,
    "repeats": 1,
    "min_repeat_ms": 1,
    "tune": True,
    "device_kind": "host",
    "pricing": None,
    "core_numbers": None,
    "chosen": None,
    "additional": False,
    "borrowed": [],
}


class Formula:
    """In the place of a device: times that are a function of the point, so that searches can be compared."""

    def __init__(self, valid=True):
        self.asked, self._valid = [], valid

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def measure(self, task, configs):
        self.asked += [[task.name, int(config.index)] for config in configs]
        if not self._valid:
            return [Outcome(error_no=1, error="too many lanes") for _ in configs]
        return [Outcome(seconds=1e-6 * (1 + config.index * 37 % 101)) for config in configs]


class Program:
    def __init__(self, model, folder):
        self.mod, _ = import_model(model)
        self.nchw = convert_layout(self.mod, "NCHW")
        self.folder = folder
        self.said = []

    def tune(self, name, mod, target, measurer=None, **options):
        """The result of tuning into the folder of that name."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        chosen = dict(OPTIONS, **options)
        result = tuning.tune(mod, {}, make_target(target), folder, chosen, self._hear, measurer)
        lines = len(self.lines(name)) if os.path.exists(self.log(name)) else 0
        return dict(result, lines=lines)

    def _hear(self, event, **fields):
        if event == "say":
            self.said.append(fields["text"])

    def log(self, name):
        return os.path.join(self.folder, name, records.LOG)

    def lines(self, name):
        with open(self.log(name)) as file:
            return file.read().splitlines()

    def extraction(self):
        target = make_target(TARGET)
        ours = tasks.extract_tasks(self.nchw, target)
        theirs = autotvm.task.extract_from_program(self.nchw, {}, target)
        return {
            "ours": [task.key for task in ours],
            "theirs": [tasks.workload_key(task.name, task.args) for task in theirs],
            "names": [task.name for task in ours],
            "kinds": [[task.kind, task.layout] for task in ours],
            "rivals": [len(task.rivals) for task in ours],
        }

    def searches(self):
        found = {}
        for tuner in ("xgb", "ga", "random", "gridsearch"):
            first, again = Formula(), Formula()
            tuned = self.tune(tuner, self.mod, HOST, first, tuner=tuner)
            self.tune(tuner + "_again", self.mod, HOST, again, tuner=tuner)
            found[tuner] = {"asked": first.asked, "repeats": first.asked == again.asked, "tuned": tuned}
        return found

    def clipped(self):
        """More trials than the smallest task has points."""
        smallest = min(tasks.extract_tasks(self.mod, make_target(HOST)), key=lambda task: task.space)
        measurer = Formula()
        options = {"trials": 10000, "chosen": [smallest.index], "tuner": "gridsearch"}
        return dict(self.tune("clipped", self.mod, HOST, measurer, **options), space=smallest.space)

    def failing(self):
        return self.tune("failing", self.mod, HOST, Formula(valid=False), trials=400, chosen=[1])

    def resumed(self):
        """A run that was killed in the middle of a line."""
        lines = self.lines("random")
        os.makedirs(os.path.join(self.folder, "killed"))
        with open(self.log("killed"), "w") as file:
            file.write("\n".join(lines[:25]) + "\n" + lines[25][:60])
        measurer = Formula()
        tuned = self.tune("killed", self.mod, HOST, measurer)
        return {"asked": len(measurer.asked), "lines": tuned["lines"], "said": self.said[-1]}

    def early(self):
        return self.tune("early", self.mod, HOST, Formula(), trials=4000, early_stop=20, chosen=[1])

    def measured(self):
        """Built and timed on this machine, then built into the network with TVM's own layout hook."""
        target = make_target(HOST)
        tuned = self.tune("measured", self.nchw, HOST, trials=8, batch=4)
        with dispatch.Collector(os.path.join(self.folder, "measured"), True) as collector:
            collector.look_at(optimise(self.nchw, target, {"disabled": [], "opt_level": None}, True, False), target)
        loaded = list(autotvm.record.load_from_file(self.log("measured")))
        best = autotvm.apply_history_best(self.log("measured"))
        return {
            "tuned": tuned,
            "queries": [[query["op"], query["name"], query["hit"]] for query in collector.queries],
            "marked": collector.mark(tuned["tasks"]),
            "loaded": len(loaded),
            "known": len(best.best_by_targetkey),
        }

    def untuned(self):
        target = make_target(TARGET)
        with dispatch.Collector(os.path.join(self.folder, "nothing"), True) as collector:
            collector.look_at(optimise(self.mod, target, {"disabled": [], "opt_level": None}, True, True), target)
        return [[query["op"], query["name"], query["hit"], query["fallback"]] for query in collector.queries]

    def borrowed(self):
        """The log of another run, with lines that are of no use."""
        path = os.path.join(self.folder, "lent.log")
        lines = self.lines("measured")
        other = json.loads(lines[0])
        other["input"][0] = make_target(TARGET).__str__()
        odd = json.loads(lines[0])
        odd["config"]["entity"][0][2] = [-1, 3]
        strange = json.loads(lines[0])
        strange["input"][1] = "conv3d"
        with open(path, "w") as file:
            file.write("\n".join(lines + [json.dumps(line) for line in (other, odd, strange)] + ["{"]) + "\n")
        lent = [{"source": "lent.log", "log": path}]
        self.tune("borrower", self.nchw, HOST, Formula(), trials=0, borrowed=lent)
        return self.said[-1]

    def graph_tuned(self):
        """The graph tuner with the records of `measured`, and what it says where it does not work."""
        target, found = make_target(HOST), {}
        folder = os.path.join(self.folder, "measured")
        self.tune("measured", self.nchw, HOST, trials=8, graph_tuner=True)
        chosen = records.load_records(os.path.join(folder, graph.GRAPH_LOG))
        found["chosen"] = [record[0].task.name for record in chosen]
        with dispatch.Collector(folder, True, (), True) as collector:
            collector.look_at(optimise(self.nchw, target, {"disabled": [], "opt_level": None}, True, False), target)
        found["hits"] = [query["hit"] for query in collector.queries if "conv2d" in query["op"]]
        try:
            self.tune("graph_refused", self.nchw, TARGET, Formula(), trials=8, graph_tuner=True)
        except Exception as error:
            found["refused"] = error.message
        return found

    def refused(self):
        try:
            Measurer(make_target(HOST), dict(OPTIONS, device_kind="rpc"))
        except Exception as error:
            return error.message


def main(model, folder, facts):
    program = Program(model, folder)
    # In this order: some read the logs that others wrote.
    found = {
        "extraction": program.extraction(),
        "searches": program.searches(),
        "clipped": program.clipped(),
        "failing": program.failing(),
        "resumed": program.resumed(),
        "early": program.early(),
        "measured": program.measured(),
        "untuned": program.untuned(),
        "borrowed": program.borrowed(),
        "refused": program.refused(),
        "graph_tuned": program.graph_tuned(),
    }
    with open(facts, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
