"""What successive halving decided on dev: who was stopped at which rung, on how much evidence."""

from collections import Counter

from sweeps.report.load import Sweep


def halving_sentence(sweep: Sweep) -> str:
    """How many configurations stopped where, what that cost, and what nobody knows of them."""
    search, lines = sweep.search, sweep.search["standings"]
    full, seed = search["rungs"][-1]["epochs"], sweep.seeds[0]
    stopped = Counter(one["epochs"] for one in lines if one["left_after"] is not None)
    finalists = sum(one["left_after"] is None and one["epochs"] == full for one in lines)
    lost = sum(one["reason"] is not None for one in lines)
    where = ", ".join(f"{number} after epoch {epochs}" for epochs, number in stopped.items())
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    cost = f"{search['epochs']:,} of the grid's {search['whole_grid']:,} epochs"
    queries = sweep.dev_scores["query_id"].nunique()
    over = "" if search["over"] else " The search is not over."
    return (
        f"Successive halving on dev: {finalists} of {len(lines)} configurations came to the end of "
        f"training, epoch {full}; stopped before: {where or 'none'}{because}. That took {cost} "
        f"({search['epochs'] / search['whole_grid']:.0%}).{over} Who was stopped was judged by "
        f"seed {seed} alone, by the best {sweep.primary} on {queries} dev queries until then: "
        "another seed or more epochs might have stopped others. Seeds are compared for those at "
        "the end only, whose runs were chosen with their luck; --confirm retrains the winner on "
        "dev with fresh seeds."
    )


def halving_rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """Who came furthest first: configuration, value on dev, epochs until it, what became of it."""
    rows: list[tuple[str, ...]] = []
    full = sweep.search["rungs"][-1]["epochs"]
    for place, one in enumerate(sweep.search["standings"], start=1):
        if one["reason"]:
            fate = str(one["reason"])
        elif one["left_after"] is not None:
            fate = f"stopped after epoch {one['epochs']} of {full}"
        elif one["epochs"] == full:
            fate = f"went to the end; {one['num_seeds']} of {len(sweep.seeds)} seeds finished"
        else:
            fate = "not decided yet"
        mean = "—" if one["dev_mean"] is None else f"{one['dev_mean']:.4f}"
        judged = str(one["judged_after"])
        rows.append((str(place), sweep.label(one["cell"]), mean, judged, fate))
    return rows


def halving_caption(sweep: Sweep) -> str:
    """How the decisions were made."""
    search = sweep.search
    rungs = ", ".join(
        f"{one['configurations']} to epoch {one['epochs']}" for one in search["rungs"]
    )
    return (
        f"Trained with seed {sweep.seeds[0]}: {rungs}. From each rung at most one of "
        f"{search['eta']} goes on, in an order drawn before (search seed {search['seed']}): the "
        "n-th decision takes the best so far that has not gone on, and the last one sees the whole "
        "rung. A value is the best until its epoch. The baseline runs along, unjudged."
    )
