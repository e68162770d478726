"""The decisions of a sweep's search on dev: the standings and the eliminated cells."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.report.load import Sweep
from sweeps.report.notation import percent
from sweeps.report.table import Table, table

_NAMED = 4
"""The number of eliminated cells that a sentence names before it counts the rest."""


@dataclass(frozen=True)
class Standings:
    """The words of the table of standings; `judged` is the field of a standing with the number of
    `unit`."""

    title: str
    unit: str
    judged: str
    fate: Callable[[Sweep, Mapping[str, Any]], str]
    caption: Callable[[Sweep], str]


@dataclass(frozen=True)
class Words:
    """The words of a report on a search; `eliminated` is the short word for what is in
    `left_after`."""

    sentence: Callable[[Sweep], str] | None = None
    standings: Standings | None = None
    eliminated: str = "out"


def _words(sweep: Sweep) -> Words:
    return WORDS.get(str(sweep.search.get("name")), Words())


def left_after(sweep: Sweep) -> Mapping[str, int]:
    """{eliminated cell: its finished seeds by then}; empty without a race or successive halving."""
    return {
        line["cell"]: int(line["left_after"])
        for line in sweep.search.get("standings", ())
        if line["left_after"] is not None
    }


def fate_word(sweep: Sweep) -> str:
    """The word of a terminal's table for a cell in `left_after`, shorter than "eliminated"."""
    return _words(sweep).eliminated


def search_sentences(sweep: Sweep) -> list[str]:
    """The decisions of the search in a sentence; "" for the whole grid."""
    sentence = _words(sweep).sentence
    return [sentence(sweep)] if sentence else []


def standings(sweep: Sweep) -> Table | None:
    """Place, system, mean on dev, evidence and fate; None without a race or halving."""
    words = _words(sweep).standings
    if not words:
        return None
    return table(
        (
            "place",
            "system",
            f"mean {sweep.primary} on dev",
            f"{words.unit} judged",
            "what became of it",
        ),
        [
            (
                str(place),
                sweep.label(line["cell"]),
                "—" if line["dev_mean"] is None else f"{line['dev_mean']:.4f}",
                str(line[words.judged]),
                words.fate(sweep, line),
            )
            for place, line in enumerate(sweep.search["standings"], start=1)
        ],
        "rlrrl",
        title=words.title,
        caption=words.caption(sweep),
    )


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
    if len(names) > _NAMED:
        names = [*names[:_NAMED], f"{len(names) - _NAMED} more"]
    lost = sum(line["left_after"] is not None and "p" not in line for line in search["standings"])
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    return (
        f"Race on dev: {len(eliminated)} of {racing} configurations were eliminated before they "
        f"had all {search['num_seeds']} seeds{because}: {', '.join(names)}. They are not tested. "
        f"The race took {run} of {trials} trials ({percent(run / trials)}).{state}"
    )


def _race_caption(sweep: Sweep) -> str:
    search = sweep.search
    by = f" by more than {search['delta']}" if search["delta"] else ""
    return (
        "The interim analysis after each seed from the second on eliminates a configuration that "
        f"is unlikely to be the best on dev{by} after all {search['num_seeds']} seeds. Over all "
        "interim analyses the winner of the whole grid is eliminated with a probability of at most "
        f"{search['alpha']} (under equal seed variance). The baseline is not judged."
    )


def _race_fate(sweep: Sweep, line: Mapping[str, Any]) -> str:
    if line["left_after"] is None:
        return "stayed"
    if "p" not in line:
        return str(line["reason"])
    return f"eliminated: {line['reason']} (p {_p(line['p'])} < {_p(line['level'])})"


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.01 else f"{value:.3f}"


def _halving(sweep: Sweep) -> str:
    """The configurations that stopped after each epoch, the cost, and the evidence."""
    search, lines = sweep.search, sweep.search["standings"]
    full, seed = search["rungs"][-1]["epochs"], sweep.seeds[0]
    stopped = Counter(line["epochs"] for line in lines if line["left_after"] is not None)
    finalists = sum(line["left_after"] is None and line["epochs"] == full for line in lines)
    lost = sum(line["reason"] is not None for line in lines)
    counts = ", ".join(f"{number} after epoch {epochs}" for epochs, number in stopped.items())
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    cost = f"{search['epochs']:,} of the grid's {search['whole_grid']:,} epochs"
    queries = sweep.dev_scores["query_id"].nunique()
    over = "" if search["over"] else " The search is not over."
    return (
        f"Successive halving on dev trained {finalists} of {len(lines)} configurations to the "
        f"end, epoch {full}; stopped before: {counts or 'none'}{because}. The stopped ones are "
        f"not tested. The search took {cost} "
        f"({percent(search['epochs'] / search['whole_grid'])}).{over} It compared the best "
        f"{sweep.primary} of seed {seed} on {queries} dev queries: another seed or more epochs "
        "might have stopped others."
    )


def _halving_fate(sweep: Sweep, line: Mapping[str, Any]) -> str:
    full = sweep.search["rungs"][-1]["epochs"]
    if line["reason"]:
        return str(line["reason"])
    if line["left_after"] is not None:
        return f"stopped after epoch {line['epochs']} of {full}"
    if line["epochs"] == full:
        return f"trained to the end; {line['num_seeds']} of {len(sweep.seeds)} seeds finished"
    return "not decided yet"


def _halving_caption(sweep: Sweep) -> str:
    search = sweep.search
    rungs = ", ".join(
        f"{rung['configurations']} to epoch {rung['epochs']}" for rung in search["rungs"]
    )
    return (
        f"Trained with seed {sweep.seeds[0]}: {rungs}. From each rung at most one in "
        f"{search['eta']} resumes, in an order drawn beforehand (search seed {search['seed']}): "
        "each decision resumes the best so far that waits, and the last decision sees the whole "
        "rung. A value is the best of its epochs so far. The baseline is not judged."
    )


WORDS = {
    "tpe": Words(_proposals),
    "gp": Words(_proposals),
    "race": Words(
        _race, Standings("The race on dev", "seeds", "num_seeds", _race_fate, _race_caption)
    ),
    "halving": Words(
        _halving,
        Standings(
            "Successive halving on dev", "epochs", "judged_after", _halving_fate, _halving_caption
        ),
        eliminated="stopped",
    ),
}
"""{entry of `SEARCHES`: the words of its report}; the others have none."""
