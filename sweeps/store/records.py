"""The trials of a sweep: the folder of a trial in its storage is all that is known of it.

`trials/NAME/` is the same for every sweep of a storage, since a name stands for everything that
affects a trial's numbers. `result.json` is written last: with it a trial is done. It names size and
SHA-256 of every other file of the trial (`files`), and the SHA-256 of its own content (`checksum`).
`attempt-N.json` is written when an attempt begins and replaced when it ends; `progress.json` has
the reports of the attempt that runs.
"""

import hashlib
import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from rank_core.cache import cache_root
from rank_core.checkpoints.weights import SEED, WEIGHTS
from rank_core.errors import BadInput
from rank_core.files import FULL, NO_FILE
from rank_core.parsing import parsed_json
from rank_core.secrets import redact
from rank_core.seeding import derive
from rank_core.trial.workers import Workers, device_seconds, worker_seconds
from sweeps.store.storage import Entry, Storage
from sweeps.store.trial_status import INTERRUPTED, RESIZED, TrialStatus

TRIALS, CHECKPOINTS = "trials", "checkpoints"
SCALING = "scaling"
"""The folder of measurements of groups of workers; one command drives it, yet it is no sweep."""
RESULT, PROGRESS, HISTORY = "result.json", "progress.json", "history.jsonl"
SCORES = "per_query.parquet"
SMALL = 2**20
REMOVABLE = (WEIGHTS,)
"""Files that a finished trial may lack: only the best seed of a cell keeps them."""
REMEDY = "the sweep's command runs the trial again"
COSTS = ("train_seconds", "eval_seconds", "peak_memory_bytes", "encoder_tokens", "padding_share",
         "training_padding_share", "ties")  # fmt: skip
"""The numbers that every result has."""
CHANGED = "was changed after the trial's end"
KILLED = "its driver was killed"

_log = logging.getLogger(__name__)


def trial_name(cell: str, seed: int) -> str:
    """The name of a trial, and of its folder under `trials/`."""
    return f"{cell}-seed{seed}"


def cell_and_seed(trial: str) -> tuple[str, int]:
    """The cell and the seed of a trial's name; seed 0 of a text that is not a name of a trial."""
    named = SEED.fullmatch(trial)
    return (named[1], int(named[2])) if named else (trial.rpartition("-seed")[0], 0)


class DamagedTrial(BadInput):
    """A file of a finished trial that has changed since the trial's end, or is missing."""

    def __init__(self, trial: str, file: str, reason: str) -> None:
        super().__init__(f"{trial}/{file} {reason}; {REMEDY}")
        self.text = f"{file} {reason}"


@dataclass(frozen=True)
class Result:
    """The content of a `result.json`: the trial's `facts`, and {file: its size and SHA-256}."""

    facts: dict[str, Any]
    files: dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt of a trial; `ended` is None while it runs, or if its driver was killed."""

    attempt: int
    sweep: str
    command: str  # the token of its driver
    begun: int  # milliseconds since the epoch
    ended: int | None = None
    status: str = ""  # at its end; a lost attempt `failed`, a given up one `interrupted`
    kind: str = ""  # of failure
    reason: str = ""
    again: bool = False  # whether another attempt follows
    host: str = ""
    node: str = ""
    workers: int = 0  # of its trial; 0: before this was noted

    @property
    def lost(self) -> bool:
        """True if it ended by a fault."""
        return self.status == TrialStatus.FAILED


@dataclass(frozen=True)
class State:
    """A trial of a sweep, read from its files."""

    name: str
    status: TrialStatus = TrialStatus.PLANNED
    reason: str = ""  # of its end, or why it waits
    attempts: tuple[Attempt, ...] = ()  # of this sweep
    facts: Mapping[str, Any] = field(default_factory=dict)  # of its result
    files: Mapping[str, Entry] = field(default_factory=dict)
    progress: Mapping[str, Any] | None = None  # of a trial without a result
    damage: str = ""  # of its result

    @property
    def cell(self) -> str:
        """The configuration's name."""
        return cell_and_seed(self.name)[0]

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return cell_and_seed(self.name)[1]

    @property
    def num_attempts(self) -> int:
        """Attempts so far; one for a trial that another sweep has finished. One that goes on with
        more workers is the same."""
        own = len(self.counted_attempts)
        return max(own, int(bool(self.attempts) or self.status.used))

    @property
    def counted_attempts(self) -> list[Attempt]:
        """The attempts but those that another one has continued with more workers."""
        return [attempt for attempt in self.attempts if attempt.status != RESIZED]

    def slot_seconds(self, workers: int = 1) -> float:
        """The time of the attempts of this sweep, without one that runs now, on a slot of so many
        workers: an attempt with half of them counts half. Before 0.5 all had them."""
        total = 0.0
        for attempt in self.attempts:
            end = attempt.ended
            if end is None and self.status is not TrialStatus.RUNNING:
                # When its driver was killed is not known: it worked until its last report at least.
                end = (self.progress or {}).get("time")
            seconds = max(0.0, (end - attempt.begun) / 1000) if end else 0.0
            if self.facts and attempt is self.attempts[-1]:
                # An attempt's span includes the start of its process and waits for the storage; the
                # trial has measured itself.
                own = self.facts["train_seconds"] + self.facts["eval_seconds"]
                seconds = min(seconds, own) if end else own
            total += seconds * (attempt.workers or workers) / workers
        return total

    def result_seconds(self, workers: int) -> float:
        """The seconds that its result took, times the number of its workers; `workers` where that
        was not noted, as before 0.5."""
        seconds = float(self.facts["train_seconds"] + self.facts["eval_seconds"])
        return worker_seconds(seconds, self.workers(workers))

    def device_seconds(self, workers: int) -> dict[str, float]:
        """{device: the same of its workers there}."""
        seconds = float(self.facts["train_seconds"] + self.facts["eval_seconds"])
        return device_seconds(seconds, self.workers(workers))

    @property
    def devices(self) -> tuple[str, ...]:
        """All that its result was computed on."""
        return tuple(sorted({name for row in self.workers(1) for name in row.devices if name}))

    def workers(self, number: int) -> list[Workers]:
        """The workers of its result; `number` where that was not noted, and all on the device that
        the result names where theirs were not."""
        device = str(self.facts.get("versions", {}).get("device", ""))
        rows = [Workers(**row) for row in self.facts.get("workers") or ()]
        return [
            row if row.devices else replace(row, devices={device: row.number})
            for row in rows or [Workers(step=0, number=number, seconds=0.0)]
        ]

    @property
    def dev(self) -> Mapping[str, float]:
        """The means of the measures on dev: of its result, or the latest so far."""
        return self.facts.get("dev") or (self.progress or {}).get("dev") or {}


class Records:
    """The trials of the sweep `sweep`, such as `window_stride/python-docs`, or "" for a folder with
    all attempts its own. `command` is the token of the driver that writes, or whose attempts run.
    """

    def __init__(self, storage: Storage, sweep: str, *, command: str = "") -> None:
        self.storage, self.sweep, self.command = storage, sweep, command
        self.killed: Mapping[str, int] = {}  # {token of a killed driver: milliseconds of its end}
        self.origin: Records | None = None  # of a copy
        self._read: dict[str, tuple[Entry, bytes]] = {}  # small files, by path
        self._results: dict[str, Result] = {}
        self._open: dict[str, tuple[str, Attempt]] = {}  # {trial: path of its attempt, the attempt}

    @property
    def uri(self) -> str:
        """The folder or URI of the sweep, as messages name it."""
        # Messages name what the user named, not the copy that is read.
        return self.origin.uri if self.origin else f"{self.storage.uri}/{self.sweep}".rstrip("/")

    @property
    def identity(self) -> str:
        """Six hex digits that name this sweep among those of all storages."""
        root = f"{self.storage.root}/{self.sweep}"
        return f"{derive(0, self.storage.fs.protocol[0], root):016x}"[:6]

    @cached_property
    def folder(self) -> Path:
        """The sweep's folder, or for a URI the folder of its copy on this machine."""
        if self.storage.is_local:
            return Path(self.storage.root, self.sweep)
        return cache_root() / "copies" / f"{derive(0, self.uri):016x}" / self.sweep

    def trial_folder(self, name: str) -> Path:
        """The folder of a trial in a local storage."""
        return Path(self.storage.root, TRIALS, name)

    def path(self, file: str) -> str:
        """The path of a file of the sweep in its storage."""
        return f"{self.sweep}/{file}" if self.sweep else file

    def read_file(self, file: str) -> bytes | None:
        """The content of a file of the sweep; None where it is absent."""
        return self.storage.read(self.path(file))

    def write_file(self, file: str, data: bytes) -> None:
        """Writes a file of the sweep."""
        self.storage.write(self.path(file), data)

    def states(self, names: Iterable[str]) -> dict[str, State]:
        """{name: state} of trials, by a listing and the small files that are new since the last
        one."""
        listed = self.listed(list(names))
        self._bring(listed)
        return {name: self._state(name, files) for name, files in listed.items()}

    def state(self, name: str) -> State:
        """The state of a trial."""
        return self.states([name])[name]

    def result(self, name: str) -> Result:
        """The result of a finished trial; raises `DamagedTrial`."""
        if name not in self._results:
            self._results[name] = parse_result(self._content(name, RESULT), name)
        return self._results[name]

    def read(self, name: str, file: str) -> bytes:
        """A file of a finished trial as it was at the trial's end; raises `DamagedTrial`."""
        result = self.result(name)
        return _checked(name, file, self._content(name, file), result)

    def read_each(self, names: Collection[str], file: str) -> dict[str, bytes]:
        """{name: content} of a file of several finished trials, read at once."""
        new = [name for name in names if name not in self._results]
        for name, content in self._contents(new, RESULT).items():
            self._results[name] = parse_result(content, name)
        contents = self._contents(names, file)
        return {name: _checked(name, file, contents[name], self._results[name]) for name in names}

    def history(self, name: str) -> list[dict[str, Any]]:
        """The progress reports of a finished trial, or of the attempt that runs; [] if none."""
        try:
            return [parsed_json(line) for line in self.read(name, HISTORY).splitlines()]
        except (DamagedTrial, ValueError):
            pass
        with suppress(ValueError, TypeError):
            last = parsed_json(self.storage.read(f"{TRIALS}/{name}/{PROGRESS}") or b"")
            step = last.get("dev_step") or last["step"]
            return [last | {"step": step, "curve": []}, last | {"dev": None}]
        return []

    def damage(self, state: State, *, thorough: bool, may_lack: Collection[str] = REMOVABLE) -> str:
        """The damage of a finished trial, "" for none: every file by its size, and by its SHA-256
        where it was changed after `result.json`; with `thorough` small files in any case. Objects
        of an object store change no bits."""
        if state.damage or not state.status.used:
            return state.damage
        thorough &= self.storage.is_local
        try:
            result, ended = self.result(state.name), state.files[RESULT].modified
            for file, known in result.files.items():
                if file not in state.files:
                    if file in may_lack:
                        continue
                    raise DamagedTrial(state.name, file, "does not exist")
                entry = state.files[file]
                _check_size(state.name, file, entry.size, known["bytes"])
                # All files are written before `result.json`: a later time means that somebody has
                # changed one.
                if entry.modified > ended or (thorough and known["bytes"] <= SMALL):
                    self.read(state.name, file)
        except DamagedTrial as error:
            return error.text
        return ""

    def begin(self, name: str, workers: int = 1) -> int:
        """Records that an attempt begins on so many workers; returns its number among those of this
        sweep. A damaged result no longer counts from here on."""
        state = self.drop_damaged(name)
        self.remove(name, {PROGRESS} & state.files.keys())
        taken = sum(map(_is_attempt, state.files))
        # `create` refuses a name that exists: commands that share a storage never get the same
        # number.
        for number in count(taken + 1):
            attempt = Attempt(
                attempt=number,
                sweep=self.sweep,
                command=self.command,
                begun=_now(),
                workers=workers,
            )
            path = f"{TRIALS}/{name}/attempt-{number}.json"
            if self.storage.create(path, _json(asdict(attempt))):
                break
        self._open[name] = path, attempt
        return len(state.counted_attempts) + 1

    def drop_damaged(self, name: str) -> State:
        """Removes what a trial has published, `result.json` first, if it is damaged; returns its
        state after it."""
        for _ in range(2):  # another command may just have published it
            state = self.state(name)
            if not self.damage(state, thorough=True):
                return state
        with suppress(DamagedTrial):  # without `result.json` no other file is known
            for file in self.result(name).files.keys() - state.files.keys():
                self.storage.remove_folder(f"{TRIALS}/{name}/{file}")  # in the place of a file
        self.remove(name, [file for file in state.files if not _is_attempt(file)])
        self._results.pop(name, None)
        return self.state(name)

    def end(self, name: str, status: str, **facts: Any) -> None:
        """Records the end of the attempt that began last here, with its kind, reason, host, node
        and whether another one follows (`again`)."""
        if name not in self._open:
            return
        path, attempt = self._open.pop(name)
        self._results.pop(name, None)
        ended = replace(attempt, ended=_now(), status=str(status), **facts)
        self.storage.write(path, _json(redact(asdict(ended))))

    def end_killed(self, names: Iterable[str]) -> None:
        """Records that the attempts of a killed driver have ended with it."""
        for name, state in self.states(names).items():
            for attempt in state.attempts:
                if attempt.command in self.killed and attempt.reason == KILLED:
                    path = f"{TRIALS}/{name}/attempt-{attempt.attempt}.json"
                    self.storage.write(path, _json(asdict(attempt)))

    @property
    def running(self) -> list[str]:
        """The trials whose attempts have begun here and not ended."""
        return list(self._open)

    def progress(self, name: str, news: Mapping[str, Any]) -> None:
        """Replaces the progress of a running trial; a storage that is away loses a report."""
        content = _json(dict(news) | {"time": _now()})
        with suppress(Exception):  # every filesystem has its own kinds
            self.storage.write(f"{TRIALS}/{name}/{PROGRESS}", content, wait=False)

    def publish(self, name: str, workdir: Path) -> Result:
        """Publishes the folder of a trial, `result.json` last. Of two commands that computed the
        same trial the first one counts, unless the second has more files. No file of an earlier run
        with other values stays."""
        result = sealed(workdir)
        state = self.state(name)
        if state.status.used and result.files.keys() <= self.result(name).files.keys():
            lacking = [file for file in result.files if file not in state.files]
            if not lacking and not self.damage(state, thorough=False):
                return self.result(name)
        # First of all the old result goes: between here and the end the trial counts as unfinished,
        # and a kill leaves no mixture of two runs.
        gone = {RESULT} & state.files.keys()
        if state.status.used and not _same_values(result, self.result(name)):
            gone |= self.result(name).files.keys() - result.files.keys()
        self.remove(name, gone)
        for file in sorted(result.files, key=REMOVABLE.__contains__):  # the values first
            if file in REMOVABLE:
                self._write_if_it_fits(name, workdir / file)
            else:
                self.storage.write(f"{TRIALS}/{name}/{file}", workdir / file)
        self.storage.write(f"{TRIALS}/{name}/{RESULT}", workdir / RESULT)
        self.remove(name, {PROGRESS} & state.files.keys())
        self._results[name] = result
        return result

    def _write_if_it_fits(self, name: str, file: Path) -> None:
        """Writes a file that a trial may lack. On a full disk its values count without it."""
        path = f"{TRIALS}/{name}/{file.name}"
        try:
            self.storage.write(path, file, wait=False)
        except Exception as error:  # every filesystem has its own kinds
            if not isinstance(error, OSError) or error.errno not in FULL:
                self.storage.write(path, file)  # with patience
                return
            _log.warning(
                "%s/%s: %s. The trial's values are kept; free some space, and the same command "
                "runs the trial again where its weights are wanted",
                *(self.storage.uri, path, error.strerror),
            )

    def remove(self, name: str, files: Iterable[str]) -> None:
        """Removes files of a trial, `result.json` first."""
        # Without its result a trial is unfinished, whatever else of it is left.
        for file in sorted(files, key=lambda file: file != RESULT):
            self.storage.remove(f"{TRIALS}/{name}/{file}")

    def checkpoint_folder(self, name: str) -> str:
        """The folder of a running trial's checkpoints, a path or URI that every node can open."""
        return f"{self.storage.uri}/{CHECKPOINTS}/{name}"

    def drop_checkpoints(self, names: Iterable[str]) -> None:
        """Removes checkpoints of finished trials whose process died before it removed them."""
        for name in set(self.storage.folders(CHECKPOINTS)) & set(names):
            self.storage.remove_folder(f"{CHECKPOINTS}/{name}")

    def listed(self, names: Sequence[str]) -> dict[str, dict[str, Entry]]:
        """{name: {file: entry}} of trials. An object store lists a thousand files per request;
        folder by folder it would need a request per trial."""
        listed: dict[str, dict[str, Entry]] = {name: {} for name in names}
        # A local storage may have trials of a hundred other sweeps, which nobody asked for.
        one_by_one = self.storage.is_local or len(names) == 1
        prefixes = [f"{TRIALS}/{name}" for name in names] if one_by_one else [TRIALS]
        for prefix in prefixes:
            for path, entry in self.storage.files(prefix).items():
                _, name, *rest = path.split("/")
                if name in listed and len(rest) == 1:
                    listed[name][rest[0]] = entry
        return listed

    def _bring(self, listed: Mapping[str, Mapping[str, Entry]]) -> None:
        """Reads the small files of trials that are new or changed."""
        wanted = {}
        for name, files in listed.items():
            for file, entry in files.items():
                path = f"{TRIALS}/{name}/{file}"
                # Size and time of a file decide whether it is read again: a status of a thousand
                # trials reads what has changed.
                if _is_small(file, files) and self._read.get(path, ("",))[0] != entry:
                    wanted[path] = entry
                    if file == RESULT:
                        self._results.pop(name, None)
        for path, content in self.storage.read_all(wanted).items():
            self._read[path] = wanted[path], content

    def _small(self, name: str, file: str) -> dict[str, Any]:
        """The content of a small file that was brought; {} if it is damaged."""
        try:
            content = parsed_json(self._read[f"{TRIALS}/{name}/{file}"][1])
        except (KeyError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _state(self, name: str, files: Mapping[str, Entry]) -> State:
        attempts = []
        # attempt-10 comes after attempt-9.
        for file in sorted(filter(_is_attempt, files), key=lambda file: (len(file), file)):
            with suppress(TypeError):  # damaged, or of another version
                attempt = self._as_ended(Attempt(**self._small(name, file)))
                attempts += [attempt] if self.sweep in ("", attempt.sweep) else []
        state = State(name, attempts=tuple(attempts), files=files)
        if RESULT in files:
            try:
                if name not in self._results:
                    content = self._read[f"{TRIALS}/{name}/{RESULT}"][1]
                    self._results[name] = parse_result(content, name)
                facts = self._results[name].facts
                return replace(state, status=TrialStatus(facts["status"]), facts=facts,
                               reason="completed")  # fmt: skip
            except (DamagedTrial, KeyError) as error:
                return replace(state, damage=getattr(error, "text", f"{RESULT} cannot be read"))
        status, reason = self._ended(attempts[-1]) if attempts else (TrialStatus.PLANNED, "")
        # It was finished, so somebody has removed the result.
        if attempts and attempts[-1].status in (TrialStatus.DONE, TrialStatus.COLLAPSED):
            return replace(state, damage=f"{RESULT} is missing")
        progress = self._small(name, PROGRESS) if PROGRESS in files else None
        return replace(state, status=status, reason=reason, progress=progress or None)

    def _as_ended(self, attempt: Attempt) -> Attempt:
        """An attempt, which has ended with its driver where that was killed."""
        end = self.killed.get(attempt.command) if attempt.ended is None else None
        if end is None:
            return attempt
        end = max(end, attempt.begun)
        return replace(attempt, ended=end, status=INTERRUPTED, reason=KILLED)

    def _ended(self, attempt: Attempt) -> tuple[TrialStatus, str]:
        """The status of a trial without a result, after its last attempt."""
        if attempt.ended is None or attempt.again:
            # A running attempt of a driver that is gone will never end: the token says whose it is.
            lives = attempt.command and attempt.command == self.command
            waits = TrialStatus.PLANNED, KILLED
            return (TrialStatus.RUNNING, "") if lives else waits
        if attempt.status in (TrialStatus.FAILED, TrialStatus.DIVERGED, TrialStatus.STOPPED):
            return TrialStatus(attempt.status), attempt.reason
        return TrialStatus.PLANNED, attempt.reason or attempt.status

    def _content(self, name: str, file: str) -> bytes:
        try:
            content = self.storage.read(f"{TRIALS}/{name}/{file}")
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            raise DamagedTrial(name, file, "is not a file") from None
        if content is None:
            raise DamagedTrial(name, file, "does not exist")
        return content

    def _contents(self, names: Collection[str], file: str) -> dict[str, bytes]:
        paths = {name: f"{TRIALS}/{name}/{file}" for name in names}
        found = self.storage.read_all(paths.values())
        for name, path in paths.items():
            if path not in found:
                raise DamagedTrial(name, file, "does not exist")
        return {name: found[path] for name, path in paths.items()}


def parse_result(content: bytes, name: str) -> Result:
    """The content of a `result.json`; raises `DamagedTrial` if it was changed or is incomplete."""
    try:
        facts = parsed_json(content)
        checksum, files = facts.pop("checksum"), facts["files"]
        TrialStatus(facts["status"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedTrial(name, RESULT, "must be the result of a trial") from None
    if checksum != own_digest(facts):
        raise DamagedTrial(name, RESULT, CHANGED)
    del facts["files"]
    return Result(facts, files)


def sealed(folder: Path) -> Result:
    """The result in a trial's working folder; its file gets the checksums of all others."""
    content = parsed_json((folder / RESULT).read_bytes())
    facts = {name: value for name, value in content.items() if name not in ("files", "checksum")}
    files = {}
    for path in sorted(folder.iterdir()):
        if path.name != RESULT:
            data = path.read_bytes()
            files[path.name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    whole = facts | {"files": files}
    (folder / RESULT).write_bytes(_json(whole | {"checksum": own_digest(whole)}))
    return Result(facts, files)


def own_digest(content: dict[str, Any]) -> str:
    """The SHA-256 of a JSON object."""
    # Of the values and not of the bytes: a file that was only formatted anew is the same result.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _checked(name: str, file: str, content: bytes, result: Result) -> bytes:
    if file in result.files:
        known = result.files[file]
        _check_size(name, file, len(content), known["bytes"])
        if hashlib.sha256(content).hexdigest() != known["sha256"]:
            raise DamagedTrial(name, file, CHANGED)
    return content


def _same_values(one: Result, other: Result) -> bool:
    """True if two runs of a trial gave the same values, to the last bit."""
    return all(
        one.files.get(file, {}).get("sha256") == other.files.get(file, {}).get("sha256")
        for file in (SCORES, "dev.run.gz", "test.run.gz")
    )


def _check_size(name: str, file: str, num_bytes: int, known: int) -> None:
    if num_bytes != known:
        raise DamagedTrial(name, file, f"has {num_bytes} of {known} bytes")


def _is_attempt(file: str) -> bool:
    return file.startswith("attempt-") and file.endswith(".json")


def _is_small(file: str, files: Collection[str]) -> bool:
    return file == RESULT or _is_attempt(file) or (file == PROGRESS and RESULT not in files)


def _json(content: Any) -> bytes:
    return json.dumps(content, indent=1).encode()


def _now() -> int:
    return time.time_ns() // 1_000_000
