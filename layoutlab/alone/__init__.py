"""One operator of a model alone: cut out, measured in each layout, tuned, its records put back; see docs/op.md."""
