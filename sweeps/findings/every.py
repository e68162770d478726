"""All findings of an analysis, question by question."""

from collections.abc import Callable, Sequence

from sweeps.findings import (
    best,
    choice,
    clusters,
    cost,
    effect,
    front,
    importance,
    interactions,
    lists,
    looks,
    losses,
    power,
    seeds,
    unjudged,
)
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding
from sweeps.systems.access_log import Access

QUESTIONS: tuple[Callable[[Analysis], list[Finding]], ...] = (
    effect.rows,
    choice.rows,
    best.rows,
    front.rows,
    importance.rows,
    interactions.rows,
    seeds.rows,
    lists.rows,
    power.rows,
    unjudged.rows,
    clusters.rows,
    losses.rows,
    cost.rows,
)
COSTS = ("cost", "front")
"""The questions whose rows stand under a heading of their own."""


def findings(analysis: Analysis, accesses: Sequence[Access] = ()) -> list[Finding]:
    """The rows of all questions; `accesses` are the looks at the test values."""
    return [
        *(row for question in QUESTIONS for row in question(analysis)),
        *looks.rows(analysis, accesses),
    ]
