"""A sweep in a TOML file: its name and question, settings, grid, baseline, search and seeds."""

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput, shown, unknown
from rank_core.settings.config import checked_setting
from sweeps.plan.experiment import Experiment, Grid, Settings
from sweeps.plan.options import MOST_POINTS, Preset, absolute
from sweeps.plan.search_space import Range, parse_range

KEYS = {
    "name": "of the folder below --storage",
    "question": "the question that the sweep answers",
    "baseline": "the settings that all others are compared with",
    "base": "the settings that all configurations share",
    "grid": "lists of values: every combination runs",
    "points": "a list of configurations instead of a grid",
    "ranges": 'such as "1e-5..1e-3:log", for a search that draws',
    "search": "its name, or a table with name, num_configs, seed, delta, eta, min_epochs",
    "seeds": "their number, or a list of them",
    "profile": "settings of a paper",
}
"""{key of a file: its content}"""
REQUIRED = ("name", "question", "baseline")
SEARCH_FLAGS = {
    "name": ("search", str),
    "num_configs": ("num_configs", int),
    "seed": ("search_seed", int),
    "delta": ("race_delta", float),
    "eta": ("halving_eta", int),
    "min_epochs": ("halving_min_epochs", int),
}
"""{key of [search]: (its name in `parse`, type)}"""
TYPES: dict[str, Any] = {
    "name": str, "question": str, "profile": str,
    "baseline": dict, "base": dict, "grid": dict, "ranges": dict, "points": list,
}  # fmt: skip
_WORDS = {str: "a text", int: "a whole number", float: "a number", dict: "a table", list: "a list"}


def read_toml_sweep(path: Path) -> tuple[Experiment, Preset]:
    """The sweep of a file, and the flags that it sets. Relative paths in it start at its folder.
    Raises `BadInput` with the line of the error."""
    file = _File.read(path)
    base = file.settings("base", file.table.get("base", {}))
    baseline = file.settings("baseline", file.table["baseline"])
    points = _points(file, baseline)
    ranges = _ranges(file)
    swept = tuple(dict.fromkeys([name for point in points for name in point] + list(ranges)))
    if not swept:
        raise file.error("grid, points or ranges must name the swept settings", "name")
    for name in {*ranges} & {name for point in points for name in point} | {*swept} & {*base}:
        kind = "base" if name in base else "ranges"
        raise file.error(f"a setting is given once, got {name} in {kind} and swept", kind, name)
    experiment = Experiment(
        name=file.table["name"],
        question=file.table["question"],
        swept=swept,
        grid=lambda base, backbone: Grid(points, baseline),
        settings=base,
        file=str(path),
    )
    return experiment, Preset(_flags(file), ranges)


def _points(file: "_File", baseline: Settings) -> tuple[Settings, ...]:
    """The points, or those of the grid, without the baseline; for ranges alone, a point without
    settings."""
    if "grid" in file.table and "points" in file.table:
        raise file.error("a sweep has a grid or points, got both", "points")
    axes = {name: file.values("grid", name, listed) for name, listed in file.flat("grid").items()}
    if (size := math.prod(map(len, axes.values()))) > MOST_POINTS:
        raise file.error(f"a grid has at most {MOST_POINTS:,} points, got {size:,}", "grid")
    product = itertools.product(*axes.values())
    points: list[Settings] = [dict(zip(axes, values, strict=True)) for values in product]
    if "points" in file.table:
        points = [file.settings("points", point) for point in file.table["points"]]
        if len({frozenset(point) for point in points}) > 1:
            raise file.error("all points must set the same settings", "points")
    return tuple(point for point in points if point != baseline)


def _ranges(file: "_File") -> dict[str, Range]:
    ranges = {}
    for name, text in file.flat("ranges").items():
        with file.place("ranges", name):
            span = parse_range(name, text) if isinstance(text, str) else None
        if span is None:
            law = 'a range is written "lo..hi" or "lo..hi:log"'
            raise file.error(f"{law}, got {name} = {shown(text)}", "ranges", name)
        ranges[name] = span
    return ranges


def _flags(file: "_File") -> dict[str, Any]:
    """Seeds, search and profile, under the names of the command line's parser."""
    flags: dict[str, Any] = {}
    if "profile" in file.table:
        flags["profile"] = file.table["profile"]
    if "seeds" in file.table:
        seeds = file.table["seeds"]
        listed = isinstance(seeds, list) and seeds
        if not listed and type(seeds) is not int:
            raise file.error(f"seeds must be a number or a list, got {shown(seeds)}", "seeds")
        flags |= {"seeds": ",".join(map(str, seeds))} if listed else {"num_seeds": seeds}
    search = file.table.get("search", {})
    search = {"name": search} if isinstance(search, str) else search
    if not isinstance(search, dict):
        raise file.error(f"search must be {KEYS['search']}, got {shown(search)}", "search")
    for name, value in search.items():
        if name not in SEARCH_FLAGS:
            raise file.error(str(unknown("key of search", name, SEARCH_FLAGS)), "search", name)
        flag, kind = SEARCH_FLAGS[name]
        if type(value) not in ({kind, int} if kind is float else {kind}):
            law = f"{name} of search must be {_WORDS[kind]}"
            raise file.error(f"{law}, got {shown(value)}", "search", name)
        flags[flag] = value
    return flags


class _Place:
    """Add a file and a line to the message of a `BadInput`."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BadInput):
            raise BadInput(f"{self.where}: {error}") from None


@dataclass(frozen=True)
class _File:
    """The content of a file, and its text for line numbers."""

    path: Path
    text: str
    table: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_File":
        try:
            text = path.read_bytes().decode()
            table = tomllib.loads(text)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadInput(f"{path}: must be UTF-8 text") from None
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            raise BadInput(f"{path}:{line[1] if line else 1}: not valid TOML: {error}") from None
        file = cls(path, text, table)
        for key, value in table.items():
            if key not in KEYS:
                raise file.error(str(unknown("key", key, KEYS)), key)
            if key in TYPES and not isinstance(value, TYPES[key]):
                law = f"{key} must be {_WORDS[TYPES[key]]} ({KEYS[key]})"
                raise file.error(f"{law}, got {shown(value)}", key)
        for key in REQUIRED:
            if not table.get(key):
                raise BadInput(f"{path}: a sweep must have a {key}: {KEYS[key]}")
        return file

    def error(self, message: str, *keys: str) -> BadInput:
        """The error of the value of some keys, with its line."""
        return BadInput(f"{self.path}:{self.line(*keys)}: {message}")

    def place(self, *keys: str) -> _Place:
        """A context that adds the line of the keys to errors."""
        return _Place(f"{self.path}:{self.line(*keys)}")

    def line(self, *keys: str) -> int:
        """The line of dotted keys, each searched after the one before; TOML's parser has no line
        numbers."""
        at = 0
        lines = [line.partition("#")[0] for line in self.text.splitlines()]
        for word in ".".join(keys).split("."):
            key = re.compile(rf"(?<![\w-]){re.escape(word)}[\"']?\s*[.=\]]")
            at = next((n for n in range(at, len(lines)) if key.search(lines[n])), at)
        return at + 1

    def flat(self, key: str) -> dict[str, Any]:
        """{dotted setting: value} of a table of settings."""
        return dict(_flat(self.table.get(key, {})))

    def settings(self, key: str, table: Any) -> dict[str, Any]:
        """The settings of a table, each checked."""
        if not isinstance(table, dict):
            raise self.error(f"{key} must hold tables of settings, got {shown(table)}", key)
        return {name: self._value(key, name, value) for name, value in _flat(table)}

    def values(self, key: str, name: str, listed: Any) -> list[Any]:
        """The values of a setting in a grid."""
        if not isinstance(listed, list) or not listed:
            law = f"{key} must have a list of values for each setting"
            raise self.error(f"{law}, got {name} = {shown(listed)}", key, name)
        return [self._value(key, name, value) for value in listed]

    def _value(self, key: str, name: str, value: Any) -> Any:
        if name == "seed":
            raise self.error("seeds must be given as seeds, not as seed", key, name)
        with self.place(key, name):
            checked = checked_setting(name, value)
        folder = str(self.path.resolve().parent)
        if isinstance(checked, tuple):
            return tuple(absolute(name, part, folder) for part in checked)
        return absolute(name, checked, folder) if isinstance(checked, str) else checked


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
