"""`layoutlab records`: show, export, merge and prune record sets."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from layoutlab.errors import EXIT_OK, UsageError


def add_arguments(parser: argparse.ArgumentParser, results: Path) -> None:
    """The arguments of `layoutlab records`; `results` is the default folder of results."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    show = verbs.add_parser("show", help="what records belong to, and how many there are")
    show.add_argument("path", metavar="PATH", type=Path, help="a record set, or a folder of some")
    show.set_defaults(command=_show)
    export = verbs.add_parser("export", help="a run's records as sets, a folder for each variant")
    export.add_argument("spec", metavar="SPEC", help="a file under experiments/, or a path")
    export.add_argument("folder", metavar="DIR", type=Path, help="folder of the sets")
    export.add_argument("--variant", action="append", default=[], metavar="NAME", help="only this variant; repeatable")
    export.add_argument("--best", action="store_true", help="only the best record of each workload")
    export.add_argument(
        "--results", type=Path, default=results, metavar="DIR", help="folder of results (default: %(default)s)"
    )
    export.set_defaults(command=_export)
    merge = verbs.add_parser("merge", help="one set of several that belong to the same")
    merge.add_argument("out", metavar="OUT", type=Path, help="folder of the new set")
    merge.add_argument("sets", metavar="IN", type=Path, nargs="+", help="a record set")
    merge.set_defaults(command=_merge)
    prune = verbs.add_parser("prune", help="keep the best record of each workload, and count the others as spent")
    prune.add_argument("path", metavar="PATH", type=Path, help="a record set, or a variant's folder of a run")
    prune.set_defaults(command=_prune)


def _show(options: argparse.Namespace) -> int:
    from layoutlab.records.files import find_sets, read_set

    paths = find_sets(options.path) or [options.path]
    print("\n".join(_text(path, read_set(path)) for path in paths), end="")
    return EXIT_OK


def _text(path: Path, records: Any) -> str:
    from layoutlab.records.change import counts
    from layoutlab.spec.target import format_target

    about = records.identity
    layouts = [f"convert_layout {about.convert_layout}"] if about.convert_layout else []
    layouts += [_pairs(about.hook)] if about.hook else []
    layouts += [f"hook's file sha256 {about.hook_sha256}"] if about.hook_sha256 else []
    layouts += ["not fused"] if not about.fuse else []
    layouts += [f"passes {_pairs(about.passes)}"] if about.passes else []
    lines = {
        "device": about.device + (" (simulated)" if about.simulated else ""),
        "target": format_target(about.target),
        "versions": ", ".join(f"{name} {version}" for name, version in about.versions.items()),
        "model": f"sha256 {about.model_sha256}",
        "layouts": ", ".join(layouts) or "as the model has them",
        "weights": "packed" if about.pack_weights else "not packed",
        "tuning": _pairs(about.tuning or {}),
        "records": counts(records),
    }
    return "\n".join([f"{path}:", *(f"  {name:<9} {value}" for name, value in lines.items()), ""])


def _pairs(data: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in data.items())


def _export(options: argparse.Namespace) -> int:
    from layoutlab.records.change import counts, pruned
    from layoutlab.records.files import read_set, require_free, write_set
    from layoutlab.spec.load import find_spec, load_spec
    from layoutlab.store import Store

    loaded = load_spec(find_spec(options.spec))
    runs = options.results / "runs" / loaded.spec.name
    if not runs.is_dir():
        raise UsageError(f"{runs} holds no run of {loaded.path}: run the spec first")
    with Store(runs) as store:
        folders = _variant_folders(store, options.variant)
        for name in folders:
            require_free(options.folder / name)
        for name, folder in folders.items():
            _mend(folder)
            found = pruned(read_set(folder)) if options.best else read_set(folder)
            write_set(options.folder / name, found)
            print(f"{options.folder / name}: {counts(found)}")
    return EXIT_OK


def _variant_folders(store: Any, wanted: Sequence[str]) -> dict[str, Path]:
    """Folders of the last run's variants that have records; those `wanted`, or all."""
    from layoutlab.records.sources import has_records
    from layoutlab.spec.words import did_you_mean

    used = [event for event in store.last_run() if event["kind"] == "uses" and event.get("folder")]
    known = {event["variant"]: store.folder / event["folder"] for event in used}
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, known) or f": it has {', '.join(known) or 'none'}"
            raise UsageError(f'the last run in {store.folder} has no variant "{name}"{hint}')
        if not has_records(known[name]):
            raise UsageError(f'variant "{name}" in {store.folder} has no tuning records')
    found = {name: path for name, path in known.items() if (not wanted or name in wanted) and has_records(path)}
    if not found:
        raise UsageError(f"{store.folder} holds no tuning records: run the spec first")
    return found


def _merge(options: argparse.Namespace) -> int:
    from layoutlab.records.change import counts, merged
    from layoutlab.records.files import read_set, write_set

    found = {}
    for path in options.sets:
        with _locked(path):
            found[path] = read_set(path)
    together = merged(found)
    write_set(options.out, together)
    print(f"{options.out}: {counts(together)}")
    return EXIT_OK


def _prune(options: argparse.Namespace) -> int:
    from layoutlab.records.change import counts, pruned
    from layoutlab.records.files import compressed, is_compressed, read_set
    from layoutlab.records.replace import replace_together

    with _locked(options.path):
        _mend(options.path)
        found = pruned(read_set(options.path))
        contents = found.contents()
        replace_together(options.path, compressed(contents) if is_compressed(options.path) else contents)
    print(f"{options.path}: {counts(found)}")
    return EXIT_OK


def _mend(folder: Path) -> None:
    """Drop damaged lines, and say so; compressed sets are written whole."""
    from layoutlab.records.files import RECORDS
    from layoutlab.records.identity import read_about
    from layoutlab.records.repair import repair

    read_about(folder)
    done = repair(folder) if (folder / RECORDS).exists() else None
    if done:
        print(f"{folder}: {done.text()}", file=sys.stderr)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep runs away from the folder of a variant while it is changed or read as a whole."""
    from layoutlab.records.identity import ABOUT
    from layoutlab.records.replace import finish_replacing
    from layoutlab.store import Store

    run = path.resolve().parent
    with Store(run) if (run / "events.jsonl").exists() else contextlib.nullcontext():
        if (path / ABOUT).exists():
            finish_replacing(path)
        yield
