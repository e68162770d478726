"""The folded tables of the page, rounded for reading."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rank_core.stats.effect_size import MEANINGFUL, Superiority, runs_needed
from sweeps.report.analysis import Analysis
from sweeps.report.notation import p_text, percent, relation, signed
from sweeps.report.sections.reliability import Trust

_UNDEFINED = "—"

Lines = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Folded:
    """A table that a click opens; the first column is text, the others are numbers."""

    summary: str
    heading: tuple[str, ...]
    lines: Lines
    caption: str


def folded_tables(analysis: Analysis, trust: Trust) -> list[Folded]:
    """Effect sizes with equivalence, other tests, and best of k; what is empty is left out."""
    tables = (_effects(analysis, trust), _tests(analysis, trust), _best_of(analysis, trust))
    return [one for one in tables if one.lines]


def _effects(analysis: Analysis, trust: Trust) -> Folded:
    sweep = analysis.sweep
    limits = {one.system: one for one in trust.limits}
    compared = {one.system: one for one in analysis.primary}
    lines: list[tuple[str, ...]] = []
    for one in trust.second.effects:
        limit = limits.get(one.system)
        rope = None if limit is None else limit.rope
        shares = (
            (_UNDEFINED,) * 3
            if rope is None
            else tuple(percent(share) for share in (rope.below, rope.within, rope.above))
        )
        lines.append(
            (
                sweep.label(one.system),
                signed(compared[one.system].delta),
                "same on all queries" if one.zero_variance else _number(one.standardised),
                *_superiority(one.superiority),
                *shares,
                _UNDEFINED if limit is None else p_text(limit.equivalence_p),
            )
        )
    margin = f"{sweep.rope:g}"
    return Folded(
        "Effect sizes and practical equivalence",
        (
            "system",
            "difference",
            "standardised (dz)",
            "a run beats one of the baseline",
            "pairs of runs",
            f"loss beyond {margin}",
            f"within ±{margin}",
            f"gain above {margin}",
            "p of equivalence",
        ),
        lines,
        "Standardised: the mean difference in standard deviations between queries. "
        f"A run beats: the share of pairs of runs; from {percent(MEANINGFUL)} on a gain is often "
        f"called meaningful, and showing that takes {math.ceil(runs_needed())} runs of each side. "
        "The three shares are the confidence the data put on either side of practical equality; "
        f"the p of equivalence is that of two one-sided tests of |difference| < {margin}.",
    )


def _tests(analysis: Analysis, trust: Trust) -> Folded:
    compared = {one.system: one for one in analysis.primary}
    second = trust.second
    lines = [
        (
            analysis.sweep.label(one.system),
            p_text(compared[one.system].p_queries_adjusted),
            p_text(one.p_max_t),
            p_text(one.p_signed_rank),
            p_text(compared[one.system].p_both_adjusted),
            p_text(one.p_pooled),
        )
        for one in second.tests
    ]
    if second.pooled is None:
        pooled = f"Seed variances are not pooled: {second.not_pooled}."
    else:
        worth = (
            "as sure as the whole sweep"
            if math.isinf(second.pooled.prior_df)
            else f"worth {second.pooled.prior_df:.0f} further degrees of freedom"
        )
        pooled = (
            "Pooled: each cell's seed variance is shrunk to that of the sweep "
            f"(Bartlett p {relation(second.pooled.homogeneity_p)}, {worth}); a cell with one seed "
            "borrows it, and then the p holds only if that cell scatters like the others."
        )
    return Folded(
        "The same comparisons by other tests",
        (
            "system",
            "queries: t",
            "queries: step-down maxT",
            "queries: Wilcoxon",
            "both: t (decides)",
            "both: pooled seeds",
        ),
        lines,
        "Adjusted p-values. Queries: queries random, runs fixed; both: queries and runs random. "
        "Step-down maxT permutes systems within queries and makes its own adjustment. Wilcoxon "
        "tests another hypothesis (symmetry) and knows nothing of runs either; where it disagrees "
        f"with t, a few queries carry the difference. {pooled}",
    )


def _best_of(analysis: Analysis, trust: Trust) -> Folded:
    sweep = analysis.sweep
    means: Mapping[str, float] = {
        one.cell.cell: one.mean(sweep.primary) for one in analysis.cells if one.num_used
    }
    lines = [
        (
            sweep.label(one.cell),
            str(one.num_seeds),
            f"{means[one.cell]:.3f}",
            f"{one.seed.sd:.4f}",
            f"{one.seed.low:.4f} to {one.seed.high:.4f}",
            f"{one.best.estimate:.3f}",
            f"{one.best.low:.3f} to {one.best.high:.3f}",
            signed(one.best.estimate - means[one.cell]),
        )
        for one in trust.second.cells
    ]
    return Folded(
        "Seeds of each system, and what reporting its best seed would add",
        (
            "system",
            "seeds",
            "mean",
            "SD of runs",
            "95 % interval",
            "best of as many",
            "95 % interval ",
            "added",
        ),
        lines,
        "SD of runs: between training runs, without the noise of queries. Best of as many: the "
        "expected highest mean of as many runs as there are seeds (crossed bootstrap); a table of "
        "best seeds would show it in place of the mean.",
    )


def _superiority(one: Superiority) -> tuple[str, str]:
    """One pair of runs can only say yes or no, which is no share."""
    shown = percent(one.probability) if one.num_pairs > 1 else _UNDEFINED
    return shown, str(one.num_pairs)


def _number(value: float) -> str:
    return _UNDEFINED if math.isinf(value) else signed(value, 2)
