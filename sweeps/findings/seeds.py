"""How much training runs differ."""

import math

from rank_core.stats.variance import homogeneity, sweep_components
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit

LINK = "how-reliable-is-this"


def rows(analysis: Analysis) -> list[Finding]:
    """The standard deviation of seeds without the noise of queries, and whether systems differ in
    it; empty where one seed estimates nothing."""
    sweep = analysis.sweep
    matrix = None if sweep.means else analysis.cell_scores.tested.get(sweep.primary)
    cells = [cell for cell in matrix.cells if len(matrix.seeds[cell]) > 1] if matrix else []
    if matrix is None or not cells or all(math.isnan(c.se_both) for c in analysis.primary):
        return []
    seeded = matrix.only(cells)
    anchor = sweep.baseline if sweep.baseline in cells else cells[0]
    seed = sweep_components(seeded, baseline=anchor).seed
    name = "standard deviation of seeds, without the noise of queries"
    found = [Finding("seeds", name, "all systems", seed.sd, seed.low, seed.high,
                     unit=Unit.SCORE, link=LINK)]  # fmt: skip
    if len(cells) > 1 and not math.isnan(p := homogeneity(seeded)):
        name = "systems differ in it (Bartlett)"
        found.append(Finding("seeds", name, "all systems", p=p, link=LINK))
    if analysis.paired:
        found.append(Finding("seeds", "runs are paired by seed", names=("yes",), link=LINK))
    elif sweep.tests.paired_seeds:
        names = ("compared as unpaired",)
        found.append(Finding("seeds", "paired seeds that differ", names=names, link=LINK))
    return found
