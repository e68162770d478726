"""The one rule for "the best on dev": the highest mean over seeds, eliminated cells out, the plan's
first among equals. Report, confirmation, export and kept weights choose by it."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from sweeps.store.sweep_file import SweepFile

if TYPE_CHECKING:  # it brings in pandas, and `status` needs none
    from sweeps.systems.load import Sweep


def ranked(
    means: Mapping[str, float], cells: Iterable[str], eliminated: Collection[str] = ()
) -> list[str]:
    """The `cells` of a plan, in its order, that have a mean and were not eliminated; the best
    first."""
    known = [cell for cell in cells if cell in means and cell not in eliminated]
    return sorted(known, key=lambda cell: -means[cell])  # stable: equals keep the plan's order


def best_on_dev(sweep: "Sweep", among: Collection[str] | None = None) -> str:
    """The best cell of a sweep, or of some of its cells; "" where none has a mean on dev and was
    not eliminated."""
    cells = [cell.cell for cell in sweep.cells if among is None or cell.cell in among]
    return next(iter(ranked(dev_means(sweep), cells, left_after(sweep))), "")


def dev_means(sweep: "Sweep") -> dict[str, float]:
    """{cell: mean of the primary measure on dev, over seeds}; empty where nothing is known."""
    if sweep.dev_scores.empty:
        return {}
    means = sweep.dev_scores.groupby(["cell", "seed"], observed=True)["value"].mean()
    return {str(k): float(v) for k, v in means.groupby("cell", observed=True).mean().items()}


def left_after(sweep: "Sweep") -> Mapping[str, int]:
    """{eliminated cell: its finished seeds by then}; empty without a race or ASHA."""
    return eliminated_in(sweep.about)


def eliminated_in(about: SweepFile) -> Mapping[str, int]:
    """The same of a sweep's description, which names them while the search runs."""
    return {
        line["cell"]: int(line["left_after"])
        for line in about.search.get("standings", ())
        if line["left_after"] is not None
    }
