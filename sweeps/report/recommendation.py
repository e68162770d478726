"""The answer of a sweep in a sentence: which system to use, or what would decide."""

import math
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.stats.compare import CellComparison
from rank_core.stats.design import Goal, planned_variances, queries_needed, seeds_needed
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.report.analysis import Analysis
from sweeps.report.reliability import POWER
from sweeps.systems.best import dev_means
from sweeps.systems.summary import ROUNDING
from sweeps.systems.system import System
from sweeps.terminal.notation import (
    ONE_RUN,
    decisive_p,
    interval_text,
    level_text,
    names_text,
    signed,
)

_MOST_SEEDS = 20
"""More seeds than this are no advice."""


@dataclass(frozen=True)
class Recommendation:
    """The recommended system with its facts; `system` is "" where none can be recommended.

    `gain` and its interval are over `reference`, the first stage or, without its row, the baseline;
    they are None without a system. `cost` is in encoder tokens per document, None where unknown.
    """

    sentence: str
    system: str = ""
    reference: str = ""
    measure: str = ""
    mean: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    cost: float | None = None
    not_distinguishable: tuple[str, ...] = ()


def recommendation(analysis: Analysis) -> Recommendation:
    """The cheapest of the systems that are not distinguishable from the best, are significantly
    better than the first stage (the baseline, where the first stage has no row) and have no lower
    mean than it.

    The cost is encoder tokens per document; equals are ordered by the mean on dev, then by the
    reported mean. Where the cost of one of them is unknown, all count as equal.
    """
    sweep = analysis.sweep
    if sweep.about.smoke_test:
        return Recommendation("A smoke test has no recommendation.")
    compared = [c for c in analysis.first_stage_comparisons if c.measure == sweep.primary]
    compared = compared or analysis.primary
    if not compared:
        return Recommendation("No recommendation: there is no comparison.")
    decided = [c for c in compared if not math.isnan(c.p_both)]
    if not decided:
        return Recommendation(
            "No recommendation: one training run per system is too few. "
            f"{LEAST_SEEDS} seeds are needed."
        )
    found = analysis.best_set
    members = found.members if found else tuple(c.system for c in decided)
    better = {c.system: c for c in decided if c.delta > 0 and c.significant(sweep.about.alpha)}
    first = sweep.about.first_stage.get(sweep.primary, -math.inf)  # its mean, row or not
    above = [row for row in analysis.rows if row.name in better and row.name in members]
    rows = [row for row in above if row.mean(sweep.primary) - first > ROUNDING]
    if above and not rows:
        return Recommendation(
            f"Keep {sweep.first_stage_name}: the best systems are not above it "
            f"({sweep.primary} {first:.3f})."
        )
    if not rows:
        return Recommendation(_undecided(analysis, decided))
    return _recommended(analysis, rows, better, members)


def _recommended(
    analysis: Analysis,
    rows: list[System],
    better: dict[str, CellComparison],
    members: tuple[str, ...],
) -> Recommendation:
    sweep, dev, costs = analysis.sweep, dev_means(analysis.sweep), _costs(analysis)
    is_known = all(_cell(row) in costs for row in rows)

    def order(row: System) -> tuple[float, float, float]:
        cost = costs[_cell(row)] if is_known else 0.0
        return cost, -dev.get(_cell(row), -math.inf), -row.mean(sweep.primary)

    chosen = min(rows, key=order)
    test = better[chosen.name]
    others = [sweep.label(name) for name in members if name != chosen.name]
    interval = interval_text(test).removesuffix(ONE_RUN)
    reference = sweep.label(test.baseline)
    text = (
        f"Use {chosen.label}: {sweep.primary} {test.mean_system:.3f}, {signed(test.delta)} over "
        f"{reference} ({level_text(sweep.about.alpha)} interval {interval})."
    )
    if others:
        verb = "is" if len(others) == 1 else "are"
        text += f" {names_text(others, most=1)} {verb} not distinguishable from the best."
    return Recommendation(
        text,
        system=chosen.name,
        reference=test.baseline,
        measure=sweep.primary,
        mean=test.mean_system,
        gain=test.delta,
        gain_low=test.ci_low,
        gain_high=test.ci_high,
        cost=costs.get(_cell(chosen)),
        not_distinguishable=tuple(name for name in members if name != chosen.name),
    )


def _cell(row: System) -> str:
    """The cell that a row's encoder reads for: interpolation reads nothing."""
    return row.of or row.name


def _costs(analysis: Analysis) -> dict[str, float]:
    """{cell: encoder tokens per document}, of those where it is known."""
    known = {cell.cell: cell.encoder_tokens_per_document for cell in analysis.sweep.cells}
    return {name: tokens for name, tokens in known.items() if tokens is not None}


def _undecided(analysis: Analysis, decided: list[CellComparison]) -> str:
    """That no system is better, and what it would take to tell, as a design plans."""
    sweep, alpha = analysis.sweep, analysis.sweep.about.alpha
    reference, best = sweep.label(decided[0].baseline), max(decided, key=lambda c: c.delta)
    if all(c.delta < 0 and c.significant(alpha) for c in decided):
        return f"Keep {reference}: every tested system is significantly worse."
    text = (
        f"No system is significantly better than {reference}: the largest difference is "
        f"{signed(best.delta)} (p {decisive_p(best)})."
    )
    return " ".join(filter(None, [text, _what_it_takes(analysis, best)]))


def _what_it_takes(analysis: Analysis, best: CellComparison) -> str:
    """The queries or seeds that would find the gain, or the margin if that is larger; "" where a
    design cannot tell: no gain, or a reference without seeds."""
    sweep = analysis.sweep
    if best.delta <= 0 or best.baseline != sweep.baseline:
        return ""
    matrix, delta = analysis.matrix(sweep.primary), max(sweep.about.rope, best.delta)
    goal = Goal(delta, alpha=sweep.about.alpha, power=POWER, family_size=best.family_size)
    have = min(best.num_seeds_system, best.num_seeds_baseline)
    try:
        variances = planned_variances(matrix, baseline=sweep.baseline, paired_seeds=analysis.paired)
        seeds = seeds_needed(variances, goal, num_queries=best.num_queries) - have
        queries = queries_needed(variances, goal, num_seeds=max(have, LEAST_SEEDS))
        queries -= best.num_queries
    except BadInput:
        return ""
    options = [f"about {_two_digits(queries)} more queries"] if 0 < queries < math.inf else []
    options += [f"{seeds:.0f} more seeds"] if 0 < seeds <= _MOST_SEEDS else []
    return f"To find {delta:.3f} would take {' or '.join(options)}." if options else ""


def _two_digits(count: float) -> str:
    return f"{float(f'{count:.1e}'):,.0f}"
