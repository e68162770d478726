"""A sweep at a moment, read from its folder or URI without a change there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sweeps.engine.cell_table import TrialNow
from sweeps.store.checksums import RESULT, DamagedTrial, damage, parse_result
from sweeps.store.driver_lock import living_driver
from sweeps.store.failures import lost_by_kind
from sweeps.store.opened_sweep import drives_here, find_sweep
from sweeps.store.storage_retry import answered
from sweeps.store.sweep_file import FILE, SweepFile, no_sweep, parse_sweep_file
from sweeps.store.trial_events import EVENTS, TrialEvent
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import SweepState, TrialState, read_state
from sweeps.tracking.cursor import pending
from sweeps.tracking.uri import NONE, default_tracking_uri

Driver = Literal["alive", "gone"]
INTERRUPTED, DAMAGED = "interrupted", "damaged"
"""The statuses of a trial of a dead driver and of a trial with damaged files, beside those of the
log."""


@dataclass(frozen=True)
class Snapshot:
    """The facts of `ranksweep status`."""

    where: str  # as in the command
    file: SweepFile
    trials: tuple[TrialNow, ...]
    lost_attempts: Mapping[str, int]  # by kind; of the planned trials, over all commands
    spent: float  # seconds of the ended attempts of the planned trials
    others: int  # started trials that this plan lacks
    driver: Driver
    writer: Mapping[str, Any]  # the process of the last command; empty if unknown
    started: float | None  # its start, seconds since the epoch
    news: TrialEvent | None  # the last one
    pending: int | None  # events that MLflow lacks; None if tracking is off or unknown
    report: str | None  # the page, if there is one
    failures: str | None  # the folder of tracebacks, if there is one


def take_snapshot(where: str) -> Snapshot:
    """The sweep in a folder, or at a URI such as s3://bucket/path/window_stride."""
    store = find_sweep(where)
    local = store.folder
    lease = answered(store, lambda: living_driver(store))
    driver: Driver = "alive" if lease else "gone"
    live = drives_here(store)
    content = store.read_file(FILE, live=live)
    if content is None:
        raise no_sweep(where, store.collections())
    file = parse_sweep_file(content, where)
    file = replace(file, tracking_uri=file.tracking_uri or default_tracking_uri(store))
    state = read_state(store, live=live)
    started = {name: trial for name, trial in state.trials.items() if trial.attempts}
    names = [
        (f"{cell.cell}-seed{seed}", cell.cell, seed) for seed in file.seeds for cell in file.cells
    ]
    names = [
        (name, cell, seed)
        for name, cell, seed in names
        if name in started or not _is_eliminated(file, cell, seed)
    ]
    planned = {name for name, _, _ in names}
    results = _results(store, planned & store.finished(), file.primary)
    trials = []
    for name, cell, seed in names:
        if name in results:
            attempts = started[name].attempts if name in started else 1
            trials.append(TrialNow(cell, seed, attempts=attempts, **results[name]))
        else:
            trials.append(_unfinished(cell, seed, started.get(name), driver, file.primary))
    off = file.tracking_uri == NONE or not (local / EVENTS).is_file()
    command = state.command
    return Snapshot(
        where=where,
        file=file,
        trials=tuple(trials),
        lost_attempts=_lost_attempts(state, trials, planned),
        spent=sum(started[name].seconds for name in planned & started.keys()),
        others=len(started.keys() - planned),
        driver=driver,
        writer=vars(lease) if lease else command.writer if command else {},
        started=command.time / 1000 if command else None,
        news=state.news,
        pending=None if off else pending(local),
        report=_existing(store, "report/index.html"),
        failures=_existing(store, "failures"),
    )


def _is_eliminated(file: SweepFile, cell: str, seed: int) -> bool:
    eliminated = {
        standing["cell"]: standing["left_after"]
        for standing in file.search.get("standings", ())
        if standing["left_after"] is not None
    }
    return cell in eliminated and file.seeds.index(seed) >= eliminated[cell]


def _lost_attempts(state: SweepState, trials: list[TrialNow], planned: set[str]) -> dict[str, int]:
    """{kind: attempts of these trials that ended without a result}."""
    lost = [vars(event) | {"cell": event.cell, "seed": event.seed} for event in state.lost]
    return lost_by_kind(map(vars, trials), [row for row in lost if row["trial"] in planned])


def _results(store: Store, names: set[str], primary: str) -> dict[str, dict[str, Any]]:
    paths = {f"{store.root}/runs/{name}/{RESULT}": name for name in names}
    contents = store.fs.cat(list(paths)) if paths else {}
    read = {}
    for path, content in contents.items():
        name = Path(path).parent.name
        folder = store.folder / "runs" / name
        try:
            result = parse_result(content, folder).facts
            damages = damage(folder, thorough=False) if store.is_local else ""
        except DamagedTrial as error:
            damages = error.text
        if damages:
            read[name] = {"status": DAMAGED, "reason": f"{name}: {damages}"}
            continue
        read[name] = {
            "status": result["status"],
            "dev": result.get("dev", {}).get(primary),
            "seconds": result["train_seconds"] + result["eval_seconds"],
        }
    return read


def _unfinished(
    cell: str, seed: int, state: TrialState | None, driver: Driver, primary: str
) -> TrialNow:
    if state is None:
        return TrialNow(cell, seed, TrialStatus.PLANNED, 0)
    if state.status.waits and driver == "gone":
        killed = state.status is TrialStatus.RUNNING
        reason = "its driver was killed" if killed else state.reason or INTERRUPTED
        return TrialNow(cell, seed, INTERRUPTED, state.attempts, reason)
    if state.status.used:
        reason = f"{cell}-seed{seed}: {RESULT} is missing"
        return TrialNow(cell, seed, DAMAGED, state.attempts, reason)
    now = TrialNow(cell, seed, state.status, state.attempts, state.reason)
    if state.status is not TrialStatus.RUNNING:
        return now
    dev = float(state.dev[primary]) if primary in state.dev else None
    return replace(now, step=state.step, num_steps=state.num_steps, dev=dev)


def _existing(store: Store, name: str) -> str | None:
    return f"{store.uri}/{name}" if store.fs.exists(f"{store.root}/{name}") else None
