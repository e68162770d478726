"""A sweep at a moment, read from its folder or URI without a change there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweeps.engine.cell_table import TrialNow
from sweeps.store.driver import Driver, living_driver
from sweeps.store.failures import lost_by_kind
from sweeps.store.records import Records, State
from sweeps.store.sweep_file import SweepFile, find_sweep, read_sweep_file
from sweeps.store.trial_status import TrialStatus
from sweeps.tracking.uri import default_tracking_uri

INTERRUPTED, DAMAGED = "interrupted", "damaged"
"""The statuses of a trial of a dead driver and of a trial with damaged files."""


@dataclass(frozen=True)
class News:
    """The last thing that a trial's files tell."""

    time: float  # seconds since the epoch
    cell: str
    seed: int


@dataclass(frozen=True)
class Snapshot:
    """The facts of `ranksweep status`."""

    where: str  # as in the command
    file: SweepFile
    trials: tuple[TrialNow, ...]
    lost_attempts: Mapping[str, int]  # by kind; of the planned trials, over all commands
    spent: float  # seconds of the ended attempts of the planned trials
    others: int  # started trials that this plan lacks
    driver: Driver | None  # that lives
    news: News | None
    report: str | None  # the page, if there is one
    failures: str | None  # the folder of tracebacks, if there is one


def take_snapshot(where: str, records: Records | None = None) -> Snapshot:
    """The sweep in a folder, or at a URI such as s3://bucket/path/window_stride/python-docs. Of the
    same `records` only what has changed is read again."""
    records = records or find_sweep(where)
    file = read_sweep_file(records)
    file = replace(file, tracking_uri=file.tracking_uri or default_tracking_uri(records))
    driver = living_driver(records)
    records.command = driver.command if driver else ""
    planned = [
        f"{cell.cell}-seed{seed}"
        for seed in file.seeds
        for cell in file.cells
        if seed == file.seeds[0] or cell.cell not in file.deterministic
    ]
    states = records.states(dict.fromkeys([*planned, *file.trials]))
    planned = [
        name
        for name in planned
        if states[name].num_attempts or not _is_eliminated(file, states[name])
    ]
    trials = tuple(_now(records, states[name], file.primary) for name in planned)
    lost = [
        vars(attempt) | {"cell": states[name].cell, "seed": states[name].seed}
        for name in planned
        for attempt in states[name].attempts
        if attempt.lost
    ]
    return Snapshot(
        where=where,
        file=file,
        trials=trials,
        lost_attempts=lost_by_kind(map(vars, trials), lost),
        spent=sum(states[name].seconds for name in planned),
        others=sum(bool(states[name].attempts) for name in states.keys() - set(planned)),
        driver=driver,
        news=max(map(_news, states.values()), key=lambda news: news.time, default=None),
        report=_existing(records, "report/index.html"),
        failures=_existing(records, "failures"),
    )


def _is_eliminated(file: SweepFile, state: State) -> bool:
    left_after = {
        standing["cell"]: standing["left_after"]
        for standing in file.search.get("standings", ())
        if standing["left_after"] is not None
    }
    return state.cell in left_after and file.seeds.index(state.seed) >= left_after[state.cell]


def _now(records: Records, state: State, primary: str) -> TrialNow:
    now = TrialNow(state.cell, state.seed, state.status, state.num_attempts, state.reason)
    if damage := records.damage(state, thorough=False):
        return replace(now, status=DAMAGED, reason=f"{state.name}: {damage}")
    dev = state.dev.get(primary)
    if state.status.used:
        seconds = state.facts["train_seconds"] + state.facts["eval_seconds"]
        return replace(now, reason="", dev=dev, seconds=seconds)
    if state.status is TrialStatus.PLANNED and state.attempts:
        return replace(now, status=INTERRUPTED)
    if state.status is TrialStatus.RUNNING and (progress := state.progress):
        return replace(now, dev=dev, step=progress["step"], num_steps=progress["num_steps"])
    return now


def _news(state: State) -> News:
    times = [time for attempt in state.attempts for time in (attempt.begun, attempt.ended or 0)]
    if state.attempts and state.progress:
        times.append(state.progress["time"])
    return News(max(times, default=0) / 1000, state.cell, state.seed)


def _existing(records: Records, name: str) -> str | None:
    there = records.storage.fs.exists(f"{records.storage.root}/{records.path(name)}")
    return f"{records.uri}/{name}" if there else None
