"""The numbers of the model that are not counted: a clock, and the one fitted price."""

from __future__ import annotations

# The highest clock announced for the gold cores of a Snapdragon 835; a phone may stay below it.
CLOCK_GHZ = 2.45
# Cycles for each L1 miss that the prefetcher does not foresee; the only fitted number. It is about the latency of L2,
# which holds most of these lines. Fitted by least squares of the logarithms of (estimate / published) over four
# MobileNets (docs/kryo.md; `layoutlab.device.kryo.validate` does it anew), which gives 35.4.
PENALTY = 35.0
