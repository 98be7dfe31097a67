"""Verbs that tune and measure: run, tune, op, aa."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from layoutlab.commands.options import (
    EVENTS,
    allow_hooks,
    allowed,
    complain,
    device_option,
    load,
    load_variants,
    number,
    whole_number,
    with_spec,
)
from layoutlab.commands.results import show
from layoutlab.errors import EXIT_OK, EXIT_VARIANT_FAILED, LayoutlabError


def add_commands(commands: Any) -> None:
    """Add run, tune, op and aa."""
    run = with_spec(commands.add_parser("run", help="run a spec, or what is left of it, and show its table"), _run)
    run.add_argument("--json", action="store_true", help=EVENTS)
    run.add_argument(
        "--borrow",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="use records of another device, model or version for tasks without own ones; repeatable",
    )
    run.add_argument(
        "--fresh", action="store_true", help="do not go on from shipped records, or from those of other runs"
    )
    run.add_argument("--again", action="store_true", help="take every round anew, on what is tuned and built already")
    allow_hooks(run)
    device_option(run)
    _add_tune(commands)
    _add_op(commands)
    _add_aa(commands)


def _add_tune(commands: Any) -> None:
    tune = with_spec(
        commands.add_parser(
            "tune", help="tune a spec, or some tasks of it again, without measuring; run goes on from it"
        ),
        _tune,
    )
    allow_hooks(tune)
    device_option(tune)
    tune.add_argument("--variant", metavar="NAME", help="only this variant")
    tune.add_argument(
        "--tasks",
        metavar="TASKS",
        help="only these tasks, with trials on top of the spec's budget: numbers (3), ranges (7-9), kinds (conv2d) or "
        "names, with commas between, as `layoutlab tasks` shows them for each variant",
    )
    tune.add_argument(
        "--trials",
        type=whole_number,
        metavar="N",
        help="so many more trials, on top of the spec's budget (default: with --tasks 64 a task, "
        "else what the budget has left)",
    )
    tune.add_argument("--time-limit", type=whole_number, metavar="S", help="at most so many seconds a variant")
    tune.add_argument("--json", action="store_true", help=EVENTS)
    tune.add_argument("--fresh", action="store_true", help="do not go on from records of other specs' runs")


def _add_op(commands: Any) -> None:
    op = with_spec(
        commands.add_parser(
            "op", help="one operator alone: cut out, measured in each layout, tuned, its records put back"
        ),
        _op,
    )
    allow_hooks(op)
    device_option(op)
    op.add_argument(
        "--op",
        type=number,
        required=True,
        metavar="INDEX",
        help="its number in the model, as profile and import show it",
    )
    fused = op.add_mutually_exclusive_group()
    fused.add_argument(
        "--with-fused",
        action="store_true",
        help="with the operators that TVM computes in one function with it (default)",
    )
    fused.add_argument("--bare", action="store_true", help="the operator only")
    op.add_argument(
        "--trials", type=whole_number, default=128, metavar="N", help="trials for each variant (default: %(default)s)"
    )
    op.add_argument(
        "--no-write-back", "--dry-run", action="store_true", help="leave the records of the network as they are"
    )
    op.add_argument("--json", action="store_true", help="print it as JSON")


def _add_aa(commands: Any) -> None:
    itself = with_spec(
        commands.add_parser(
            "aa", help="measure a variant against itself: how often does this machine see a difference?"
        ),
        _aa,
    )
    allow_hooks(itself)
    device_option(itself)
    itself.add_argument("--variant", metavar="NAME", help="this variant (default: the first)")
    itself.add_argument(
        "--runs", type=whole_number, default=20, metavar="N", help="so many runs (default: %(default)s)"
    )
    itself.add_argument("--again", action="store_true", help="take every round anew")
    itself.add_argument("--json", action="store_true", help="print it as JSON")


def _run(options: argparse.Namespace) -> int:
    loaded = load(options)
    from layoutlab.experiment import run_experiment
    from layoutlab.progress import progress_of
    from layoutlab.report.table import json_data

    with progress_of(options.json) as progress:
        comparison = run_experiment(
            loaded,
            options.results,
            progress,
            allowed(options),
            borrow=options.borrow,
            fresh=options.fresh,
            again=options.again,
        )
    progress.tell("finished", exit_code=comparison.exit_code, table=json_data(comparison))
    show(comparison, options, text=not options.json)
    return int(comparison.exit_code)


def _tune(options: argparse.Namespace) -> int:
    from layoutlab.engine.base import TuneRequest, to_json
    from layoutlab.progress import progress_of
    from layoutlab.report.tasks import tuned_text
    from layoutlab.tuning import tune_spec

    loaded = load_variants(options)
    request = TuneRequest(tasks=options.tasks, trials=options.trials)
    exit_code = EXIT_OK
    with progress_of(options.json) as progress:
        tuned = tune_spec(
            loaded, options.results, progress, allowed(options), request, options.time_limit, options.fresh
        )
        for name, found in tuned:
            if isinstance(found, LayoutlabError):
                exit_code = max(exit_code, found.exit_code)
                complain(f"error: {name}: {found}")
                progress.tell("failed", variant=name, error=str(found))
            elif options.json:
                progress.tell("tuned", variant=name, **to_json(found))
            else:
                print(tuned_text(name, found, request.additional))
    return exit_code


def _op(options: argparse.Namespace) -> int:
    loaded = load(options)
    from layoutlab.alone.run import OpRequest, run_op
    from layoutlab.progress import Progress
    from layoutlab.report.op import op_json, op_text

    request = OpRequest(
        index=options.op, bare=options.bare, trials=options.trials, write_back=not options.no_write_back
    )
    with Progress() as progress:
        result = run_op(loaded, options.results, progress, allowed(options), request)
    print(op_json(result) if options.json else op_text(result), end="")
    folder = options.results / result.comparison.name
    complain(f"written to {folder}: table.md, table.csv, table.json, coverage.csv, report.html")
    return int(result.comparison.exit_code)


def _aa(options: argparse.Namespace) -> int:
    loaded = load_variants(options)
    from layoutlab.aa import check_itself, self_check_json, self_check_text
    from layoutlab.progress import Progress

    with Progress() as progress:
        found = check_itself(loaded, options.results, progress, allowed(options), options.runs, options.again)
    print(self_check_json(found) if options.json else self_check_text(found), end="")
    complain(f"written to {options.results / loaded.spec.name}: aa.{found.variant}.csv")
    return EXIT_VARIANT_FAILED if found.too_often else EXIT_OK


def how_to_go_on(options: argparse.Namespace) -> str:
    """What is said of an interrupted command."""
    if options.command not in (_run, _tune, _op, _aa):
        return "interrupted"
    kept = options.results / "runs"
    if options.command is _tune and (options.tasks or options.trials):
        return f"interrupted. Every finished trial is kept under {kept}; the same command would spend its trials anew"
    go_on = "the same command without --again" if getattr(options, "again", False) else "the same command again"
    return f"interrupted. Every finished trial and round is kept under {kept}; to go on, run {go_on}"
