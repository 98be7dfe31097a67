"""The spec of a comparison: its fields, how it is read from YAML, and what is said when it is wrong."""
