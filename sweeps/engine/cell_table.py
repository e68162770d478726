"""The trials of a sweep at a moment, a line for each cell, for a running sweep and `status`."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from sweeps.store.trial_status import INTERRUPTED, LOST, USED
from sweeps.terminal.text import columns, shortened

ENOUGH_TO_ESTIMATE = 0.1  # of a trial, before the time left is shown
STATES = {
    "done": "done",
    "collapsed": "collapsed",
    "running": "running",
    "failed": "failed",
    "diverged": "diverged",
    "stopped": "stopped early",
    INTERRUPTED: "interrupted",
    "damaged": "damaged",
    "planned": "waiting",
}
"""{status of a trial: its word}, in the order in which they are listed."""


@dataclass(frozen=True)
class TrialNow:
    """The state of a planned trial. `status` is done or collapsed where the store holds the
    result, otherwise its last attempt's; one that a dead driver left running is interrupted."""

    cell: str
    seed: int
    status: str
    attempts: int
    reason: str = ""
    dev: float | None = None  # the primary measure of the result, or the latest of a running trial
    seconds: float | None = None  # of training and evaluation
    step: int | None = None  # of the running attempt
    num_steps: int | None = None
    expected: float | None = None  # seconds that a running trial takes, by its steps so far
    doing: str = ""  # of a running trial; empty: see `step`
    workers: int = 0  # of a running trial


def counts_text(trials: Sequence[TrialNow]) -> str:
    """`3 done, 1 running, 2 waiting`."""
    counts = Counter(trial.status for trial in trials)
    return ", ".join(f"{counts[state]} {word}" for state, word in STATES.items() if counts[state])


def step_text(step: int | None, num_steps: int | None) -> str:
    """`step 20/40`; `starting` before the first report."""
    if step is None:
        return "starting"
    return f"step {step}/{num_steps}" if num_steps else f"step {step}"


def cell_lines(
    labels: Mapping[str, str],
    trials: Sequence[TrialNow],
    primary: str,
    *,
    width: int,
    height: int | None = None,
) -> list[str]:
    """A line for each cell: seeds with a result, their mean and standard deviation on dev, and
    trials neither done nor waiting. With more lines than `height`, waiting cells, then finished
    ones are omitted and counted."""
    by_cell: dict[str, list[TrialNow]] = {cell: [] for cell in labels}
    for trial in trials:
        by_cell[trial.cell].append(trial)
    room = min(max(map(len, labels.values()), default=4), width // 2 - 16)
    measure = f"dev {shortened(primary, 12)}"
    head = ("cell".ljust(room), "seeds", measure, "SD", "now")
    now_room = width - sum(map(len, head[:3])) - len(" .123") - 4 * len("  ")

    def block(cell: str) -> list[tuple[str, ...]]:
        several = by_cell[cell]
        dev = [trial.dev for trial in several if trial.status in USED and trial.dev is not None]
        used = sum(trial.status in USED for trial in several)
        first = (
            shortened(labels[cell], room),
            f"{used}/{len(several)}",
            f"{fmean(dev):.3f}" if dev else "",
            f"{stdev(dev):.3f}".removeprefix("0") if len(dev) > 1 else "",
        )
        now = [line for text in _unusual(several) for line in textwrap.wrap(text, now_room)] or [""]
        return [(*first, now[0]), *(("", "", "", "", more) for more in now[1:])]

    blocks = dict[str, list[tuple[str, ...]]]()
    free = (height or 10**9) - 2  # 2: the heading
    for cell in sorted(by_cell, key=lambda cell: -_importance(by_cell[cell])):
        rows = block(cell)
        if len(rows) > free:
            if blocks and not free:  # a line counts the omitted ones
                blocks.popitem()
            break
        blocks[cell] = rows
        free -= len(rows)
    rows = [row for cell in by_cell if cell in blocks for row in blocks[cell]]
    lines = columns([head, *rows], "lrrrl")
    if omitted := [cell for cell in by_cell if cell not in blocks]:
        rest = counts_text([trial for cell in omitted for trial in by_cell[cell]])
        lines.append(f"{len(omitted)} more cells: {rest}")
    return lines


def _importance(trials: Sequence[TrialNow]) -> int:
    """The higher, the later a cell is omitted."""
    states = {trial.status for trial in trials}
    return 3 * ("running" in states) + 2 * bool(states & {*LOST}) + bool(states & {*USED})


def _unusual(trials: Sequence[TrialNow]) -> list[str]:
    """The trials of a cell that are neither done nor waiting, in words."""
    words = []
    for trial in trials:
        if trial.status == "running":
            dev = "" if trial.dev is None else f" ({trial.dev:.3f})"
            doing = trial.doing or step_text(trial.step, trial.num_steps)
            words.append(f"seed {trial.seed} {doing}{dev}")
    seeds: dict[str, list[int]] = {}
    for trial in trials:
        if trial.status not in ("done", "running", "planned"):
            seeds.setdefault(STATES[trial.status], []).append(trial.seed)
    return words + [
        f"seed{'s' * (len(which) > 1)} {', '.join(map(str, which))} {state}"
        for state, which in seeds.items()
    ]
