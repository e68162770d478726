"""The largest familywise error of a table with few runs: the least favourable deviations that a
search found (`python -m tests.benchmarks.least_favourable`), rounded up.
"""

import math
from collections.abc import Sequence

from rank_core.stats.compare import CellComparison

Bounds = dict[int, tuple[float, ...]]
"""{fewest runs: the error of up to 4, 8, 17 and 40 comparisons}."""

SIZES = (4, 8, 17, 40)
DIFFERENT: Bounds = {
    3: (0.08, 0.09, 0.11, 0.15),
    4: (0.06, 0.07, 0.07, 0.09),
    5: (0.06, 0.06, 0.07, 0.08),
}
"""Normal runs whose variances differ, the same number of all systems."""
FEWER: Bounds = {3: (0.09, 0.09, 0.12, 0.15), 5: (0.07, 0.07, 0.07, 0.09)}
"""The same where some systems have ten runs."""
BIMODAL: Bounds = {
    3: (0.06, 0.1, 0.14, 0.26),
    4: (0.06, 0.06, 0.06, 0.09),
    5: (0.06, 0.06, 0.06, 0.06),
}
"""Runs of all systems of which some collapse, as often in each system."""
ENOUGH = 0.06
"""A bound up to this is the level that the tests are said to have."""


def error_bounds(pairs: Sequence[CellComparison], num_families: int = 1) -> tuple[float, float]:
    """(The largest familywise error where seed variances differ, where runs are bimodal alike) of
    comparisons with moderated tests. Of more comparisons than were simulated it is that of the
    most."""
    trained = {S for c in pairs for S in (c.num_seeds_system, c.num_seeds_baseline) if S > 1}
    size = max(pair.family_size for pair in pairs) / num_families
    place = next((i for i, most in enumerate(SIZES) if size <= most), len(SIZES) - 1)

    def bound(of: Bounds) -> float:
        # More runs err less, so the bound of fewer ones holds.
        return of[max(S for S in of if S <= max(min(trained), min(of)))][place]

    differ = bound(DIFFERENT)
    return max(differ, bound(FEWER)) if len(trained) > 1 else differ, bound(BIMODAL)


def error_sentence(pairs: Sequence[CellComparison], num_families: int = 1) -> str:
    """The bounds in words; "" where they are those of the level that is said."""
    differ, bimodal = error_bounds(pairs, num_families)
    numbers = [S for c in pairs for S in (c.num_seeds_system, c.num_seeds_baseline) if S > 1]
    least, most = min(numbers, default=math.inf), max(numbers, default=math.inf)
    seeds = f"{least}" if least == most else f"{least} to {most}"
    parts = [f"{differ:.2f} where seed variances differ"] * (differ > ENOUGH)
    parts += [f"{bimodal:.2f} where some runs of every system collapse"] * (bimodal > ENOUGH)
    if not parts:
        return ""
    return (
        f"With {seeds} seeds, the familywise error is up to {', and up to '.join(parts)}; if only "
        "the runs of one side collapse, it has no bound."
    )
