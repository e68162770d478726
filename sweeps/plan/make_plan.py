"""From an experiment and the user's options to the trials that will run, and those that won't."""

import itertools
import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rank_core.checkpoints.weights import weights_file
from rank_core.chunking.inputs import Inputs, cell_of, load_inputs
from rank_core.encoders import tiny
from rank_core.errors import BadInput
from rank_core.measure_check import check_measures
from rank_core.models import check_model, model_class
from rank_core.models.build import is_deterministic
from rank_core.models.ranker import Ranker
from rank_core.own_code import travelling
from rank_core.ranking.final_runs import ranks_by_score_alone
from rank_core.settings.config import TrialConfig
from rank_core.trial.cross_validation import near_duplicates, parts_of
from rank_core.trial.own_names import own_paths, portable_config
from sweeps.plan.experiment import Experiment, Settings, suited
from sweeps.plan.options import FLAG_SETTINGS, MOST_POINTS, Options
from sweeps.plan.plan import Plan, PlannedCell, Removed
from sweeps.plan.profiles import profile_settings, suited_to_model
from sweeps.plan.search_options import SearchSettings
from sweeps.plan.search_space import Space
from sweeps.plan.trial_cost import chunk_statistics, trial_cost

DRAWS = 1_000
"""Points drawn at most in a row that cannot run or repeat others."""
# What `--smoke-test` makes small: the whole path in seconds, on so many queries and candidates that
# most queries have a relevant one, so that systems differ and a search has something to choose by.
FEW = {
    "training.batch_size": 4,
    "evaluation.depth": 10,
    "evaluation.max_dev_queries": 12,
    "evaluation.max_test_queries": 12,
}
TWO_STEPS = {"training.max_steps": 2}
TWO_EPOCHS = {"training.epoch_steps": 1, "training.num_epochs": 2}
"""Two steps as well, with a rung between them."""
POINTS = 2


def make_plan(experiment: Experiment, options: Options, base: TrialConfig | None = None) -> Plan:
    """Everything that can be known before a launch; raises `BadInput` for what can never run.
    Without `base` the options give the settings that all cells share."""
    given = {*experiment.settings, *options.settings, *_smoke_settings(options)}
    experiment = replace(experiment, profile=options.profile, given=frozenset(given))
    base = portable_config(base or base_config(experiment, options))
    check_measures(base.evaluation.measures)
    model_class(base.model.name)
    inputs = load_inputs(base.collection, base.model.backbone)
    splits = inputs.collection.splits.values()
    check_measures(base.evaluation.measures, [split.qrels for split in splits])
    _check_room(base, inputs, options.num_workers)
    grid = experiment.grid(base, inputs.backbone)
    space = search_space(grid.points, experiment, options)
    search, points, reduced = _existing(options.search, space), space.points, ""
    if options.smoke_test:
        enough = _smoke_points(search)
        few = min(search.num_configs or len(points), enough)
        reduced = _reduced(base, few, search.num_configs or len(points))
        search = replace(search, num_configs=few if search.num_configs else None)
        points = points[:enough]
    baseline = _cell(experiment, base, grid.baseline)
    cells, removed = [baseline], list[Removed]()
    if not search.kind.proposes:
        drawn = space.drawn(search.seed) if search.num_configs else points
        cells, removed = _feasible(experiment, base, baseline, drawn, search.num_configs)
    if base.evaluation.folds and (leak := near_duplicates(parts_of(base, inputs))):
        print(f"warning: {leak}", file=sys.stderr, flush=True)
    for start in {cell.config.training.init_from for cell in cells} - {""}:
        for seed in options.seeds:
            weights_file(start, seed)
    cells = _told_apart(cells)
    return Plan(
        experiment,
        base,
        inputs,
        tuple(cells),
        tuple(removed),
        options.seeds,
        space,
        search,
        reduced,
    )


def extended(plan: Plan, point: Settings) -> Plan | Removed:
    """The plan with one more cell, or why the point cannot be one: by the law of every plan."""
    found = _new_cell(plan.experiment, plan.base, list(plan.cells), point)
    if isinstance(found, Removed):
        return found
    return replace(plan, cells=tuple(_told_apart([*plan.cells, found])))


def own_code(plan: Plan) -> tuple[str, ...]:
    """Files and folders with the code from outside that trials of a plan run, those that a search
    may still propose included: workers on other machines need them."""
    named = [plan.base, *(cell.config for cell in plan.cells)]
    names = {point["model.name"] for point in plan.space.points if "model.name" in point}
    named += [portable_config(plan.base.override({"model.name": name})) for name in names]
    return travelling({path for config in named for path in own_paths(config)})


def base_config(experiment: Experiment, options: Options) -> TrialConfig:
    """The settings that all cells share: defaults, then the backbone's, then those of the sweep and
    of the profile, then those that its file sets, then the user's."""
    named = {setting: getattr(options, flag) for flag, setting in FLAG_SETTINGS.items()}
    chosen: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for name in chosen.keys() & (
        options.settings.keys() | options.grids.keys() | options.ranges.keys()
    ):
        flag = f"--{name.rpartition('.')[2]}".replace("--name", "--model").replace("_", "-")
        raise BadInput(f"a setting is given once, got {flag} and {name}=")
    for name in [*options.grids, *options.ranges]:
        if name not in experiment.swept:
            raise BadInput(
                f"only swept settings take several values, got {name}; "
                f"swept by {experiment.name}: {', '.join(experiment.swept)}"
            )
    # Swept settings are values of points; several points may share one.
    chosen |= {k: v for k, v in options.settings.items() if k not in experiment.swept}
    backbone = {**TrialConfig().settings(), **experiment.settings, **chosen}["model.backbone"]
    defaults = (tiny.SETTINGS if backbone in tiny.NAMES else {}) | dict(experiment.defaults)
    defaults |= profile_settings(experiment.profile) | dict(experiment.settings)
    return TrialConfig().override({**defaults, **_smoke_settings(options), **chosen})


def search_space(points: tuple[Settings, ...], experiment: Experiment, options: Options) -> Space:
    """The experiment's points, or the product of the values the user gave for swept settings with
    the experiment's own values for the others."""
    given = {name: [value] for name, value in options.settings.items() if name in experiment.swept}
    given |= options.grids
    if not given and not any(name in point for point in points for name in options.ranges):
        return Space(tuple(points), options.ranges)
    common, names, axes = _common(points, experiment, options), [], []
    for name in experiment.swept:
        if name not in options.ranges:
            own = list(dict.fromkeys(point[name] for point in points if name in point))
            names.append(name)
            axes.append(given.get(name, own))
    if (size := math.prod(map(len, axes))) > MOST_POINTS:
        raise BadInput(f"a grid has at most {MOST_POINTS:,} points, got {size:,}")
    product = (dict(zip(names, values, strict=True)) for values in itertools.product(*axes))
    return Space(tuple({**common, **point} for point in product), options.ranges)


def _common(points: tuple[Settings, ...], experiment: Experiment, options: Options) -> Settings:
    """What all points set alike beside the swept settings (windows, say), the user's word aside."""
    return {
        name: value
        for name, value in points[0].items()
        if name not in (*experiment.swept, *options.settings)
        and all(point.get(name) == value for point in points)
    }


def _smoke_settings(options: Options) -> dict[str, Any]:
    """Settings under which a trial takes two steps, for a smoke test."""
    if not options.smoke_test:
        return {}
    return FEW | (TWO_EPOCHS if options.search.kind.pauses else TWO_STEPS)


def _reduced(base: TrialConfig, few: int, asked: int) -> str:
    """What a smoke test leaves of a plan, for people."""
    evaluation = base.evaluation
    return (
        f"{few} of {asked} configurations, few steps, {evaluation.depth} candidates of "
        f"{evaluation.max_dev_queries or 'all'} dev and {evaluation.max_test_queries or 'all'} "
        "test queries at most; it tries the path, not the question"
    )


def _smoke_points(search: SearchSettings) -> int:
    """How many points of the grid are enough."""
    return max(POINTS, search.fewest)


def _check_room(base: TrialConfig, inputs: Inputs, num_workers: int) -> None:
    """Refuses queries that leave no room for a document, and workers that would have no pair."""
    backbone, asked = inputs.backbone, base.chunking.max_query_tokens
    if backbone.max_window(asked) < 1:
        raise BadInput(
            f"chunking.max_query_tokens <= {asked + backbone.max_window(asked) - 1} must hold for "
            f"backbone {backbone.name} ({backbone.max_input_tokens} positions less 3 special "
            f"tokens and a chunk), got chunking.max_query_tokens={asked}"
        )
    if num_workers > base.training.batch_size:
        raise BadInput(
            "--num-workers <= training.batch_size must hold, because the workers share the pairs "
            f"of a step; got {num_workers} workers and training.batch_size="
            f"{base.training.batch_size}"
        )


def _feasible(
    experiment: Experiment,
    base: TrialConfig,
    baseline: PlannedCell,
    points: Iterable[Settings],
    limit: int | None = None,
) -> tuple[list[PlannedCell], list[Removed]]:
    """The baseline and the points that can run and differ from each other, the first `limit` of
    them; the others and why."""
    cells, removed, seen, in_vain = [baseline], list[Removed](), set[str](), 0
    for point in points:
        name = _name(point)
        found = None if name in seen else _new_cell(experiment, base, cells, point)
        seen.add(name)
        if isinstance(found, PlannedCell):
            cells.append(found)
        elif found:
            removed.append(found)
        in_vain = 0 if isinstance(found, PlannedCell) else in_vain + 1
        if limit and (len(cells) - 1 == limit or in_vain == DRAWS):
            break
    if len(cells) == 1:
        values: dict[str, dict[str, None]] = {}  # the same law once, with all that broke it
        for item in removed:
            law, got, value = item.reason.partition(", got ")
            values.setdefault(f"{law}{got}", {})[value] = None
        reasons = "; ".join(f"{law}{', '.join(broken)}" for law, broken in values.items())
        raise BadInput(f"no point of the grid can run: {reasons}")
    return cells, removed


def _new_cell(
    experiment: Experiment, base: TrialConfig, cells: list[PlannedCell], point: Settings
) -> PlannedCell | Removed:
    """The point as a cell beside those there are, or why it is none."""
    name = _name(point)
    try:
        cell = _cell(experiment, base, point)
    except BadInput as error:
        return Removed(name, str(error))
    twin = next((other for other in cells if _equivalent(cell, other)), None)
    if twin:
        return Removed(name, f"cuts every document as {twin.label} does")
    return cell


def _name(point: Settings) -> str:
    return ", ".join(f"{setting}={value}" for setting, value in point.items())


def _equivalent(cell: PlannedCell, other: PlannedCell) -> bool:
    """True where both read the same chunks of every document with the same model, or where every
    document is one chunk, so that FirstP and the chunked models are the same function; and where
    they are trained and evaluated alike."""
    if cell.cell == other.cell:
        return True
    ours, theirs = cell.config, other.config
    chunking = replace(theirs.chunking, max_query_tokens=ours.chunking.max_query_tokens)
    model = replace(ours.model, name=theirs.model.name)
    if replace(ours, chunking=chunking, model=model) != theirs:
        return False
    if cell.chunks.signature != other.chunks.signature:
        return False
    if ours.model.name == theirs.model.name:
        return True
    models = (model_class(cell.config.model.name), model_class(other.config.model.name))
    return cell.chunks.max_chunks == 1 and all(
        issubclass(model, Ranker) and model.one_chunk_is_firstp and ranks_by_score_alone(model)
        for model in models
    )


def _told_apart(cells: list[PlannedCell]) -> list[PlannedCell]:
    """The cells under names that differ: the backbone is named where there are several."""
    if len({cell.config.model.backbone for cell in cells}) == 1:
        return cells
    names = [Path(cell.config.model.backbone).name for cell in cells]
    return [
        replace(cell, label=f"{cell.label.removesuffix(f' {name}')} {name}")
        for cell, name in zip(cells, names, strict=True)
    ]


def _existing(search: SearchSettings, space: Space) -> SearchSettings:
    """The search over no more configurations than there are."""
    if search.num_configs is None or search.num_configs <= space.size:
        return search
    size = int(space.size)
    print(
        f"note: only {size} configurations exist, got --num-configs {search.num_configs}",
        file=sys.stderr,
    )
    return replace(search, num_configs=size)


def _cell(experiment: Experiment, base: TrialConfig, point: Settings) -> PlannedCell:
    config = portable_config(base.override(point))
    given = experiment.given | point.keys()
    config = config.override(suited_to_model(experiment.profile, config, given))
    inputs = load_inputs(config.collection, config.model.backbone)
    if "model.name" in point and "chunking.window" not in point:
        config = config.override({**suited(config, inputs.backbone), **point})
    check_model(config, inputs.backbone)
    chunks = chunk_statistics(config, inputs)
    return PlannedCell(
        cell=cell_of(config, inputs),
        label=experiment.label_of(config),
        config=config,
        inputs=inputs,
        chunks=chunks,
        cost=trial_cost(config, inputs, chunks),
        deterministic=is_deterministic(config, inputs.backbone),
    )
