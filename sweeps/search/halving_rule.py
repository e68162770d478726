"""Successive halving in a fixed order: who goes on from a rung, whoever ends first.

Li et al. 2020 (ASHA) let a configuration go on as soon as it is among the best 1/eta of those that
have ended by chance before. Here the n-th decision waits for the configurations that come first in
an order drawn beforehand, and for no others: hardly anybody waits, and slots, nodes and kills have
no say. No decision waits for a whole rung but the last, so a rung's best always goes on.
"""

from collections.abc import Sequence

LOST = float("-inf")
"""The value of a configuration that ended without one: it never goes on."""
NOBODY = -1


def rung_epochs(full: int, num_configs: int, *, eta: int, fewest: int) -> tuple[int, ...]:
    """Epochs of the rungs, the last of which is `full`: each has an eta-th of the next one's, as
    long as that is `fewest` or more and there are configurations to choose from; the first of two
    may have `fewest` instead."""
    rungs = [full]
    while num_configs >= eta ** len(rungs):
        epochs = rungs[0] // eta
        if epochs < fewest and len(rungs) == 1:
            epochs = fewest
        if not fewest <= epochs < rungs[0]:
            break
        rungs.insert(0, epochs)
    return tuple(rungs)


def rung_sizes(num_configs: int, num_rungs: int, *, eta: int) -> tuple[int, ...]:
    """How many configurations come to each rung."""
    return tuple(num_configs // eta**number for number in range(num_rungs))


def going_on(values: Sequence[float | None], *, eta: int) -> list[int]:
    """The positions that go on, in the order of the decisions, as far as they are made.

    `values` are what a rung's configurations have reached, in their order; None: not known yet.
    The n-th of all len // eta decisions is made once all but the last eta x (those still to come)
    are known; it is the best that has not gone on before, the earlier one on a tie, or `NOBODY`.
    """
    decisions = len(values) // eta
    chosen: list[int] = []
    for number in range(1, decisions + 1):
        known = values[: len(values) - eta * (decisions - number)]
        if any(value is None for value in known):
            break
        rest = [
            (value, -position)
            for position, value in enumerate(known)
            if value is not None and value > LOST and position not in chosen
        ]
        chosen.append(-max(rest)[1] if rest else NOBODY)
    return chosen
