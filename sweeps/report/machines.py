"""The warning of a report whose comparisons are also comparisons of machines."""

from sweeps.findings.analysis import Analysis
from sweeps.systems.machines import UnlikeSides, Values, unlike_sides
from sweeps.terminal.text import numbered

WORDS = {
    "device": "devices",
    "precision": "precisions",
    "torch": "builds of torch",
    "workers": "numbers of workers",
}


def unlike_rows(analysis: Analysis) -> list[UnlikeSides]:
    """The comparisons of the report whose two sides ran on unlike machines."""
    sweep = analysis.sweep
    pairs = [(pair.system, pair.baseline) for pair in analysis.primary]
    return unlike_sides(sweep.machines, pairs, sweep.cells, paired=analysis.paired)


def machines_sentence(analysis: Analysis) -> str:
    """What a reader must know of them before the numbers; "" where all sides are alike."""
    rows = unlike_rows(analysis)
    if not rows:
        return ""
    facts = [word for fact, word in WORDS.items() if any(row.fact == fact for row in rows)]
    count = numbered(len({(row.system, row.baseline) for row in rows}), "comparison")
    first, label = rows[0], analysis.sweep.label
    seeds = f"{first.seeds} of {numbered(first.of_seeds, 'seed')}"
    return (
        f"Unlike machines: in {count} the two sides ran on different {' and '.join(facts)}, which "
        f"may be the difference that is seen: {label(first.system)} on "
        f"{_names(first.of_system)}, {label(first.baseline)} on "
        f"{_names(first.of_baseline)}, in {seeds}."
    )


def _names(values: Values) -> str:
    """Machines in words, by their names or by the numbers of their workers."""
    return " and ".join(numbered(one, "worker") if isinstance(one, int) else one for one in values)
