"""A search of several objectives and the labels of its front.

    python -m tests.benchmarks.objectives [--sweeps 500] [--only SECTION] [--seed 1] [--json FILE]

`labels`: how often some system of a front is labelled significantly dominated where no system that
costs no more is truly better, and how often one is labelled that truly is dominated. `hypervolume`:
the true hypervolume of what `tpe` and `random` have run after equally many trials, over a surface
with a known front (ZDT1, Zitzler et al. 2000) and runs that scatter; a twentieth as many searches.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from unittest.mock import patch

import numpy as np
from scipy import stats

from rank_core.arrays import Floats
from rank_core.stats import multiplicity, scopes
from rank_core.stats.matrix import ScoreMatrix
from sweeps.findings.dominance import points_of
from sweeps.plan.search_options import AT_ONCE, SearchOutcome
from sweeps.plan.search_space import Range, Space
from sweeps.search.study import Proposal, Seen, propose
from tests.benchmarks.bars import Bar, Draw, Section, simulate

ALPHA = 0.05
TASTE, RESIDUAL, SEED_SD = 0.06, 0.06, 0.01
QUERIES, SEEDS = 50, 3
SHAPES: dict[str, tuple[float, float]] = {"equal": (0.0, 0.0), "rising": (0.0, 0.04)}
"""{name: the true mean of the cheapest and the dearest system}: none is dominated."""
DOMINATED = 0.06  # what the dearest one lacks, for power
CONFIGS, SETTINGS, NOISE = 40, 4, 0.02


def labels(rng: np.random.Generator, num: int) -> Section:
    """The labels of fronts without a dominated system, and of one with one."""
    rows, bars = [], []
    noise = 2 * float(np.sqrt(ALPHA * (1 - ALPHA) / num))
    for K, (shape, (low, high)) in product((4, 8), SHAPES.items()):
        mean_K = np.linspace(low, high, K)
        wrong = np.mean([any(_labelled(rng, mean_K)) for _ in range(num)])
        mean_K[-1] = mean_K[:-1].max() - DOMINATED
        right = np.mean([_labelled(rng, mean_K)[-1] for _ in range(num)])
        rows.append((K, shape, float(wrong), float(right)))
        law = f"{K} {shape} systems: a wrong label in at most .05 (known to {noise / 2:.4f})"
        bars.append(Bar(law, f"{wrong:.4f}", bool(wrong <= ALPHA + noise)))
    columns = ("K", "true means", "a wrong label", f"the one {DOMINATED:g} below is labelled")
    return Section(f"Labels of fronts, {SEEDS} seeds, {QUERIES} queries", columns, rows, bars)


def _labelled(rng: np.random.Generator, mean_K: Floats) -> list[bool]:
    """Whether each system is labelled, the cheapest first."""
    names = tuple(f"s{at}" for at in range(len(mean_K)))
    scores = {
        name: mean
        + TASTE * rng.normal(size=QUERIES)
        + SEED_SD * rng.normal(size=(SEEDS, 1))
        + RESIDUAL * rng.normal(size=(SEEDS, QUERIES))
        for name, mean in zip(names, mean_K, strict=True)
    }
    queries = tuple(f"q{at}" for at in range(QUERIES))
    matrix = ScoreMatrix("m", names, queries, dict.fromkeys(names, (1, 2, 3)), scores)
    costs = {name: {"tokens": float(at)} for at, name in enumerate(names)}
    points = points_of(matrix, costs, alpha=ALPHA, correction="max-t")
    return [point.dominated is not None for point in points]


def hypervolume(rng: np.random.Generator, num: int) -> Section:
    """What `tpe` gains over `random` at equal trials."""
    searches, marks = max(2, num // 20), (10, 20, CONFIGS)
    found = {name: np.zeros((searches, len(marks))) for name in ("random", "tpe")}
    for at in range(searches):
        seed = int(rng.integers(2**31))
        for name in found:
            points = np.array([*_searched(name, seed, rng)])
            found[name][at] = [_volume(points[:number]) for number in marks]
    rows = []
    for place, number in enumerate(marks):
        gain = found["tpe"][:, place] - found["random"][:, place]
        half = stats.t.ppf(0.975, searches - 1) * gain.std(ddof=1) / np.sqrt(searches)
        means = [float(found[name][:, place].mean()) for name in ("random", "tpe")]
        rows.append((number, *means, float(gain.mean()), float(gain.mean() - half)))
    columns = ("configurations", "random", "tpe", "gain", "lower limit (95%)")
    law = f"tpe has more hypervolume than random after {CONFIGS} configurations"
    bars = [Bar(law, f"{rows[-1][3]:.4f}", rows[-1][3] > 0)]
    return Section(f"Hypervolume of {searches} searches, {SEEDS} seeds", columns, rows, bars)


def _searched(name: str, seed: int, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """The true (quality, cost) of each configuration that a search runs. As in a sweep the model
    does not see the last ones, and what it sees are means over seeds."""
    ranges = {f"x{at}": Range(0.0, 1.0, log=False, whole=False) for at in range(SETTINGS)}
    space, seen = Space(({},), ranges), list[Seen]()
    drawn = space.drawn(seed)
    for number in range(CONFIGS):
        if name == "random":
            proposal = Proposal(next(drawn), {})
        else:
            known = number - AT_ONCE + 1
            earlier: list[Seen] = [(p, o, at < known) for at, (p, o, _) in enumerate(seen)]
            proposal = next(propose(name, space, earlier, seed=seed + number, num_objectives=2))
        x = [float(proposal.values[own]) for own in ranges]
        g = 1 + 9 * float(np.mean(x[1:]))
        quality, cost = -(g * (1 - np.sqrt(x[0] / g))) / 10, x[0]
        measured = quality + NOISE * float(rng.normal(size=SEEDS).mean())
        seen.append((proposal, SearchOutcome((measured, cost)), True))
        yield quality, cost


def _volume(points: Floats) -> float:
    """The area of (quality, cost) that the points dominate, within a quality above -1 and a cost
    below 1."""
    area, best = 0.0, -1.0
    for quality, cost in sorted(map(tuple, points), key=lambda point: point[1]):
        area += max(0.0, quality - best) * (1 - cost)
        best = max(best, quality)
    return area


SECTIONS: dict[str, Draw] = {"labels": labels, "hypervolume": hypervolume}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    with patch.object(scopes, "HALVINGS", 25), patch.object(multiplicity, "NUM_DRAWS", 2048):
        return simulate(
            argv,
            SECTIONS,
            title="Several objectives",
            option="sweeps",
            default=500,
            unit="simulated sweeps per cell",
            rate=ALPHA,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
