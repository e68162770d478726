"""The systems that cannot be told from the highest mean, and those shown to be near it."""

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit

LINK = "the-set-of-the-best"


def rows(analysis: Analysis) -> list[Finding]:
    """The set, the systems within the margin, and those of too few runs to be judged."""
    sweep, found = analysis.sweep, analysis.best_set
    if found is None:
        return []
    sets = {
        "not distinguishable from the highest mean": found.judged,
        f"within {sweep.tests.margin:g} of the best, whichever that is": found.within(
            sweep.tests.margin
        ),
        "too few runs to be judged": (*found.two_runs, *found.untested),
    }
    return [
        Finding(
            "best",
            name,
            value=len(systems),
            unit=Unit.COUNT,
            names=tuple(map(sweep.label, systems)),
            link=LINK,
        )
        for name, systems in sets.items()
        if systems
    ]
