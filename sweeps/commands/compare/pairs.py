"""All pairs of the compared systems, for tables in which no system is the baseline."""

import csv
import io
import textwrap
from dataclasses import dataclass
from itertools import combinations

from rank_core.seeding import generator
from rank_core.stats.compare import Comparison, compare_pairs
from rank_core.stats.permutation import randomised_tukey
from sweeps.commands.compare.comparison import RunComparison
from sweeps.report.notation import aligned, p_text, short_interval, short_signed, shortened
from sweeps.report.terminal import WIDTH

_LABEL = 15


@dataclass(frozen=True)
class Pair:
    """Two systems: the test that decides, and the one over queries that knows all pairs."""

    comparison: Comparison  # Holm over all pairs
    p_tukey: float  # randomised Tukey HSD: queries random, runs fixed, adjusted for all pairs


def all_pairs(found: RunComparison) -> list[Pair]:
    """Every pair of systems in every column, the first of the pair as its system."""
    pairs = []
    for column, matrix in found.matrices.items():
        compared = compare_pairs(
            matrix,
            list(combinations(matrix.cells, 2)),
            alpha=found.alpha,
            deterministic=found.deterministic,
        )
        permuted = randomised_tukey(matrix, rng=generator(0, f"pairs {column}"))
        pairs += [
            Pair(one, other.p_adjusted) for one, other in zip(compared, permuted, strict=True)
        ]
    return pairs


def pairs_text(found: RunComparison, pairs: list[Pair]) -> list[str]:
    """The lines of a terminal: one table per column, then what the p-values are."""
    level = f"{100 * (1 - found.alpha):g} % interval"
    lines = []
    for column in found.measures:
        table = [["pair", "", "diff", level, "p queries", "p both"]]
        table += [
            [
                shortened(one.system, _LABEL),
                shortened(one.baseline, _LABEL),
                short_signed(one.delta),
                short_interval(one),
                p_text(pair.p_tukey),
                p_text(one.p_both_adjusted),
            ]
            for pair in pairs
            if (one := pair.comparison).measure == column
        ]
        lines += ["", f"All pairs, {column}", *aligned(table, left=(0, 1))]
    legend = (
        "p queries: randomised Tukey HSD (permutation within queries); p both: Holm over all "
        f"{pairs[0].comparison.family_size} pairs of a column."
    )
    return [*lines, "", *textwrap.wrap(legend, WIDTH)]


def pairs_csv(pairs: list[Pair]) -> str:
    """One line per pair and column, unrounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = (
        "measure system baseline delta se_both df_both ci_low ci_high p_queries p_both".split()
    )
    writer.writerow([*columns, "p_both_adjusted", "p_queries_tukey", "family_size"])
    for pair in pairs:
        one = pair.comparison
        values = [getattr(one, name) for name in columns]
        writer.writerow([*values, one.p_both_adjusted, pair.p_tukey, one.family_size])
    return out.getvalue()
