"""What the search of a sweep decided on dev: the standings, and who left before the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.report.load import Sweep
from sweeps.report.sections.halving import halving_caption, halving_rows, halving_sentence

_NAMED = 4
"""How many that left a sentence names before it says how many more there are."""


def left_after(sweep: Sweep) -> Mapping[str, int]:
    """{cell that left a race, or that halving stopped: whole seeds that it had by then}; empty for
    any other search."""
    return {
        one["cell"]: int(one["left_after"])
        for one in sweep.search.get("standings", ())
        if one["left_after"] is not None
    }


def fate_word(sweep: Sweep) -> str:
    """What a table says of those in `left_after`."""
    return "stopped" if sweep.search.get("name") == "halving" else "left"


def search_sentences(sweep: Sweep) -> list[str]:
    """What the search did, and what that means for the table; none for the whole grid."""
    search = sweep.search
    if search.get("name") == "race":
        return [_race(sweep)]
    if search.get("name") == "halving":
        return [halving_sentence(sweep)]
    if search.get("name") in ("tpe", "gp"):
        chosen = f"{search['proposed']} of at most {search['num_configs']}"
        space = f" from {search['space']} points" if search["space"] else ""
        return [
            f"The configurations were proposed one after the other by {search['name']}{space} "
            f"({chosen}, search seed {search['seed']}), by the mean over seeds on dev of the "
            "earlier ones: the best of them is a choice, which --confirm retrains with fresh seeds."
        ]
    return []


def _race(sweep: Sweep) -> str:
    search, left = sweep.search, left_after(sweep)
    racing, trials = len(search["standings"]), search["whole_grid"]
    run = search["launched_by_design"]
    state = "" if search["over"] else " The race is not over."
    if not left:
        return (
            f"Race on dev: none of {racing} configurations has left after {search['num_complete']} "
            f"of {search['num_seeds']} seeds ({run} of {trials} trials).{state}"
        )
    named = [f"{sweep.label(cell)} (after {seeds})" for cell, seeds in left.items()]
    if len(named) > _NAMED:
        named = [*named[:_NAMED], f"{len(named) - _NAMED} more"]
    lost = sum(one["left_after"] is not None and "p" not in one for one in search["standings"])
    because = f", {lost} of them because a trial failed or diverged" if lost else ""
    return (
        f"Race on dev: {len(left)} of {racing} configurations left before they had all "
        f"{search['num_seeds']} seeds{because}, which took {run} of {trials} trials "
        f"({run / trials:.0%}): {', '.join(named)}.{state} They are compared with nothing: who "
        "left was decided on dev, and the tests are of what has all seeds. The runs of who stayed "
        "were chosen with their luck; --confirm retrains the winner on dev with fresh seeds."
    )


@dataclass(frozen=True)
class Standings:
    """A table: place, system, mean on dev, evidence, what became of it."""

    title: str
    evidence: str  # heading of the column that says how much there was to judge by
    rows: list[tuple[str, ...]]
    caption: str


def standings(sweep: Sweep) -> Standings | None:
    """The table of a race or of halving; None for any other search."""
    search = sweep.search
    if search.get("name") == "halving":
        return Standings(
            "Successive halving on dev",
            "epochs judged",
            halving_rows(sweep),
            halving_caption(sweep),
        )
    if search.get("name") != "race":
        return None
    by = f" by more than {search['delta']}" if search["delta"] else ""
    caption = (
        "After each seed from the second on, a configuration leaves once all "
        f"{search['num_seeds']} seeds of all configurations could hardly still name it the best on "
        f"dev{by}. The levels of the looks are such that, all looks together, the winner of the "
        f"whole grid leaves in at most {search['alpha']} of cases (of runs that scatter alike). "
        "The baseline runs along, unjudged. Who stayed has run all seeds since."
    )
    return Standings("The race on dev", "seeds judged", standing_rows(sweep), caption)


def standing_rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """The race in its order: configuration, seeds, mean on dev when last judged, what became of
    it; empty for any other search."""
    lines: list[tuple[str, ...]] = []
    for place, one in enumerate(sweep.search.get("standings", ()), start=1):
        mean = "—" if one["dev_mean"] is None else f"{one['dev_mean']:.4f}"
        lines.append(
            (str(place), sweep.label(one["cell"]), mean, str(one["num_seeds"]), _fate(one))
        )
    return lines


def _fate(one: Mapping[str, Any]) -> str:
    if one["left_after"] is None:
        return "stayed"
    if "p" not in one:
        return str(one["reason"])
    return f"left: {one['reason']} (p {_p(one['p'])} < {_p(one['level'])})"


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.01 else f"{value:.3f}"
