"""The decisions of a sweep's search on dev: the sentence of a report, and the eliminated cells."""

from collections.abc import Mapping

from sweeps.report.load import Sweep
from sweeps.report.notation import percent

_NAMED = 4
"""The number of eliminated cells that a sentence names before it counts the rest."""


def left_after(sweep: Sweep) -> Mapping[str, int]:
    """{eliminated cell: its finished seeds by then}; empty without a race or ASHA."""
    return {
        line["cell"]: int(line["left_after"])
        for line in sweep.search.get("standings", ())
        if line["left_after"] is not None
    }


def fate_word(sweep: Sweep) -> str:
    """The word of a terminal's table for a cell in `left_after`, shorter than "eliminated"."""
    return "stopped" if sweep.search.get("name") == "asha" else "out"


def search_sentence(sweep: Sweep) -> str:
    """The decisions of the search; "" for the whole grid."""
    words = WORDS.get(str(sweep.search.get("name")))
    return words(sweep) if words else ""


def _proposals(sweep: Sweep) -> str:
    search = sweep.search
    chosen = f"{search['proposed']} of at most {search['num_configs']}"
    space = f" from {search['space']} points" if search["space"] else ""
    return (
        f"The configurations were proposed sequentially by {search['name']}{space} ({chosen}, "
        f"search seed {search['seed']}), from the means over seeds on dev of the earlier ones."
    )


def _race(sweep: Sweep) -> str:
    search, eliminated = sweep.search, left_after(sweep)
    racing, trials = len(search["standings"]), search["whole_grid"]
    run = search["launched_by_design"]
    state = "" if search["over"] else " The race is not over."
    if not eliminated:
        return (
            f"Race on dev: none of {racing} configurations is eliminated after "
            f"{search['num_complete']} of {search['num_seeds']} seeds ({run} of {trials} "
            f"trials).{state}"
        )
    names = [f"{sweep.label(cell)} (after {seeds})" for cell, seeds in eliminated.items()]
    names[_NAMED:] = [f"{len(names) - _NAMED} more"] * (len(names) > _NAMED)
    lost = sum(line["left_after"] is not None and "p" not in line for line in search["standings"])
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    return (
        f"Race on dev: {len(eliminated)} of {racing} configurations were eliminated before they "
        f"had all {search['num_seeds']} seeds{because}: {', '.join(names)}. They are not tested. "
        f"The race took {run} of {trials} trials ({percent(run / trials)}).{state}"
    )


def _asha(sweep: Sweep) -> str:
    lines, stopped = sweep.search["standings"], left_after(sweep)
    lost = sum(line["reason"] == "a trial was lost" for line in lines)
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    over = "" if sweep.search["over"] else " The search is not over."
    return (
        f"ASHA on dev stopped {len(stopped)} of {len(lines)} configurations before the end of "
        f"seed {sweep.seeds[0]}{because}; they are not tested.{over} Which ones stop depends on "
        "the order of their reports: another run may stop others."
    )


WORDS = {"tpe": _proposals, "gp": _proposals, "race": _race, "asha": _asha}
"""{entry of `SEARCHES`: the sentence of its report}; the others have none."""
