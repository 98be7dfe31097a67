"""Symbolic links that lead out of the results: what a run writes has to stay where the user said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from layoutlab.errors import StoreError


def require_within(folder: Path, results: Path) -> None:
    """Raise StoreError when `folder`, or anything in it, is a link out of `results`; neither has to be there yet.

    `results` itself may be a link: that is the user's own choice.
    """
    root = os.path.realpath(results)
    for path in _parts(folder, results):
        target = os.path.realpath(path)
        if os.path.commonpath([root, target]) != root:
            raise StoreError(
                f"{path} is a symbolic link to {target}, outside of {results}: nothing is written there. "
                "Remove the link, or name the folder with --results"
            )


def _parts(folder: Path, results: Path) -> Iterator[Path]:
    """The folders from `results` down to `folder`, and every link in that."""
    below = folder.relative_to(results).parts
    yield from (results.joinpath(*below[: depth + 1]) for depth in range(len(below)))
    for where, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(where, name)).is_symlink())
