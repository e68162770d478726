"""What the headline of a report is worth: the choice, its gain, its interval, and several looks.

    python -m tests.benchmarks.choice [--sweeps 1000] [--only SECTION] [--seed 1] [--json FILE]

`gain`: the gain of the chosen system on test, as it is and with each run left out of the choice in
turn. `regret`: what the choice gives away. `headline`: how often the simultaneous interval of the
chosen system has its true gain, in all sweeps and where it is said to be better. `looks`: how often
a sweep that gets more seeds after its results were seen has a false letter at some look, with the
level of each look and without. `gate`: loops of proposals (`tests.benchmarks.gate_loops`).
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np

from rank_core.arrays import Floats
from rank_core.stats import multiplicity, scopes
from rank_core.stats.looks import level_of_look
from rank_core.stats.moderation import LEAST_POOL
from rank_core.stats.multiplicity import effective_number
from rank_core.stats.selection import gain_after_choice
from tests.benchmarks import gate_loops
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.clustered import _tables
from tests.benchmarks.error_rates import ALPHA, DRAWS, Pairs, _pair_tests, first_step
from tests.benchmarks.simulated_sweeps import Tables

TASTE, RESIDUAL = 0.06, 0.06
DEV = 100
"""Queries on dev."""
GAINS: dict[str, tuple[float, float]] = {
    "all .01": (0.01, 0.01),
    "all .02": (0.02, 0.02),
    "all .03": (0.03, 0.03),
    "all .05": (0.05, 0.05),
    "0 to .04": (0.0, 0.04),
}
"""{name: the smallest and the largest true gain over the first stage}."""


def _means(
    rng: np.random.Generator, num: int, gain_K: Floats, S: int, sd: float, Q: int
) -> tuple[Floats, Floats]:
    """The means of runs on dev and on test, (num, K, S), and of the first stage first, which has no
    runs: all its values are one."""
    K = len(gain_K)
    trained = np.arange(K + 1)[:, None] > 0
    run_NKS = sd * rng.normal(size=(num, K + 1, S)) * trained + np.array([0.0, *gain_K])[:, None]
    dev, test = (
        run_NKS
        + TASTE / math.sqrt(queries) * rng.normal(size=(num, K + 1, 1))
        + RESIDUAL / math.sqrt(queries) * rng.normal(size=(num, K + 1, S)) * trained
        for queries in (DEV, Q)
    )
    return dev, test


def _of_runs(mean_KS: Floats) -> dict[str, Sequence[float]]:
    """The runs of each system as the library reads them; the first stage has one value."""
    return {str(k): own[:1] if k == 0 else own for k, own in enumerate(mean_KS.tolist())}


def gain(rng: np.random.Generator, num: int) -> Section:
    """Bias and error of the gain of the chosen system, as it is and after allowing for the
    choice."""
    rows, worst, lost = [], 0.0, 0.0
    cells = product((5, 12, 30), (3, 5), (0.01, 0.03), ("all .02", "0 to .04"))
    for K, S, sd, name in cells:
        gain_K = np.linspace(*GAINS[name], K)
        dev, test = _means(rng, num, gain_K, S, sd, DEV)
        chosen_N = dev.mean(axis=2).argmax(axis=1)
        true_N = np.array([0.0, *gain_K])[chosen_N]
        mean_NK = test.mean(axis=2)
        plain_N = mean_NK[np.arange(num), chosen_N] - mean_NK[:, 0]
        after_N = np.array(
            [
                gain_after_choice(_of_runs(d), _of_runs(t), reference="0")
                for d, t in zip(dev, test, strict=True)
            ],
            dtype=np.float64,
        )
        error = [one - true_N for one in (plain_N, after_N)]
        bias = [float(one.mean()) for one in error]
        rmse = [float(np.sqrt((one**2).mean())) for one in error]
        rows.append((K, S, sd, name, *bias, *rmse))
        worst, lost = max(worst, abs(bias[1])), max(lost, rmse[1] / rmse[0] - 1)
    noise = 3 * 0.02 / math.sqrt(num)
    text = f"the bias is at most .002 (known to {noise:.4f})"
    bars = [Bar(text, f"{worst:.4f}", worst <= 0.002 + noise)]
    bars.append(Bar("the error is at most a fifth larger", f"{lost:.4f}", lost <= 0.2))
    columns = ("systems", "S", "SD", "true gains", "bias, as it is", "after the choice")
    columns += ("error, as it is", "after the choice")
    return Section("The gain of the chosen system", columns, rows, bars)


def regret(rng: np.random.Generator, num: int) -> Section:
    """Five systems with true gains from .05 to .09, each dearer than the one before: what the
    chosen one is below the best."""
    gain_K, rows = np.linspace(0.05, 0.09, 5), []
    for S, Q in ((3, 50), (3, 100), (3, 250), (3, 1000), (5, 100)):
        with patch(f"{__name__}.DEV", Q):
            dev, _ = _means(rng, num, gain_K, S, 0.01, Q)
        true_N = np.array([0.0, *gain_K])[dev.mean(axis=2).argmax(axis=1)]
        rows.append((S, Q, float(gain_K.max() - true_N.mean()), float((true_N == 0.09).mean())))
    worst = max(row[2] for row in rows)
    bar = Bar("the choice gives away at most .006", f"{worst:.4f}", worst <= 0.006)
    columns = ("S", "queries on dev", "regret", "the best is chosen")
    return Section("The regret of the highest mean on dev", columns, rows, [bar])


BATCH = 100


def headline(rng: np.random.Generator, num: int) -> Section:
    """The simultaneous interval of the chosen system's gain over the first stage."""
    rows, bars, noise = [], [], 3 * math.sqrt(0.05 * 0.95 / num)
    for (K, S, Q), name in product(((4, 3, 100), (12, 3, 100), (12, 5, 150)), GAINS):
        sd = 0.02 if name == "0 to .04" else 0.01
        gain_K = np.linspace(*GAINS[name], K)
        found = [
            _headlines(rng, min(BATCH, num - at), gain_K, S, sd, Q) for at in range(0, num, BATCH)
        ]
        covered_N, better_N, over_N = np.concatenate(found, axis=1)
        better = better_N > 0
        rate = float(covered_N.mean())
        given = float(covered_N[better].mean()) if better.any() else math.nan
        over = float(over_N[better].mean()) if better.any() else math.nan
        rows.append((name, K, S, Q, float(better.mean()), rate, given, over))
        law = f"gains {name}, {K} systems, {S} seeds: at least .93 (known to {noise:.4f})"
        bars.append(Bar(law, f"{rate:.4f}", rate >= 0.93 - noise))
    columns = ("true gains", "K", "S", "Q", "said to be better", "covered", "where said to be")
    columns += ("too high where said to be",)
    return Section("The interval of the headline, which is always printed", columns, rows, bars)


def _headlines(
    rng: np.random.Generator, num: int, gain_K: Floats, S: int, sd: float, Q: int
) -> Floats:
    """(3, num): whether the interval of the chosen system has its true gain, whether it is said to
    be better, and how much its gain is above the true one."""
    K = len(gain_K)
    truth_K = np.array([0.0, *gain_K])
    taste_NKQ = TASTE * rng.normal(size=(num, K + 1, 1, Q))
    run_NKS = sd * rng.normal(size=(num, K + 1, S, 1))
    score_NKSQ = taste_NKQ + run_NKS + RESIDUAL * rng.normal(size=(num, K + 1, S, Q))
    score_NKSQ[:, 0] = taste_NKQ[:, 0]
    tables = _deterministic(_tables(score_NKSQ))
    dev_NK = truth_K + (run_NKS[..., 0] * (np.arange(K + 1) > 0)[:, None]).mean(axis=2)
    dev_NK += (
        math.hypot(TASTE, RESIDUAL / math.sqrt(S)) / math.sqrt(DEV) * rng.normal(size=(num, K + 1))
    )
    chosen_N = np.maximum(dev_NK[:, 1:].argmax(axis=1), 0)
    at = np.arange(num), chosen_N
    covered_N = _corrected(_pair_tests(tables, 0), at) >= ALPHA
    better = _pair_tests(replace(tables, mean_NK=tables.mean_NK + truth_K), 0)
    said_N = (_corrected(better, at) < ALPHA) & better.better[at]
    over_N = (tables.mean_NK[:, 1:] - tables.mean_NK[:, :1])[at]
    return np.array([covered_N, said_N, over_N], dtype=np.float64)


def _corrected(found: Pairs, at: tuple[Floats, Floats]) -> Floats:
    """The first step of the corrected p of one comparison of each table, whose own number of
    comparisons counts: below alpha where 0 is outside its simultaneous interval."""
    own_N, moderated_N = found.own[at], found.moderated[at]
    p_N = np.where(found.decides, moderated_N, np.fmax(own_N, moderated_N))
    number_N = effective_number(p_N, found.correlation, num_draws=DRAWS)
    return np.fmax(number_N * p_N, own_N)


def _deterministic(tables: Tables) -> Tables:
    """The tables with a first system that is not trained."""
    seeds_K = np.array([math.inf, *tables.seeds_K[1:]])
    parts = {}
    for name in ("variance_seeds_NK", "variance_error_NK"):
        parts[name] = getattr(tables, name) * (np.arange(len(seeds_K)) > 0)
    return replace(tables, seeds_K=seeds_K, **parts)


SCHEDULES = {"3, 5, 10": (3, 5, 10), "3, 4, ..., 10": tuple(range(3, 11))}


def looks(rng: np.random.Generator, num: int) -> Section:
    """Equal systems that get more seeds look after look."""
    rows, bars, noise = [], [], 3 * math.sqrt(0.06 * 0.94 / num)
    for K, trained, (name, schedule) in product((1, 4), (True, False), SCHEDULES.items()):
        wrong = np.concatenate(
            [
                _false_letters(rng, min(BATCH, num - at), K, schedule, trained=trained)
                for at in range(0, num, BATCH)
            ],
            axis=1,
        )
        each, at_levels = (float(one) for one in wrong.mean(axis=1))
        baseline = "trained" if trained else "first stage"
        rows.append((K, baseline, name, each, at_levels))
        law = f"{K} comparisons with a {baseline}, {name} seeds: at most .06 (known to {noise:.4f})"
        bars.append(Bar(law, f"{at_levels:.4f}", at_levels <= 0.06 + noise))
    columns = ("K", "baseline", "looks at seeds", "each at .05", "with the level of each look")
    return Section("Sweeps that get more seeds after a look", columns, rows, bars)


def _false_letters(
    rng: np.random.Generator, num: int, K: int, schedule: Sequence[int], *, trained: bool
) -> Floats:
    """(2, num): a false letter at some look, each at alpha and with the level of each."""
    S, Q = max(schedule), DEV
    taste_NKQ = TASTE * rng.normal(size=(num, K + 1, 1, Q))
    score_NKSQ = taste_NKQ + 0.01 * rng.normal(size=(num, K + 1, S, 1))
    score_NKSQ += RESIDUAL * rng.normal(size=(num, K + 1, S, Q))
    if not trained:
        score_NKSQ[:, 0] = taste_NKQ[:, 0]
    wrong = np.zeros((2, num), dtype=bool)
    for number, seeds in enumerate(schedule, start=1):
        tables = _tables(score_NKSQ[:, :, :seeds])
        tables = tables if trained else _deterministic(tables)
        pooled = int(np.isfinite(tables.seeds_K).sum()) >= LEAST_POOL
        p_N = first_step(_pair_tests(tables, 0), pooled=pooled).min(axis=1)
        wrong |= np.array([p_N < ALPHA, p_N < level_of_look(ALPHA, number)])
    return wrong.astype(np.float64)


SECTIONS: dict[str, Draw] = {
    "gain": gain, "regret": regret, "headline": headline, "looks": looks,
    "gate": gate_loops.SECTIONS["loops"],
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    # p to 1e-6 and few draws are enough for a rate.
    with patch.object(scopes, "HALVINGS", 25), patch.object(multiplicity, "NUM_DRAWS", 2048):
        return simulate(
            argv,
            SECTIONS,
            title="The choice of a sweep and its headline",
            option="sweeps",
            default=1000,
            unit="simulated sweeps per cell",
            rate=ALPHA,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
