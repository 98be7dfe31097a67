"""Inputs, cores, the machine's state, timing, statistics and the numerics gate."""
