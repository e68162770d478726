"""What a storage holds, who uses it, and what can go.

A trial belongs to every sweep whose `sweep.json` names it, or whose settings start from its files.
Nothing that a sweep uses is removed, and nothing while a command is about to begin. A removal that
is killed can be repeated: `result.json` goes first, so a half-removed trial counts as unfinished,
and `sweep.json` last, so a half-removed sweep is still one that can be removed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rank_core.checkpoints.weights import stored_cell
from rank_core.errors import BadInput
from rank_core.settings.config import FILES
from sweeps.store.lock import FILE as DRIVER
from sweeps.store.lock import Driver, living_driver, only_driver
from sweeps.store.records import (
    CHECKPOINTS,
    PROGRESS,
    RESULT,
    SCALING,
    TRIALS,
    Records,
    cell_and_seed,
    trial_name,
)
from sweeps.store.storage import Entry, Storage
from sweeps.store.sweep_file import FILE, SweepFile, parse_sweep_file

NO_SWEEPS = (TRIALS, CHECKPOINTS, "prepared", "artifacts")
_STARTED_FROM = re.compile(rf"(?:^|/){TRIALS}/([^/,]+)")
DONE, UNFINISHED, HALF = "done", "unfinished", "half"


@dataclass(frozen=True)
class StoredTrial:
    """A trial's folder and its checkpoints."""

    name: str
    num_bytes: int
    modified: float  # its newest file, by the storage's clock
    status: str  # half: files of a result without `result.json`, of a killed write or removal


@dataclass(frozen=True)
class StoredSweep:
    """A sweep's folder, without its trials."""

    name: str  # `seeds/python-docs`
    num_bytes: int
    modified: float
    trials: frozenset[str] = frozenset()  # that it uses
    driver: Driver | None = None  # that lives
    begins: bool = False  # its driver has not described it yet
    problem: str = ""  # why its description cannot be read


@dataclass(frozen=True)
class Inventory:
    """A storage at a moment."""

    storage: Storage
    sweeps: tuple[StoredSweep, ...]
    trials: Mapping[str, StoredTrial]
    others: Mapping[str, int] = field(default_factory=dict)  # {top folder or file: bytes}

    @property
    def num_bytes(self) -> int:
        """The size of everything."""
        sweeps = sum(sweep.num_bytes for sweep in self.sweeps)
        trials = sum(trial.num_bytes for trial in self.trials.values())
        return sweeps + trials + sum(self.others.values())

    def users(self, trial: str) -> list[str]:
        """The sweeps that use a trial."""
        return [sweep.name for sweep in self.sweeps if trial in sweep.trials]

    @property
    def orphans(self) -> list[StoredTrial]:
        """The trials that no sweep uses; none where a sweep's trials are not known."""
        if any(sweep.problem or sweep.begins for sweep in self.sweeps):
            return []
        used = frozenset[str]().union(*(sweep.trials for sweep in self.sweeps))
        return [trial for name, trial in self.trials.items() if name not in used]

    def only_of(self, sweep: StoredSweep) -> list[StoredTrial]:
        """The trials that no other sweep uses."""
        others = frozenset[str]().union(*(s.trials for s in self.sweeps if s.name != sweep.name))
        return [self.trials[name] for name in sorted(sweep.trials - others) if name in self.trials]

    def sweep(self, name: str) -> StoredSweep:
        """The sweep of a name, a question's name with one collection, or a folder or URI."""
        name = name.rstrip("/")
        plain = name.removeprefix(self.storage.uri).strip("/")
        if name and "://" not in name and Path(name).is_dir():
            plain = str(Path(name).resolve()).removeprefix(self.storage.root).strip("/")
        names = {name, plain}
        found = [s for s in self.sweeps if s.name in names or s.name.partition("/")[0] in names]
        exact = [sweep for sweep in found if sweep.name in names]
        if len(exact or found) == 1:
            return (exact or found)[0]
        known = ", ".join(sweep.name for sweep in found or self.sweeps) or "none"
        problem = "names several sweeps" if found else "is not a sweep"
        raise BadInput(f"--remove: {name!r} {problem} of {self.storage.uri}; known: {known}")

    def check_removable(self) -> None:
        """Refuses to remove trials while it is not known who uses them."""
        for sweep in self.sweeps:
            where = f"{self.storage.uri}/{sweep.name}"
            if sweep.begins:
                raise BadInput(
                    f"{where} is about to begin, driven by {sweep.driver and sweep.driver.text()}, "
                    "and may use any trial: try again in a minute"
                )
            if sweep.problem:
                raise BadInput(
                    f"which trials {where} uses is not known, so none is removed: {sweep.problem}"
                )


def take_inventory(storage: Storage) -> Inventory:
    """Everything in a storage, by one listing and the descriptions of its sweeps."""
    files = storage.answered(storage.files)
    trials, others = _trials(files), dict[str, int]()
    folders = sorted(
        {path.rpartition("/")[0] for path in files
         if path.rpartition("/")[2] in (FILE, DRIVER) and path.partition("/")[0] not in NO_SWEEPS
         and path != f"{SCALING}/{DRIVER}"}
        - {""}
    )  # fmt: skip
    sweeps = tuple(_sweep(storage, name, files, trials) for name in folders)
    for path, entry in files.items():
        top = path.partition("/")[0]
        if top not in (TRIALS, CHECKPOINTS) and not any(_within(path, f) for f in folders):
            others[top] = others.get(top, 0) + entry.size
    return Inventory(storage, sweeps, trials, others)


def _within(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _trials(files: Mapping[str, Entry]) -> dict[str, StoredTrial]:
    held: dict[str, dict[str, Entry]] = {}
    sizes: dict[str, int] = {}
    for path, entry in files.items():
        top, _, rest = path.partition("/")
        name, _, file = rest.partition("/")
        if top in (TRIALS, CHECKPOINTS) and file:
            sizes[name] = sizes.get(name, 0) + entry.size
            own = held.setdefault(name, {})
            own[f"{top}/{file}"] = entry
    return {
        name: StoredTrial(
            name, sizes[name], max(entry.modified for entry in own.values()), _status(own)
        )
        for name, own in sorted(held.items())
    }


def _status(files: Collection[str]) -> str:
    own = {path.partition("/")[2] for path in files if path.startswith(f"{TRIALS}/")}
    if RESULT in own:
        return DONE
    left = {file for file in own if file != PROGRESS and not file.startswith("attempt-")}
    return HALF if left else UNFINISHED


def _sweep(
    storage: Storage, name: str, files: Mapping[str, Entry], trials: Mapping[str, StoredTrial]
) -> StoredSweep:
    records = Records(storage, name)
    own = {path: entry for path, entry in files.items() if _within(path, name)}
    driver = living_driver(records)
    known, problem = frozenset[str](), ""
    described = own.get(f"{name}/{FILE}")
    if described:
        try:
            file = parse_sweep_file(records.read_file(FILE) or b"", records.uri)
            known = frozenset(_used(file, trials))
        except BadInput as error:
            problem = str(error)
    begun = described is not None and driver is not None and described.modified >= driver.since
    return StoredSweep(
        name=name,
        num_bytes=sum(entry.size for entry in own.values()),
        modified=max(entry.modified for entry in own.values()),
        trials=known,
        driver=driver,
        begins=driver is not None and not begun,
        problem=problem,
    )


def _used(file: SweepFile, trials: Collection[str]) -> Iterator[str]:
    """The names of the trials that a sweep has planned, or starts from."""
    yield from file.trials
    for cell in file.cells:
        yield from (trial_name(cell.cell, seed) for seed in file.seeds)
        for setting in FILES:
            value = cell.config.get(setting, "")
            texts = value if isinstance(value, list | tuple) else [value]
            named = {match for text in texts for match in _STARTED_FROM.findall(str(text))}
            named |= {stored_cell(str(text)) for text in texts}
            yield from (t for t in trials if t in named or cell_and_seed(t)[0] in named)


def remove_trials(storage: Storage, names: Iterable[str]) -> Iterator[str]:
    """Removes trials that no sweep uses, one after the other; gives the name of each when it is
    gone."""
    for name in names:
        storage.remove(f"{TRIALS}/{name}/{RESULT}")
        storage.remove_folder(f"{TRIALS}/{name}")
        storage.remove_folder(f"{CHECKPOINTS}/{name}")
        yield name


def remove_sweep(storage: Storage, name: str) -> Iterator[str]:
    """Removes a sweep as its only driver: the trials that no other sweep uses, then its folder;
    gives the name of each when it is gone. Raises `BadInput` where a command drives it."""
    records = Records(storage, name)
    with only_driver(records):
        now = take_inventory(storage)
        sweep = next(sweep for sweep in now.sweeps if sweep.name == name)
        others = [other for other in now.sweeps if other.name != name]
        Inventory(storage, tuple(others), now.trials).check_removable()
        own = [] if sweep.problem else now.only_of(sweep)
        yield from remove_trials(storage, [trial.name for trial in own])
        last = {records.path(FILE), records.path(DRIVER)}
        for path in storage.files(name):
            if path not in last:
                storage.remove(path)
        storage.remove(records.path(FILE))
    storage.remove_folder(name)
    with suppress(OSError):
        if storage.is_local:
            Path(storage.root, name).parent.rmdir()  # of its question, unless others are in it
    yield name
