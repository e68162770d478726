"""A sweep at one moment, read from its folder or URI without changing anything there."""

import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.errors import BadInput
from sweeps.store.driver_lock import LOCK, Driver, lock_state
from sweeps.store.lost_attempts import lost_by_kind
from sweeps.store.trial_store import HISTORY, RESULT, Store
from sweeps.store.trial_table import FAILURES, FILE
from sweeps.tracking.names import metric_name
from sweeps.tracking.outbox import pending
from sweeps.tracking.trial_file import file_name, read_lines, trial_files
from sweeps.tracking.uri import NONE

DESCRIPTION, OUTBOX = "sweep.json", "outbox"
REQUIRED = ("sweep", "question", "primary", "seeds", "cells", "command")


@dataclass(frozen=True)
class TrialNow:
    """A planned trial as it stands. `status` is the ledger's, or done or collapsed where the store
    holds the result; a trial that a dead driver left running is interrupted."""

    cell: str
    seed: int
    status: str
    attempts: int
    reason: str = ""
    dev: float | None = None  # the primary measure: of the result, or the last one on the way
    seconds: float | None = None  # of training and evaluation
    step: int | None = None  # of the running attempt
    num_steps: int | None = None


@dataclass(frozen=True)
class News:
    """The last record that any trial of this driver's machine left, and who wrote it."""

    time: float  # seconds since the epoch
    cell: str
    seed: int
    writer: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """Everything `python -m sweeps status` tells."""

    where: str  # as the user named it
    described: Mapping[str, Any]
    trials: tuple[TrialNow, ...]
    lost_attempts: Mapping[str, int]  # by kind; of the planned trials, over all commands
    others: int  # trials in the ledger that this plan does not have
    driver: Driver
    started: float | None  # of the last command, seconds since the epoch
    news: News | None
    pending: int | None  # records that MLflow has not taken; None where nobody sends or knows
    report: str | None  # the page, where there is one
    failures: str | None  # the folder of tracebacks, likewise


def take_snapshot(where: str) -> Snapshot:
    """The sweep in a folder, or at a URI such as s3://bucket/path/window_stride."""
    store = _store(where)
    local = store.folder
    driver: Driver = lock_state(local / LOCK)
    described = _described(_read(store, DESCRIPTION, driver), where)
    rows = _ledger(_read(store, FILE, driver), f"{where}/{FILE}")
    if not store.is_local and driver == "gone" and not (local / LOCK).exists():
        driver = "elsewhere"  # another machine's lock cannot be seen from here
    names = [
        (f"{cell['cell']}-seed{seed}", cell["cell"], seed)
        for seed in described["seeds"]
        for cell in described["cells"]
    ]
    names = [one for one in names if one[0] in rows or not _spared(described, one[1], one[2])]
    planned = {name for name, _, _ in names}
    results = _results(store, planned & store.finished(), described["primary"])
    outbox = local / OUTBOX
    trials = []
    for name, cell, seed in names:
        if name in results:
            attempts = int(rows.get(name, {}).get("attempts", 1))
            trials.append(TrialNow(cell, seed, attempts=attempts, **results[name]))
        else:
            path = outbox / file_name(f"{_sweep_id(described)}/{name}")
            trials.append(_unfinished(cell, seed, rows.get(name), driver, path, described))
    off = described.get("tracking_uri") == NONE or not outbox.is_dir()
    return Snapshot(
        where=where,
        described=described,
        trials=tuple(_with_lengths(trials, store)),
        lost_attempts=_lost_attempts(_read(store, FAILURES, driver), trials),
        others=len(rows.keys() - planned),
        driver=driver,
        started=_modified(local / "qrels" / "test.qrels"),  # written once, by each command
        news=_news(outbox),
        pending=None if off else pending(outbox),
        report=_existing(store, "report/index.html"),
        failures=_existing(store, "failures"),
    )


def _spared(described: Mapping[str, Any], cell: str, seed: int) -> bool:
    """Whether a cell left the race before it came to this seed."""
    left = {
        one["cell"]: one["left_after"]
        for one in described.get("search", {}).get("standings", ())
        if one["left_after"] is not None
    }
    return cell in left and list(described["seeds"]).index(seed) >= left[cell]


def _store(where: str) -> Store:
    if "://" not in where:
        folder = Path(where).absolute()
        return Store(str(folder.parent), folder.name)
    storage, _, sweep = where.rstrip("/").rpartition("/")
    if not storage.partition("://")[2]:
        raise BadInput(
            f"DIR as a URI must be storage/sweep, as in s3://bucket/path/window_stride; got {where}"
        )
    return Store(storage, sweep)


def _read(store: Store, name: str, driver: Driver) -> bytes | None:
    """A file of the sweep. A live driver's own disk is ahead of a remote storage."""
    mirror = store.folder / name
    if driver == "alive" and mirror.exists():
        return mirror.read_bytes()
    try:
        return bytes(store.fs.cat_file(f"{store.root}/{name}"))
    except FileNotFoundError:
        return mirror.read_bytes() if mirror.exists() else None
    except Exception as error:  # every filesystem has its own kinds
        raise BadInput(
            f"DIR must be readable, got {store.root}: {type(error).__name__}: {error}"
        ) from None


def _described(content: bytes | None, where: str) -> dict[str, Any]:
    if content is None:
        raise BadInput(
            f"DIR must be a sweep's folder, which holds {DESCRIPTION}; found none in {where}"
        )
    path = f"{where}/{DESCRIPTION}"
    try:
        described = json.loads(content)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    missing = [key for key in REQUIRED if not isinstance(described, dict) or key not in described]
    if missing:
        raise BadInput(f"{path}: must name {', '.join(REQUIRED)}; missing: {', '.join(missing)}")
    return dict(described)


def _ledger(content: bytes | None, path: str) -> dict[str, dict[str, Any]]:
    """Rows by trial name; none where nothing was ever launched."""
    if content is None:
        return {}
    columns = ["cell", "seed", "status", "stop_reason", "attempts"]
    try:
        table = pd.read_parquet(io.BytesIO(content), columns=columns)
    except (ValueError, OSError) as error:
        raise BadInput(f"{path} must be the table of a sweep's trials: {error}") from None
    return {f"{row['cell']}-seed{row['seed']}": row for row in table.to_dict("records")}


def _lost_attempts(content: bytes | None, trials: list[TrialNow]) -> dict[str, int]:
    """How many attempts ended without a result, by kind."""
    columns = ["cell", "seed", "kind"]
    table = pd.DataFrame(columns=columns)
    if content is not None:
        table = pd.read_parquet(io.BytesIO(content), columns=columns)
    planned = {(trial.cell, trial.seed) for trial in trials}
    failures = [row for row in table.to_dict("records") if (row["cell"], row["seed"]) in planned]
    return lost_by_kind(map(vars, trials), failures)


def _results(store: Store, names: set[str], primary: str) -> dict[str, dict[str, Any]]:
    paths = {f"{store.root}/runs/{name}/{RESULT}": name for name in names}
    contents = store.fs.cat(list(paths)) if paths else {}
    read = {}
    for path, content in contents.items():
        result = json.loads(content)
        read[Path(path).parent.name] = {
            "status": result["status"],
            "dev": result.get("dev", {}).get(primary),
            "seconds": result["train_seconds"] + result["eval_seconds"],
        }
    return read


def _unfinished(
    cell: str,
    seed: int,
    row: Mapping[str, Any] | None,
    driver: Driver,
    path: Path,
    described: Mapping[str, Any],
) -> TrialNow:
    if row is None:
        return TrialNow(cell, seed, "planned", 0)
    status, reason = str(row["status"]), str(row["stop_reason"])
    if status == "running" and driver == "gone":
        status, reason = "interrupted", "its driver was killed"
    elif status == "planned" and driver == "gone":
        status, reason = "interrupted", reason or "interrupted"
    way = _way(path, described["primary"]) if status == "running" and path.exists() else {}
    return TrialNow(cell, seed, status, int(row["attempts"]), reason, **way)


def _way(path: Path, primary: str) -> dict[str, Any]:
    """Step and dev value of the attempt that a trial's file ends with."""
    way: dict[str, Any] = {}
    measure = f"dev/{metric_name(primary)}"
    for record in _records(path):
        if record["kind"] in ("trial", "attempt"):
            way = {}
        elif record["kind"] == "metrics" and record["step"] > 0:
            way["step"] = record["step"]
            way["dev"] = record["values"].get(measure, way.get("dev"))
    return way


def _with_lengths(trials: list[TrialNow], store: Store) -> Iterator[TrialNow]:
    """Running trials with the number of their steps, as a finished seed of the cell had it."""
    lengths: dict[str, int | None] = {}
    for trial in trials:
        if trial.step is None:
            yield trial
            continue
        if trial.cell not in lengths:
            like = (one for one in trials if one.cell == trial.cell and one.seconds is not None)
            lengths[trial.cell] = _length(store, next(like, None))
        yield TrialNow(**vars(trial) | {"num_steps": lengths[trial.cell]})


def _length(store: Store, finished: TrialNow | None) -> int | None:
    if finished is None:
        return None
    path = f"{store.root}/runs/{finished.cell}-seed{finished.seed}/{HISTORY}"
    lines = store.fs.cat_file(path).splitlines() if store.fs.exists(path) else []
    return int(json.loads(lines[-1])["num_steps"]) if lines else None


def _news(outbox: Path) -> News | None:
    files = trial_files(outbox) if outbox.is_dir() else []
    if not files:
        return None
    newest = max(files, key=lambda path: path.stat().st_mtime)
    time, key = math.nan, ""
    writer: dict[str, Any] = {}
    for record in _records(newest):
        time = record["time"] / 1000
        writer = record.get("writer", writer)
        key = record.get("trial_key", key)
    cell, _, seed = key.rpartition("/")[2].rpartition("-seed")
    return News(time, cell, int(seed), writer) if seed else None


def _records(path: Path) -> Iterator[dict[str, Any]]:
    return (line.record for line in read_lines(path) if line.record is not None)


def _sweep_id(described: Mapping[str, Any]) -> str:
    return str(described.get("experiment", "")).removeprefix("rank/")


def _existing(store: Store, name: str) -> str | None:
    path = f"{store.root}/{name}"
    return path if store.fs.exists(path) else None


def _modified(path: Path) -> float | None:
    return path.stat().st_mtime if path.exists() else None
