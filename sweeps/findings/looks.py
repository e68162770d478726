"""How often the test values were looked at, by how many comparisons, and what a search left out."""

from collections.abc import Sequence

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit
from sweeps.systems.access_log import Access

LINK = "which-test-to-report"


def rows(analysis: Analysis, accesses: Sequence[Access] = ()) -> list[Finding]:
    """The correction, the looks with their seeds, and the configurations of a search."""
    sweep, found = analysis.sweep, list[Finding]()
    if test := analysis.chosen:
        base = sweep.label(test.baseline)
        found.append(Finding("looks", f"comparisons with {base}", value=test.family_size,
                             unit=Unit.COUNT, names=(test.correction,), link=LINK))  # fmt: skip
        if analysis.num_families > 1:
            name = "families that share alpha"
            found.append(Finding("looks", name, value=analysis.num_families,
                                 unit=Unit.COUNT, link=LINK))  # fmt: skip
    looks = len({access.hash for access in accesses})
    if looks:
        counts = ", ".join(str(len(access.seeds)) for access in accesses)
        found.append(Finding("looks", f"looks at {sweep.split} values", value=looks,
                             unit=Unit.COUNT, names=(f"{counts} seeds",) * analysis.has_seeds,
                             link=LINK))  # fmt: skip
    if sweep.look > 1:
        name = f"level of look {sweep.look}, after fewer seeds"
        found.append(Finding("looks", name, value=sweep.tests.alpha, unit=Unit.NUMBER,
                             link="looks-at-a-sweep"))  # fmt: skip
    search = sweep.about.search
    if standings := search.get("standings"):
        name = f"configurations of the {search['name']}"
        found.append(Finding("looks", name, value=len(standings), unit=Unit.COUNT, link=LINK))
        out = tuple(map(sweep.label, sweep.about.eliminated))
        name = "left out before all their seeds"
        found.append(Finding("looks", name, value=len(out), unit=Unit.COUNT, names=out, link=LINK))
    elif "proposed" in search:
        name = f"configurations proposed by {search['name']}"
        found.append(Finding("looks", name, value=search["proposed"], unit=Unit.COUNT, link=LINK))
    return found
