"""How often a loop of proposals that change nothing accepts one of them.

    python -m tests.benchmarks.gate_loops [--loops 500] [--only SECTION] [--seed 1] [--json FILE]

Every proposal of a loop has the same true mean as the baseline: a taste of its own on each query,
and runs that scatter as those of the baseline do, less, or more. Three rules look at each: the gate
of `ranksweep compare --gate --looks N`, which is the shipped interval and
`sweeps.report.gate.Rule`; the greedy rule, which takes any higher mean; and "two standard
deviations" of the baseline's runs above its mean. A loop counts for a rule once it has accepted
anything. `power` has one proposal that is better. Where runs collapse no rule over a few of them
holds: these rows are for reading.
"""

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from rank_core.arrays import Floats
from rank_core.stats.compare import scope_test_of
from rank_core.stats.looks import interval_of_look
from rank_core.stats.matrix import ScoreMatrix
from sweeps.report.gate import GateDecision, Rule
from tests.benchmarks.bars import Bar, Draw, Section, simulate

ALPHA, QUERIES = 0.05, 100
TASTE, RESIDUAL = 0.06, 0.05
LOOKS = (10, 50, 200)


class Side(NamedTuple):
    """The runs of a system, and the standard deviation between them; one run: not trained."""

    runs: int
    deviation: float
    collapses: bool = False  # one run in ten falls by it, and the others are as much better


class Loops(NamedTuple):
    """What the proposals of a loop are compared with."""

    baseline: Side
    proposals: Side
    queries: int = QUERIES


KINDS = {
    "3 seeds, SD .01": Loops(Side(3, 0.01), Side(3, 0.01)),
    "5 seeds, SD .01": Loops(Side(5, 0.01), Side(5, 0.01)),
    "5 seeds, SD .03, 43 queries": Loops(Side(5, 0.03), Side(5, 0.03), 43),
    "no training": Loops(Side(1, 0.0), Side(1, 0.0)),
    "deterministic, 3 seeds of SD .02": Loops(Side(1, 0.0), Side(3, 0.02)),
    "deterministic, 5 seeds of SD .02": Loops(Side(1, 0.0), Side(5, 0.02)),
    "3 seeds, SD .003 and .03": Loops(Side(3, 0.003), Side(3, 0.03)),
    "5 seeds, SD .003 and .03": Loops(Side(5, 0.003), Side(5, 0.03)),
    "3 seeds, SD .005 and .02": Loops(Side(3, 0.005), Side(3, 0.02)),
    "3 seeds, SD .03 and .003": Loops(Side(3, 0.03), Side(3, 0.003)),
    "10 seeds of SD .003, 3 of .03": Loops(Side(10, 0.003), Side(3, 0.03)),
    "deterministic, 3 seeds, 1 in 10 loses .1": Loops(Side(1, 0.0), Side(3, 0.1, collapses=True)),
    "deterministic, 5 seeds, 1 in 10 loses .1": Loops(Side(1, 0.0), Side(5, 0.1, collapses=True)),
}
"""{name: baseline, proposals and queries}."""
RULES = ("gate", "greedy", "two SD")


def _drawn(rng: np.random.Generator, side: Side, queries: int, number: int) -> Floats:
    """The values of systems less what all of them share, (number, runs, queries)."""
    taste = rng.normal(0, TASTE, (number, 1, queries))
    shape = (number, side.runs, 1)
    if side.runs == 1:
        return taste
    run = rng.normal(0, side.deviation, shape)
    if side.collapses:
        run = side.deviation * (0.1 - (rng.random(shape) < 0.1))
    return np.asarray(taste + run + rng.normal(0, RESIDUAL, (number, side.runs, queries)))


def accepted(loops: Loops, looks: int, *, rng: np.random.Generator, gain: float = 0) -> set[str]:
    """The rules that accept a proposal of one loop; with a gain those that accept the last one,
    which has it."""
    rule = Rule("nDCG@10", ALPHA, looks, margin=0.01, no_worse=False)
    [base_SQ] = _drawn(rng, loops.baseline, loops.queries, 1)
    new_LSQ = _drawn(rng, loops.proposals, loops.queries, looks) if not gain else gain + _drawn(
        rng, loops.proposals, loops.queries, 1
    )  # fmt: skip
    gain_L = new_LSQ.mean(axis=(1, 2)) - base_SQ.mean()
    found = {"greedy"} if (gain_L > 0).any() else set[str]()
    if loops.baseline.runs > 1 and gain_L.max() > 2 * base_SQ.mean(axis=1).std(ddof=1):
        found.add("two SD")
    # No interval is shorter than that of known variances, of which that of the queries is one.
    se_L = (new_LSQ.mean(axis=1) - base_SQ.mean(axis=0)).std(axis=1, ddof=1) / loops.queries**0.5
    near = np.flatnonzero(gain_L > stats.norm.isf(rule.level / 2) * se_L)
    if any(_keeps(base_SQ, new_LSQ[at], rule) for at in near):
        found.add("gate")
    return found


def _keeps(base_SQ: Floats, new_SQ: Floats, rule: Rule) -> bool:
    """The gate's decision, by the test that compares two systems."""
    scores = {"baseline": base_SQ, "proposal": new_SQ}
    seeds = {name: tuple(range(len(own))) for name, own in scores.items()}
    ids = tuple(map(str, range(base_SQ.shape[1])))
    matrix = ScoreMatrix(rule.measure, tuple(scores), ids, seeds, scores)
    fixed = [name for name, own in scores.items() if len(own) == 1]
    test = scope_test_of(matrix, ("proposal", "baseline"), paired_seeds=False, deterministic=fixed)
    return rule.decide(*interval_of_look(test, rule.level)) is GateDecision.KEEP


def _section(rng: np.random.Generator, num: int) -> Section:
    """The share of loops in which each rule accepts a proposal."""
    rows, bars, error = [], [], 2 * math.sqrt(ALPHA * (1 - ALPHA) / num)
    for kind, loops in KINDS.items():
        for looks in LOOKS:
            found = [accepted(loops, looks, rng=rng) for _ in range(num)]
            shares = [sum(rule in one for one in found) / num for rule in RULES]
            # One run has nothing to deviate from.
            trained = loops.baseline.runs > 1
            rows.append((kind, looks, *shares[:2], shares[2] if trained else "-"))
            if not loops.proposals.collapses:
                law = f"{kind}, {looks} looks: at most {ALPHA} of the loops (known to {error:.4f})"
                bars.append(Bar(law, f"{shares[0]:.4f}", shares[0] <= ALPHA + error))
    return Section("Loops of equal proposals", ("loops of", "looks", *RULES), rows, bars)


GAIN = 0.05


def _power(rng: np.random.Generator, num: int) -> Section:
    """The share of proposals with a true gain that the gate keeps at one look of so many."""
    rows = []
    for runs in (3, 5, 10, 20):
        kept = []
        for base in (Side(1, 0.0), Side(runs, 0.01)):
            loops = Loops(base, Side(runs, 0.01))
            for looks in LOOKS:
                found = [accepted(loops, looks, rng=rng, gain=GAIN) for _ in range(num)]
                kept.append(sum("gate" in one for one in found) / num)
        rows.append((runs, *kept))
    sides = [f"{base}, {looks} looks" for base in ("deterministic", "trained") for looks in LOOKS]
    title = f"Kept with a true gain of {GAIN}, SD .01, {QUERIES} queries"
    return Section(title, ("runs", *sides), rows, [])


SECTIONS: dict[str, Draw] = {"loops": _section, "power": _power}


def main(argv: Sequence[str]) -> int:
    """Run the loops and print them; 1 if a bar fails."""
    return simulate(
        argv,
        SECTIONS,
        title="Loops of proposals that change nothing",
        option="loops",
        default=500,
        unit="loops of each kind",
        rate=ALPHA,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
