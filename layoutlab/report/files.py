"""The files of a finished comparison under `results/<spec>/`."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from layoutlab.links import require_within
from layoutlab.report.comparison import Comparison
from layoutlab.report.coverage import coverage_csv
from layoutlab.report.html.details import Details
from layoutlab.report.pairs import pairs_csv
from layoutlab.report.table import csv_table, functions_csv, json_table, markdown_table
from layoutlab.store import cannot_write

REPORT = "report.html"
# A file that was begun so long ago and not finished is what a kill left: nobody writes for as long.
_ABANDONED_S = 3600.0


def write_results(comparison: Comparison, folder: Path, details: Details | None = None) -> None:
    """Write table.md, table.csv, table.json, coverage.csv and pairs.csv, and functions.csv for simulated runs.

    With the `details` of the run it writes report.html as well. On an error (StoreError) all are as they were.
    """
    texts = {
        "table.md": markdown_table(comparison),
        "table.csv": csv_table(comparison),
        "table.json": json_table(comparison),
        "coverage.csv": coverage_csv(comparison),
        "pairs.csv": pairs_csv(comparison.pairs),
    }
    if comparison.functions:
        texts["functions.csv"] = functions_csv(comparison)
    if details is not None:
        texts[REPORT] = _page(comparison, details)
    write_texts(texts, folder)


def write_page(comparison: Comparison, details: Details, folder: Path) -> None:
    """Write report.html. It is whole or, on an error (StoreError), as it was."""
    write_texts({REPORT: _page(comparison, details)}, folder)


def _page(comparison: Comparison, details: Details) -> str:
    # Plots take half a second to import: not for those who only write other files.
    from layoutlab.report.html.page import report_html

    return report_html(comparison, details)


def write_texts(texts: Mapping[str, str], folder: Path) -> None:
    """Write files of these names and texts to the folder. On an error (StoreError) all are as they were.

    A reader or a crash never meets half of a file: each is replaced in one step, once all of them are on the disk.
    """
    require_within(folder, folder.parent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            partials = {name: stack.enter_context(_partial(folder / name, text)) for name, text in texts.items()}
            for name, partial in partials.items():
                os.replace(partial, folder / name)
    except OSError as error:
        raise cannot_write(folder, error) from error


@contextlib.contextmanager
def _partial(path: Path, text: str) -> Iterator[Path]:
    """What shall replace a file, under another name; gone afterwards."""
    _remove_abandoned(path.parent, path.name)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    partial = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _remove_abandoned(folder: Path, name: str) -> None:
    """Remove what processes that were killed had begun to write in place of a file."""
    for partial in folder.glob(f".{name}-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - partial.stat().st_mtime > _ABANDONED_S:
                partial.unlink()
