"""Trials that failed, diverged, collapsed or are missing."""

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit
from sweeps.systems.summary import lost_seeds

LINK = "what-the-table-shows"


def rows(analysis: Analysis) -> list[Finding]:
    """The trials with scores, then those of each other status with their systems and seeds; a third
    party's are unknown."""
    sweep = analysis.sweep
    if sweep.third_party:
        return []
    used = sum(row.num_used for row in analysis.cells)
    found = [Finding("losses", "trials with scores", value=used, unit=Unit.COUNT, link=LINK)]
    for words, lost in lost_seeds(analysis.cells).items():
        names = tuple(f"{label} ({', '.join(map(str, seeds))})" for label, seeds in lost.items())
        count = sum(map(len, lost.values()))
        found.append(Finding("losses", f"trials {words}", value=count, unit=Unit.COUNT,
                             names=names, link=LINK))  # fmt: skip
    if sweep.about.stopped:
        found.append(Finding("losses", "ended early", names=(sweep.about.stopped,), link=LINK))
    return found
