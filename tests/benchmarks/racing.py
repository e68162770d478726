"""Whether a race names the winner of the whole grid, at what share of its cost.

    python -m tests.benchmarks.racing [--races 5000] [--seed 1] [--only SECTION] [--json FILE]

18 configurations, some of them better by a planted amount, are raced by the shipped rule
(`rank_core.stats.racing`) and run as a whole grid on the same seeds and the
same dev queries. Every bar is printed with `ok` or `FAIL`; the exit code is 1 if one fails.

A race sees nothing but run means, so only those are drawn: mean of the configuration on all
queries + its luck with the dev queries + run, all normal (the kinds of collection and their
deviations are those of `error_rates`). The section `indifference` races the same grids with a
difference that does not matter.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rank_core.arrays import Floats
from rank_core.stats.racing import FIRST_ANALYSIS, NUM_RACES, Bools, interim_analysis, level_of
from sweeps.search.race import EQUAL
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.simulated_sweeps import DL, MSM, R04, Kind

ALPHA, CONFIGURATIONS, SEEDS, SEED_SD = 0.05, 18, 10, 0.005
SAME, COST, LOST = 0.95, 0.40, 0.05
DELTA = 0.002
"""Less than the standard error of a difference of two configurations over 10 seeds."""
_FALLS = "alike, .005; 1 in 20 runs of the best falls by .1"
UNEQUAL_GRIDS = ((6, 5), (18, 10), (12, 20))
TIED_GRIDS = ((2, 10), (18, 10), (48, 5))
BEHIND = (0.5, 1, 2, 3, 5)
Row = tuple[str | int | float, ...]

PLANTED = {R04: 0.02, DL: 0.02, MSM: 0.01}
"""What a better configuration is better by: the differences of the power tables."""


@dataclass(frozen=True)
class Grids:
    """B grids: the run means, the expected dev values, and which configurations are better."""

    run_BKS: Floats
    dev_BK: Floats
    better_K: Bools


@dataclass(frozen=True)
class Outcome:
    """Rates and means over races of the same kind; costs are shares of the whole grid."""

    same: float
    within: float  # no more than the indifference behind the grid's winner, on the whole grid
    cost: float
    lost_better: float


def drawn(
    kind: Kind,
    rng: np.random.Generator,
    *,
    num: int,
    better: int = 0,
    K: int = CONFIGURATIONS,
    S: int = SEEDS,
    seed_sd: float = SEED_SD,
) -> Grids:
    """Grids in which the last `better` configurations are better by the planted amount."""
    Q = kind.num_queries
    better_K = np.arange(K) >= K - better
    dev_BK = PLANTED[kind] * better_K + rng.normal(0, kind.query / math.sqrt(Q), (num, K))
    run = math.hypot(seed_sd, kind.residual / math.sqrt(Q))
    return Grids(dev_BK[:, :, None] + rng.normal(0, run, (num, K, S)), dev_BK, better_K)


def raced(run_BKS: Floats, *, delta: float = 0.0) -> tuple[Bools, Floats]:
    """Who is live at the end of each race, (B, K), and the trials it took, (B,)."""
    B, K, S = run_BKS.shape
    live_BK, trials_B = np.ones((B, K), dtype=np.bool_), np.zeros(B)
    for s in range(1, S + 1):
        running_B = (live_BK.sum(axis=1) > 1) | (s <= FIRST_ANALYSIS)
        trials_B += np.where(running_B, live_BK.sum(axis=1), 0)
        if FIRST_ANALYSIS <= s < S and running_B.any():
            analysis = interim_analysis(
                run_BKS[running_B, :, :s], live_BK[running_B], num_seeds=S, delta=delta
            )
            counts, at_B = np.unique(live_BK[running_B].sum(axis=1), return_inverse=True)
            levels = np.array([level_of(K, int(live), S, s, alpha=ALPHA) for live in counts])
            live_BK[running_B] &= ~(analysis.p_BK < levels[at_B][:, None])
    return live_BK, trials_B


def outcome(grids: Grids, *, delta: float = 0.0) -> Outcome:
    """Race the grids and compare with running them whole."""
    live_BK, trials_B = raced(grids.run_BKS, delta=delta)
    (B, K, S), mean_BK = grids.run_BKS.shape, grids.run_BKS.mean(axis=2)
    winner_B = np.where(live_BK, mean_BK, -np.inf).argmax(axis=1)
    behind_B = mean_BK.max(axis=1) - mean_BK[np.arange(B), winner_B]
    better_K = grids.better_K if grids.better_K.any() else np.ones(K, dtype=np.bool_)
    return Outcome(
        same=float((winner_B == mean_BK.argmax(axis=1)).mean()),
        within=float((behind_B <= delta).mean()),
        cost=float(trials_B.mean() / (K * S)),
        lost_better=float((~live_BK[:, better_K].any(axis=1)).mean()),
    )


SHOWN = ("same winner", "within delta", "cost", "all better lost")


def _planted(
    rng: np.random.Generator, num: int, delta: float = 0.0
) -> tuple[list[Row], dict[str, list[Outcome]]]:
    """(rows, outcomes by kind) of grids with one to ten better ones of 18."""
    outcomes = {
        kind.name: [outcome(drawn(kind, rng, num=num, better=n), delta=delta) for n in range(1, 11)]
        for kind in PLANTED
    }
    rows = [
        (name, n, *vars(one).values())
        for name, own in outcomes.items()
        for n, one in enumerate(own, start=1)
    ]
    return rows, outcomes


def calibrated(rng: np.random.Generator, num: int) -> Section:
    """One to ten better ones of 18, in the three calibrated kinds."""
    rows, outcomes = _planted(rng, num)
    bars: list[Bar] = []
    for name, own in outcomes.items():
        bars += [_same(own, num, name=name), *_cheap_and_kept(own, name=f"{name}: ")]
    title = f"18 configurations, 1 to 10 of them better (10 seeds, seed SD {SEED_SD:g})"
    return Section(title, ("data", "better", *SHOWN), rows, bars)


def indifference(rng: np.random.Generator, num: int) -> Section:
    """The same grids where a winner within DELTA of the grid's is as good."""
    rows, by_kind = _planted(rng, num, DELTA)
    outcomes = [one for own in by_kind.values() for one in own]
    law = f"every scenario: within {DELTA:g} of the grid's winner"
    bars = [_known(law, [one.within for one in outcomes], num), *_cheap_and_kept(outcomes)]
    title = f"The same, where a difference of {DELTA:g} does not matter"
    return Section(title, ("data", "better", *SHOWN), rows, bars)


def budgets(rng: np.random.Generator, num: int) -> Section:
    """Grids of other sizes: what a race saves depends on the number of its interim analyses, and
    two seeds are the first."""
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    for K, S in ((12, 5), (18, 5), (18, 10), (18, 20)):
        for kind in PLANTED:
            for n in (1, 10):
                grids = drawn(kind, rng, num=num, better=n, K=K, S=S)
                found = outcome(grids)
                outcomes.append(found)
                rows.append((f"{K} x {S}", kind.name, n, found.same, found.cost))
    return Section(
        "Configurations x seeds of the whole grid",
        ("grid", "data", "better", "same winner", "cost"),
        rows,
        [_same(outcomes, num)],
    )


def ties(rng: np.random.Generator, num: int) -> Section:
    """Equal configurations, every winner chance, and the rest worse by a number of deviations of a
    run: the truths that lose the grid's winner most often."""
    rows: list[Row] = []
    rates: list[float] = []
    for K, S in TIED_GRIDS:
        luck_BKS = rng.normal(0, 1, (num, K, S))
        for equal in (*(n for n in (2, 3, 4, 6) if n < K), K):
            for behind in BEHIND if equal < K else (0,):
                dev_K = -behind * (np.arange(K) >= equal).astype(np.float64)
                dev_BK = np.broadcast_to(dev_K, (num, K))
                found = outcome(Grids(luck_BKS + dev_K[None, :, None], dev_BK, dev_K == 0))
                rates.append(found.same)
                rows.append((f"{K} x {S}", equal, behind, found.same, found.cost))
    noise = 3 * math.sqrt(ALPHA * (1 - ALPHA) * (1 / num + 1 / NUM_RACES))
    return Section(
        "Equal configurations, the others worse",
        ("grid", "equal", "others worse by (SDs of a run)", "same winner", "cost"),
        rows,
        [
            Bar(
                f"same winner at least {1 - ALPHA:g}, less {noise:.4f}, three standard errors",
                f"{min(rates):.4f} to {max(rates):.4f}",
                min(rates) >= 1 - ALPHA - noise,
            )
        ],
    )


def unequal(rng: np.random.Generator, num: int) -> Section:
    """Runs whose deviations differ between configurations, or that collapse: what the rule does not
    assume. The means of the configurations fall in steps of .01."""
    rows: list[Row] = []
    for K, S in UNEQUAL_GRIDS:
        fall_K = -0.01 * np.arange(K)
        first_K = np.arange(K) == 0
        for name, sd_K in {
            "alike, .005": np.full(K, 0.005),
            ".003 and .02 in turn": np.where(np.arange(K) % 2, 0.02, 0.003),
            ".02 (best) to .002 (worst)": np.linspace(0.02, 0.002, K),
            "best .03, others .005": np.where(first_K, 0.03, 0.005),
            _FALLS: np.full(K, 0.005),
        }.items():
            run_BKS = fall_K[:, None] + sd_K[:, None] * rng.normal(0, 1, (num, K, S))
            if name == _FALLS:
                run_BKS[:, 0] -= 0.1 * (rng.random((num, S)) < 0.05)
            dev_BK = np.broadcast_to(fall_K, (num, K))
            found = outcome(Grids(run_BKS, dev_BK, first_K))
            mean_BK, live_BK = run_BKS.mean(axis=2), raced(run_BKS)[0]
            chosen = np.where(live_BK, mean_BK, -np.inf).max(axis=1)
            loss = float((mean_BK.max(axis=1) - chosen).mean())
            rows.append((f"{K} x {S}", name, found.same, found.cost, loss))
    title = "Runs that do not vary alike (no bar: the level is that of runs of equal variance)"
    return Section(title, ("grid", "runs", "same winner", "cost", "mean loss on dev"), rows, [])


def prices(rng: np.random.Generator, num: int) -> Section:
    """What a plan says of a race: the least it takes, and the mean of equal configurations."""
    rows: list[Row] = []
    beyond: list[float] = []
    for K, S in ((4, 5), (6, 5), (18, 5), (18, 10), (38, 5)):
        least = (2 * K + S - FIRST_ANALYSIS) / (K * S)
        costs = []
        for spread in (0.0, 0.5, 1.0, 2.0):  # of the configurations, in SDs of a run
            mean_BK1 = rng.normal(0, spread, (num, K, 1))
            _, trials_B = raced(mean_BK1 + rng.normal(0, 1, (num, K, S)))
            costs.append(float(trials_B.mean()) / (K * S))
        beyond.append((costs[0] - least) / (1 - least))
        rows.append((f"{K} x {S}", least, *costs))
    return Section(
        "The mean share of a grid's trials, by the SD of its configurations in SDs of a run",
        ("grid", "least", "0", ".5", "1", "2"),
        rows,
        [
            Bar(
                f"equal configurations take at most {EQUAL:.2f} of what is beyond the least",
                f"{min(beyond):.3f} to {max(beyond):.3f}",
                max(beyond) <= EQUAL,
            )
        ],
    )


SECTIONS: dict[str, Draw] = {
    "calibrated": calibrated,
    "indifference": indifference,
    "budgets": budgets,
    "ties": ties,
    "unequal": unequal,
    "prices": prices,
}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    return simulate(
        argv,
        SECTIONS,
        title="Races against whole grids",
        option="races",
        default=5000,
        unit="races per scenario",
        rate=SAME,
    )


def _same(outcomes: Sequence[Outcome], num: int, *, name: str = "every scenario") -> Bar:
    return _known(f"{name}: same winner", [one.same for one in outcomes], num)


def _known(name: str, rates: Sequence[float], num: int) -> Bar:
    """The mean over scenarios keeps the bar, and none is below it by more than its own error."""
    error = 3 * math.sqrt(SAME * (1 - SAME) / num)
    mean, lowest = float(np.mean(rates)), min(rates)
    return Bar(
        f"{name} at least {SAME} (a single rate is known to {error:.4f})",
        f"mean {mean:.4f}, lowest {lowest:.4f}",
        mean >= SAME and lowest >= SAME - error,
    )


def _cheap_and_kept(outcomes: Sequence[Outcome], *, name: str = "") -> list[Bar]:
    """The highest cost, and how often all better configurations were sent home."""
    costs = [one.cost for one in outcomes]
    lost = max(one.lost_better for one in outcomes)
    return [
        Bar(
            f"{name}cost in every scenario at most {COST:.2f}",
            f"mean {np.mean(costs):.4f}, highest {max(costs):.4f}; "
            f"{sum(cost <= COST for cost in costs)} of {len(costs)} scenarios",
            max(costs) <= COST,
        ),
        Bar(f"{name}all better ones lost at most {LOST}", f"{lost:.4f}", lost <= LOST),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
