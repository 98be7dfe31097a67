"""Inputs, timing, statistics and the numerics gate."""
