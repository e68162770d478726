"""The search in the words of a plan: what it will do, and how many trials that are at most."""

from collections.abc import Iterator

from rank_core.stats.racing.rule import FIRST_LOOK
from sweeps.plan.plan import Plan
from sweeps.search.ladder import dearest_trials, ladder_of


def search_lines(plan: Plan) -> Iterator[str]:
    """Lines for the plan on a terminal; none for the whole grid."""
    search, known = plan.search, len(plan.cells) - 1
    of = "ranges" if plan.space.ranges else f"{len(plan.space.points)} points of the grid"
    seed = f"(search seed {search.seed})"
    if search.proposes:
        yield f"search      {search.name}: up to {search.num_configs} configurations of {of} {seed}"
        yield "            proposed by the dev values so far, the first 10 at random;"
        yield f"            at most {plan.max_trials} trials. Known now:"
    elif search.num_configs:
        yield f"search      {search.name} of {known} configurations drawn from {of} {seed}"
    elif search.name == "race":
        yield f"search      race of {known} configurations"
    if search.name == "race":
        yield from _race(plan)
    if search.name == "asha":
        yield from _asha(plan)


def _race(plan: Plan) -> Iterator[str]:
    seeds, delta = len(plan.seeds), plan.search.delta
    racing = sum(not cell.deterministic for cell in plan.cells[1:])
    fewest = plan.num_trials - (racing - 1) * (seeds - FIRST_LOOK)
    tie = f" by more than {delta:g}" if delta else ""
    yield "            a configuration leaves once the whole grid could hardly name it the"
    yield f"            best on dev{tie}; looks after each seed from the second on;"
    yield f"            {fewest} to {plan.num_trials} trials; the baseline runs every seed"


def _asha(plan: Plan) -> Iterator[str]:
    ladder, seeds = ladder_of(plan), len(plan.seeds)
    trials, full = list(dearest_trials(plan)), ladder.epochs[-1]
    epochs, grid = round(full * sum(one.share for one in trials)), full * plan.num_trials
    begin, *climb = zip(ladder.epochs, ladder.sizes, strict=True)
    order = "" if plan.search.num_configs else f" (order by search seed {plan.search.seed})"
    on = ", ".join(f"{size} to epoch {until}" for until, size in climb)
    whole = sum(not one.epochs for one in trials)
    yield f"search      asha of {begin[1]} configurations{order}:"
    yield f"            all train {begin[0]} of {full} epochs with seed {plan.seeds[0]};"
    yield f"            the best on dev go on, {on};"
    yield f"            who comes to the end runs all {seeds} seeds, as the baseline does;"
    yield f"            at most {whole} whole trials and {len(trials) - whole} that stop before:"
    yield f"            {epochs:,} of the grid's {grid:,} epochs ({epochs / grid:.0%})"
