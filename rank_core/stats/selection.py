"""The gain of a chosen system, without the luck of its choice.

The highest of many means is too high: its runs were lucky. Dev and test are different queries, but
the runs are the same ones, so the gain on test has the luck of the runs too. Each run is therefore
left out of the choice in turn, and the gain of the system that the others choose is measured on the
run that was left out. It is an estimate of what choosing among these systems gains with one run
fewer, for the reference as for the chosen one.
"""

from collections.abc import Mapping, Sequence

import numpy as np


def gain_after_choice(
    dev: Mapping[str, Sequence[float]], test: Mapping[str, Sequence[float]], *, reference: str
) -> float | None:
    """The gain over `reference` of the system with the highest mean on dev, each run left out of
    the choice in turn; None where a system that is trained has one run.

    `dev` and `test` are {system: the mean of each of its runs}, in the same order; a system with
    one value is not trained. Of equal means the first one of `dev` is chosen. Systems with more
    runs than others leave out several at once. `reference` may be one of `dev`.

    Examples:
        >>> from rank_core.stats.selection import gain_after_choice
        >>> dev = {"BM25": [0.30], "A": [0.40, 0.30], "B": [0.34, 0.35]}
        >>> test = {"BM25": [0.30], "A": [0.42, 0.31], "B": [0.33, 0.36]}
        >>> round(gain_after_choice(dev, test, reference="BM25"), 3)
        0.02
    """
    folds = min((len(values) for values in dev.values() if len(values) > 1), default=0)
    if folds < 2:
        return None
    names = [*dev]
    gains = []
    for fold in range(folds):
        means = [_mean(dev[name], fold, folds, left_out=False) for name in names]
        chosen = names[int(np.argmax(means))]
        gains.append(
            _mean(test[chosen], fold, folds, left_out=True)
            - _mean(test[reference], fold, folds, left_out=True)
        )
    return float(np.mean(gains))


def _mean(values: Sequence[float], fold: int, folds: int, *, left_out: bool) -> float:
    """The mean of the runs of a fold, or of the others; of all where a system has one."""
    selected = [v for at, v in enumerate(values) if ((at % folds) == fold) == left_out]
    return float(np.mean(selected if len(values) > 1 else values))
