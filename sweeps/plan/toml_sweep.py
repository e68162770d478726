"""A sweep in a TOML file: its name and question, settings, grid, baseline, search and seeds."""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput, shown, unknown
from rank_core.parsing import parsed_toml
from rank_core.settings.config import checked_setting
from sweeps.plan.experiment import Experiment, Grid, Settings
from sweeps.plan.flags import SEARCH_FLAGS
from sweeps.plan.options import MOST_POINTS, Preset, absolute, check_different
from sweeps.plan.profiles import profile
from sweeps.plan.reference import flat, parse_reference
from sweeps.plan.search_options import SEARCHES
from sweeps.plan.search_space import Range, parse_range

KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "a text: of the folder below --storage"),
    "question": ((str,), "a text: the question that the sweep answers"),
    "baseline": ((dict,), "a table: the settings that all others are compared with"),
    "base": ((dict,), "a table: the settings that all configurations share"),
    "grid": ((dict,), "a table with lists of values: every combination runs"),
    "points": ((list,), "a list of configurations instead of a grid"),
    "ranges": ((dict,), 'a table with texts such as "1e-5..1e-3:log", for a search that draws'),
    "search": ((str, dict), f"its name, or a table with {', '.join(SEARCH_FLAGS)}"),
    "seeds": ((int, list), "their number, or a list of them"),
    "profile": ((str,), "a text: settings of a paper"),
    "reference": ((dict,), "a table: what is published of the experiment"),
}
"""{key of a file: its types and its content}"""
REQUIRED = ("name", "question", "baseline")


def read_toml_sweep(path: Path) -> tuple[Experiment, Preset]:
    """The sweep of a file, and the flags that it sets. Relative paths in it start at its folder.
    Errors name the file and the key."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    table = parsed_toml(content, path)
    try:
        return _sweep(path, table)
    except (OSError, BadInput) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', error)}") from None


def _sweep(path: Path, table: Mapping[str, Any]) -> tuple[Experiment, Preset]:
    for key, value in table.items():
        if key not in KEYS:
            raise unknown("key", key, KEYS)
        if type(value) not in KEYS[key][0] or not (value or key in ("grid", "points")):
            raise BadInput(f"{key} must be {KEYS[key][1]}; got {shown(value)}")
    for key in REQUIRED:
        if key not in table:
            raise BadInput(f"a sweep must have a {key}, {KEYS[key][1]}")
    folder = str(path.resolve().parent)
    base = _settings("base", table.get("base", {}), folder)
    baseline = _settings("baseline", table["baseline"], folder)
    points = _points(table, baseline, folder)
    ranges = _ranges(table)
    swept = tuple(dict.fromkeys([name for point in points for name in point] + list(ranges)))
    if not swept:
        raise BadInput(
            "grid, points or ranges must name the swept settings, with another value than the "
            "baseline's"
        )
    for name in {*ranges} & {name for point in points for name in point} | {*swept} & {*base}:
        raise BadInput(
            f"{name} is set twice, in base or ranges and among the swept settings; set it once"
        )
    cells = [{**base, **point} for point in (baseline, *points)]
    experiment = Experiment(
        name=table["name"],
        question=table["question"],
        swept=swept,
        grid=lambda base, backbone: Grid(points, baseline),
        settings=base,
        typed=frozenset(base),
        file=str(path),
        reference=parse_reference(table["reference"], cells) if "reference" in table else None,
    )
    return experiment, Preset(_flags(table), ranges)


def _points(table: Mapping[str, Any], baseline: Settings, folder: str) -> tuple[Settings, ...]:
    """The points, or those of the grid, without the baseline; for ranges alone, a point without
    settings."""
    if "grid" in table and "points" in table:
        raise BadInput("a sweep has a grid or points, got both")
    axes = {}
    for name, listed in flat(table.get("grid", {})):
        if not isinstance(listed, list) or not listed:
            raise BadInput(f"grid must have a list of values for {name}, got {shown(listed)}")
        axes[name] = [_value("grid", name, value, folder) for value in listed]
        check_different(name, axes[name])
    size = len(table["points"]) if "points" in table else math.prod(map(len, axes.values()))
    if size > MOST_POINTS:
        raise BadInput(f"a sweep has at most {MOST_POINTS:,} points, got {size:,}")
    product = itertools.product(*axes.values())
    points: list[Settings] = [dict(zip(axes, values, strict=True)) for values in product]
    if "points" in table:
        points = [_settings("points", point, folder) for point in table["points"]]
        check_different("points", points)
        names = list(dict.fromkeys(name for point in points for name in point))
        for number, point in enumerate(points, 1):
            if missing := [name for name in names if name not in point]:
                raise BadInput(
                    f"all points must set the same settings; point {number} does not set "
                    f"{', '.join(missing)}"
                )
    return tuple(point for point in points if point != baseline)


def _ranges(table: Mapping[str, Any]) -> dict[str, Range]:
    ranges = {}
    for name, text in flat(table.get("ranges", {})):
        span = parse_range(name, text) if isinstance(text, str) else None
        if span is None:
            law = 'a range is written "lo..hi" or "lo..hi:log"'
            raise BadInput(f"ranges: {law}, got {name} = {shown(text)}")
        ranges[name] = span
    return ranges


def _flags(table: Mapping[str, Any]) -> dict[str, Any]:
    """Seeds, search and profile, under the names of the command line's parser."""
    flags: dict[str, Any] = {}
    if "profile" in table:
        flags["profile"] = profile(table["profile"]) and table["profile"]
    if isinstance(seeds := table.get("seeds"), list):
        flags["seeds"] = ",".join(map(str, seeds))
    elif seeds:
        flags["num_seeds"] = seeds
    search = table.get("search", {})
    search = {"name": search} if isinstance(search, str) else search
    if (name := search.get("name", "grid")) not in SEARCHES:
        raise unknown("search", str(name), SEARCHES)
    for name, value in search.items():
        if name not in SEARCH_FLAGS:
            raise unknown("key of search", name, SEARCH_FLAGS)
        kind = SEARCH_FLAGS[name].kind
        if type(value) not in ({kind, int} if kind is float else {kind}):
            raise BadInput(f"{name} of search must be of type {kind.__name__}, got {shown(value)}")
        flags[SEARCH_FLAGS[name].name] = value
    return flags


def _settings(key: str, table: Any, folder: str) -> dict[str, Any]:
    """The settings of a table, each checked."""
    if not isinstance(table, dict):
        raise BadInput(f"{key} must hold tables of settings, got {shown(table)}")
    return {name: _value(key, name, value, folder) for name, value in flat(table)}


def _value(key: str, name: str, value: Any, folder: str) -> Any:
    if name == "seed":
        raise BadInput(f"{key}: seeds must be given as seeds, not as seed")
    checked = checked_setting(name, value)
    if isinstance(checked, tuple):
        return tuple(absolute(name, part, folder) for part in checked)
    return absolute(name, checked, folder) if isinstance(checked, str) else checked
