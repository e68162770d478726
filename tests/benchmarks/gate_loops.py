"""How often a loop of proposals that change nothing accepts one of them.

    python -m tests.benchmarks.gate_loops [--loops 2000] [--seed 1] [--json FILE]

Every proposal of a loop is the baseline trained again: the same true value on each query, other
seeds. Three rules look at each: the gate of `ranksweep compare --gate --looks 50`, which is
the shipped test and `sweeps.report.gate.Rule`; the greedy rule, which takes any higher mean; and
"two standard deviations" of the baseline's runs above its mean. A loop counts for a rule once it
has accepted anything.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np

from rank_core.stats.compare import compare_cells
from rank_core.stats.matrix import ScoreMatrix
from sweeps.report.gate import GateDecision, Rule
from tests.benchmarks.bars import Bar, Section, simulate

ALPHA, PROPOSALS = 0.05, 50
KINDS = {
    "3 seeds, 100 queries": (3, 100, 0.01),
    "5 seeds, 100 queries": (5, 100, 0.01),
    "5 seeds, 43 queries, unstable": (5, 43, 0.03),
    "no training, 100 queries": (1, 100, 0.0),
}
"""{name: (runs of a system, queries, standard deviation of its runs)}."""
RULES = ("gate", "greedy", "two SD")


def accepted(kind: str, *, rng: np.random.Generator) -> set[str]:
    """The rules that accept a proposal of one loop."""
    runs, queries, deviation = KINDS[kind]
    rule = Rule("nDCG@10", ALPHA, PROPOSALS, margin=0.01, no_worse=False)
    truth_Q = np.clip(rng.normal(0.4, 0.3, queries), 0, 1)

    def drawn() -> np.ndarray:
        """A system's values, (runs, queries): its own taste, its runs, the rest."""
        taste_Q = rng.normal(0, 0.1, queries)
        run_S1 = rng.normal(0, deviation, (runs, 1))
        return truth_Q + taste_Q + run_S1 + rng.normal(0, 0.05, (runs, queries))

    base_SQ, found = drawn(), set[str]()
    for _ in range(PROPOSALS):
        new_SQ = drawn()
        gain = float(new_SQ.mean() - base_SQ.mean())
        if gain > 0:
            found.add("greedy")
            if runs > 1 and gain > 2 * base_SQ.mean(1).std(ddof=1):
                found.add("two SD")
        if "gate" not in found and _decision(base_SQ, new_SQ, rule) is GateDecision.KEEP:
            found.add("gate")
    return found


def _decision(base_SQ: np.ndarray, new_SQ: np.ndarray, rule: Rule) -> GateDecision:
    """The gate's decision, by the test that compares two systems."""
    runs, queries = base_SQ.shape
    seeds = tuple(range(1, runs + 1))
    names = ("baseline", "proposal")
    matrix = ScoreMatrix(
        rule.measure,
        names,
        tuple(map(str, range(queries))),
        dict.fromkeys(names, seeds),
        dict(zip(names, (base_SQ, new_SQ), strict=True)),
    )
    fixed = names if runs == 1 else ()
    [pair] = compare_cells(matrix, baseline="baseline", alpha=rule.level, deterministic=fixed)
    return rule.decide(pair.ci_low, pair.ci_high)


def _section(rng: np.random.Generator, loops: int) -> Section:
    """The share of loops in which each rule accepts a proposal."""
    rows, shares = [], []
    for kind, (runs, *_) in KINDS.items():
        found = [accepted(kind, rng=rng) for _ in range(loops)]
        of_rules = [sum(rule in one for one in found) / loops for rule in RULES]
        shares.append(of_rules[0])
        # One run has nothing to deviate from.
        rows.append((kind, *of_rules[:2], of_rules[2] if runs > 1 else "-"))
    error = 2 * math.sqrt(ALPHA * (1 - ALPHA) / loops)
    law = f"the gate accepts one in at most {ALPHA} of the loops (known to {error:.4f})"
    bar = Bar(law, f"{max(shares):.4f}", max(shares) <= ALPHA + error)
    return Section(f"Loops of {PROPOSALS} equal proposals", ("", *RULES), rows, [bar])


def main(argv: Sequence[str]) -> int:
    """Run the loops and print them; 1 if the bar fails."""
    return simulate(
        argv,
        {"loops": _section},
        title="Loops of proposals that change nothing",
        option="loops",
        default=2000,
        unit="loops of each kind",
        rate=ALPHA,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
