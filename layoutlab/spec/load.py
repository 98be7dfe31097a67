"""Find a spec, read it, and report everything that is wrong with it at once, each problem with its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from layoutlab.errors import SpecError, UsageError
from layoutlab.spec.models import DeviceSpec, Spec
from layoutlab.spec.rules import Loc, spec_problems
from layoutlab.spec.source import Problem, Source, compose, problem_at, read_source
from layoutlab.spec.target import TargetError, TargetProblem
from layoutlab.spec.tree import BAD, Expected, Place, TreeReader, dotted
from layoutlab.spec.words import did_you_mean, quoted

EXPERIMENTS = Path("experiments")
# What `device: auto` means first of all.
DEVICE_VARIABLE = "LAYOUTLAB_DEVICE"


@dataclass(frozen=True)
class LoadedSpec:
    """A valid spec, the file it came from, and that file's text.

    `conv_numbers` is given when the model is a part of the file's: the numbers that its convolutions have there.
    """

    spec: Spec
    path: Path
    text: str
    conv_numbers: tuple[int, ...] | None = None

    @property
    def model_path(self) -> Path | None:
        """The absolute path of the model file, which need not exist; None when the model is to be built."""
        file = self.spec.model.file
        return None if file is None else Path(os.path.realpath(self.path.parent / file))


def on_device(loaded: LoadedSpec, text: str, where: str) -> LoadedSpec:
    """The same spec on another device, which `where` (an option, a variable) names as `spec.models.parse_device` reads.

    Raises UsageError for what names none.
    """
    try:
        device = DeviceSpec.model_validate(text)
    except ValidationError as error:
        raise UsageError(f"{where}: {error.errors()[0]['ctx']['error']}") from None
    return replace(loaded, spec=loaded.spec.model_copy(update={"device": device}))


def find_spec(name: str, experiments: Path = EXPERIMENTS) -> Path:
    """The file `name` stands for: a path, or a file under `experiments`; `.yaml` may be left out.

    Raises SpecError, with a did-you-mean from the folder, when there is none.
    """
    for folder in (Path(), experiments):
        for candidate in (folder / name, folder / f"{name}.yaml"):
            if name and _is_file(candidate):
                return candidate
    raise _no_spec(name, experiments)


def load_spec(path: Path) -> LoadedSpec:
    """Read and check the spec at `path`.

    Raises SpecError with every problem of the file in file order, each with its place (after the first
    hundred, only with the number of the others).
    """
    try:
        source = read_source(path)
    except FileNotFoundError:
        raise _no_spec(str(path), path.parent) from None
    root = compose(source)
    reader = TreeReader()
    data = reader.mapping(root, Spec)
    reader.places[()] = Place(root, Expected("a mapping"))
    broken = spec_problems(data)
    problems = reader.problems + [_located(rule.loc, rule.message, reader.places) for rule in broken]
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            # The models apply the same rules, but only once all their fields are right.
            if not (broken and detail["type"] == "cross_field"):
                problems += _explain(detail, reader.places, source)
        raise source.error(problems) from None
    if problems:
        raise source.error(problems)
    return LoadedSpec(spec, path, source.text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file system takes, e.g. one that is too long
        return False


def _no_spec(name: str, folder: Path) -> SpecError:
    known = [path.stem for path in folder.glob("*.yaml")] if folder.is_dir() else []
    hint = did_you_mean(Path(name).name.removesuffix(".yaml"), sorted(known))
    message = f"no spec {quoted(name)}: SPEC names a file under experiments/ (.yaml may be left out) or a path"
    return SpecError([message + hint])


def _explain(detail: ErrorDetails, places: dict[Loc, Place], source: Source) -> Iterator[Problem]:
    """What pydantic refused, in the words and at the place of the file."""
    loc, kind, cause = detail["loc"], detail["type"], detail.get("ctx", {}).get("error")
    if detail["input"] is BAD:
        return  # already reported while reading
    if kind == "too_short" and detail["input"]:
        return  # pydantic counts the good items only; the bad ones are reported themselves
    if kind == "missing":
        prefix = f"{dotted(loc[:-1])}: " if loc[:-1] else ""
        yield problem_at(_nearest(loc[:-1], places)[1].node.start_mark, f'{prefix}missing key "{loc[-1]}"')
    elif isinstance(cause, TargetError):
        yield from _in_target(cause.problems, loc, places, source)
    elif cause is not None:
        yield _located(loc, str(cause), places)
    else:
        yield _located(loc, _nearest(loc, places)[1].mismatch(), places)


def _located(loc: Loc, message: str, places: dict[Loc, Place]) -> Problem:
    known, place = _nearest(loc, places)
    # A rule may be about a key the file leaves out: its own path says more than that of what is around it.
    shown = loc if known == loc[:-1] and isinstance(place.node, yaml.MappingNode) else known
    return problem_at(place.node.start_mark, f"{dotted(shown)}: {message}" if shown else message)


def _nearest(loc: Loc, places: dict[Loc, Place]) -> tuple[Loc, Place]:
    """The place of `loc`, or of the closest thing around it that the file holds."""
    while loc not in places:
        loc = loc[:-1]
    return loc, places[loc]


def _in_target(problems: list[TargetProblem], loc: Loc, places: dict[Loc, Place], source: Source) -> Iterator[Problem]:
    """Each problem at the key of the target's mapping, or the word of its string, that it is about."""
    node = places[loc].node
    begin = -1
    if isinstance(node, yaml.ScalarNode):
        # A string with escapes, or folded over several lines, is not in the file as such.
        begin = source.text.find(node.value, node.start_mark.index, node.end_mark.index)
    for problem in problems:
        message = f"{dotted(loc)}: {problem.message}"
        if begin >= 0:
            yield Problem(*source.place(begin + problem.position), message)
        else:
            place = places.get((*loc, problem.token), places[loc])
            yield problem_at(place.node.start_mark, message)
