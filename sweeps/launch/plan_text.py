"""The plan and the forecast as text."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rank_core.data.overlap import KEEP_APART, seen_by, shared_texts
from rank_core.first_stage.languages import LANGUAGES, OF_LANGUAGE, other_than_english
from rank_core.models import model_class
from rank_core.models.ranker import Ranker
from rank_core.models.reading import encoder_defaults, ignored_settings
from rank_core.ranking.scorer import first_stage_means
from rank_core.settings.config import TrialConfig
from rank_core.trial.cross_validation import parts_of
from rank_core.units import size_text
from sweeps.forecast.forecast import Calibration, Forecast
from sweeps.launch.index_lines import index_lines
from sweeps.plan.description import evaluated, evaluated_qrels
from sweeps.plan.effects import beyond_data
from sweeps.plan.experiment import value_text
from sweeps.plan.head_line import used_head
from sweeps.plan.plan import Plan, PlanLine, PlannedCell, Trial
from sweeps.plan.trial_cost import cut_queries, planned_steps, planned_tokens
from sweeps.search.race import ALPHA, RacePrice, race_price
from sweeps.search.search import search_class
from sweeps.store.prepared import preparation
from sweeps.terminal.text import clock, columns, count, duration, numbered, shortened, wrapped
from sweeps.terminal.text import terminal_columns as width

CHIEF_SETTINGS = frozenset(
    "chunking.max_document_tokens chunking.max_query_tokens evaluation.depth training.loss "
    "training.negatives training.batch_size training.num_epochs training.backbone_learning_rate "
    "training.head_learning_rate training.aggregator_learning_rate training.schedule "
    "training.warmup training.precision model.dropout".split()
)
"""Settings that a plan names at any value, if all cells have the same."""
BUSY = 1.5  # processes for each core; one of them may measure
SHOWN_ELSEWHERE = frozenset({"model.backbone"})
CAPTION = (
    "chunks, tokens/doc: means per document (encoder tokens); max: most chunks of a document",
    "read: % of document tokens covered by at least one chunk; cost: encoder tokens",
)


def plan_text(plan: Plan, *, finished: int) -> str:
    """The plan: cells and trials, the chunks and costs of each cell, and the excluded cells."""
    lines = [wrapped(plan.experiment.question), ""]
    lines += map(_paragraph, plan_lines(plan, finished=finished))
    lines += ["", *_cell_lines(plan), *CAPTION, *map(_paragraph, excluded_lines(plan))]
    return "\n".join(lines)


def _paragraph(line: PlanLine) -> str:
    about, text = line
    return wrapped(f"{about:12}{text}")


def excluded_lines(plan: Plan) -> Iterator[PlanLine]:
    """The excluded cells, below the table."""
    return (("excluded", f"{item.label}: {item.reason}") for item in plan.removed)


def plan_lines(plan: Plan, *, finished: int) -> list[PlanLine]:
    """What a plan says above its table."""
    collection, base = plan.inputs.collection, plan.base
    queries = {name: len(split.queries) for name, split in collection.splits.items()}
    number = plan.num_trials
    once = sum(cell.deterministic for cell in plan.cells)
    ranked = ", ".join(f"{name} {len(evaluated_qrels(plan, name)):,}" for name in evaluated(plan))
    folds = f" over {base.evaluation.folds} folds" if base.evaluation.folds else ""
    folds += f" of {Path(file).name}" if (file := base.evaluation.folds_file) else ""
    settings = base.settings()  # those that an embedded backbone sets in place of the defaults
    embedded = encoder_defaults(base.model.backbone)
    own = [
        f"{name}={value_text(value)}"
        for name, value in embedded.items()
        if settings[name] == value and not _unread_by_all(plan, name)
    ]
    times = f" x {numbered(len(plan.seeds), 'seed')} = {number}"
    times += f" ({once} deterministic, run once)" if once else ""
    if once == len(plan.cells):
        times = "; all deterministic, one run each"
    return [
        (
            "collection",
            f"{collection.name} ({collection.content_hash}): "
            f"{len(collection.documents):,} documents, queries "
            + ", ".join(f"{name} {count:,}" for name, count in queries.items())
            + f"; evaluated: {ranked}{folds}",
        ),
        (
            "backbone",
            f"{plan.inputs.backbone.name} ({plan.inputs.backbone.content_hash}), inputs of "
            f"up to {plan.inputs.backbone.max_input_tokens} tokens"
            + (f"; its defaults: {', '.join(own)}" if own else "")
            + used_head(plan),
        ),
        *_vector_lines(plan),
        *_cut_lines(plan),
        *([("smoke test", plan.reduced)] if plan.reduced else []),
        *_candidate_lines(plan),
        *_seen_lines(plan),
        *_training_lines(plan),
        *_token_lines(plan),
        *index_lines(plan),
        *_setting_lines(plan),
        *_start_lines(plan),
        *_baseline_lines(plan),
        *_without_effect(plan),
        *search_class(plan.search.name).plan_lines(plan),
        (
            "trials",
            f"{numbered(len(plan.cells), 'cell')}{times}"
            + (f", {finished} of them done" if finished else ""),
        ),
        *([] if finished else _race_lines(plan)),
    ]


def _race_lines(plan: Plan) -> Iterator[PlanLine]:
    """The price of a race in place of the grid, where it is clearly lower."""
    if price := race_price(plan):
        (fewest, mean), (low, high) = price.trials, price.shares
        yield (
            "race",
            f"--search race: {fewest} to {mean} trials on average, {low:.0%} to {high:.0%} of the "
            f"grid's tokens; the grid's choice on dev in {1 - ALPHA:.0%}",
        )


def _without_effect(plan: Plan) -> Iterator[PlanLine]:
    """The settings that some cells do not read, and those that the data make needless."""
    left_out = dict.fromkeys(name for cell in plan.cells for name in cell.left_out)
    for name in left_out:
        labels = ", ".join(cell.label for cell in plan.cells if name in cell.left_out)
        value = plan.base.settings()[name]
        yield "left out", f"{name}={value}: not used by {labels}, applied to the others"
    experiment = plan.experiment
    for line in beyond_data(plan.cells, sorted({*experiment.user_settings, *experiment.swept})):
        yield "no effect", line


def _unread_by_all(plan: Plan, name: str) -> bool:
    """True if no cell reads a setting."""
    return all(name in ignored_settings(cell.config) for cell in plan.cells)


def _candidate_lines(plan: Plan) -> list[PlanLine]:
    """The value of the first stage on dev, which a reranker has to exceed."""
    parts = [part.collection for part in parts_of(plan.base, plan.inputs)]
    primary = plan.base.evaluation.measures[0]
    if "dev" not in evaluated(plan):  # test is looked at once, in the report
        return []
    value = first_stage_means(parts, "dev", plan.base.evaluation)[primary]
    collection = plan.inputs.collection
    ranker = collection.first_stage or "the first stage"
    if other_than_english(collection.language) and ranker in OF_LANGUAGE:
        ranker += f" in {LANGUAGES[collection.language].name}"
    return [("candidates", f"from {ranker}: {primary} {value:.3f} on dev")]


def _seen_lines(plan: Plan) -> list[PlanLine]:
    """How much of test training has seen, and what to do if that is much."""
    parts = [part.collection for part in parts_of(plan.base, plan.inputs)]
    trained = any(planned_steps(cell.config, cell.inputs) for cell in plan.cells)
    seen = seen_by(parts) if trained else None
    if seen is None:
        return []
    alike = dict[str, None]()
    for part in parts:
        queries = {name: split.queries for name, split in part.splits.items()}
        for name, earlier, same in shared_texts(queries):
            number = f"{len(same):,} {name} queries have the text of a {earlier} query"
            alike[f"{part.name}: {number}, such as {same[0]}"] = None
    known = f"a model may know them from training: {KEEP_APART}"
    return [
        *(("warning", text) for text in alike),
        ("seen", seen.text),
        *([("warning", known)] if seen.is_high else []),
    ]


def _training_lines(plan: Plan) -> list[PlanLine]:
    """The steps of a trial; of few, which train next to nothing, also the remedy."""
    found = [planned_steps(cell.config, cell.inputs) for cell in plan.cells]
    steps = sorted({own for own in found if own}, key=lambda own: own.number)
    if not steps:
        return []
    text = " to ".join(dict.fromkeys((steps[0].text, steps[-1].text)))
    remedy = "" if plan.reduced else steps[0].remedy
    return [("training", f"{text}{remedy and f': {remedy}'}")]


def _start_lines(plan: Plan) -> Iterator[PlanLine]:
    """The parts of models that do not start from `training.init_from`."""
    for model, parts in plan.drawn.items():
        yield (
            "start",
            f"training.init_from has no {' and '.join(parts)} for {model}: each seed draws its own",
        )
    same = [
        cell.label
        for cell in plan.cells
        if cell.deterministic and cell.config.training.init_from and len(plan.seeds) > 1
    ]
    if same:
        yield (
            "start",
            f"{', '.join(same)}: every seed would have the weights of training.init_from and "
            "train nothing, so that each is one run; a cell (trials/CELL, without -seedN) starts "
            "each seed from its own",
        )


def _token_lines(plan: Plan) -> list[PlanLine]:
    """The encoder tokens of a trial in training and in evaluation, of the cheapest and the dearest
    cell."""
    cells = sorted((cell for cell in plan.cells if cell.cost), key=lambda cell: cell.cost)
    trains = any(planned_steps(cell.config, cell.inputs) for cell in cells)
    texts = []
    for cell in cells[:1] + cells[-1:]:
        tokens = planned_tokens(cell.config, cell.inputs, cell.chunks)
        trained = f"{count(tokens.trained)} in training, " if trains else ""
        own = f"{trained}{count(tokens.scored)} in {'evaluation' if trains else 'all'}"
        texts.append(f"{own} ({cell.label})")
    return [("tokens", f"per trial: {' to '.join(dict.fromkeys(texts))}")] if texts else []


def _setting_lines(plan: Plan) -> list[PlanLine]:
    """The settings that all cells share: the chief ones, and those that are not at their defaults;
    a paragraph for each section."""
    settings = [cell.config.settings() for cell in plan.cells]
    ignored = [set(ignored_settings(cell.config)) for cell in plan.cells]
    sections: dict[str, list[str]] = {}
    for name, default in TrialConfig().settings().items():
        value = settings[0][name]
        section, _, leaf = name.rpartition(".")
        shared = all(own[name] == value for own in settings)
        unread = all(name in own for own in ignored)
        told = name in CHIEF_SETTINGS or (value != default and name not in SHOWN_ELSEWHERE)
        if section and shared and told and not unread:
            sections.setdefault(section, []).append(f"{leaf}={value_text(value) or 'none'}")
    return [
        ("" if at else "fixed", f"{section}: {', '.join(own)}")
        for at, (section, own) in enumerate(sections.items())
    ]


def _baseline_lines(plan: Plan) -> list[PlanLine]:
    """What a difference from the baseline means where its window is longer than all others."""
    baseline, *others = plan.cells
    window = baseline.config.chunking.window
    if not _reads_one_chunk(baseline):
        return []
    beside = [cell.label for cell in others if _reads_one_chunk(cell)]
    windows = sorted({c.config.chunking.window for c in others if not _reads_one_chunk(c)})
    if not windows or windows[-1] >= window:
        return []
    text = (
        f"{baseline.label} reads up to {window} tokens as one chunk, others windows of "
        f"{', '.join(map(str, windows))}: a difference mixes window and amount of text read"
    )
    text += f"; with the same window: {', '.join(beside)}" if beside else ""
    return [("baseline", text)]


def _reads_one_chunk(cell: PlannedCell) -> bool:
    kind = model_class(cell.config.model.name)
    return kind.trains and kind.first_chunk_only


def _vector_lines(plan: Plan) -> list[PlanLine]:
    """How embedding models make vectors of texts."""
    backbone, found = plan.inputs.backbone, dict[str, None]()
    for cell in plan.cells:
        if issubclass(kind := model_class(cell.config.model.name), Ranker):
            found |= dict.fromkeys(kind.notes(cell.config.model, backbone))
    return [("vectors", note) for note in found]


def _cut_lines(plan: Plan) -> list[PlanLine]:
    """The number of queries that are cut."""
    cutting = (c.config for c in plan.cells if not model_class(c.config.model.name).retrieves)
    limits = dict.fromkeys(config.chunking.max_query_tokens for config in cutting)
    inputs = plan.inputs
    if not any(planned_steps(cell.config, cell.inputs) for cell in plan.cells):
        splits = {name: inputs.collection.splits[name] for name in evaluated(plan)}
        inputs = replace(inputs, collection=replace(inputs.collection, splits=splits))
    found = ((limit, *cut_queries(inputs, limit)) for limit in limits)
    return [
        ("queries", f"{cut:,} of {number:,} are cut at chunking.max_query_tokens={limit}")
        for limit, cut, number in found
        if cut
    ]


def _cell_lines(plan: Plan) -> list[str]:
    # Costs are multiples of the baseline's, or of the first cell's with an encoder.
    reference = next((cell.cost for cell in plan.cells if cell.cost), 1)
    rows: list[tuple[str, ...]] = [("cell", "chunks", "max", "tokens/doc", "read", "cost", "")]
    for cell in plan.cells:
        label, own = shortened(cell.label, width() - 50), cell.chunks
        numbers = f"{own.chunks_per_document:.1f} {own.max_chunks} {own.tokens_per_document:,.0f}"
        numbers += f" {own.coverage:.0%} {cell.cost / reference:.1f}x"
        rows.append((label, *numbers.split(), "baseline" if cell is plan.cells[0] else ""))
    return columns(rows, "lrrrrrl")


def forecast_text(
    missing: Sequence[Trial],
    forecast: Forecast,
    calibration: Calibration,
    *,
    stops: bool = False,
    race: RacePrice | None = None,
) -> str:
    """The trials still to run, by cell and in total; at most, for a search that `stops` some. With
    the price of a `race` of all of them."""
    number = Counter(trial.cell.cell for trial in missing)
    title = "to run, at most" if stops else "to run"
    rows = [(title, "trials", "tokens", "a trial (95%)", f"{forecast.unit}-hours", "memory")]
    for cell in {trial.cell.cell: trial.cell for trial in missing}.values():
        label = shortened(cell.label, width() - 60)
        measured, times = forecast.trials.get(cell.cell), str(number[cell.cell])
        if measured is None:  # a server does the work
            rows.append((label, times, "-", "not measured", "-", "-"))
            continue
        low, middle, high = calibration.interval(measured.seconds)
        tokens = count(number[cell.cell] * measured.tokens)
        time = f"{clock(middle)} ({clock(low)}-{clock(high)})"
        hours = f"{number[cell.cell] * middle * forecast.units / 3600:.3g}"
        memory = size_text(measured.peak_bytes)
        rows.append((label, times, tokens, time, hours, memory))
    totals = _totals(missing, forecast, calibration, race)
    return "\n".join([*columns(rows, "lrrrrr"), "", *totals])


def _totals(
    missing: Sequence[Trial],
    forecast: Forecast,
    calibration: Calibration,
    race: RacePrice | None,
) -> list[str]:
    measured = [trial for trial in missing if trial.cell.cell in forecast.trials]
    trials = [forecast.trials[trial.cell.cell] for trial in measured]
    tokens = sum(estimate.tokens for estimate in trials)
    trained = sum(estimate.trained for estimate in trials)
    seconds = [estimate.seconds for estimate in trials]
    low, middle, high = forecast.wall(missing, calibration)
    lows, hours, highs = (
        amount * forecast.units / 3600 for amount in calibration.interval(sum(seconds))
    )
    lines = [
        f"estimate    {duration(middle)} (95%: {duration(low)} - {duration(high)}) "
        f"on {forecast.slots_text}",
        f"            {hours:.3g} {forecast.unit}-hours ({lows:.3g}-{highs:.3g}), "
        f"{count(tokens)} encoder tokens" + (f", {count(trained)} in training" if trained else ""),
        *_race_hours(race, hours, forecast.unit),
        f"measured    {forecast.num_measured} of {numbered(forecast.num_kinds, 'kind')} of trial, "
        f"a batch of each, in {duration(forecast.seconds)}",
    ]
    if forecast.load > BUSY:
        lines.append(
            f"            at a load of {forecast.load:.1f} for each core: other work slowed it, "
            "and the estimate is for a machine as busy"
        )
    if forecast.group_seconds:
        lines.append(
            f"            of which a group of workers takes {duration(forecast.group_seconds)} to "
            "start, for every trial"
        )
    if prepared := preparation().text:
        lines.append(wrapped(f"prepared    {prepared}; here they are ready"))
    if calibration.num_trials:
        by = numbered(calibration.num_trials, "finished trial")
        lines.append(f"calibrated  on {by} (×{math.exp(calibration.log_ratio):.2f})")
    return lines


def _race_hours(race: RacePrice | None, hours: float, unit: str) -> list[str]:
    """The price of a race beside the `hours` of the grid."""
    if race is None:
        return []
    low, high = (share * hours for share in race.shares)
    return [f"            {low:.3g} to {high:.3g} {unit}-hours on average with --search race"]
