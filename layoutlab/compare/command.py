"""`layoutlab compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from layoutlab.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser, results: Path) -> None:
    """The arguments of `layoutlab compare`; `results` is the default folder of results."""
    parser.add_argument(
        "result",
        metavar="RESULT",
        nargs="+",
        help="a spec that was run, a folder with a table.json, or such a file; two of one spec: the earlier first",
    )
    parser.add_argument(
        "--results", type=Path, default=results, metavar="DIR", help="folder of results (default: %(default)s)"
    )
    parser.add_argument(
        "--models",
        action="store_true",
        help="each result is of another model: ratios to TFLite by model, and the geometric mean of each variant",
    )
    forms = parser.add_mutually_exclusive_group()
    for form, name in (("md", "Markdown"), ("csv", "CSV"), ("json", "JSON")):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=f"print it as {name}")
    parser.set_defaults(command=run, form="text")


def run(options: argparse.Namespace) -> int:
    """Print the comparison; returns the exit code."""
    from layoutlab.compare.across import compare_results
    from layoutlab.compare.forms import comparison_text
    from layoutlab.compare.models import models_table
    from layoutlab.compare.results import read_results

    results = read_results(options.result, options.results)
    found = models_table(results) if options.models else compare_results(results)
    print(comparison_text(found, options.form), end="")
    return EXIT_OK
