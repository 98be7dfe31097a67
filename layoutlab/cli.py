"""The command line. Results go to standard output, progress and errors to standard error.

Nothing heavy is imported here: `--help`, `validate`, `plan` and `schema` answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from layoutlab import agent, devices, tracker
from layoutlab.compare import command as compare_command
from layoutlab.discuss import command as discuss_command
from layoutlab.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    EXIT_VARIANT_FAILED,
    LayoutlabError,
    SpecError,
    UsageError,
)
from layoutlab.records import commands as records_commands
from layoutlab.triage import command as triage_command
from layoutlab.utf8 import use_utf8

_RESULTS = Path("results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (see `layoutlab.errors`)."""
    if arguments is None:
        use_utf8()
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(options.command(options))
    except SpecError as error:
        _complain("\n".join(error.problems))
        return error.exit_code
    except LayoutlabError as error:
        _complain(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _complain(_how_to_go_on(options))
        return EXIT_INTERRUPTED


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def _how_to_go_on(options: argparse.Namespace) -> str:
    if options.command not in (_run, _tune, _op, _aa):
        return "interrupted"
    kept = options.results / "runs"
    if options.command is _tune and (options.tasks or options.trials):
        return f"interrupted. Every finished trial is kept under {kept}; the same command would spend its trials anew"
    return f"interrupted. Every finished trial and round is kept under {kept}; to go on, run the same command again"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="layoutlab",
        description="Compare data layouts of a TFLite model compiled by Apache TVM, next to TFLite itself.",
        epilog="exit codes: 0 fine, 1 a variant failed, 2 usage, spec or model, 3 no device, 4 wrong outputs, "
        "130 interrupted",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = _with_spec(commands.add_parser("run", help="run a spec, or what is left of it, and show its table"), _run)
    run.add_argument("--json", action="store_true", help="print the table as JSON")
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
    _allow_hooks(run)
    _on_device(run)
    _with_spec(
        commands.add_parser("validate", help="check a spec and say everything that is wrong with it"),
        _validate,
    )
    _on_device(
        _with_spec(commands.add_parser("plan", help="show what a run of the spec would do, without doing it"), _plan)
    )
    report = _with_spec(commands.add_parser("report", help="rebuild the table of a finished run"), _report)
    report.add_argument("--json", action="store_true", help="print the table as JSON")
    report.add_argument("--tasks", action="store_true", help="show what tuning covered, task by task, instead")
    _with_spec(
        commands.add_parser(
            "winners", help="which layout wins each convolution of a finished run, and what mixing costs"
        ),
        _winners,
    )
    profile = _with_spec(
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
        "--top", type=_whole_number, metavar="N", help="with --explain: the N slowest functions as well"
    )
    _allow_hooks(profile)
    peaks = _with_spec(
        commands.add_parser("peaks", help="what the device that a spec runs on can do at most: arithmetic and memory"),
        _peaks,
    )
    _on_device(peaks)
    peaks.add_argument("--again", action="store_true", help="measure again what was measured before")
    peaks.add_argument("--json", action="store_true", help="print it as JSON")
    layouts = _with_spec(
        commands.add_parser("layouts", help="show what each variant does to the layouts, without tuning"), _layouts
    )
    _allow_hooks(layouts)
    layouts.add_argument("--variant", metavar="NAME", help="only this variant")
    layouts.add_argument("--ir", action="store_true", help="show the Relax text before and after as well")
    layouts.add_argument("--json", action="store_true", help="print it as JSON")
    tasks = _with_spec(
        commands.add_parser("tasks", help="show the tuning tasks of each variant, by number and name; no tuning"),
        _tasks,
    )
    _allow_hooks(tasks)
    tasks.add_argument("--variant", metavar="NAME", help="only this variant")
    tasks.add_argument("--json", action="store_true", help="print it as JSON")
    _add_tune(commands)
    _add_op(commands)
    itself = _with_spec(
        commands.add_parser(
            "aa", help="measure a variant against itself: how often does this machine see a difference?"
        ),
        _aa,
    )
    _allow_hooks(itself)
    _on_device(itself)
    itself.add_argument("--variant", metavar="NAME", help="this variant (default: the first)")
    itself.add_argument(
        "--runs", type=_whole_number, default=20, metavar="N", help="so many runs (default: %(default)s)"
    )
    itself.add_argument("--json", action="store_true", help="print it as JSON")
    compare_command.add_arguments(
        commands.add_parser("compare", help="results of several specs in one table, or of one spec across time"),
        _RESULTS,
    )
    discuss_command.add_arguments(
        commands.add_parser("discuss", help="a Markdown post about finished runs, for a discussion of layouts"),
        _RESULTS,
    )
    importing = commands.add_parser("import", help="say everything in a model that TVM cannot import")
    importing.add_argument("model", metavar="MODEL", type=Path, help="a .tflite file")
    importing.add_argument("--json", action="store_true", help="print it as JSON")
    importing.set_defaults(command=_import)
    triage = commands.add_parser(
        "triage", help="what a log of TVM tells: untuned workloads, slow functions, what to try next"
    )
    triage.description = triage_command.DESCRIPTION
    triage_command.add_arguments(triage)
    triage.set_defaults(command=triage_command.run)
    records = commands.add_parser("records", help="tuning records as files: show, export, merge, prune")
    records_commands.add_arguments(records, _RESULTS)
    listing = commands.add_parser("devices", help="list what a spec can run on: here, at trackers, at agents")
    devices.add_arguments(listing)
    listing.set_defaults(command=devices.run)
    doctor = commands.add_parser(
        "doctor", help="say what this machine has of what layoutlab needs, or a spec's device, and what to do"
    )
    doctor.add_argument("spec", metavar="SPEC", nargs="?", help="try everything between here and this spec's device")
    _on_device(doctor)
    doctor.add_argument("--json", action="store_true", help="print it as JSON")
    doctor.set_defaults(command=_doctor)
    provision = commands.add_parser("provision", help="download and build the simulated Kryo core, without root")
    provision.set_defaults(command=_provision)
    serving = commands.add_parser(
        "agent", help="serve this device: TVM RPC, TFLite, conditions", description=agent.DESCRIPTION
    )
    agent.add_arguments(serving)
    serving.set_defaults(command=agent.run)
    tracking = commands.add_parser(
        "tracker", help="bring agents of several devices and clients together", description=tracker.DESCRIPTION
    )
    tracker.add_arguments(tracking)
    tracking.set_defaults(command=tracker.run)
    schema = commands.add_parser("schema", help="print the JSON schema of specs, for editors")
    schema.set_defaults(command=_schema)
    return parser


def _add_tune(commands: Any) -> None:
    tune = _with_spec(
        commands.add_parser(
            "tune", help="tune a spec, or some tasks of it again, without measuring; run goes on from it"
        ),
        _tune,
    )
    _allow_hooks(tune)
    _on_device(tune)
    tune.add_argument("--variant", metavar="NAME", help="only this variant")
    tune.add_argument(
        "--tasks",
        metavar="TASKS",
        help="only these tasks, with trials on top of the spec's budget: numbers (3), ranges (7-9), kinds (conv2d) or "
        "names, with commas between, as `layoutlab tasks` shows them for each variant",
    )
    tune.add_argument(
        "--trials",
        type=_whole_number,
        metavar="N",
        help="so many more trials, on top of the spec's budget (default: with --tasks 64 a task, "
        "else what the budget has left)",
    )
    tune.add_argument("--time-limit", type=_whole_number, metavar="S", help="at most so many seconds a variant")
    tune.add_argument("--fresh", action="store_true", help="do not go on from records of other specs' runs")


def _add_op(commands: Any) -> None:
    op = _with_spec(
        commands.add_parser(
            "op", help="one operator alone: cut out, measured in each layout, tuned, its records put back"
        ),
        _op,
    )
    _allow_hooks(op)
    _on_device(op)
    op.add_argument(
        "--op",
        type=_number,
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
        "--trials", type=_whole_number, default=128, metavar="N", help="trials for each variant (default: %(default)s)"
    )
    op.add_argument(
        "--no-write-back", "--dry-run", action="store_true", help="leave the records of the network as they are"
    )
    op.add_argument("--json", action="store_true", help="print it as JSON")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0, found {text!r}")
    return int(text)


def _whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, found {text!r}")
    return int(text)


def _with_spec(parser: argparse.ArgumentParser, command: Any) -> argparse.ArgumentParser:
    parser.add_argument("spec", metavar="SPEC", help="a file under experiments/, or a path")
    parser.add_argument(
        "--results",
        type=Path,
        default=_RESULTS,
        metavar="DIR",
        help="folder of results (default: %(default)s)",
    )
    parser.set_defaults(command=command)
    return parser


def _allow_hooks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-hooks",
        action="append",
        default=[],
        metavar="PREFIX",
        help="let hooks of the spec run whose package.module:function begins so, or the program of baseline.tool with "
        "this path",
    )


def _on_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="run there, whatever the spec says: host, kryo, rpc://host:port/key of a tracker, agent://host:port",
    )


def _allowed(options: argparse.Namespace) -> tuple[str, ...]:
    from layoutlab.settings import allowed_hooks

    return (*options.allow_hooks, *allowed_hooks())


def _load(options: argparse.Namespace) -> Any:
    from layoutlab.spec.load import DEVICE_VARIABLE, find_spec, load_spec, on_device

    loaded = load_spec(find_spec(options.spec))
    device = getattr(options, "device", None)
    if device is not None:
        return on_device(loaded, device, "--device")
    named = os.environ.get(DEVICE_VARIABLE)
    if named and loaded.spec.device.on == "auto":
        return on_device(loaded, named, DEVICE_VARIABLE)
    return loaded


def _run(options: argparse.Namespace) -> int:
    loaded = _load(options)
    from layoutlab.experiment import run_experiment
    from layoutlab.progress import Progress

    with Progress() as progress:
        comparison = run_experiment(loaded, options.results, progress, _allowed(options), options.borrow, options.fresh)
    _show(comparison, options)
    return int(comparison.exit_code)


def _report(options: argparse.Namespace) -> int:
    loaded = _load(options)
    from layoutlab.report.comparison import compare
    from layoutlab.report.files import write_results
    from layoutlab.report.html.details import find_details
    from layoutlab.store import Store

    with Store(options.results / "runs" / loaded.spec.name) as store:
        comparison, details = compare(store), find_details(store)
    write_results(comparison, options.results / loaded.spec.name, details)
    if options.tasks:
        from layoutlab.report.coverage import tasks_text

        print(tasks_text(comparison), end="")
    else:
        _show(comparison, options)
    return int(comparison.exit_code)


def _show(comparison: Any, options: argparse.Namespace) -> None:
    from layoutlab.report.table import json_table, terminal_table

    print(json_table(comparison) if options.json else terminal_table(comparison), end="")
    folder = options.results / comparison.name
    _complain(f"written to {folder}: table.md, table.csv, table.json, coverage.csv, pairs.csv, report.html")


def _validate(options: argparse.Namespace) -> int:
    loaded = _load(options)
    print(f"{loaded.path}: fine, {len(loaded.spec.variants)} variants")
    return EXIT_OK


def _plan(options: argparse.Namespace) -> int:
    from layoutlab.report.plan import plan_text

    print(plan_text(_load(options), options.results), end="")
    return EXIT_OK


def _layouts(options: argparse.Namespace) -> int:
    from layoutlab.engine.base import to_json
    from layoutlab.report.layouts import find_layouts, layouts_text

    loaded = _load_variants(options)
    return _show_variants(
        lambda progress: find_layouts(loaded, _allowed(options), progress),
        options,
        lambda name, layouts: layouts_text(name, layouts, options.ir),
        to_json,
    )


def _tasks(options: argparse.Namespace) -> int:
    from layoutlab.engine.base import to_json
    from layoutlab.report.tasks import find_tasks, tasks_text

    loaded = _load_variants(options)
    return _show_variants(
        lambda progress: find_tasks(loaded, options.results, _allowed(options), progress),
        options,
        tasks_text,
        lambda tasks: [to_json(task) for task in tasks],
    )


def _load_variants(options: argparse.Namespace) -> Any:
    """The spec, with the chosen variant alone if one is chosen."""
    loaded = _load(options)
    return loaded if options.variant is None else _only(loaded, options.variant)


def _show_variants(
    find: Callable[[Any], Iterable[tuple[str, Any]]],
    options: argparse.Namespace,
    text: Callable[[str, Any], str],
    data: Callable[[Any], Any],
) -> int:
    """Show what is found of each variant, or its error, as it comes, or as JSON in the end; returns the exit code."""
    from layoutlab.progress import Progress

    failed, shown = False, {}
    with Progress() as progress:
        for name, value in find(progress):
            failed = failed or isinstance(value, Exception)
            if options.json:
                shown[name] = {"error": str(value)} if isinstance(value, Exception) else data(value)
            else:
                print(text(name, value))
    if options.json:
        print(json.dumps(shown, indent=1))
    return EXIT_VARIANT_FAILED if failed else EXIT_OK


def _tune(options: argparse.Namespace) -> int:
    from layoutlab.engine.base import TuneRequest
    from layoutlab.progress import Progress
    from layoutlab.report.tasks import tuned_text
    from layoutlab.tuning import tune_spec

    loaded = _load_variants(options)
    request = TuneRequest(tasks=options.tasks, trials=options.trials)
    exit_code = EXIT_OK
    with Progress() as progress:
        tuned = tune_spec(
            loaded, options.results, progress, _allowed(options), request, options.time_limit, options.fresh
        )
        for name, found in tuned:
            if isinstance(found, LayoutlabError):
                exit_code = max(exit_code, found.exit_code)
                _complain(f"error: {name}: {found}")
            else:
                print(tuned_text(name, found, request.additional))
    return exit_code


def _op(options: argparse.Namespace) -> int:
    loaded = _load(options)
    from layoutlab.alone.run import OpRequest, run_op
    from layoutlab.progress import Progress
    from layoutlab.report.op import op_json, op_text

    request = OpRequest(
        index=options.op, bare=options.bare, trials=options.trials, write_back=not options.no_write_back
    )
    with Progress() as progress:
        result = run_op(loaded, options.results, progress, _allowed(options), request)
    print(op_json(result) if options.json else op_text(result), end="")
    folder = options.results / result.comparison.name
    _complain(f"written to {folder}: table.md, table.csv, table.json, coverage.csv, report.html")
    return int(result.comparison.exit_code)


def _aa(options: argparse.Namespace) -> int:
    loaded = _load_variants(options)
    from layoutlab.aa import check_itself, self_check_json, self_check_text
    from layoutlab.progress import Progress

    with Progress() as progress:
        found = check_itself(loaded, options.results, progress, _allowed(options), options.runs)
    print(self_check_json(found) if options.json else self_check_text(found), end="")
    _complain(f"written to {options.results / loaded.spec.name}: aa.{found.variant}.csv")
    return EXIT_VARIANT_FAILED if found.too_often else EXIT_OK


def _winners(options: argparse.Namespace) -> int:
    loaded = _load(options)
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
    loaded = _load_variants(options)
    from layoutlab.profiling import profile_spec
    from layoutlab.progress import Progress
    from layoutlab.report.profile import profiles_text, write_profile

    found, exit_code = [], EXIT_OK
    folder = options.results / loaded.spec.name
    with Progress() as progress:
        for name, profile in profile_spec(loaded, options.results, progress):
            if isinstance(profile, LayoutlabError):
                exit_code = max(exit_code, profile.exit_code)
                _complain(f"error: {name}: {profile}")
            else:
                write_profile(profile, folder)
                found.append(profile)
    if found:
        print(profiles_text(found, "json" if options.json else "csv" if options.csv else "text"), end="")
        _write_page(options, loaded.spec.name)
        _complain(f"written to {folder}: profile.VARIANT.csv, profile.VARIANT.json, report.html")
    return exit_code


def _write_page(options: argparse.Namespace, name: str) -> None:
    """Write report.html again, with what the store has meanwhile got to know."""
    from layoutlab.report.comparison import compare
    from layoutlab.report.files import write_page
    from layoutlab.report.html.details import find_details
    from layoutlab.store import Store

    with Store(options.results / "runs" / name) as store:
        write_page(compare(store), find_details(store), options.results / name)


def _peaks(options: argparse.Namespace) -> int:
    loaded = _load(options)
    from layoutlab.progress import Progress
    from layoutlab.report.peaks import peaks_json, peaks_text
    from layoutlab.roofline.measure import spec_peaks

    with Progress() as progress:
        found = spec_peaks(loaded, options.results, progress, options.again)
    print(peaks_json(found) if options.json else peaks_text(found), end="")
    return EXIT_OK


def _explain(options: argparse.Namespace) -> int:
    loaded = _load_variants(options)
    from layoutlab.explaining import explain_spec
    from layoutlab.progress import Progress
    from layoutlab.report.explain import explanations_text, write_explanation
    from layoutlab.report.profile import write_profile

    found, exit_code = [], EXIT_OK
    folder = options.results / loaded.spec.name
    with Progress() as progress:
        explained = explain_spec(loaded, options.results, progress, _allowed(options), options.top or 0)
        for name, both in explained:
            if isinstance(both, LayoutlabError):
                exit_code = max(exit_code, both.exit_code)
                _complain(f"error: {name}: {both}")
            else:
                write_profile(both[0], folder)
                write_explanation(both[1], folder)
                found.append(both[1])
    if found:
        print(explanations_text(found, "json" if options.json else "csv" if options.csv else "text"), end="")
        _write_page(options, loaded.spec.name)
        _complain(f"written to {folder}: explain.VARIANT.csv, explain.VARIANT.json, and the profiles")
    return exit_code


def _only(loaded: Any, name: str) -> Any:
    """The spec with one of its variants. Raises UsageError when it has no such variant."""
    from dataclasses import replace

    from layoutlab.spec.words import did_you_mean

    known = [variant.name for variant in loaded.spec.variants]
    if name not in known:
        hint = did_you_mean(name, known) or f": it has {', '.join(known)}"
        raise UsageError(f'{loaded.path} has no variant "{name}"{hint}')
    chosen = tuple(variant for variant in loaded.spec.variants if variant.name == name)
    return replace(loaded, spec=loaded.spec.model_copy(update={"variants": chosen}))


def _import(options: argparse.Namespace) -> int:
    from layoutlab.report.preflight import check_import, preflight_json, preflight_text

    found = check_import(options.model)
    print(preflight_json(options.model, found) if options.json else preflight_text(options.model, found))
    return EXIT_OK if found.is_importable else EXIT_USAGE


def _doctor(options: argparse.Namespace) -> int:
    if options.spec is not None:
        return _doctor_of_spec(options)
    if options.device is not None:
        raise UsageError("--device needs a spec as well: layoutlab doctor SPEC --device DEVICE")
    from layoutlab.doctor import diagnose, doctor_json, doctor_text, exit_code

    findings = diagnose()
    print(doctor_json(findings) if options.json else doctor_text(findings), end="")
    return exit_code(findings)


def _doctor_of_spec(options: argparse.Namespace) -> int:
    from layoutlab.doctor_spec import examine, examined_json, examined_text

    examined = examine(_load(options).spec)
    print(examined_json(examined) if options.json else examined_text(examined), end="")
    return examined.exit_code


def _provision(options: argparse.Namespace) -> int:
    from layoutlab.device.kryo.provision import provision
    from layoutlab.progress import Progress

    with Progress() as progress:
        core = provision(progress.say, progress.show)
    print(f"simulated Kryo core: {core.summary()}, in {core.folder}")
    return EXIT_OK


def _schema(options: argparse.Namespace) -> int:
    from layoutlab.spec.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
