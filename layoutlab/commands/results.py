"""Verbs about finished runs: report, winners, profile."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from layoutlab.commands.options import allow_hooks, allowed, complain, load, load_variants, whole_number, with_spec
from layoutlab.errors import EXIT_OK, LayoutlabError, UsageError


def add_commands(commands: Any) -> None:
    """Add report, winners and profile."""
    report = with_spec(commands.add_parser("report", help="rebuild the table of a finished run"), _report)
    report.add_argument("--json", action="store_true", help="print the table as JSON")
    report.add_argument("--tasks", action="store_true", help="show what tuning covered, task by task, instead")
    with_spec(
        commands.add_parser(
            "winners", help="which layout wins each convolution of a finished run, and what mixing costs"
        ),
        _winners,
    )
    profile = with_spec(
        commands.add_parser(
            "profile", help="how long each function of a finished run's variants takes, and what it is"
        ),
        _profile,
    )
    profile.add_argument("--variant", metavar="NAME", help="only this variant")
    forms = profile.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print it as JSON")
    forms.add_argument("--csv", action="store_true", help="print it as CSV")
    profile.add_argument(
        "--explain", action="store_true", help="make experiments with the functions that are slower than promised"
    )
    profile.add_argument(
        "--top", type=whole_number, metavar="N", help="with --explain: the N slowest functions as well"
    )
    allow_hooks(profile)


def _report(options: argparse.Namespace) -> int:
    loaded = load(options)
    from layoutlab.report.comparison import compare
    from layoutlab.report.files import write_results
    from layoutlab.report.html.details import find_details
    from layoutlab.report.table import json_table
    from layoutlab.store import Store

    with Store(options.results / "runs" / loaded.spec.name) as store:
        comparison, details = compare(store), find_details(store)
    write_results(comparison, options.results / loaded.spec.name, details)
    if options.tasks:
        from layoutlab.report.coverage import tasks_text

        print(tasks_text(comparison), end="")
    elif options.json:
        print(json_table(comparison), end="")
    show(comparison, options, text=not (options.tasks or options.json))
    return int(comparison.exit_code)


def show(comparison: Any, options: argparse.Namespace, text: bool) -> None:
    """Say where the files of the comparison are, and show it as text, as wide as the terminal is, unless not wanted."""
    from layoutlab.report.table import terminal_table

    if text:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(terminal_table(comparison, width), end="")
    folder = options.results / comparison.name
    complain(f"written to {folder}: table.md, table.csv, table.json, coverage.csv, pairs.csv, report.html")


def _winners(options: argparse.Namespace) -> int:
    loaded = load(options)
    from layoutlab.progress import Progress
    from layoutlab.report.winners import find_winners, winners_text
    from layoutlab.store import Store

    with Progress() as progress, Store(options.results / "runs" / loaded.spec.name) as store:
        found = find_winners(loaded, store, progress)
    print(winners_text(loaded.spec.name, found), end="")
    return EXIT_OK


def _profile(options: argparse.Namespace) -> int:
    if options.explain:
        return _explain(options)
    if options.top is not None:
        raise UsageError("--top says what --explain explains: add --explain")
    loaded = load_variants(options)
    from layoutlab.profiling import profile_spec
    from layoutlab.progress import Progress
    from layoutlab.report.profile import profiles_text, write_profile

    found, exit_code = [], EXIT_OK
    folder = options.results / loaded.spec.name
    with Progress() as progress:
        for name, profile in profile_spec(loaded, options.results, progress):
            if isinstance(profile, LayoutlabError):
                exit_code = max(exit_code, profile.exit_code)
                complain(f"error: {name}: {profile}")
            else:
                write_profile(profile, folder)
                found.append(profile)
    if found:
        print(profiles_text(found, "json" if options.json else "csv" if options.csv else "text"), end="")
        _write_page(options, loaded.spec.name)
        complain(f"written to {folder}: profile.VARIANT.csv, profile.VARIANT.json, report.html")
    return exit_code


def _explain(options: argparse.Namespace) -> int:
    loaded = load_variants(options)
    from layoutlab.explaining import explain_spec
    from layoutlab.progress import Progress
    from layoutlab.report.explain import explanations_text, write_explanation
    from layoutlab.report.profile import write_profile

    found, exit_code = [], EXIT_OK
    folder = options.results / loaded.spec.name
    with Progress() as progress:
        explained = explain_spec(loaded, options.results, progress, allowed(options), options.top or 0)
        for name, both in explained:
            if isinstance(both, LayoutlabError):
                exit_code = max(exit_code, both.exit_code)
                complain(f"error: {name}: {both}")
            else:
                write_profile(both[0], folder)
                write_explanation(both[1], folder)
                found.append(both[1])
    if found:
        print(explanations_text(found, "json" if options.json else "csv" if options.csv else "text"), end="")
        _write_page(options, loaded.spec.name)
        complain(f"written to {folder}: explain.VARIANT.csv, explain.VARIANT.json, and the profiles")
    return exit_code


def _write_page(options: argparse.Namespace, name: str) -> None:
    """Write report.html again, with what the store has meanwhile got to know."""
    from layoutlab.report.comparison import compare
    from layoutlab.report.files import write_page
    from layoutlab.report.html.details import find_details
    from layoutlab.store import Store

    with Store(options.results / "runs" / name) as store:
        write_page(compare(store), find_details(store), options.results / name)
