"""Verbs that say what a spec or a model is before anything is tuned: validate, plan, layouts, tasks, import, schema."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from layoutlab.commands.options import allow_hooks, allowed, device_option, load, load_variants, with_spec
from layoutlab.errors import EXIT_OK, EXIT_USAGE, EXIT_VARIANT_FAILED


def add_commands(commands: Any) -> None:
    """Add validate, plan, layouts, tasks, import and schema."""
    with_spec(
        commands.add_parser("validate", help="check a spec and say everything that is wrong with it"),
        _validate,
    )
    device_option(
        with_spec(commands.add_parser("plan", help="show what a run of the spec would do, without doing it"), _plan)
    )
    layouts = with_spec(
        commands.add_parser("layouts", help="show what each variant does to the layouts, without tuning"), _layouts
    )
    allow_hooks(layouts)
    layouts.add_argument("--variant", metavar="NAME", help="only this variant")
    layouts.add_argument("--ir", action="store_true", help="show the Relax text before and after as well")
    layouts.add_argument("--json", action="store_true", help="print it as JSON")
    tasks = with_spec(
        commands.add_parser("tasks", help="show the tuning tasks of each variant, by number and name; no tuning"),
        _tasks,
    )
    allow_hooks(tasks)
    tasks.add_argument("--variant", metavar="NAME", help="only this variant")
    tasks.add_argument("--json", action="store_true", help="print it as JSON")
    importing = commands.add_parser("import", help="say everything in a model that TVM cannot import")
    importing.add_argument("model", metavar="MODEL", type=Path, help="a .tflite file")
    importing.add_argument("--json", action="store_true", help="print it as JSON")
    importing.set_defaults(command=_import)
    schema = commands.add_parser("schema", help="print the JSON schema of specs, for editors")
    schema.set_defaults(command=_schema)


def _validate(options: argparse.Namespace) -> int:
    loaded = load(options)
    print(f"{loaded.path}: fine, {len(loaded.spec.variants)} variants")
    return EXIT_OK


def _plan(options: argparse.Namespace) -> int:
    from layoutlab.report.plan import plan_text

    print(plan_text(load(options), options.results), end="")
    return EXIT_OK


def _layouts(options: argparse.Namespace) -> int:
    from layoutlab.engine.base import to_json
    from layoutlab.report.layouts import find_layouts, layouts_text

    loaded = load_variants(options)
    return _show_variants(
        lambda progress: find_layouts(loaded, allowed(options), progress),
        options,
        lambda name, layouts: layouts_text(name, layouts, options.ir),
        to_json,
    )


def _tasks(options: argparse.Namespace) -> int:
    from layoutlab.engine.base import to_json
    from layoutlab.report.tasks import find_tasks, tasks_text

    loaded = load_variants(options)
    return _show_variants(
        lambda progress: find_tasks(loaded, options.results, allowed(options), progress),
        options,
        tasks_text,
        lambda tasks: [to_json(task) for task in tasks],
    )


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


def _import(options: argparse.Namespace) -> int:
    from layoutlab.report.preflight import check_import, preflight_json, preflight_text

    found = check_import(options.model)
    print(preflight_json(options.model, found) if options.json else preflight_text(options.model, found))
    return EXIT_OK if found.is_importable else EXIT_USAGE


def _schema(options: argparse.Namespace) -> int:
    from layoutlab.spec.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return EXIT_OK
