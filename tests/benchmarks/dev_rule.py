"""What it would save to stop the scoring of dev for a checkpoint that cannot become the best.

    python -m tests.benchmarks.dev_rule [--sweeps 200] [--seed 1] [--json FILE]

A trial scores dev at each validation and keeps the best checkpoint, the earlier one on ties. Here
it reads the queries in a random order, of equal cost, a twentieth at a time, and may stop after
each block. What is kept has to be scored whole, because its values are reported. Curves are drawn
(`curve`). The rules:

`bound`: even value 1 for all queries that are left would not make it the best. It is exact.

`paired 1%`, `paired 5%`: the best so far leads by more than z standard errors of the paired
difference, about the difference over all of dev (finite-population correction). z is Bonferroni's
over all looks of the trial, so that its best checkpoint is stopped with at most this probability
where differences are normal.

`raced 1%`: all checkpoints are kept and compared after training, block by block, by the same test
with the leader. It never scores a checkpoint whole only because it was the best for a while.

`quarter`: the first quarter of dev chooses, and the choice is scored whole.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy import stats

from rank_core.arrays import Floats
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.simulated_sweeps import DL, MSM, R04, Kind

BLOCKS = 20
CELLS, SEEDS = 6, 3
SAME = 0.99
"""The share of trials in which a rule is to choose the same checkpoint."""
Rule = Callable[[Floats], tuple[int, float]]
"""The values of a trial's checkpoints, (V, Q) -> the chosen one, and the share of V x Q scored."""


def _ends(Q: int) -> list[int]:
    """The numbers of queries after each block."""
    return sorted({round(Q * (b + 1) / BLOCKS) for b in range(BLOCKS)} - {0})


def bound(value_VQ: Floats) -> tuple[int, float]:
    """Stops a checkpoint that value 1 for all remaining queries would not make the best."""
    Q = value_VQ.shape[1]
    ends = np.array(_ends(Q))

    def stop(own_Q: Floats, best_Q: Floats) -> int:
        most_E = own_Q.cumsum()[ends - 1] + (Q - ends)
        return _first(most_E <= best_Q.sum(), ends)

    return _in_turn(value_VQ, stop)


def paired(value_VQ: Floats, alpha: float) -> tuple[int, float]:
    """Stops a checkpoint that is credibly below the best so far."""
    V, Q = value_VQ.shape
    ends = np.array(_ends(Q))
    z = float(stats.norm.isf(alpha / (len(ends) * max(1, V - 1))))

    def stop(own_Q: Floats, best_Q: Floats) -> int:
        return _first(_leads(best_Q - own_Q, ends, z), ends)

    return _in_turn(value_VQ, stop)


def _leads(difference_Q: Floats, ends: np.ndarray, z: float) -> np.ndarray:
    """Whether the mean of the first queries is above z standard errors, for each of `ends`."""
    Q = len(difference_Q)
    mean_E = difference_Q.cumsum()[ends - 1] / ends
    square_E = (difference_Q**2).cumsum()[ends - 1] / ends
    variance_E = np.maximum(square_E - mean_E**2, 0) * ends / np.maximum(ends - 1, 1)
    se_E = np.sqrt(variance_E * (1 / ends - 1 / Q))
    found: np.ndarray = (mean_E > z * se_E) & (variance_E > 0) & (ends > 1)
    return found


def _first(stops_E: np.ndarray, ends: np.ndarray) -> int:
    """The queries that are scored until the first stop."""
    return int(ends[stops_E.argmax()] if stops_E.any() else ends[-1])


def _in_turn(value_VQ: Floats, stop: Callable[[Floats, Floats], int]) -> tuple[int, float]:
    """Checkpoints as they come; those that are not stopped are compared over all queries."""
    (V, Q), best, scored = value_VQ.shape, 0, value_VQ.shape[1]
    for v in range(1, V):
        until = stop(value_VQ[v], value_VQ[best])
        scored += until
        if until == Q and value_VQ[v].mean() > value_VQ[best].mean():
            best = v
    return best, scored / (V * Q)


def raced(value_VQ: Floats, alpha: float) -> tuple[int, float]:
    """All checkpoints after training, block by block, against the leader of the scored queries."""
    V, Q = value_VQ.shape
    ends = _ends(Q)
    z = float(stats.norm.isf(alpha / (len(ends) * max(1, V - 1))))
    live, scored, before = [*range(V)], 0, 0
    for end in ends:
        scored += len(live) * (end - before)
        before = end
        if len(live) == 1:
            continue  # the winner's values are reported, so it is scored whole
        leader = live[int(value_VQ[live, :end].mean(axis=1).argmax())]
        at = np.array([end])
        live = [
            v for v in live if v == leader or not _leads(value_VQ[leader] - value_VQ[v], at, z)[0]
        ]
    return live[int(value_VQ[live].mean(axis=1).argmax())], scored / (V * Q)


def quarter(value_VQ: Floats) -> tuple[int, float]:
    """The checkpoint that is the best on a quarter."""
    V, Q = value_VQ.shape
    first = max(1, Q // 4)
    chosen = int(value_VQ[:, :first].mean(axis=1).argmax())
    return chosen, (V * first + Q - first) / (V * Q)


RULES: dict[str, Rule] = {
    "bound": bound,
    "paired 1%": partial(paired, alpha=0.01),
    "paired 5%": partial(paired, alpha=0.05),
    "raced 1%": partial(raced, alpha=0.01),
    "quarter": quarter,
}


def replayed(sweeps: Sequence[Floats], rng: np.random.Generator) -> list[tuple[str | float, ...]]:
    """A row for each rule over sweeps of values (K, S, V, Q): the share scored, of trials with the
    same checkpoint, of sweeps with the same cell of the highest mean, and what the checkpoints
    lose on dev."""
    outcomes: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in RULES}
    for value_KSVQ in sweeps:
        K, S, V, Q = value_KSVQ.shape
        shuffled = value_KSVQ[..., rng.permutation(Q)].reshape(K * S, V, Q)
        mean_TV = shuffled.mean(axis=2)
        whole_T = mean_TV.argmax(axis=1)
        for name, rule in RULES.items():
            found = [rule(trial) for trial in shuffled]
            chosen_T = np.array([v for v, _ in found])
            kept_T, best_T = (np.take_along_axis(mean_TV, t[:, None], 1)[:, 0]
                              for t in (chosen_T, whole_T))  # fmt: skip
            cells = [own.reshape(K, S).mean(axis=1).argmax() for own in (kept_T, best_T)]
            outcomes[name].append(
                (
                    float(np.mean([share for _, share in found])),
                    float((chosen_T == whole_T).mean()),
                    float(cells[0] == cells[1]),
                    float((best_T - kept_T).mean()),
                )
            )
    return [(name, *np.mean(own, axis=0).tolist()) for name, own in outcomes.items()]


COLUMNS = ("rule", "scored", "same checkpoint", "same cell", "lost on dev")


def _bars(rows: Sequence[tuple[str | float, ...]], name: str) -> list[Bar]:
    """Whether the rules err as rarely as they say."""
    same = {str(row[0]): float(row[2]) for row in rows}
    bars = [
        Bar(f"{name}: `bound` chooses as all of dev", f"{same['bound']:.4f}", same["bound"] == 1)
    ]
    for rule, least in (("paired 1%", 0.99), ("paired 5%", 0.95)):
        law = f"{name}: `{rule}` chooses as all of dev in at least {least}"
        bars.append(Bar(law, f"{same[rule]:.4f}", same[rule] >= least))
    return bars


def curve(kind: Kind, rng: np.random.Generator, V: int) -> Floats:
    """Values (K, S, V, Q) between 0 and 1: a rising curve that levels off, what a query is worth,
    what it is worth to a cell, and a deviation that half outlives a validation."""
    K, S, Q = CELLS, SEEDS, kind.num_queries
    level_V = 0.15 * (1 - np.exp(-np.arange(1, V + 1) / (V / 5)))
    value_Q = rng.beta(1.2, 1.8, Q) * 0.85
    cell_KQ = rng.normal(0, kind.query, (K, Q)) + rng.normal(0, 0.01, (K, 1))
    run_KSV = rng.normal(0, 0.005, (K, S, V))
    residual = np.empty((K, S, V, Q))
    last = rng.normal(0, kind.residual, (K, S, Q))
    for v in range(V):
        residual[:, :, v] = last
        last = 0.5 * last + rng.normal(0, kind.residual * np.sqrt(0.75), last.shape)
    value = value_Q + cell_KQ[:, None, None] + (level_V + run_KSV)[..., None] + residual
    return np.clip(value, 0.0, 1.0)


def simulated(rng: np.random.Generator, num: int) -> Section:
    """Six cells of three seeds, in the three calibrated kinds of dev."""
    rows, bars = [], []
    for kind in (R04, DL, MSM):
        for V in (5, 12, 36):
            number = max(1, num * 249 // kind.num_queries // 4) if kind is MSM else num
            sweeps = (curve(kind, rng, V) for _ in range(number))
            own = replayed([*sweeps], rng)
            rows += [(kind.name, V, *row) for row in own]
            bars += _bars(own, f"{kind.name}, {V} validations")
    return Section(
        f"Simulated: {CELLS} cells x {SEEDS} seeds", ("dev", "validations", *COLUMNS), rows, bars
    )


SECTIONS: dict[str, Draw] = {"simulated": simulated}


def main(argv: Sequence[str]) -> int:
    """Print the tables; 1 if a rule errs more often than it says."""
    return simulate(
        argv, SECTIONS, title="Stopping dev early", option="sweeps", default=200, unit="sweeps",
        rate=SAME,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
