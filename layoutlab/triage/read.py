"""A whole log read: everything in it that one of the parsers knows."""

from __future__ import annotations

from dataclasses import dataclass

from layoutlab.triage.functions import FunctionTimes, find_functions
from layoutlab.triage.progress import Tuning, find_tuning
from layoutlab.triage.relay import RelayText, find_relay
from layoutlab.triage.text import plain_lines
from layoutlab.triage.workloads import Untuned, find_untuned

FORMS = (
    'AutoTVM\'s warnings: "Cannot find config for target=..., workload=(...)", "Cannot find tuning records for: ..."',
    'AutoTVM\'s progress: "[Task  1/36]  Current/Best:    1.17/   1.17 GFLOPS | Progress: (5/5) | 11.56 s Done."',
    "tables of the debug executor: Node Name, Ops, Time(us), Time(%), Shape, Inputs, Outputs",
    "tables of TVM's profiler: Name, Duration (us), Percent, Device, Count, Argument Shapes",
    "convolutions in Relay's text form: %2 = nn.conv2d(%0, %1, ...) /* ty=Tensor[...] */",
)


@dataclass(frozen=True, kw_only=True)
class Log:
    """What stands in a log of `lines` lines."""

    lines: int
    untuned: Untuned
    tuning: Tuning
    functions: FunctionTimes | None
    relay: RelayText

    @property
    def is_known(self) -> bool:
        """Whether there is anything in it to judge."""
        return bool(
            self.untuned.workloads
            or self.untuned.targets
            or self.untuned.unnamed
            or self.tuning.sessions
            or self.tuning.errors
            or self.tuning.hopeless
            or self.functions
            or self.relay.convs
        )

    @property
    def targets(self) -> list[str]:
        """Its targets, the most frequent first."""
        return sorted(self.untuned.targets, key=lambda target: -self.untuned.targets[target])


def read_log(data: bytes) -> Log:
    """Read the bytes of a log, in whichever encoding. Raises UsageError when there are too many."""
    lines = plain_lines(data)
    return Log(
        lines=sum(bool(line) for line in lines),
        untuned=find_untuned(lines),
        tuning=find_tuning(lines),
        functions=find_functions(lines),
        relay=find_relay(lines),
    )
