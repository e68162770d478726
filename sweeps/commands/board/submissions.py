"""A bundle from anyone as a submission: verified first, then its systems.

All that a page shows of a bundle is turned into text here, where an error makes it a failed bundle
and leaves the others their page.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput
from rank_core.files import file_sha256
from rank_core.records import EVALUATED, Qrels
from sweeps.commands.bundle import (
    MOST_MIB,
    SWEEP,
    check_unpacked,
    finished_trials,
    give_qrels,
    manifest,
    not_recomputed,
    put_qrels,
    read_judgments,
    unpacked,
)
from sweeps.report.analysis import all_rows, analyse
from sweeps.report.headline import headline
from sweeps.store.scores import read_scores
from sweeps.store.sweep_file import SweepFile, find_sweep, read_sweep_file
from sweeps.systems.clusters import Queries, queries_of_sweep
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import Sweep, keeps_chunk_scores, load_sweep

VERIFIED, FAILED, UNVERIFIED = "verified", "failed", "not verified"
Scores = NDArray[np.float64]
Facts = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class BoardSystem:
    """A row of a bundle's report, for a board. `seconds` of training and evaluation are the mean of
    its runs. For a row that is not a cell they are NaN, and `settings` are empty."""

    row: str
    label: str
    deterministic: bool
    seeds: tuple[int, ...]
    scores: Mapping[str, Scores]  # {measure: (S, Q)}
    seconds: float
    swept: Facts = ()
    settings: Facts = ()


@dataclass(frozen=True)
class Submission:
    """A bundle below the folder of a board; only a verified one has systems."""

    name: str  # its path below the folder
    sha256: str
    state: str
    reason: str = ""  # the first difference of a failed one
    checks: Facts = ()  # verdicts of `verify`
    by: str = ""
    question: str = ""
    collection: str = ""
    split: str = ""
    judgments: str = ""  # SHA-256 of those of the split
    queries: tuple[str, ...] = ()
    known: Queries = field(default_factory=Queries, repr=False)  # of these
    primary: str = ""
    headline: str = ""  # of its own report, from the recomputed values
    command: str = ""
    commit: str = ""
    versions: Facts = ()
    systems: Sequence[BoardSystem] = field(default=(), repr=False)


def submissions(
    folder: Path, qrels: Mapping[str, Qrels], max_mib: int = MOST_MIB
) -> Iterator[Submission]:
    """Every `.zip` or `.ZIP` below the folder, in the order of their paths; `qrels` are the
    judgments of collections whose bundles have their hash alone."""
    first: dict[str, str] = {}
    zips = (path for path in folder.rglob("*") if path.suffix.lower() == ".zip")
    paths = {path.relative_to(folder).as_posix(): path for path in zips}
    for name in sorted(paths):
        path = paths[name]
        if path.is_symlink() or not path.is_file():
            yield Submission(name, "", FAILED, "must be a file, not a link or a folder")
            continue
        digest = file_sha256(path)
        if digest in first:
            yield Submission(name, digest, FAILED, f"a copy of {first[digest]}")
            continue
        first[digest] = name
        try:
            with unpacked(path, max_mib) as content:
                bundle = _checked(content, name, digest, qrels)
        except Exception as error:  # a hostile file must not take the page from the others
            text = str(error) if isinstance(error, BadInput) else repr(error)
            bundle = Submission(name, digest, FAILED, text.replace(str(path), "the file"))
        yield bundle


def _checked(folder: Path, name: str, digest: str, qrels: Mapping[str, Qrels]) -> Submission:
    """The bundle after its verification."""
    about, file = manifest(folder), read_sweep_file(folder / SWEEP)
    given = qrels.get(str(file.collection.get("name")), {})
    checks = tuple(check_unpacked(folder, given))
    if wrong := [text for verdict, text in checks if verdict == "wrong"]:
        # A place in a file says more than the file's checksum, which comes first.
        reason = next((text for text in wrong if ": SHA-256: " not in text), wrong[0])
        return Submission(name, digest, FAILED, reason, checks)
    needed = {*EVALUATED} if keeps_chunk_scores(file) else {file.split}
    if not given and not needed <= read_judgments(folder / SWEEP).keys():
        reason = "it has the hash of its judgments alone, which --qrels names"
        return Submission(name, digest, UNVERIFIED, reason, checks)
    folder /= SWEEP
    records = find_sweep(str(folder))
    values = read_scores(records, finished_trials(file, records))
    if unknown := not_recomputed(values["measure"].unique()):
        reason = f"its measure {unknown[0]} has a module of its own, which --measure names"
        return Submission(name, digest, UNVERIFIED, reason, checks)
    if given and keeps_chunk_scores(file):  # `check_unpacked` has left only their hash
        give_qrels(folder, about, given, values)
    loaded = with_interpolated(load_sweep(records, values))
    sweep, matrices = all_rows(loaded)
    put_qrels(folder, read_judgments(folder))  # in the order that is hashed; none of a hash's
    note = (folder / "qrels" / f"{sweep.split}.qrels.sha256").read_text(encoding="utf-8")
    first = matrices[sweep.primary]
    systems = [
        _system(sweep, file, row, {m: own.scores[row] for m, own in matrices.items()}, first.seeds)
        for row in first.cells
    ]
    sha, dirty = file.tags.get("git.sha", ""), file.tags.get("git.dirty") == "True"
    return Submission(
        *(name, digest, VERIFIED, "", checks, str(about.by), sweep.question),
        collection=str(sweep.about.collection.get("name", "")),
        split=sweep.split,
        judgments=note.partition(" ")[0],
        queries=first.query_ids,
        known=queries_of_sweep(folder, sweep.split),
        primary=sweep.primary,
        headline=headline(analyse(loaded)).sentence,
        command=str(sweep.about.command),
        commit=f"{sha[:10]}{', with changes' * dirty}",
        versions=_facts({"ranksweep": about.ranksweep} | dict(sweep.about.versions)),
        systems=systems,
    )


def _system(
    sweep: Sweep,
    file: SweepFile,
    row: str,
    scores: Mapping[str, Scores],
    seeds: Mapping[str, tuple[int, ...]],
) -> BoardSystem:
    trials = sweep.trials[(sweep.trials["cell"] == row) & sweep.trials["seed"].isin(seeds[row])]
    cell = {cell.cell: cell for cell in file.cells}.get(row)
    return BoardSystem(
        row=row,
        label=str(sweep.label(row)),
        deterministic=row in sweep.deterministic,
        seeds=seeds[row],
        scores=scores,
        seconds=float((trials["train_seconds"] + trials["eval_seconds"]).mean()),
        swept=_facts(cell.settings) if cell else (),
        settings=_facts(cell.config or cell.settings) if cell else (),
    )


def _facts(facts: Mapping[str, Any]) -> Facts:
    return tuple((str(name), str(value)) for name, value in facts.items())
