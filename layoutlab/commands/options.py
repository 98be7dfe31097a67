"""Arguments that many verbs have, and the spec that they are about."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from layoutlab.errors import UsageError

RESULTS = Path("results")
EVENTS = "print events as they happen, one line of JSON each; the last has the result"


def with_spec(parser: argparse.ArgumentParser, command: Any) -> argparse.ArgumentParser:
    """The parser of a verb about a spec, and what does it."""
    parser.add_argument("spec", metavar="SPEC", help="a file under experiments/, or a path")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="folder of results (default: %(default)s)",
    )
    parser.set_defaults(command=command)
    return parser


def allow_hooks(parser: argparse.ArgumentParser) -> None:
    """Add `--allow-hooks`: which code of the user's own may run."""
    parser.add_argument(
        "--allow-hooks",
        action="append",
        default=[],
        metavar="PREFIX",
        help="let hooks of the spec run whose package.module:function begins so, or the program of baseline.tool with "
        "this path",
    )


def device_option(parser: argparse.ArgumentParser) -> None:
    """Add `--device`: where to run, whatever the spec says."""
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="run there, whatever the spec says: host, kryo, rpc://host:port/key of a tracker, agent://host:port",
    )


def number(text: str) -> int:
    """A whole number from 0, as an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0, found {text!r}")
    return int(text)


def whole_number(text: str) -> int:
    """A whole number from 1, as an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, found {text!r}")
    return int(text)


def allowed(options: argparse.Namespace) -> tuple[str, ...]:
    """Prefixes of hooks that may run, from the command line and from pyproject.toml."""
    from layoutlab.settings import allowed_hooks

    return (*options.allow_hooks, *allowed_hooks())


def load(options: argparse.Namespace) -> Any:
    """The spec, on the device that the command line or the environment names."""
    from layoutlab.spec.load import DEVICE_VARIABLE, find_spec, load_spec, on_device

    loaded = load_spec(find_spec(options.spec))
    device = getattr(options, "device", None)
    if device is not None:
        return on_device(loaded, device, "--device")
    named = os.environ.get(DEVICE_VARIABLE)
    if named and loaded.spec.device.on == "auto":
        return on_device(loaded, named, DEVICE_VARIABLE)
    return loaded


def load_variants(options: argparse.Namespace) -> Any:
    """The spec, with the chosen variant alone if one is chosen."""
    loaded = load(options)
    return loaded if options.variant is None else only(loaded, options.variant)


def only(loaded: Any, name: str) -> Any:
    """The spec with one of its variants. Raises UsageError when it has no such variant."""
    from dataclasses import replace

    from layoutlab.spec.words import did_you_mean

    known = [variant.name for variant in loaded.spec.variants]
    if name not in known:
        hint = did_you_mean(name, known) or f": it has {', '.join(known)}"
        raise UsageError(f'{loaded.path} has no variant "{name}"{hint}')
    chosen = tuple(variant for variant in loaded.spec.variants if variant.name == name)
    return replace(loaded, spec=loaded.spec.model_copy(update={"variants": chosen}))


def complain(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr)
