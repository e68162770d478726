"""`sweep.json`: the description of a sweep and its facts, read, checked and written here alone."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.errors import BadInput, shown
from rank_core.parsing import parsed_json
from rank_core.records import Collection
from rank_core.secrets import redact
from sweeps.store.earlier_file import NOT_INTERPOLATED, asked_in
from sweeps.store.records import TRIALS, Records, own_digest
from sweeps.store.stated_types import misfit
from sweeps.store.storage import Storage
from sweeps.store.test_options import CORRECT_OVER, USUAL, TestOptions

FILE = "sweep.json"
VERSION = 3  # of the file's format
ALWAYS = ("schema_version", "smoke_test")  # in the file with their defaults too
FIRST_STAGE = "first_stage"  # folder of the candidates, a run for each split
INTERPOLATED = "interpolated"  # folder of trials interpolated with the first stage
STORED = {"margin": "rope"}
"""{option of the tests: its key in the file, where that is another one}."""


@dataclass(frozen=True)
class Cell:
    """One configuration over its seeds, as the sweep declared it."""

    cell: str
    label: str = ""
    group: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # the swept ones
    ignored: Sequence[str] = ()  # swept ones without effect on the cell
    coverage: float | None = None  # share of the document tokens in some chunk
    encoder_tokens_per_document: float | None = None
    not_interpolated: str = ""  # why it has no row with the first stage
    retrieves: bool = False  # it ranks the whole collection and not the first stage's candidates
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its settings with an effect on its trials, without the seed."""


@dataclass(frozen=True)
class SweepFile:
    """The content of `sweep.json`; fields with their defaults are not in the file."""

    sweep: str
    question: str
    split: str
    measures: tuple[str, ...]
    primary: str
    baseline: str
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...] = ()
    trials: tuple[str, ...] = ()  # names of all that any command on this folder has planned
    swept: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  # points that were asked for and no cells, with the reasons
    baselines: Mapping[str, str] = field(default_factory=dict)  # {cell: its own baseline}
    deterministic: tuple[str, ...] = ()  # cells with one possible run
    tests: TestOptions = USUAL
    """How the table is tested; in the file they stand among the other fields."""
    collection: Mapping[str, Any] = field(default_factory=dict)
    backbone: Mapping[str, Any] = field(default_factory=dict)
    first_stage: Mapping[str, float] = field(default_factory=dict)  # its means on `split`
    first_stage_dev: Mapping[str, float] = field(default_factory=dict)
    kind: str = ""  # the name of the question; `sweep` is that of the folder
    command: str = ""  # as it was typed, for people; programs read the three fields below
    start: tuple[str, ...] = ()  # its words before the flags
    flags: Mapping[str, Any] = field(default_factory=dict)  # {name in Python: value}, as typed
    settings: Mapping[str, str] = field(default_factory=dict)  # {setting: its text}, as typed
    smoke_test: bool = False  # on little data, which answers nothing
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """{setting: value, or hash of the contents that it names} of what all cells share."""
    directory: str = ""  # its working directory
    profile: str = ""
    confirms: Mapping[str, Any] = field(default_factory=dict)  # the choice tested with new seeds
    experiment: str = ""  # MLflow's name of it
    tags: Mapping[str, str] = field(default_factory=dict)  # of its runs there: source and commits
    tracking_uri: str = ""
    search: Mapping[str, Any] = field(default_factory=dict)  # the search
    objectives: tuple[str, ...] = ()  # the measure and the costs that it seeks
    at_most: Mapping[str, float] = field(default_factory=dict)  # {cost: its limit}
    cost_weights: Mapping[str, float] = field(default_factory=dict)
    """{cost: what a unit of it counts in the choice}."""
    versions: Mapping[str, str] = field(default_factory=dict)  # of the trials' machines
    budget: Mapping[str, Any] = field(default_factory=dict)
    """Hours, their unit, units and workers of a slot, and the trials of begun blocks."""
    stopped: str = ""  # the reason for an early end
    auto_precision: Mapping[str, str] = field(default_factory=dict)
    """{cpu or cuda: what `training.precision=auto` is on all nodes, for all commands}."""
    published: tuple[Mapping[str, Any], ...] = ()  # values of a reference: `Published`
    interpolate: str = "best"  # the cells with a row "+BM25"
    test_sets: Mapping[str, str] = field(default_factory=dict)
    """{name of a test set: folder of its sweep, beside this one}."""
    trained_on: str = ""  # folder of the sweep whose trained models it tests, beside this one
    alphas: Mapping[str, float] = field(default_factory=dict)
    """{trial: weight of its model beside the first stage, chosen on dev of the training
    collection}."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Of a test set: `label`, `mean` and `num_candidates` of the choice of that sweep."""
    files: Mapping[str, str] = field(default_factory=dict)
    """{path in the folder: SHA-256} of the judgments and candidates; with them the file also has
    its own `checksum`."""
    schema_version: int = VERSION

    @property
    def eliminated(self) -> dict[str, int]:
        """{eliminated cell: its finished seeds by then}; empty without a race or ASHA."""
        return {
            line["cell"]: int(line["left_after"])
            for line in self.search.get("standings", ())
            if line["left_after"] is not None
        }

    def write(self, records: Records) -> None:
        """Writes the file, atomically."""
        records.write_file(FILE, self.content())

    def content(self) -> bytes:
        """The file as it is written, without secrets."""
        kept = {
            key: value
            for key, value in _flat(vars(self)).items()
            if key in (*ALWAYS, *_NEEDED) or value != _BLANK[key]
        }
        described = redact(parsed_json(json.dumps(kept, default=vars)))  # a `Cell`
        return json.dumps(described | {"checksum": own_digest(described)}, indent=1).encode()


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as the keys of the file, those of the tests among the others."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        options = vars(value) if isinstance(value, TestOptions) else {}
        flat |= {STORED.get(own, own): of for own, of in options.items()} or {name: value}
    return flat


_NEEDED = {one.name for one in fields(SweepFile) if one.default is one.default_factory is MISSING}
_BLANK = _flat(vars(SweepFile("", "", "", (), "", "", ())))


def read_sweep_file(where: Records | Path) -> SweepFile:
    """The description of a sweep, or of that in a folder; raises `BadInput` where there is none or
    it is damaged."""
    records = find_sweep(str(where)) if isinstance(where, Path) else where
    content = records.storage.answered(lambda: records.read_file(FILE))
    if content is None:
        inside = sweeps_below(records)
        listed = f"; it holds the folders of sweeps: {', '.join(inside)}" if inside else ""
        raise (BadInput if inside else NoSweep)(
            f"DIR must be a sweep's folder, which holds {FILE}; found none in {records.uri}{listed}"
        )
    return parse_sweep_file(content, records.uri)


def described(records: Records) -> SweepFile | None:
    """The description of a sweep for its command; None if there is none, or if it was changed: the
    command writes it again."""
    with suppress(ChangedDescription):
        content = records.read_file(FILE)
        return None if content is None else parse_sweep_file(content, records.uri)
    return None


def sweeps_in(records: Records) -> list[str]:
    """The names of the folders with a sweep that an experiment's folder holds."""
    storage = records.storage
    names = [name for name in storage.folders(records.sweep) if name != TRIALS]
    return [name for name in names if storage.modified(records.path(f"{name}/{FILE}"))]


def sweeps_below(records: Records) -> list[str]:
    """The names of the sweeps that an experiment's folder, or a storage, holds."""
    names = sweeps_in(records)
    for name in records.storage.folders(records.sweep):
        if name not in (*names, TRIALS) and not name.startswith("."):
            inside = Records(records.storage, records.path(name))
            names += [f"{name}/{own}" for own in sweeps_in(inside)]
    return names


def sweep_on(experiment: Records, collection: Collection, name: str = "") -> Records:
    """The sweep of an experiment on a collection, with the name of the collection or `name`; with
    six more digits if that folder has a collection of other contents."""
    name = re.sub(r"[^\w.+-]+", "-", name or collection.name).strip("-.")[:80] or "collection"
    plain, apart = (
        Records(experiment.storage, f"{experiment.sweep}/{name}{suffix}")
        for suffix in ("", f"-{collection.content_hash[:6]}")
    )
    file = described(plain)
    known = file.collection.get("content_hash", "") if file else ""
    return plain if known in ("", collection.content_hash) else apart


def find_sweep(where: str) -> Records:
    """A sweep by its folder or its URI, which may not exist."""
    if "://" not in where:
        folder = Path(where).absolute()
        if not folder.exists():
            raise NoSweep(f"{where} does not exist; DIR must be a sweep's folder")
        if not folder.is_dir():
            raise BadInput(f"DIR must be a sweep's folder, got the file {where}")
        own = (folder / TRIALS).is_dir()  # of a bundle
        above = folder if own else folder.parent.parent
        return Records(Storage(str(above)), "" if own else str(folder.relative_to(above)))
    storage, _, sweep = where.rstrip("/").rpartition("/")
    storage, _, experiment = storage.rpartition("/")
    if not storage.partition("://")[2]:
        raise BadInput(
            "DIR as a URI must be storage/experiment/collection, as in "
            f"s3://bucket/path/window_stride/python-docs; got {where}"
        )
    return Records(Storage(storage), f"{experiment}/{sweep}")


@contextmanager
def opened(where: str) -> Iterator[Records]:
    """A sweep to read, in a folder: a remote one is copied first. Errors about the copy name its
    URI."""
    records = find_sweep(where)
    copy = local_copy(records, read_sweep_file(records))
    try:
        yield copy
    except BadInput as error:
        raise BadInput(str(error).replace(str(copy.folder), records.uri)) from None


def local_copy(records: Records, file: SweepFile) -> Records:
    """A remote sweep with its trials as a folder of this machine, without large weights. Files that
    have not changed since the last copy are not fetched again; a local sweep is itself."""
    if records.storage.is_local:
        return records
    root = records.folder.parents[records.sweep.count("/")]
    root.mkdir(parents=True, exist_ok=True)
    copy = Records(Storage(str(root)), records.sweep, command=records.command)
    copy.origin = records
    known = copy.storage.files()
    wanted = records.storage.files(records.sweep)
    for name, files in records.listed(file.trials).items():
        wanted |= {f"{TRIALS}/{name}/{f}": entry for f, entry in files.items() if f != WEIGHTS}
    for path in known.keys() - wanted.keys():
        if path.startswith(f"{TRIALS}/"):
            copy.storage.remove(path)
    new = [path for path, entry in wanted.items() if known.get(path) != entry]
    for path, content in records.storage.read_all(new).items():
        copy.storage.write(path, content)
        at = wanted[path].modified
        os.utime(f"{copy.storage.root}/{path}", (at, at))
    return copy


def send(copy: Records, *names: str) -> None:
    """Sends files and folders that were written in the copy of a remote sweep to its storage."""
    if copy.origin is None:
        return
    for name in names:
        for path in copy.storage.files(copy.path(name)) or [copy.path(name)]:
            file = Path(copy.storage.root, path)
            if file.is_file():
                copy.origin.storage.write(path, file)


def command_in(directory: str, command: str) -> str:
    """A command for any working directory from one that was typed in `directory`, whose relative
    paths and modules it needs."""
    # A folder may have several paths, such as a mount and a link.
    here = not directory or (os.path.exists(directory) and os.path.samefile(directory, os.getcwd()))
    return command if here else f"cd {shlex.quote(directory)} && {command}"


def advisable(command: Any) -> str:
    """The command of a sweep's folder, if it starts ranksweep or a script alone; "" otherwise: who
    wrote the folder must not speak to a shell through our advice. A script, a sweep's file or code
    that it names would run: docs/security.md says so."""
    text = command if isinstance(command, str) else ""
    bare = re.sub(r"'[^']*'", "", text.replace("'\"'\"'", ""))
    if re.search(r"[;&|<>`$()\\\"'\x00-\x1f]", bare):
        return ""
    try:
        program, *words = shlex.split(text) or [""]
    except ValueError:  # a quotation mark without its other
        return ""
    name = Path(program).name
    script = "".join(words[:1]).endswith(".py") or words[:2] == ["-m", "sweeps"]
    python = re.fullmatch(r"python[\d.]*", name) and script
    return text if name == "ranksweep" or python else ""


def written_again(command: Any) -> str:
    """The remedy for a damaged file of a sweep, as it ends a message."""
    typed = f": {text}" if (text := advisable(command)) else ""
    return f"the sweep's command writes it again{typed}"


class NoSweep(BadInput):
    """The error of a folder in which a sweep may begin later."""


class ChangedDescription(BadInput):
    """The error of a `sweep.json` that is not as the sweep's command wrote it."""


def update_sweep_file(records: Records, **facts: Any) -> None:
    """Adds or replaces facts, if that changes the file."""
    content = replace(read_sweep_file(records), **facts).content()
    if content != records.read_file(FILE):
        records.write_file(FILE, content)


def verdict(records: Records) -> str:
    """The headline of a sweep's report, of an older one its first sentence; "" without one."""
    with suppress(OSError, ValueError, KeyError, IndexError, TypeError):
        results = parsed_json(records.read_file("report/results.json") or b"")
        for name in ("headline", "recommendation"):  # until 0.4
            if found := results.get(name):
                return str(found["sentence"])
        return str(results["conclusions"][0])
    return ""


def stated_choice(records: Records) -> str:
    """`MaxP 64/48, nDCG@10 0.310 on dev`: the choice of a sweep's report; "" without one."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        choice = parsed_json(records.read_file("report/results.json") or b"")["choice"]
        return f"{choice['label']}, {choice['measure']} {choice['mean']:.3f} on {choice['split']}"
    return ""


def _contradiction(described: Mapping[str, Any]) -> str:
    """What a description of the right types says of something that it does not have."""
    names = [cell["cell"] for cell in described["cells"]]
    known = {
        "primary": described["measures"],
        "baseline": names,
        "correct_over": CORRECT_OVER,
    }
    for key, choices in known.items():
        if key in described and described[key] not in choices:
            return (
                f"{key} must be one of {', '.join(filter(None, choices))}, got {described[key]!r}"
            )
    if odd := [name for name in names if Path(name).name != name]:
        return f"a cell's name must be plain, got {shown(odd[0])}"
    if len({*names}) < len(names):
        return f"two cells have the name {max(names, key=names.count)}"
    return ""


def parse_sweep_file(content: bytes, where: str) -> SweepFile:
    """The description in a file's bytes; `where` names the folder in errors. A file that is not as
    a sweep's command wrote it is refused."""
    path = f"{where}/{FILE}"
    try:
        described = parsed_json(content)
        version, command = described.get("schema_version", 1), described.get("command")
    except (ValueError, AttributeError):
        raise ChangedDescription(f"{path}: must be a sweep's description in JSON") from None
    if version != VERSION:
        raise BadInput(
            f"{path}: schema_version must be {VERSION}, got {version}: sweeps of ranksweep 0.1 and "
            "0.2 are neither read nor continued; run them again into another --storage"
        )
    if described.pop("checksum", None) != own_digest(described):
        raise ChangedDescription(
            f"{path} was changed after the sweep's command wrote it; {written_again(command)}"
        )
    if isinstance(known := described.pop("cpu", None), dict):  # of 0.4, with its kernels
        in_bf16 = known.get("matrix_units") is True
        described.setdefault("auto_precision", {"cpu": "bf16" if in_bf16 else "fp32"})
    tests, facts = _parted(described)
    if why := misfit(TestOptions, tests) or misfit(SweepFile, facts) or _contradiction(described):
        raise ChangedDescription(f"{path}: {why}; {written_again(command)}")
    if command and "start" not in described:
        described |= asked_in(str(command))
        described["kind"] = described.get("confirms", {}).get("sweep", described["sweep"])
        for cell in described["cells"]:
            model = cell.get("settings", {}).get("model.name")
            cell["not_interpolated"] = NOT_INTERPOLATED.get(model, "")
    cells = tuple(Cell(**_frozen(cell)) for cell in described.pop("cells"))
    return sweep_file(**_frozen(described), cells=cells)


def sweep_file(**facts: Any) -> SweepFile:
    """The description with these facts, by the keys of the file."""
    tests, others = _parted(facts)
    return SweepFile(**others, tests=TestOptions(**tests))


def _parted(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the tests among the keys of the file, and the other fields."""
    keys = {STORED.get(one.name, one.name): one.name for one in fields(TestOptions)}
    tests = {keys[key]: value for key, value in facts.items() if key in keys}
    return tests, {key: value for key, value in facts.items() if key not in keys}


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
