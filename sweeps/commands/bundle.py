"""`ranksweep bundle DIR`: a finished sweep as one file that anyone can check.

    sweep/        the sweep's folder: settings, runs, judgments, per-query values, report
    bundle.json   the version that made the report, and whether the judgments are in it
    SHA256SUMS    of every other file

`bundle` and `verify` make the report by the same `report_of`, from such a folder alone.
"""

import hashlib
import json
import os
import shlex
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

import pandas as pd

from rank_core.data.ir_collections import PREFIX, is_dataset, is_fold
from rank_core.data.load import COLLECTIONS
from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.data.trec import read_qrels, write_qrels
from rank_core.errors import BadInput
from rank_core.files import atomic_write, file_sha256, write_json
from rank_core.records import Qrels
from sweeps.plan.command_line import Parser, check_writable
from sweeps.plan.terminal import say
from sweeps.report.access import ACCESS_FILE, read_accesses, record_access
from sweeps.report.analysis import analyse
from sweeps.report.build import report_files
from sweeps.report.interpolation import with_interpolated
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.query_page import TEXTS, moved_queries
from sweeps.report.unjudged import with_unjudged
from sweeps.store.records import HISTORY, RESULT, SCORES, TRIALS
from sweeps.store.scores import read_scores
from sweeps.store.sweep_file import FIRST_STAGE, find_sweep, opened, read_sweep_file, send

SUMS = "SHA256SUMS"  # of every other file, for `sha256sum --check`
SWEEP, MANIFEST, FORMAT = "sweep", "bundle.json", 2
SPLITS = ("dev", "test")
RUNS = tuple(f"{split}.run.gz" for split in SPLITS)
TRIAL_FILES = {RESULT, "config.json", HISTORY, SCORES, "folds.parquet", "interpolation.json", *RUNS}
EMBEDDED = ("python-docs", "python-docs-passages")
"""Collections whose judgments come with this package."""


@dataclass(frozen=True)
class Manifest:
    """The provenance of a bundle: the content of its `bundle.json`."""

    format: int
    ranksweep: str  # the version that wrote the report
    qrels: str  # "include" or "hash"
    by: str = ""  # who submits it, as they say


def main(argv: Sequence[str]) -> int:
    """Write a finished sweep into one zip file: settings, versions, runs, per-query values, report
    and checksums. `ranksweep verify FILE` recomputes all of its numbers. The same sweep gives the
    same bytes.

    Judgments that come with ranksweep are included; those of ir_datasets have licences of their own
    and are only hashed; those of your own folder are hashed unless --qrels include is given."""
    parser = Parser("ranksweep bundle", main.__doc__)
    add = parser.add_argument
    add("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add("--to", type=Path, required=True, metavar="FILE.zip", help="a new file")
    add("--qrels", choices=("include", "hash"), default="", help="the judgments, or their SHA-256")
    add("--by", default="", metavar="NAME", help="who submits it to a board")
    given = parser.parse_args(argv)
    if given.to.suffix != ".zip" or given.to.exists():
        raise BadInput(f"--to must be a new file whose name ends in .zip, got {given.to}")
    check_writable("the folder of --to", given.to.parent)
    with opened(given.sweep) as records, tempfile.TemporaryDirectory() as temporary:
        sweep, folder = load_sweep(records.folder), Path(temporary)
        record_access(sweep, shlex.join(["ranksweep", "bundle", *argv]))
        send(records, ACCESS_FILE)
        collection = _collection_of(sweep)
        qrels = qrels_mode(collection, given.qrels)
        about = Manifest(FORMAT, installed(), qrels, given.by)
        stage(sweep, folder, about)
        write_json(folder / MANIFEST, asdict(about))
        given.to.parent.mkdir(parents=True, exist_ok=True)
        write_zip(given.to, folder)
        number = len(files_of(folder))
    place = folder_and_fields(base_of(collection))[0]
    if Path(place).is_absolute():
        say(f"warning: config.json of every trial names the folder of your documents: {place}")
    judgments = "its judgments" if qrels == "include" else "the hash of its judgments"
    say(
        f"bundled     {given.to}: {number} files, {given.to.stat().st_size:,} bytes, with "
        f"{judgments}; ranksweep verify {given.to}"
    )
    return 0


def installed() -> str:
    """The version of ranksweep."""
    try:
        return version("ranksweep")
    except PackageNotFoundError:
        return "of a checkout"


def qrels_mode(collection: str, requested: str) -> str:
    """`include` or `hash`, as the collection allows. Judgments that come with this package are
    included. Those of ir_datasets have licences of their own and are only hashed. Those of the
    user's folder or function are hashed unless asked for: a publication cannot be taken back."""
    base = folder_and_fields(base_of(collection))[0]
    if base in EMBEDDED:
        return requested or "include"
    theirs = base in COLLECTIONS or is_fold(base) or base.startswith(PREFIX)
    theirs = (theirs or is_dataset(base)) and not os.path.isdir(os.path.expanduser(base))
    if theirs and requested == "include":
        raise BadInput(f"--qrels include: {collection} has judgments with their own licence")
    return requested or "hash"


def _collection_of(sweep: Sweep) -> str:
    """The name, folder or expression by which the trials know their collection."""
    configs = [path for path in trial_files(sweep).values() if path.name == "config.json"]
    names = (json.loads(config.read_bytes()).get("collection") for config in configs)
    return str(next(filter(None, names), sweep.collection.get("name", "")))


def trial_files(sweep: Sweep) -> dict[str, Path]:
    """{path in a bundle's sweep: file} of the sweep's trials, without attempts of other sweeps."""
    records = find_sweep(str(sweep.folder))
    names = map("{}-seed{}".format, sweep.trials["cell"], sweep.trials["seed"])
    files = {}
    for name, state in records.states(names).items():
        own = {f"attempt-{attempt.attempt}.json" for attempt in state.attempts}
        for file in sorted(state.files.keys() & (TRIAL_FILES | own)):
            files[f"{TRIALS}/{name}/{file}"] = records.trial_folder(name) / file
    return files


def stage(sweep: Sweep, folder: Path, about: Manifest) -> None:
    """Fill `folder` with the contents of a sweep's bundle; large files are links. The report is
    made from these files alone."""
    source, target = find_sweep(str(sweep.folder)), folder / SWEEP
    (target / TRIALS).mkdir(parents=True)
    described = replace(read_sweep_file(source), directory="", tracking_uri="", files={})
    described.write(find_sweep(str(target)))
    named = [ACCESS_FILE, *(f"{FIRST_STAGE}/{run}" for run in RUNS)]
    if about.qrels == "include":
        named += [str(TEXTS), *(f"qrels/{split}.qrels" for split in SPLITS)]
    else:
        put_qrels(target, read_judgments(sweep.folder))
    files = {name: sweep.folder / name for name in named if (sweep.folder / name).is_file()}
    for path, file in (trial_files(sweep) | files).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).symlink_to(file.absolute())
    used = sweep.scores[["cell", "seed"]].drop_duplicates()
    values = read_scores(source, [*map("{}-seed{}".format, used["cell"], used["seed"])])
    for name, content in report_of(target, about, values).items():
        (target / "report" / name).parent.mkdir(parents=True, exist_ok=True)
        (target / "report" / name).write_bytes(content)


def read_judgments(folder: Path) -> dict[str, Qrels]:
    """{split: judgments} in a sweep's folder."""
    paths = {split: folder / "qrels" / f"{split}.qrels" for split in SPLITS}
    return {split: read_qrels(path) for split, path in paths.items() if path.is_file()}


def put_qrels(folder: Path, judged: Mapping[str, Qrels]) -> None:
    """Write judgments and beside them the SHA-256 of their lines `query_id 0 doc_id relevance`,
    sorted by query and document."""
    (folder / "qrels").mkdir(exist_ok=True)
    for split, qrels in judged.items():
        path = folder / "qrels" / f"{split}.qrels"
        write_qrels(path, {query: dict(sorted(qrels[query].items())) for query in sorted(qrels)})
        note = path.with_name(f"{path.name}.sha256")
        note.write_text(f"{file_sha256(path)}  {path.name}\n", encoding="utf-8")


def report_of(folder: Path, about: Manifest, values: pd.DataFrame) -> dict[str, bytes]:
    """{file: contents} of the report on a bundle's sweep with these per-query values. Rows with the
    first stage are computed from runs and judgments; then judgments that are only hashed are
    removed, so that no page shows them."""
    sweep = with_interpolated(load_sweep(folder, values))
    if about.qrels == "hash":
        for split in SPLITS:
            (folder / "qrels" / f"{split}.qrels").unlink(missing_ok=True)
    return report_files(
        analysed := with_unjudged(analyse(sweep)),
        accesses=read_accesses(folder / ACCESS_FILE),
        queries=moved_queries(analysed),
        label=f"tab:{sweep.name}",
    )


def files_of(folder: Path) -> list[str]:
    """The sorted relative paths of all files below a folder except the checksums."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in paths if name != SUMS)


def write_zip(out: Path, folder: Path) -> None:
    """Write all files of a folder and their checksums to `out`, whole or not at all, in the order
    of their names and without times."""
    sums = []
    with atomic_write(out) as unfinished, ZipFile(unfinished, "w") as archive:
        for name in files_of(folder):
            content = (folder / name).read_bytes()
            archive.writestr(_entry(name), content)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        archive.writestr(_entry(SUMS), "".join(sums))


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # of 1980
    entry.compress_type = ZIP_DEFLATED
    entry.create_system, entry.external_attr = 3, 0o100644 << 16  # as on Unix everywhere
    return entry


def unpack(path: Path, folder: Path) -> None:
    """Unpack a zip file, from any source, into a folder; no entry leads out of it. Raises
    `BadInput` where the file is damaged or the disk full."""
    try:
        with ZipFile(path) as archive:
            if not all(archive.namelist()):
                raise BadZipFile("a file in it has no name")
            size = sum(entry.file_size for entry in archive.infolist())
            if size > (free := shutil.disk_usage(folder).free):
                raise BadInput(f"{path}: unpacks to {size:,} bytes, and {free:,} are free")
            archive.extractall(folder)
    except (OSError, BadZipFile, zlib.error, NotImplementedError, ValueError) as error:
        reason = str(error).replace(f"{folder}/", "")
        raise BadInput(f"{path} must be a zip file as `bundle` wrote it: {reason}") from None


def wrong_sums(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(file, stated SHA-256, actual SHA-256) where an unpacked bundle and its checksums disagree;
    "none" for a file that is missing or not stated."""
    path = folder / SUMS
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    stated = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    own = {name: file_sha256(folder / name) for name in files_of(folder)}
    for name in sorted({*stated, *own}):
        if stated.get(name) != own.get(name):
            yield name, stated.get(name, "none"), own.get(name, "none")
