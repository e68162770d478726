"""The plan of an experiment under a command's options: its cells, and the excluded points."""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from rank_core.checkpoints.weights import stored_cell
from rank_core.chunking.inputs import Inputs, cell_of, load_inputs
from rank_core.errors import BadInput
from rank_core.evaluate import check_measures
from rank_core.lines import beside
from rank_core.models import model_class, trains, unread_settings, usual_settings
from rank_core.models.build import is_deterministic
from rank_core.models.checks import check_model
from rank_core.models.reading import configured, ignored_settings
from rank_core.own_code import travelling
from rank_core.settings.config import TrialConfig
from rank_core.training.losses import check_loss
from rank_core.trial.cross_validation import parts_of
from rank_core.trial.fold_model import check_start
from rank_core.trial.trial import own_paths, portable_config
from sweeps.plan.effects import check_named, check_read, check_sweepable, meaning
from sweeps.plan.experiment import Experiment, Grid, Settings, suited
from sweeps.plan.flags import check_settings
from sweeps.plan.objectives import check_measure, over_limit
from sweeps.plan.options import FLAG_SETTINGS, MOST_POINTS, Options
from sweeps.plan.plan import Plan, PlannedCell, Removed
from sweeps.plan.profiles import profile_settings, suited_to_model
from sweeps.plan.search_options import SearchSettings
from sweeps.plan.search_space import Space
from sweeps.plan.starts import with_start
from sweeps.plan.trial_cost import chunk_statistics, trial_cost

Load = Callable[[str, str], Inputs]
"""The inputs of a collection and a backbone."""
FEW_REASONS = 5  # in a message
DRAWS = 1_000
"""The limit of consecutive draws that cannot run or repeat others."""
# The sizes of `--smoke-test`: small enough for seconds, but most queries have a relevant candidate,
# so that systems differ and a search can choose.
FEW = {
    "training.batch_size": 4,
    "evaluation.depth": 10,
    "evaluation.max_dev_queries": 12,
    "evaluation.max_test_queries": 12,
}


def make_plan(experiment: Experiment, options: Options, base: TrialConfig | None = None) -> Plan:
    """The plan of an experiment. `base` are the settings that all cells share (default: from the
    options). Raises `BadInput` for a plan that can never run."""
    names = {*experiment.settings, *options.settings, *_smoke_settings(options)}
    experiment = replace(experiment, profile=options.profile, user_settings=frozenset(names))
    crossed = {name: options.grids[name] for name in experiment.crossed if name in options.grids}
    experiment = experiment.crossing(crossed)
    rest = {name: values for name, values in options.grids.items() if name not in crossed}
    base = portable_config(base or base_config(experiment, options))
    check_measures(base.evaluation.measures)
    check_measure(options.search.objectives, base.evaluation.measures[0])
    check_settings(options.typed_flags, base.settings())
    model_class(base.model.name)
    # What is refused without data has been refused by now: this may take minutes the first time.
    inputs = load_inputs(base.collection, base.model.backbone)
    if inputs.backbone.problem and model_class(base.model.name).trains:
        raise BadInput(inputs.backbone.problem)
    splits = inputs.collection.splits.values()
    check_measures(base.evaluation.measures, [split.qrels for split in splits])
    _check_room(base, inputs, options.num_workers)
    options = replace(options, grids=rest)
    grid = experiment.grid(base, inputs.backbone)
    space = search_space(grid.points, experiment, options)
    # A confirmation and a test set have cells of a sweep that was checked.
    if not (experiment.confirms or experiment.test_set):
        _check_effects(experiment, options, base, inputs, grid)
    search, points, reduced = _existing(options.search, space), space.points, ""
    if options.smoke_test:
        enough = max(2, search.kind.fewest_configs)
        count, tested = search.num_configs or len(points), base.evaluation
        few = min(count, enough)
        reduced = (
            f"{few} of {count} configurations, few steps, {tested.depth} candidates of "
            f"{tested.max_dev_queries or 'all'} dev and {tested.max_test_queries or 'all'} test "
            "queries at most; it tests the installation, not the question"
        )
        search = replace(search, num_configs=few if search.num_configs else None)
        points = points[:enough]
    load = cache(load_inputs)  # which looks whether files have changed: once a plan
    baseline = _cell(experiment, base, grid.baseline, load)
    cells, removed = [baseline], list[Removed]()
    if not search.kind.proposes:
        drawn = space.drawn(search.seed) if search.num_configs else points
        known = _Known(experiment, base, [baseline], load, at_most=search.at_most)
        removed = _add_feasible(known, drawn, search.num_configs)
        cells = known.cells
        windows_given = "chunking.window" in options.grids and not options.smoke_test
        if windows_given and search.kind.drawn == "never":
            cells = [baseline, *_beside(known, experiment, grid.baseline), *cells[1:]]
    lacking = {
        config.model.name: parts
        for config in _distinct_starts(cells)
        if (parts := check_start(config, inputs.backbone, options.seeds))
    }
    cells = _distinct_labels(cells)
    _check_dev(cells)
    chosen = experiment, base, inputs, tuple(cells), tuple(removed)
    return Plan(*chosen, options.seeds, space, search, reduced, lacking)


def _check_dev(cells: Iterable[PlannedCell]) -> None:
    """Refuses a collection without a dev split, which chooses the checkpoint of a trained model and
    the weights of one that interpolates."""
    for config, inputs in ((cell.config, cell.inputs) for cell in cells):
        kind = model_class(config.model.name)
        if trains(kind) and (config.training.num_epochs or not kind.by_score_alone):
            parts_of(config, inputs)[0].collection.splits["dev"]


def _distinct_starts(cells: Iterable[PlannedCell]) -> list[TrialConfig]:
    """A configuration for each model that starts from each weights."""
    found = {}
    for config in (cell.config for cell in cells):
        start = config.training.init_from
        if not start or stored_cell(start):  # whose weights the sweep has trained itself
            continue
        training = config.training
        adapters = training.lora_rank, training.lora_targets
        found[training.init_from, config.model, *adapters] = config
    return list(found.values())


def extended(plan: Plan, point: Settings) -> Plan | Removed:
    """The plan with another cell, or the reason why the point cannot run."""
    at_most = plan.search.at_most
    cell = _Known(plan.experiment, plan.base, plan.cells, at_most=at_most).new_cell(point)
    if isinstance(cell, Removed):
        return cell
    return replace(plan, cells=tuple(_distinct_labels([*plan.cells, cell])))


def own_code(plan: Plan) -> tuple[str, ...]:
    """The files and folders of the user's own code that trials of a plan run, including those that
    a search may propose: workers on other machines need them."""
    configs = [plan.base, *(cell.config for cell in plan.cells)]
    names = {point["model.name"] for point in plan.space.points if "model.name" in point}
    configs += [portable_config(plan.base.override({"model.name": name})) for name in names]
    return travelling({path for config in configs for path in own_paths(config)})


def base_config(experiment: Experiment, options: Options) -> TrialConfig:
    """The settings that all cells share, each level overriding the one before: defaults, those of
    the backbone, the sweep, the profile, the sweep's file, the user."""
    flags = {setting: getattr(options, flag) for flag, setting in FLAG_SETTINGS.items()}
    chosen: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    for flag, name in FLAG_SETTINGS.items():
        if name in chosen and name in {*options.settings, *options.grids, *options.ranges}:
            flag = flag.replace("_", "-")
            raise BadInput(f"{name} is set twice, by --{flag} and by {name}=; set it once")
    for name in [*options.grids, *options.ranges]:
        several = (*experiment.swept, *experiment.crossed)
        if name not in several:
            raise BadInput(
                f"only swept settings take several values, got {name}; swept by "
                f"{experiment.name}: {', '.join(several)}. Give it one value, or sweep it "
                "in a file with a [grid]: ranksweep run FILE.toml"
            )
    # Swept settings belong to the points.
    chosen |= {k: v for k, v in options.settings.items() if k not in experiment.swept}
    usual = {**experiment.defaults, **profile_settings(experiment.profile), **experiment.settings}
    return configured({**usual, **_smoke_settings(options), **chosen})


def search_space(points: tuple[Settings, ...], experiment: Experiment, options: Options) -> Space:
    """The experiment's points, or the product of the user's values of swept settings and the
    experiment's values of the others."""
    grids = {name: [value] for name, value in options.settings.items() if name in experiment.swept}
    grids |= options.grids
    if not grids and not any(name in point for point in points for name in options.ranges):
        return Space(tuple(points), options.ranges)
    # Settings, such as windows, that are equal in all points and neither swept nor the user's.
    common = {
        name: value
        for name, value in points[0].items()
        if name not in (*experiment.swept, *options.settings)
        and all(point.get(name) == value for point in points)
    }
    names, axes = [], []
    for name in experiment.swept:
        if name not in options.ranges:
            own = list(dict.fromkeys(point[name] for point in points if name in point))
            names.append(name)
            axes.append(grids.get(name, own))
    if (size := math.prod(map(len, axes))) > MOST_POINTS:
        raise BadInput(f"a grid has at most {MOST_POINTS:,} points, got {size:,}")
    product = (dict(zip(names, values, strict=True)) for values in itertools.product(*axes))
    return Space(tuple({**common, **point} for point in product), options.ranges)


def _check_effects(
    experiment: Experiment, options: Options, base: TrialConfig, inputs: Inputs, grid: Grid
) -> None:
    """Refuses settings and flags without effect, such as one for a setting that the sweep varies,
    unless its points follow from it."""
    space = search_space(grid.points, experiment, options)
    check_sweepable(experiment.swept, [grid.baseline, *space.points])
    check_named([grid.baseline, *space.points])
    typed = {name: base.settings()[name] for name in _typed(experiment, options)}
    check_read(base, grid.baseline, space, swept=experiment.swept, typed=typed)
    for flag, name in FLAG_SETTINGS.items():
        value = getattr(options, flag)
        if value is None or name not in experiment.swept:
            continue
        other = base.override({name: "maxp" if value != "maxp" else "firstp"})
        if experiment.grid(other, inputs.backbone) == grid:
            raise BadInput(
                f"--{flag.replace('_', '-')} {value} has no effect: {experiment.name} varies "
                f"{name}. To run this value alone, write {name}={value}"
            )


def _typed(experiment: Experiment, options: Options) -> list[str]:
    """The settings that the user wrote for all cells, by flag, as a setting or in a file."""
    flags = [own for flag, own in FLAG_SETTINGS.items() if getattr(options, flag) is not None]
    return [*flags, *options.settings, *experiment.typed]


def _smoke_settings(options: Options) -> dict[str, Any]:
    """The settings of a smoke test, with which a trial takes two steps."""
    if not options.smoke_test:
        return {}
    if options.search.kind.stops:  # with a validation between them
        return FEW | {"training.epoch_steps": 1, "training.num_epochs": 2}
    return FEW | {"training.max_steps": 2}


def _check_room(base: TrialConfig, inputs: Inputs, num_workers: int) -> None:
    """Refuse queries so long that no document fits, and workers without a pair."""
    backbone, query_tokens = inputs.backbone, base.chunking.max_query_tokens
    if (room := backbone.max_window(query_tokens)) < 1:
        raise BadInput(
            f"chunking.max_query_tokens <= {query_tokens + room - 1} must hold for backbone "
            f"{backbone.name}, got chunking.max_query_tokens={query_tokens}"
        )
    if num_workers > base.training.batch_size:
        raise BadInput(
            f"--num-workers <= training.batch_size must hold, got {num_workers} workers and "
            f"training.batch_size={base.training.batch_size}"
        )


class _Known:
    """The cells of a plan so far, by what makes another one superfluous."""

    def __init__(
        self,
        experiment: Experiment,
        base: TrialConfig,
        cells: Iterable[PlannedCell],
        load: Load = load_inputs,
        *,
        at_most: Mapping[str, float],
    ) -> None:
        self.cells = list[PlannedCell]()
        self._experiment, self._base, self._load = experiment, base, load
        self._at_most = at_most
        self._by_meaning: dict[str, int] = {}
        self._by_chunks: dict[Hashable, list[int]] = {}
        for cell in cells:
            self.add(cell)

    def add(self, cell: PlannedCell) -> None:
        """Takes a cell in."""
        self._by_meaning.setdefault(cell.meaning, len(self.cells))
        self._by_chunks.setdefault(_but_chunks(cell), []).append(len(self.cells))
        self.cells.append(cell)

    def new_cell(self, point: Settings) -> PlannedCell | Removed:
        """The point as a cell, or the reason to exclude it."""
        try:
            cell = _cell(self._experiment, self._base, point, self._load)
        except BadInput as error:
            return Removed(_name(point), str(error))
        if too_dear := over_limit(cell.chunks.tokens_per_document, self._at_most):
            return Removed(_name(point), too_dear)
        # Two names of one configuration would be one trial in two rows, compared with itself.
        same = self._by_meaning.get(cell.meaning)
        alike = self._by_chunks.get(_but_chunks(cell), ())
        like = next((at for at in alike if _equivalent(cell, self.cells[at])), None)
        if same is not None and (like is None or same <= like):
            other = self.cells[same]
            why = _unlike(cell, other)
            return Removed(_name(point), f"is the same cell as {other.label}: {why}")
        if like is not None:
            return Removed(_name(point), f"has the same chunks as {self.cells[like].label}")
        return cell


def _add_feasible(
    known: _Known, points: Iterable[Settings], limit: int | None = None
) -> list[Removed]:
    """Adds the first `limit` points that can run and differ to the baseline; returns the excluded
    points with reasons."""
    removed, names, in_vain = list[Removed](), set[str](), 0
    for point in points:
        name = _name(point)
        result = None if name in names else known.new_cell(point)
        names.add(name)
        if isinstance(result, PlannedCell):
            known.add(result)
        elif result:
            removed.append(result)
        in_vain = 0 if isinstance(result, PlannedCell) else in_vain + 1
        if limit and (len(known.cells) - 1 == limit or in_vain == DRAWS):
            break
    if len(known.cells) == 1:
        reasons = "; ".join([*dict.fromkeys(item.reason for item in removed)][:FEW_REASONS])
        raise BadInput(f"no configuration can run: {reasons}")
    return removed


def _beside(known: _Known, experiment: Experiment, baseline: Settings) -> list[PlannedCell]:
    """The experiment's further baselines that differ from all cells."""
    windows = sorted({cell.config.chunking.window for cell in known.cells[1:]})
    points = experiment.beside(baseline, windows) if experiment.beside else ()
    return [cell for cell in map(known.new_cell, points) if isinstance(cell, PlannedCell)]


def _unlike(cell: PlannedCell, other: PlannedCell) -> str:
    """The settings in which two equal cells differ, and why they are equal."""
    ours, theirs = cell.config.settings(), other.config.settings()
    differ = [name for name in ours if ours[name] != theirs[name]]
    unread = [name for name in differ if name in ignored_settings(cell.config)]
    alike = [f"{n}={ours[n]} means {theirs[n]}" for n in differ if n not in unread]
    return "; ".join([*alike, *(f"nothing reads {name}" for name in unread)]) or "equal settings"


def _name(point: Settings) -> str:
    return ", ".join(f"{setting}={value}" for setting, value in point.items())


def _but_chunks(cell: PlannedCell) -> Hashable:
    """What two cells share whose models compute the same function where their chunks are the same:
    the chunks, and all settings but those of chunks and the model's name."""
    config = cell.config
    shared = [getattr(config, own.name) for own in fields(config)]
    model = [getattr(config.model, own.name) for own in fields(config.model) if own.name != "name"]
    shared = [part for part in shared if part not in (config.chunking, config.model)]
    return cell.chunks.signature, config.chunking.max_query_tokens, *shared, *model


def _equivalent(cell: PlannedCell, other: PlannedCell) -> bool:
    """True if two cells that share all `_but_chunks` compute the same function: the same model, or
    FirstP and a chunked model where every document is a single chunk."""
    ours, theirs = cell.config.model.name, other.config.model.name
    return ours == theirs or (
        cell.chunks.max_chunks == 1
        and all(
            kind.trains and kind.one_chunk_is_firstp and kind.by_score_alone
            for kind in (model_class(ours), model_class(theirs))
        )
    )


def _distinct_labels(cells: list[PlannedCell]) -> list[PlannedCell]:
    """The cells with distinct labels: with the backbone where there are several."""
    if len({cell.config.model.backbone for cell in cells}) == 1:
        return cells
    names = [Path(cell.config.model.backbone).name for cell in cells]
    return [
        replace(cell, label=f"{cell.label.removesuffix(f' {name}')} {name}")
        for cell, name in zip(cells, names, strict=True)
    ]


def _existing(search: SearchSettings, space: Space) -> SearchSettings:
    size, number = space.size, search.num_configs
    if number is None or number <= size:
        return search
    note = f"note: only {size} configurations exist, got --num-configs {number}"
    beside(note)
    return replace(search, num_configs=int(size))


def _cell(
    experiment: Experiment, base: TrialConfig, point: Settings, load: Load = load_inputs
) -> PlannedCell:
    config = portable_config(base.override(point))
    fixed = experiment.user_settings | point.keys()
    config = config.override(suited_to_model(experiment.profile, config, fixed))
    inputs = load(config.collection, config.model.backbone)
    if "model.name" in point and "chunking.window" not in point:
        config = config.override({**suited(config, inputs.backbone), **point})
    config = with_start(config)
    config, left_out = _readable(config, experiment.user_settings - {*point, *experiment.swept})
    check_model(config, inputs.backbone)
    check_loss(config.training)
    chunks = chunk_statistics(config, inputs)
    return PlannedCell(
        cell=cell_of(config, inputs),
        label=experiment.label_of(config),
        config=config,
        inputs=inputs,
        chunks=chunks,
        cost=trial_cost(config, inputs, chunks),
        deterministic=is_deterministic(config, inputs.backbone),
        meaning=meaning(config, inputs.backbone),
        left_out=left_out,
    )


def _readable(config: TrialConfig, given: Collection[str]) -> tuple[TrialConfig, tuple[str, ...]]:
    """The configuration without those settings of all cells that its model never reads, and their
    names: they hold for the other cells."""
    own, usual = config.settings(), usual_settings(config)
    unread = unread_settings(config) & {*given}
    left_out = tuple(name for name in own if name in unread and own[name] != usual[name])
    return config.override({name: usual[name] for name in left_out}), left_out
