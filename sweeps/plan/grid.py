"""The space of a sweep, from its own points and the values that the user gave."""

import itertools
from collections.abc import Mapping
from typing import Any

from rank_core.errors import BadInput
from rank_core.settings.config import setting_types
from sweeps.plan.command_line import Options
from sweeps.plan.experiment import Experiment, Settings
from sweeps.plan.search_space import Range, Space, parse_range


def search_space(points: tuple[Settings, ...], experiment: Experiment, options: Options) -> Space:
    """The experiment's points, or the product of the values the user gave for swept settings with
    the experiment's own values for the others."""
    given = {name: [value] for name, value in options.settings.items() if name in experiment.swept}
    given |= options.grids
    ranges = {name: parse_range(name, value) for name, value in options.ranges.items()}
    if not given and not ranges:
        return Space(tuple(points))
    return Space(
        _product(_common(points, experiment, options), points, experiment, given, ranges), ranges
    )


def _common(points: tuple[Settings, ...], experiment: Experiment, options: Options) -> Settings:
    """What all points set alike beside the swept settings (windows, say), the user's word aside."""
    return {
        name: value
        for name, value in points[0].items()
        if name not in (*experiment.swept, *options.settings)
        and all(point.get(name) == value for point in points)
    }


def _product(
    common: Settings,
    points: tuple[Settings, ...],
    experiment: Experiment,
    given: Mapping[str, list[str]],
    ranges: Mapping[str, Range],
) -> tuple[Settings, ...]:
    parsed = {name: [_typed(name, value) for value in values] for name, values in given.items()}
    names, axes = [name for name in experiment.swept if name not in ranges], []
    for name in names:
        own = list(dict.fromkeys(point[name] for point in points if name in point))
        axes.append(parsed.get(name, own))
    return tuple(
        {**common, **dict(zip(names, values, strict=True))} for values in itertools.product(*axes)
    )


def _typed(name: str, value: str) -> Any:
    kind = setting_types()[name]
    if kind is bool:
        return value  # bool("false") is true; `override` knows the words
    try:
        return kind(value)
    except ValueError:
        raise BadInput(f"{name} takes values of type {kind.__name__}, got {value!r}") from None
