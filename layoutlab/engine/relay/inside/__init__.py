"""What runs in the interpreter of a Relay-era TVM: the standard library, numpy and that TVM, nothing of layoutlab.

Started as `PYTHON -m inside REQUEST.json RESULT.json` with the folder above on the path. Kept to what Python 3.7 reads.
"""
