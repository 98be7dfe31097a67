"""`layoutlab discuss`."""

from __future__ import annotations

import argparse
from pathlib import Path

from layoutlab.errors import EXIT_OK, UsageError


def add_arguments(parser: argparse.ArgumentParser, results: Path) -> None:
    """The arguments of `layoutlab discuss`; `results` is the default folder of results."""
    parser.add_argument(
        "result", metavar="RUN", nargs="+", help="a spec that was run, a folder with a table.json, or such a file"
    )
    parser.add_argument(
        "--results", type=Path, default=results, metavar="DIR", help="folder of results (default: %(default)s)"
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print the post; returns the exit code."""
    from layoutlab.compare.results import read_results
    from layoutlab.discuss.post import discussion_post

    results = read_results(options.result, options.results)
    specs = [result.spec for result in results]
    if len(set(specs)) < len(specs):
        raise UsageError("a post is about different specs, each once: layoutlab compare shows two runs of one")
    print(discussion_post(results), end="")
    return EXIT_OK
