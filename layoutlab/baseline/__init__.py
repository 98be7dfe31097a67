"""The runtime that variants are compared with."""
