"""What a project allows, from `[tool.layoutlab]` of the pyproject.toml in the working folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from layoutlab.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def allowed_hooks(pyproject: Path = Path("pyproject.toml")) -> tuple[str, ...]:
    """The prefixes of hooks that may run without being named on the command line.

    Raises UsageError when `allow-hooks` is there but is no list of strings, or the file is not TOML.
    """
    try:
        settings = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"cannot read {pyproject}: {error}") from error
    found: Any = settings.get("tool", {}).get("layoutlab", {}).get("allow-hooks", [])
    if not isinstance(found, list) or not all(isinstance(prefix, str) for prefix in found):
        raise UsageError(
            f'{pyproject}: tool.layoutlab.allow-hooks: expected a list such as ["my_hooks"], found {found!r}'
        )
    return tuple(found)
