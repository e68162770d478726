"""Settings without effect: a sweep of them would compare the noise of seeds, and its report would
name a best. What the settings decide alone is refused; what the data decide is said in the plan."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rank_core.chunking.inputs import Inputs
from rank_core.data.store import num_ranked
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput, shown
from rank_core.models import model_class, usual_settings
from rank_core.models.reading import effective_settings, ignored_settings
from rank_core.settings.config import NO_PART_OF_A_CELL, TrialConfig
from rank_core.settings.training import Training
from rank_core.training.examples import num_training_queries
from rank_core.training.losses import loss_of
from rank_core.training.train import num_training_steps, validation_interval
from rank_core.trial.cross_validation import parts_of
from rank_core.trial.trial import portable_config
from sweeps.plan.experiment import Settings
from sweeps.plan.plan import PlannedCell
from sweeps.plan.search_space import Space

FOR_ALL_CELLS = {
    "evaluation.measures": "all cells are measured alike",
    "evaluation.folds": "all cells are tested on the same queries",
    "evaluation.folds_file": "all cells are tested on the same queries",
    "evaluation.max_dev_queries": "all cells are selected on the same queries",
    "evaluation.max_test_queries": "all cells are tested on the same queries",
    "training.paired_seeds": "the test of a difference needs it of both cells",
    **dict.fromkeys(NO_PART_OF_A_CELL, "it changes no result"),
}
"""{setting that a sweep cannot vary: why}."""


def check_sweepable(swept: Iterable[str], points: Sequence[Settings]) -> None:
    """Refuses to vary a setting that all cells of a sweep share."""
    for name in swept:
        if name in FOR_ALL_CELLS and len({str(point.get(name)) for point in points}) > 1:
            raise BadInput(
                f"{name} cannot be swept: {FOR_ALL_CELLS[name]}. Give it one value for the sweep"
            )


def check_named(points: Sequence[Settings]) -> None:
    """Raises `BadInput` for a model or a loss of a point that does not exist or cannot be imported.

    Such a point is not left out as one that cannot run is: the sweep would compare only the rest.
    """
    for name in dict.fromkeys(point["model.name"] for point in points if "model.name" in point):
        model_class(name)
    for name in dict.fromkeys(p["training.loss"] for p in points if "training.loss" in p):
        loss_of(replace(Training(), loss=name))


def check_read(
    base: TrialConfig,
    baseline: Settings,
    space: Space,
    *,
    swept: Collection[str],
    typed: Mapping[str, Any],
) -> None:
    """Refuses a swept setting that no point reads, and a typed one that no cell reads or has.
    `typed` are the user's settings of all cells, {name: value}."""
    # A range is tried at both ends: a setting such as a rate of 0 may be read at one alone.
    ends = [{name: r.low for name, r in space.ranges.items()}]
    ends.append({name: r.high for name, r in space.ranges.items()})
    points = [{**point, **end} for point in space.points for end in ends[: 1 + bool(space.ranges)]]
    for name in swept:
        alone = name in space.ranges or _varies_alone(name, points)
        if alone and not _is_read(name, base, points):
            _refuse(name)
    defaults, usual = TrialConfig().settings(), usual_settings(base)
    for name, value in typed.items():
        if name == "model.backbone":  # which counts the tokens of all plans
            continue
        if name in swept or value in (defaults[name], usual[name]):  # they change nothing
            continue
        if all(point.get(name, value) != value for point in (baseline, *points)):
            raise BadInput(f"{name}={shown(value)} has no effect: every cell sets its own {name}")
        if not _is_read(name, base, [baseline, *points]):
            _refuse(name)


def _varies_alone(name: str, points: Sequence[Settings]) -> bool:
    """True if points differ in a setting alone; others may change in step with one that is read."""
    others = ({n: value for n, value in point.items() if n != name} for point in points)
    return len({str(point) for point in others}) < len(points)


def _is_read(name: str, base: TrialConfig, points: Iterable[Settings]) -> bool:
    """True if a point that can be a cell reads a setting, or none can be one: the reasons of the
    points are then told."""
    found = False
    for point in points:
        with suppress(BadInput):
            config = portable_config(base.override(point))
            found = True
            if name in NO_PART_OF_A_CELL or name not in ignored_settings(config):
                return True
    return not found


def _refuse(name: str) -> None:
    raise BadInput(
        f"nothing in these cells reads {name}: cells that differ only in it would differ by the "
        "noise between seeds. Leave it out, or choose a model, a loss or a schedule that reads it"
    )


def meaning(config: TrialConfig, backbone: Backbone) -> str:
    """A text that is equal for configurations which differ in nothing that their trials read."""
    return json.dumps(effective_settings(config, backbone), sort_keys=True)


def beyond_data(cells: Sequence[PlannedCell], names: Collection[str]) -> Iterator[str]:
    """A line for each of the settings whose values lie beyond what the data have, so that larger
    ones mean the same."""
    for name in (name for name in names if name in LIMITED):
        beyond: dict[int, Limit] = {}
        for cell in cells:
            own = cell.config.settings()[name]
            if own and own not in beyond and name not in ignored_settings(cell.config):
                limit = LIMITED[name](cell.config, cell.inputs)
                beyond |= {own: limit} if own >= limit[0] else {}
        if beyond:
            most, what = next(iter(beyond.values()))
            listed = ", ".join(map(str, sorted(beyond)))
            alike = ": these values mean the same" if len(beyond) > 1 else ""
            yield f"{name}={listed} does not limit anything: {what} {most:,}{alike}"


Limit = tuple[int, str]
"""The least value that limits nothing, and what it counts."""


def _candidates(*splits: str) -> Callable[[TrialConfig, Inputs], Limit]:
    return lambda config, inputs: (_most(inputs, splits), "the most candidates of a query are")


def _queries(config: TrialConfig, inputs: Inputs) -> Limit:
    lengths = [inputs.query_tokens(split).lengths() for split in inputs.collection.splits]
    longest = max((int(own.max(initial=0)) for own in lengths), default=0)
    return longest, "the tokens of the longest query are"


def _all_steps(config: TrialConfig, inputs: Inputs) -> Limit:
    return _steps(config.override({"training.max_steps": 0}), inputs)


def _steps(config: TrialConfig, inputs: Inputs) -> Limit:
    steps = num_training_steps(config.training, _num_queries(config, inputs))
    return steps, "the steps of training are"


def _validations(config: TrialConfig, inputs: Inputs) -> Limit:
    interval = validation_interval(config.training, _num_queries(config, inputs))
    return -(-_steps(config, inputs)[0] // interval), "the validations are"


LIMITED: dict[str, Callable[[TrialConfig, Inputs], Limit]] = {
    "evaluation.depth": _candidates("dev", "test"),
    "chunking.max_query_tokens": _queries,
    "training.depth": _candidates("train"),
    "training.max_steps": _all_steps,
    "training.validate_every": _steps,
    "training.patience": _validations,
}
"""{setting whose larger values mean the same on small data: its limit}."""


def _num_queries(config: TrialConfig, inputs: Inputs) -> int:
    return max(num_training_queries(part, config) for part in parts_of(config, inputs))


@lru_cache(maxsize=8)
def _most(inputs: Inputs, splits: tuple[str, ...]) -> int:
    """The number of candidates of the query with most of them."""
    found = (inputs.collection.splits[name] for name in splits if name in inputs.collection.splits)
    return max(
        (num_ranked(own.candidates, query) for own in found for query in own.queries), default=0
    )
