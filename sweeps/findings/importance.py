"""How much each setting of a search mattered for the measure on dev."""

import math

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit

LINK = "importance-of-settings"


def rows(analysis: Analysis) -> list[Finding]:
    """The share of each setting by the means over seeds, with the least and the most over single
    seeds; none of a search that proposed no configurations, or few."""
    found = []
    for line in analysis.sweep.about.search.get("importance", ()):
        setting, shares = str(line["setting"]), [float(share) for share in line["by_seed"]]
        low, high = (min(shares), max(shares)) if len(shares) > 1 else (math.nan, math.nan)
        name = "importance for dev (PED-ANOVA), range over seeds"
        share = float(line["share"])
        found.append(
            Finding("importance", name, setting, share, low, high, unit=Unit.NUMBER, link=LINK)
        )
    return found
