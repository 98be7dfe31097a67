"""What tuning records belong to: all that a record's time depends on, as data, and as the file about.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from layoutlab.device.kryo.toolchain import upstream
from layoutlab.errors import UsageError
from layoutlab.records.replace import write_synced

ABOUT = "about.json"
FORMAT = 1

# The versions that records depend on. Others (numpy, LiteRT, ...) change measured figures, not what a record means.
_TVM = ("apache-tvm", "apache-tvm-ffi")
_LLVM, _MODEL = "core: llvm", "core: model"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a set of records belongs to.

    `target` is TVM's dict form, `versions` are those of TVM and of the simulated core's model, `model_sha256` is of
    the model as it is compiled (its batch bound), `hook` the hook with its options as the spec has it, and
    `hook_sha256` the hash of the source of a user's own. `tuning` has the settings that say how was tuned, not how
    much; it is None for a variant that is not tuned. `fuse` and `passes` are as the spec has them, `passes` None for
    TVM's own. `engine` is what compiled where that is not Relax: its name, and its TVM in `versions`.
    """

    device: str
    simulated: bool
    target: dict[str, Any]
    versions: dict[str, str]
    model_sha256: str
    convert_layout: str | None
    hook: dict[str, Any] | None
    hook_sha256: str | None
    pack_weights: bool
    tuning: dict[str, Any] | None
    fuse: bool = True
    passes: dict[str, Any] | None = None
    engine: str | None = None

    def key(self) -> str:
        """Twelve hex digits: equal for equal identities."""
        return hashlib.sha256(json.dumps(self.written(), sort_keys=True).encode()).hexdigest()[:12]

    def written(self) -> dict[str, Any]:
        """As files and keys have it: what came later is left out where it is the default, as it was before it came."""
        later = {"fuse": True, "passes": None, "engine": None}
        return {name: value for name, value in asdict(self).items() if name not in later or value != later[name]}


def record_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Of the versions of everything, those that records depend on."""
    chosen = {name: versions[name] for name in (*_TVM, _MODEL) if name in versions}
    if _LLVM in versions:
        # A distribution's revision of LLVM does not change the prices of instructions.
        chosen[_LLVM] = upstream(versions[_LLVM])
    return chosen


def write_about(folder: Path, identity: Identity) -> None:
    """Write about.json, whole or not at all."""
    write_synced(folder / ABOUT, about_bytes(identity))


def about_bytes(identity: Identity) -> bytes:
    """The content of about.json."""
    return (json.dumps({"format": FORMAT, **identity.written()}, indent=1) + "\n").encode()


def read_about(folder: Path) -> Identity:
    """What the records in `folder` belong to. Raises UsageError when it does not say so, or not readably."""
    path = folder / ABOUT
    try:
        data = json.loads(path.read_bytes())
        written = data["format"]
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is no record set: it has no {ABOUT}, which says what records belong to. "
            "layoutlab records export makes such a set of a run's records"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} cannot be read ({error}): restore it, or remove the folder") from None
    if written != FORMAT:
        raise UsageError(
            f"{path} has format {written}, and this layoutlab reads format {FORMAT}: use the version that wrote it"
        )
    try:
        return TypeAdapter(Identity).validate_python({key: data[key] for key in data if key != "format"})
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise UsageError(f"{path} is damaged at {fields}: restore it, or remove the folder") from None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field in which two identities differ: its name, and both values; None where there is none."""

    field: str
    ours: Any
    theirs: Any

    def text(self, ours: str, theirs: str) -> str:
        """`target.mcpu: kryo here, cortex-a72 there`."""
        return f"{self.field}: {_shown(self.ours)} {ours}, {_shown(self.theirs)} {theirs}"


def differences(ours: Identity, theirs: Identity) -> tuple[Difference, ...]:
    """Every field that differs, mappings down to their single entries."""
    left, right = dict(_flat(asdict(ours))), dict(_flat(asdict(theirs)))
    return tuple(
        Difference(field=name, ours=left.get(name), theirs=right.get(name))
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    )


def _flat(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    else:
        # As JSON has it: what was read back is compared with what was never written.
        yield name, json.loads(json.dumps(data))


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value)
