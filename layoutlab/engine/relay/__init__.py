"""The Relay engine: a TVM of the time before Relax, in an interpreter of its own."""
