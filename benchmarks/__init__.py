"""Benchmarks of layoutlab against what others would use instead; run by make."""
