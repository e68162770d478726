"""A gate for changes: is a proposal kept, discarded, or are the measurements too few to tell?

One rule for the people and programs that propose changes. The interval of the difference decides:
its level is 1 - alpha / looks, so that over all planned looks together at most a share alpha of the
loops in which nothing is better keeps a proposal (Bonferroni). At such levels the interval is that
of `rank_core.stats.looks`; a single look has the interval of a comparison.
"""

import math
from dataclasses import dataclass
from enum import Enum

from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.behrens_fisher import half_width
from rank_core.stats.compare import CellComparison
from rank_core.stats.looks import interval_of_look, parts_of
from rank_core.stats.scopes import LEAST_SEEDS, ScopeTest
from sweeps.findings.analysis import Analysis
from sweeps.findings.clusters import num_clusters
from sweeps.findings.power import POWER
from sweeps.terminal.notation import range_text, signed
from sweeps.terminal.text import numbered

"""The probability with which the measurements that are asked for would decide."""


_MOST, _FINE = math.log2(100), 0.02  # of the search for what would decide, in doublings
DIGITS = 4  # of the line: an end of +0.000 would not say on which side of 0 it is


class GateDecision(Enum):
    """What becomes of a proposal; the value is the exit code."""

    KEEP = 0
    DISCARD = 1
    UNDECIDED = 5

    @property
    def word(self) -> str:
        """As it is printed."""
        return self.name.lower()


@dataclass(frozen=True)
class Rule:
    """The rule of a gate, the same at each of its looks.

    Without `no_worse` a proposal is kept where the whole interval is above 0, and discarded where
    it is below `margin`: no gain that counts. With it a proposal is kept where the interval is
    above -`margin`, and discarded where it is below.
    """

    measure: str
    alpha: float
    looks: int
    margin: float
    no_worse: bool

    @property
    def level(self) -> float:
        """The share of alpha of one look."""
        return self.alpha / self.looks

    @property
    def kept_above(self) -> float:
        """The interval of a kept proposal begins above it."""
        return -self.margin if self.no_worse else 0.0

    @property
    def discarded_below(self) -> float:
        """The interval of a discarded proposal ends below it."""
        return -self.margin if self.no_worse else self.margin

    def decide(self, low: float, high: float) -> GateDecision:
        """The decision from the interval of the difference, proposal less baseline."""
        if low > self.kept_above:
            return GateDecision.KEEP
        return GateDecision.DISCARD if high < self.discarded_below else GateDecision.UNDECIDED


@dataclass(frozen=True)
class Look:
    """A look at a proposal: the difference with its interval, and what follows."""

    proposal: str
    baseline: str
    delta: float
    low: float
    high: float
    decision: str
    needs: str  # what would decide; "" where it is decided


def look(analysis: Analysis, rule: Rule) -> Look:
    """The look at the only comparison of an analysis, which was made at the level of one look."""
    if not analysis.primary and len(analysis.copies) == 1:
        [(copy, of)] = analysis.copies.items()
        needs = "it has the same values in every run, so only other queries could decide"
        return Look(copy, of, 0.0, math.nan, math.nan, GateDecision.UNDECIDED.word, needs)
    if len(analysis.primary) != 1:
        raise BadInput(
            "a gate compares one proposal with one baseline, got "
            f"{numbered(len(analysis.primary), 'comparison')} on {analysis.sweep.primary}"
        )
    [pair] = analysis.primary
    low, high = pair.ci_low, pair.ci_high
    if rule.looks > 1 and pair.test is not None:
        low, high = interval_of_look(pair.test, rule.level)
    decision = rule.decide(low, high)
    if pair.fewest_seeds < LEAST_SEEDS:
        decision = GateDecision.UNDECIDED
    needs = _needs(analysis, pair, rule) if decision is GateDecision.UNDECIDED else ""
    return Look(pair.system, pair.baseline, pair.delta, low, high, decision.word, needs)


def sentence(look: Look, rule: Rule, number: int) -> str:
    """The line of a look."""
    where = f"{look.decision}: {look.proposal} against {look.baseline} on {rule.measure}"
    end = f"look {number} of {rule.looks}"
    if math.isnan(look.low):
        return f"{where}, {signed(look.delta, DIGITS)}; {look.needs}; {end}"
    level = f"{100 * (1 - rule.level):.6g}%"
    interval = f"{level} interval {range_text(look.low, look.high, DIGITS)}"
    asked = f"no worse by more than {rule.margin:g}" if rule.no_worse else ""
    return "; ".join(
        filter(
            None, (f"{where}, {signed(look.delta, DIGITS)} ({interval})", asked, look.needs, end)
        )
    )


def _needs(analysis: Analysis, pair: CellComparison, rule: Rule) -> str:
    """What would decide, if the difference is as it was measured."""
    if pair.fewest_seeds < LEAST_SEEDS:
        return (
            f"{LEAST_SEEDS} training runs of each system are needed (a system without training is "
            "named by --deterministic)"
        )
    distance = max(pair.delta - rule.kept_above, rule.discarded_below - pair.delta)
    if distance <= 0:
        return "the difference lies on the margin, where no number decides"
    assert pair.test is not None
    matrix = analysis.cell_scores.tested[pair.measure]
    seeds, queries = min(pair.num_seeds_system, pair.num_seeds_baseline), len(matrix.query_ids)
    what = "clusters of queries" if num_clusters(matrix) else "queries"
    needed = _needed(pair.test, rule, distance, runs=False)
    more = [_more(needed * queries, queries, what)]
    if not math.isinf(pair.fewest_seeds):
        needed = _needed(pair.test, rule, distance, runs=True)
        more.append(_more(needed * seeds, seeds, "seeds per system"))
    found = " or ".join(filter(None, more))
    return f"{found} would probably decide" if found else "more seeds and more queries are needed"


def _needed(test: ScopeTest, rule: Rule, distance: float, *, runs: bool) -> float:
    """The multiple of its runs, or of its queries, with which a look would probably decide at this
    distance; infinite where a hundred times as many are not enough."""

    def decides(log: float) -> bool:
        more = {"runs" if runs else "queries": 2**log}
        parts = parts_of(test, **more)
        spread = float(stats.norm.ppf(POWER)) * math.sqrt(sum(V for V, _ in parts))
        return half_width(parts, rule.level) + spread <= distance

    low, high = 0.0, _MOST
    if not decides(high):
        return math.inf
    while high - low > _FINE:
        middle = (low + high) / 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return float(2**high)


def _more(needed: float, have: int, what: str) -> str:
    """The further seeds or queries, to two digits; "" where no number is enough."""
    if math.isinf(needed):
        return ""
    more = max(1, math.ceil(needed) - have)
    step = 10 ** max(0, len(str(more)) - 2)
    return f"about {math.ceil(more / step) * step:,} more {what}"
