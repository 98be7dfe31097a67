"""The files of a finished comparison under `results/<spec>/`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from layoutlab.errors import StoreError
from layoutlab.links import require_within
from layoutlab.report.comparison import Comparison
from layoutlab.report.coverage import coverage_csv
from layoutlab.report.html.details import Details
from layoutlab.report.pairs import pairs_csv
from layoutlab.report.table import csv_table, functions_csv, json_table, markdown_table

REPORT = "report.html"


def write_results(comparison: Comparison, folder: Path, details: Details | None = None) -> None:
    """Write table.md, table.csv, table.json, coverage.csv and pairs.csv, and functions.csv for simulated runs.

    With the `details` of the run it writes report.html as well. Each is whole or, on an error (StoreError), as it was.
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
    write_texts(texts, folder)
    if details is not None:
        write_page(comparison, details, folder)


def write_page(comparison: Comparison, details: Details, folder: Path) -> None:
    """Write report.html. It is whole or, on an error (StoreError), as it was."""
    # Plots take half a second to import: not for those who only write other files.
    from layoutlab.report.html.page import report_html

    write_texts({REPORT: report_html(comparison, details)}, folder)


def write_texts(texts: Mapping[str, str], folder: Path) -> None:
    """Write files of these names and texts to the folder. Each is whole or, on an error (StoreError), as it was."""
    require_within(folder, folder.parent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _replace(folder / name, text)
    except OSError as error:
        raise StoreError(f"cannot write the table to {folder}: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    """Replace a file's content in one step, so that a reader or a crash never meets half of it."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
