"""layoutlab: which data layout should a convolutional network use on a CPU? Tuned, checked, repeatable comparisons."""
