"""The gain of the choice after allowing for the choice: what remains of it where the queries or the
seeds that chose do not measure, too."""

import math
from collections.abc import Collection, Iterable

from rank_core.seeding import generator
from rank_core.stats.bootstrap import selected_gain
from rank_core.stats.compare import CellComparison
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.selection import gain_after_choice
from sweeps.systems.choice import Choice, dev_by_seed, weights_of_costs
from sweeps.systems.load import Sweep
from sweeps.systems.system import System


def allowed_gain(
    sweep: Sweep,
    choice: Choice,
    test: CellComparison,
    rows: Iterable[System],
    matrix: ScoreMatrix,
    fixed: Collection[str],
) -> float:
    """The gain over the reference with each seed left out of the choice in turn: the gain of the
    system that the others chose, on the seed left out; systems that a search eliminated with two
    runs or more are candidates, too. `test` is that of the choice, `matrix` has the values that it
    read, and `fixed` names those rows of it with a single possible run. NaN below two seeds, and
    where an earlier sweep has chosen."""
    if sweep.about.confirms or sweep.about.chosen:
        return math.nan
    if choice.on_reported:
        return _of_reported(sweep, choice, test, matrix, fixed)
    by_name, weighed = {row.name: row for row in rows}, weights_of_costs(sweep)
    dev, test_means = dev_by_seed(sweep), dict[str, list[float]]()
    dev_means = dict[str, list[float]]()
    # What a search eliminated lost by the same runs.
    candidates = dict.fromkeys([*choice.order, *sweep.about.eliminated])
    for name in [*candidates, *[test.baseline] * (test.baseline not in candidates)]:
        row, own = by_name.get(name), dev.get(name, {})
        if row is None or (len(own) == 1 and not _is_fixed(row)):
            continue
        on_test = row.seed_means[sweep.primary]
        seeds = [seed for seed in sorted(own) if seed in on_test] or sorted(on_test)
        test_means[name] = [on_test[seed] for seed in seeds]
        if name in candidates:
            cost = weighed.get(name, 0.0)
            dev_means[name] = [own[seed] - cost for seed in seeds if seed in own]
    gain = gain_after_choice(dev_means, test_means, reference=test.baseline)
    return math.nan if gain is None else gain


def _of_reported(
    sweep: Sweep, choice: Choice, test: CellComparison, matrix: ScoreMatrix, fixed: Collection[str]
) -> float:
    """The same where the reported queries chose: by the bootstrap, which leaves queries out, too.
    NaN for a mean over collections."""
    names = [name for name in choice.order if name in matrix.cells and name != test.baseline]
    fixed = [name for name in fixed if name in matrix.cells]
    single = [name for name in names if len(matrix.scores[name]) < 2 and name not in fixed]
    if len(names) < 2 or single or test.measure in sweep.means or sweep.about.cost_weights:
        return math.nan
    return selected_gain(
        matrix.only((test.baseline, *names)),
        baseline=test.baseline,
        rng=generator(1, "selected gain"),
        deterministic=fixed,
    ).corrected


def _is_fixed(row: System) -> bool:
    return row.deterministic or not row.num_launched
