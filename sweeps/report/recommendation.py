"""The answer of a sweep in a sentence: which system to use, or what would decide.

Every way out has this sentence from here: terminal, page, results.json, model card, MLflow, board.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.stats.best import best_set
from rank_core.stats.compare import CellComparison
from rank_core.stats.design import (
    Variances,
    planned_variances,
    queries_needed,
    seeds_needed,
    variances_beside_fixed,
)
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.report.analysis import Analysis
from sweeps.report.chunking_file import FILE as CHUNKING
from sweeps.report.clusters import num_clusters
from sweeps.report.reliability import goal_of
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.best import best_on_dev, dev_means
from sweeps.systems.chunk_sizes import usual_label
from sweeps.systems.summary import ROUNDING
from sweeps.systems.system import Kind, System
from sweeps.terminal.notation import (
    ONE_RUN,
    has_two_runs,
    interval_text,
    level_text,
    names_text,
    p_text,
    signed,
)
from sweeps.terminal.text import in_words

MOST_WORDS = 25
"""Of the first sentence; names are shortened where it would have more."""
_MOST_SEEDS, _MANY_SEEDS = 50, 10
"""More seeds than the first are no advice; the second are planned where queries alone do not do."""
PER_DOCUMENT, PER_QUERY = "encoder tokens per document", "encoder tokens per query"
VECTORS = "vectors per document"


@dataclass(frozen=True)
class Recommendation:
    """The recommended system with its facts; `system` is "" where none can be recommended.

    `sentence` begins with `headline`, of at most 25 words. `gain` and its interval are over
    `reference`, the first stage or, without its row and for the chunks of an index, the baseline;
    they are None without a system. `cost` is in `cost_unit` and decides between equals;
    `milliseconds` per query are a time of the trial's machine. Both are None where unknown.
    """

    sentence: str
    headline: str = ""
    system: str = ""
    reference: str = ""
    measure: str = ""
    mean: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    cost: float | None = None
    cost_unit: str = ""
    milliseconds: float | None = None
    not_distinguishable: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Costs:
    """What a use of each system costs, {its name: cost}, in one unit; some may be unknown."""

    unit: str
    of: Mapping[str, float]
    milliseconds: Mapping[str, float]  # per query


def recommendation(analysis: Analysis) -> Recommendation:
    """The cheapest of the systems that are not distinguishable from the best, are significantly
    better than the reference and have no lower mean than the first stage.

    The reference is the first stage; where it has no row, and for the chunks of an index, it is the
    baseline. The cost is that of `costs_of`; equals are ordered by the mean on dev, then by the
    reported mean. Where the cost of one of them is unknown, all count as equal.
    """
    sweep = analysis.sweep
    if sweep.about.smoke_test:
        return _without("A smoke test has no recommendation.")
    compared = _compared(analysis)
    if not compared:
        label = analysis.baseline.label
        if analysis.copies:
            return _without("No recommendation: all systems have the same values.")
        why = (
            f"only {label} has a" if analysis.baseline.num_used else f"the baseline {label} has no"
        )
        return _without(_headline("No recommendation: {} finished seed.", why))
    decided = [c for c in compared if not math.isnan(c.p_both)]
    if all(c.fewest_seeds < LEAST_SEEDS for c in compared):
        return _too_few_seeds(analysis, compared)
    members = _like_the_best(analysis, decided)
    better = {c.system: c for c in decided if c.delta > 0 and c.significant(sweep.about.alpha)}
    first = -math.inf if sweep.indexes else sweep.about.first_stage.get(sweep.primary, -math.inf)
    above = [row for row in analysis.rows if row.name in better and row.name in members]
    rows = [row for row in above if row.mean(sweep.primary) - first > ROUNDING]
    if above and not rows:
        form = f"Keep {{}}: no system is above it ({sweep.primary} {first:.{sweep.digits}f})."
        return _without(_headline(form, sweep.first_stage_name))
    if not rows:
        return _undecided(analysis, decided)
    return _recommended(analysis, rows, better, members)


def cost_text(found: Recommendation) -> str:
    """`The recommended system reads 62 encoder tokens per document.`; "" where it is unknown."""
    if found.cost is None:
        return ""
    digits = 1 if found.cost_unit == VECTORS else 0
    verb = "needs" if found.cost_unit == VECTORS else "reads"
    text = f"The recommended system {verb} {found.cost:,.{digits}f} {found.cost_unit}"
    if found.milliseconds is not None:
        text = f"{text.removesuffix(' per query')} and takes {found.milliseconds:,.2g} ms per query"
    return f"{text}."


def other_choice(analysis: Analysis, found: Recommendation) -> str:
    """The system that the sweep's files have, where it is not the recommended one: they have the
    best on dev, whose gain on test is not one of a choice on test."""
    sweep = analysis.sweep
    if not found.system or sweep.third_party:
        return ""
    row = next(row for row in analysis.rows if row.name == found.system)
    if sweep.serving:
        best, place = sweep.serving.best, sweep.serving.file
        same = best == _cell(row) and (row.kind is Kind.INTERPOLATED) == bool(sweep.serving.mixed)
        mixed = f" with {sweep.first_stage_name}" * bool(sweep.serving.mixed)
        named = f"{sweep.label(best)}{mixed}"
        return "" if same else f"{place} states the best on dev: {named}."
    if sweep.indexes:
        chunked = [cell for cell, facts in sweep.indexes.items() if facts.window]
        best, said = best_on_dev(sweep, chunked), f"{CHUNKING} states the best on dev: {{}}."
    else:
        best, said = best_on_dev(sweep), "The best on dev, which is confirmed and exported, is {}."
    if not best or best == _cell(row):
        return ""
    return said.format(called(analysis, best))


def costs_of(analysis: Analysis) -> _Costs:
    """The vectors of an index; for chunks that are put together the encoder tokens of a query; else
    the encoder tokens of a document. The milliseconds decide nothing: a machine repeats no time."""
    sweep = analysis.sweep
    if sweep.indexes:
        figures = {cell: own.figures for cell, own in sweep.indexes.items()}
        return _Costs(
            VECTORS,
            {cell: float(own["vectors_per_document"]) for cell, own in figures.items()},
            {cell: float(own["ms_per_query"]) for cell, own in figures.items()},
        )
    if sweep.serving:
        rows = dict(zip(sweep.serving.of, sweep.serving.rows, strict=True))
        return _Costs(
            PER_QUERY,
            {name: float(row["tokens_per_query"]) for name, row in rows.items()},
            {name: 1000 * float(row["seconds_per_query"]) for name, row in rows.items()},
        )
    tokens = {cell.cell: cell.encoder_tokens_per_document for cell in sweep.cells}
    known = {name: float(count) for name, count in tokens.items() if count is not None}
    return _Costs(PER_DOCUMENT, known, {})


def _compared(analysis: Analysis) -> list[CellComparison]:
    """Every system beside the reference, on the primary measure."""
    sweep = analysis.sweep
    if sweep.indexes:  # which chunks, whatever BM25 adds
        return analysis.primary
    first = [c for c in analysis.first_stage_comparisons if c.measure == sweep.primary]
    return first or analysis.primary


def _like_the_best(analysis: Analysis, decided: list[CellComparison]) -> tuple[str, ...]:
    """The systems that are not distinguishable from the best; among indexes without the rows that
    BM25 is mixed into."""
    sweep, found = analysis.sweep, analysis.best_set
    if sweep.indexes:
        matrix = analysis.matrix(sweep.primary)
        fixed = [cell for cell in sweep.deterministic if cell in matrix.cells]
        found = best_set(matrix, alpha=sweep.about.alpha, deterministic=fixed)
    return found.judged if found else tuple(c.system for c in decided)


def _without(headline: str, *more: str) -> Recommendation:
    """That no system is recommended, and what would change it."""
    return Recommendation(" ".join(filter(None, [headline, *more])), headline)


def _recommended(
    analysis: Analysis,
    rows: list[System],
    better: Mapping[str, CellComparison],
    members: Collection[str],
) -> Recommendation:
    sweep, dev, costs = analysis.sweep, dev_means(analysis.sweep), costs_of(analysis)
    is_known = all(_cell(row) in costs.of for row in rows)

    def order(row: System) -> tuple[float, float, float]:
        cost = costs.of[_cell(row)] if is_known else 0.0
        return cost, -dev.get(_cell(row), -math.inf), -row.mean(sweep.primary)

    chosen = min(rows, key=order)
    test = better[chosen.name]
    interval = interval_text(test, sweep.digits).removesuffix(ONE_RUN)
    gain = signed(test.delta, sweep.digits)
    form = (
        f"Use {{}}: {sweep.primary} {test.mean_system:.{sweep.digits}f}, {gain} over "
        f"{{}} ({level_text(sweep.about.alpha)} interval {interval})."
    )
    headline = _headline(form, called(analysis, chosen.name), called(analysis, test.baseline))
    # The first stage needs no model: it is named first.
    others = sorted((n for n in members if n != chosen.name), key=lambda n: n != FIRST_STAGE)
    return Recommendation(
        " ".join(filter(None, [headline, _as_good(analysis, others), _alone(analysis, chosen)])),
        headline,
        system=chosen.name,
        reference=test.baseline,
        measure=sweep.primary,
        mean=test.mean_system,
        gain=test.delta,
        gain_low=test.ci_low,
        gain_high=test.ci_high,
        cost=costs.of.get(_cell(chosen)),
        cost_unit=costs.unit if _cell(chosen) in costs.of else "",
        milliseconds=costs.milliseconds.get(_cell(chosen)),
        not_distinguishable=tuple(name for name in members if name != chosen.name),
    )


def _as_good(analysis: Analysis, others: list[str]) -> str:
    """That the other systems are as good as the data can tell; "" without others."""
    if not others:
        return ""
    names = names_text(
        [called(analysis, name) for name in others], most=2 if len(others) == 2 else 1
    )
    if analysis.sweep.indexes:  # chunks of ...
        return f"{names[0].upper()}{names[1:]} are not distinguishable from the best."
    verb = "is" if len(others) == 1 else "are"
    return f"{names} {verb} not distinguishable from the best."


def _alone(analysis: Analysis, chosen: System) -> str:
    """That the first stage alone ranks better than an index, which is compared with others."""
    sweep, first = analysis.sweep, analysis.first_stage
    if not sweep.indexes or first is None:
        return ""
    mean = first.mean(sweep.primary)
    if mean <= chosen.mean(sweep.primary) + ROUNDING:
        return ""
    return f"{sweep.first_stage_name} alone has a higher mean, {mean:.{sweep.digits}f}."


def called(analysis: Analysis, name: str) -> str:
    """A system in a sentence: `MaxP 48/32 with BM25`, `chunks of 128 tokens, overlap 50%`."""
    sweep = analysis.sweep
    row = next((row for row in sweep.interpolated if row.name == name), None)
    if row is not None:
        how = "" if row.alphas else " by RRF"
        return f"{called(analysis, row.of)} with {sweep.first_stage_name}{how}"
    if name not in sweep.indexes:
        return sweep.label(name)
    facts = sweep.indexes[name]
    if facts.window is None:
        return f"documents cut at {facts.figures['largest_window']} tokens"
    if sweep.label(name) != usual_label(facts.window, facts.overlap):
        return f"chunks of {sweep.label(name)}"  # which says the rest in few words
    return f"chunks of {facts.window} tokens, overlap {100 * facts.overlap:g}%"


def _headline(form: str, *names: str) -> str:
    """The sentence with the names of systems in it, which lose words in their middle where it would
    have more than `MOST_WORDS`."""
    words = [name.split() for name in names]
    left, room = MOST_WORDS - len(form.replace("{}", "").split()), [*map(len, words)]
    while sum(room) > left:
        room[room.index(max(room))] -= 1
    return form.format(*map(_shorter, words, room))


def _shorter(words: list[str], most: int) -> str:
    """`MaxP 48/32, … dropout 0.1`: the first and the last of more than `most` words."""
    if len(words) <= most:
        return " ".join(words)
    first = most // 2
    return " ".join([*words[:first], "…", *words[len(words) - (most - 1 - first) :]])


def _cell(row: System) -> str:
    """The cell that a row's encoder reads for: interpolation reads nothing."""
    return row.of or row.name


def _too_few_seeds(analysis: Analysis, compared: list[CellComparison]) -> Recommendation:
    """That one or two training runs decide nothing, and how many would."""
    runs = "training run" if analysis.sweep.third_party else "seed"
    have = 2 if any(map(has_two_runs, compared)) else 1
    missing = LEAST_SEEDS - have
    few = f"{in_words(have)} {runs}{'s' * (have > 1)} per system {'are' if have > 1 else 'is'}"
    more = f"{in_words(missing)} more {runs}{'s' * (missing > 1)}"
    return _without(f"No recommendation: {few} too few to tell.", f"Each system needs {more}.")


def _undecided(analysis: Analysis, decided: list[CellComparison]) -> Recommendation:
    """That no system is better, and what it would take to tell, as a design plans."""
    sweep, alpha = analysis.sweep, analysis.sweep.about.alpha
    what = "chunk size" if sweep.indexes else "system"
    reference, best = called(analysis, decided[0].baseline), max(decided, key=lambda c: c.delta)
    if all(c.delta < 0 and c.significant(alpha) for c in decided):
        return _without(
            _headline(f"Keep {{}}: every other {what} is significantly worse.", reference)
        )
    largest = f"the largest difference is {signed(best.delta, sweep.digits)}"
    largest += f" (p {p_text(best.p_both_adjusted)})"
    form = f"No {what} is significantly better than {{}}: {largest}."
    return _without(_headline(form, reference), _what_it_takes(analysis, best))


def _what_it_takes(analysis: Analysis, best: CellComparison) -> str:
    """The queries or seeds that would find the gain, or the margin if that is larger; "" where a
    design cannot tell or none would."""
    sweep, seeds = analysis.sweep, best.fewest_seeds
    variances = _variances(analysis, best) if best.delta > 0 else None
    if variances is None:
        return ""
    matrix, delta = analysis.matrix(sweep.primary), max(sweep.about.rope, best.delta)
    goal = goal_of(best, delta, sweep.about.alpha)
    columns = len(matrix.query_ids)
    what = "clusters of queries" if num_clusters(matrix) else "queries"
    runs = "training runs" if sweep.third_party else "seeds"

    def queries(num_seeds: float) -> str:
        needed = queries_needed(variances, goal, num_seeds=int(num_seeds)) - columns
        return f"about {_two_digits(needed)} more {what}" if 0 < needed < math.inf else ""

    options = [queries(LEAST_SEEDS if math.isinf(seeds) else max(seeds, LEAST_SEEDS))]
    if math.isfinite(seeds):
        more = seeds_needed(variances, goal, num_queries=columns) - seeds
        if 0 < more <= _MOST_SEEDS - seeds:
            options.append(f"{in_words(int(more))} more {runs if more > 1 else runs[:-1]}")
        if not any(options) and (text := queries(_MANY_SEEDS)):  # neither alone
            options = [f"{text} with {_MANY_SEEDS} {runs}"]
    told = " or ".join(filter(None, options))
    if not told:
        return f"Neither {_MOST_SEEDS} {runs} nor more {what} would find {delta:.{sweep.digits}f}."
    return f"To find {delta:.{sweep.digits}f} would take {told}."


def _variances(analysis: Analysis, best: CellComparison) -> Variances | None:
    """What a design assumes of the comparison; None where it cannot tell."""
    sweep, matrix = analysis.sweep, analysis.matrix(analysis.sweep.primary)
    if best.baseline not in analysis.deterministic:
        with suppress(BadInput):
            return planned_variances(matrix, baseline=best.baseline, paired_seeds=analysis.paired)
        return None
    if best.test is None or sweep.means:
        return None
    seeds = best.num_seeds_system if math.isfinite(best.fewest_seeds) else 1
    return variances_beside_fixed(best.test, num_seeds=seeds, num_queries=len(matrix.query_ids))


def _two_digits(count: float) -> str:
    return f"{float(f'{count:.1e}'):,.0f}"
