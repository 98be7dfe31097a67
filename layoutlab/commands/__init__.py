"""The verbs of the command line, by what they are about: their arguments, and what they print."""
