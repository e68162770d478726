"""`sweep.json`: the description of a sweep and its facts, read, checked and written here alone."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput
from rank_core.files import write_json

FILE = "sweep.json"
FIRST_STAGE = "first_stage"  # folder of the candidates, a run for each split
INTERPOLATED = "interpolated"  # folder of trials interpolated with the first stage
CONFIRMS = ("sweep", "cell", "label", "dev_mean", "num_candidates", "naive_gain")
ROPE = 0.01
"""The default margin: the largest difference of a measure without practical relevance."""


@dataclass(frozen=True)
class Cell:
    """One configuration over its seeds, as the sweep declared it."""

    cell: str
    label: str = ""
    group: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # the swept ones
    ignored: Sequence[str] = ()  # swept ones without effect on the cell
    coverage: float | None = None  # share of the document tokens in some chunk
    encoder_tokens_per_document: float | None = None


@dataclass(frozen=True)
class SweepFile:
    """The content of `sweep.json`; fields with their defaults are not in the file."""

    sweep: str
    question: str
    split: str
    measures: tuple[str, ...]
    primary: str
    baseline: str
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...] = ()
    swept: tuple[str, ...] = ()
    baselines: Mapping[str, str] = field(default_factory=dict)  # {cell: its own baseline}
    deterministic: tuple[str, ...] = ()  # cells with one possible run
    alpha: float = 0.05
    correction: str = ""  # empty: the report decides by the number of comparisons
    rope: float = ROPE
    paired_seeds: bool = False
    collection: Mapping[str, Any] = field(default_factory=dict)
    backbone: Mapping[str, Any] = field(default_factory=dict)
    first_stage: Mapping[str, float] = field(default_factory=dict)
    command: str = ""  # as it was typed
    directory: str = ""  # its working directory
    profile: str = ""
    confirms: Mapping[str, Any] = field(
        default_factory=dict
    )  # the choice that it tests with new seeds
    experiment: str = ""  # MLflow's name of it
    tracking_uri: str = ""
    search: Mapping[str, Any] = field(default_factory=dict)  # the search
    versions: Mapping[str, str] = field(default_factory=dict)  # of the trials' machines
    budget: Mapping[str, Any] = field(default_factory=dict)  # hours, their unit, units of a slot
    stopped: str = ""  # the reason for an early end
    interpolate: str = "best"  # the cells with a row "+BM25"
    schema_version: int = 1

    @property
    def is_smoke_test(self) -> bool:
        """True for a sweep on little data, which answers nothing."""
        return "--smoke-test" in self.command.split()

    def write(self, folder: Path) -> None:
        """Writes the file atomically."""
        write_json(folder / FILE, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The file's content."""
        unset = {
            item.name: _default(item) for item in fields(self) if item.name != "schema_version"
        }
        return {name: value for name, value in asdict(self).items() if value != unset.get(name, ())}


REQUIRED = tuple(item.name for item in fields(SweepFile) if item.default is MISSING
                 and item.default_factory is MISSING)  # fmt: skip
_TEXTS = ("measures", "swept", "deterministic")
_NUMBERS = ("coverage", "encoder_tokens_per_document")  # of a cell
_TABLES = ("baselines", "collection", "backbone", "first_stage", "confirms", "search", "versions",
           "budget")  # fmt: skip


def read_sweep_file(folder: Path) -> SweepFile:
    """The description in a sweep's folder; raises `BadInput` where there is none or it is
    damaged."""
    path = folder / FILE
    if not path.is_file():
        raise no_sweep(str(folder), sorted(file.parent.name for file in folder.glob(f"*/{FILE}")))
    return parse_sweep_file(path.read_bytes(), str(folder))


def command_in(directory: str, command: str) -> str:
    """A command for any working directory from one that was typed in `directory`, whose relative
    paths and modules it needs."""
    # A folder may have several paths, such as a mount and a link.
    here = not directory or (os.path.exists(directory) and os.path.samefile(directory, os.getcwd()))
    return command if here else f"cd {shlex.quote(directory)} && {command}"


class NoSweep(BadInput):
    """The error of a folder in which a sweep may begin later."""


def no_sweep(where: str, inside: Sequence[str]) -> BadInput:
    """The error of a folder that is not a sweep's, with the sweeps `inside` it."""
    sweeps = f"; it holds the folders of sweeps: {', '.join(inside)}" if inside else ""
    return (BadInput if inside else NoSweep)(
        f"DIR must be a sweep's folder, which holds {FILE}; found none in {where}{sweeps}"
    )


def update_sweep_file(folder: Path, **facts: Any) -> bool:
    """Adds or replaces facts; returns True if that changed the file."""
    before = read_sweep_file(folder)
    after = replace(before, **facts)
    if json.dumps(after.to_json()) == json.dumps(before.to_json()):
        return False
    after.write(folder)
    return True


def verdict(folder: Path) -> str:
    """The first conclusion of a sweep's report; "" without one."""
    with suppress(OSError, ValueError, KeyError, IndexError, TypeError):
        results = json.loads((folder / "report" / "results.json").read_text(encoding="utf-8"))
        return str(results["conclusions"][0])
    return ""


def parse_sweep_file(content: bytes, where: str) -> SweepFile:
    """The description in a file's bytes; `where` names the folder in errors."""
    path = f"{where}/{FILE}"
    try:
        described = json.loads(content)
    except UnicodeDecodeError:
        raise BadInput(f"{path}: must be UTF-8 text") from None
    except RecursionError:
        raise BadInput(f"{path}: not valid JSON: too many brackets") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    if not isinstance(described, dict):
        raise BadInput(f"{path}: must hold one JSON object, got {type(described).__name__}")
    missing = [name for name in REQUIRED if not described.get(name)]
    if missing:
        raise BadInput(f"{path}: must name {', '.join(REQUIRED)}; missing: {', '.join(missing)}")
    names = {item.name for item in fields(SweepFile)}
    values = {
        name: _typed(path, name, value)
        for name, value in described.items()
        if name in names and value is not None
    }
    sweep = SweepFile(**values)
    _check(path, sweep)
    return sweep


def _typed(path: str, name: str, value: Any) -> Any:
    """A field's value; raises `BadInput` if it has the wrong type."""
    fits, expected = _LAWS.get(name, (lambda value: isinstance(value, str), "a text"))
    if not fits(value):
        raise BadInput(f"{path}: {name} must be {expected}, got {json.dumps(value)[:80]}")
    if name == "cells":
        names = {item.name for item in fields(Cell)}
        return tuple(
            Cell(**{key: _frozen(item) for key, item in cell.items() if key in names})
            for cell in value
        )
    return _frozen(value)


def _frozen(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def _lists(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_cell(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("cell"), str)
        and isinstance(value.get("label", ""), str)
        and isinstance(value.get("group", ""), str)
        and isinstance(value.get("settings", {}), dict)
        and isinstance(value.get("ignored", []), list)
        and all(_is_number(value.get(name) or 0) for name in _NUMBERS)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_table(name: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if name == "search":
        standings = value.get("standings", [])
        return isinstance(standings, list) and all(
            isinstance(standing, dict)
            and isinstance(standing.get("cell"), str)
            and "left_after" in standing
            for standing in standings
        )
    if name == "first_stage":
        return all(map(_is_number, value.values()))
    return name not in ("baselines", "versions") or all(
        isinstance(text, str) for text in value.values()
    )


_LAWS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "cells": (_lists(_is_cell), "a list of cells with their names"),
    "seeds": (_lists(lambda seed: isinstance(seed, int)), "a list of whole numbers"),
    **{name: (_lists(lambda text: isinstance(text, str)), "a list of texts") for name in _TEXTS},
    **{
        name: (partial(_is_table, name), f"an object as the sweep wrote its {name}")
        for name in _TABLES
    },
    **dict.fromkeys(("alpha", "rope", "schema_version"), (_is_number, "a number")),
    "paired_seeds": (lambda value: isinstance(value, bool), "true or false"),
}
"""{field: whether a value fits, in words}; all others are texts."""


def _check(path: str, sweep: SweepFile) -> None:
    names = [cell.cell for cell in sweep.cells]
    if sweep.primary not in sweep.measures:
        raise BadInput(
            f"{path}: primary must be one of measures ({', '.join(sweep.measures)}), "
            f"got {sweep.primary!r}"
        )
    if not 0 < sweep.alpha < 1:
        raise BadInput(f"{path}: 0 < alpha < 1 must hold, got alpha={sweep.alpha}")
    if not sweep.rope > 0:
        raise BadInput(f"{path}: rope > 0 must hold, got rope={sweep.rope}")
    missing = [key for key in CONFIRMS if key not in (sweep.confirms or CONFIRMS)]
    if missing:
        raise BadInput(
            f"{path}: confirms must name {', '.join(CONFIRMS)}; missing: {', '.join(missing)}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{path}: each cell must appear once, found twice: {', '.join(twice)}")
    if sweep.baseline not in names:
        raise BadInput(
            f"{path}: baseline must be one of cells, got {sweep.baseline!r}; "
            f"known: {', '.join(names)}"
        )
    for name in (name for pair in sweep.baselines.items() for name in pair):
        if name not in names:
            raise BadInput(
                f"{path}: baselines must map cells to cells, got {name!r}; "
                f"known: {', '.join(sorted(names))}"
            )


def _default(item: Any) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()
