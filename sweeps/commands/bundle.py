"""`ranksweep bundle DIR` and `verify FILE.zip`: a sweep as one file that anyone can check.

    sweep/        the sweep's folder: settings, runs, judgments, per-query values, report, and the
                  record of looks at test values
    bundle.json   the version that made the report, and whether the judgments are in it
    SHA256SUMS    of every other file

`bundle` and `verify` make the report by the same `report_of`, from such a folder alone.
"""

import hashlib
import io
import math
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

import numpy as np
import pandas as pd

from rank_core.bounds import at_most
from rank_core.data import hub
from rank_core.data.ir_collections import PREFIX, is_dataset, is_fold
from rank_core.data.load import COLLECTIONS
from rank_core.data.made.python_docs import EMBEDDED
from rank_core.data.named_files import named_qrels
from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.data.trec import read_qrels, read_run, write_qrels
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput, shown
from rank_core.evaluate import per_query
from rank_core.files import atomic_write, file_sha256
from rank_core.models.kept_files import CHUNK_SCORES, EVIDENCE, INDEX, SELECTED_BLOCKS
from rank_core.own_code import is_reference, load, may_import, only_named
from rank_core.parsing import parsed_json
from rank_core.records import EVALUATED, Qrels
from sweeps.findings.analysis import analyse
from sweeps.findings.unjudged import with_unjudged
from sweeps.report.files import report_files
from sweeps.report.query_page import TEXTS, moved_queries
from sweeps.store.queries import QUERIES
from sweeps.store.records import HISTORY, RESULT, SCORES, TRIALS, Records, cell_and_seed, trial_name
from sweeps.store.scores import SCORE_COLUMNS, as_categories, read_scores
from sweeps.store.scores import TEXTS as IDS
from sweeps.store.sweep_file import (
    FILE,
    FIRST_STAGE,
    INTERPOLATED,
    SweepFile,
    find_sweep,
    read_sweep_file,
)
from sweeps.systems.access import access_hash
from sweeps.systems.access_log import ACCESS_FILE, Access, read_accesses, write_accesses
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import Sweep, keeps_chunk_scores, load_sweep, trial_config

SUMS = "SHA256SUMS"  # of every other file, for `sha256sum --check`
SWEEP, MANIFEST, FORMAT = "sweep", "bundle.json", 2
COMPARISON = "comparison.json"  # of the folder of `compare --out`, and of its bundle
RUNS = tuple(f"{split}.run.gz" for split in EVALUATED)
TRIAL_FILES = {RESULT, "config.json", HISTORY, SCORES, "folds.parquet", "interpolation.json", *RUNS}
TRIAL_FILES |= {INDEX, EVIDENCE, SELECTED_BLOCKS}  # of some models
"""Files of every trial; `trial_files_of` adds those of some sweeps."""
MOST_MIB = 512
MOST_BYTES = MOST_MIB << 20  # of the files in a bundle from anyone; the flag --max-mib
RELATIVE, ABSOLUTE = 1e-6, 1e-12
"""Tolerance of unrounded numbers: another processor may round the last digits differently. Rounded
numbers of tables and pages must be equal."""
EXACT = (".md", ".tex", ".html")
BY_QRELS = "the bundle has only the hash of its judgments; name them with --qrels FILE"
ONLY_HASHED = f"per-query values against runs, rows with the first stage: {BY_QRELS}"
KEYS = ["cell", "seed", "split", "query_id", "measure"]
PICTURES = (".png", ".svg")
SHADES = 8  # of 255, by which a pixel of the same figure may differ
_ATTEMPT = re.compile(r"attempt-\d+\.json")
Verdict = tuple[str, str]
LONGEST = 160  # characters of a line in a message
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")
_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


@dataclass(frozen=True)
class Manifest:
    """The provenance of a bundle: the content of its `bundle.json`."""

    format: int
    ranksweep: str  # the version that wrote the report
    qrels: str  # "include" or "hash"
    by: str = ""  # who submits it, as they say
    matplotlib: str = ""  # the version that drew the figures; unknown before 0.4


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
    licensed = base in COLLECTIONS or is_fold(base) or base.startswith((PREFIX, hub.PREFIX))
    licensed = (licensed or is_dataset(base)) and not os.path.isdir(os.path.expanduser(base))
    if licensed and requested == "include":
        raise BadInput(f"--qrels include: {collection} has judgments with their own licence")
    return requested or "hash"


def collection_of(sweep: Sweep) -> str:
    """The name, folder or expression by which the trials know their collection."""
    configs = [path for path in trial_files(sweep).values() if path.name == "config.json"]
    names = (parsed_json(config.read_bytes(), config).get("collection") for config in configs)
    return str(next(filter(None, names), sweep.about.collection.get("name", "")))


def trial_files_of(about: SweepFile) -> set[str]:
    """The names of the files that a bundle has of a trial, beside its attempts; chunk scores where
    the rows of the report are computed from them."""
    return TRIAL_FILES | ({CHUNK_SCORES} if keeps_chunk_scores(about) else set())


def trial_files(sweep: Sweep) -> dict[str, Path]:
    """{path in a bundle's sweep: file} of the sweep's trials, without attempts of other sweeps."""
    records = sweep.stored
    names = map(trial_name, sweep.trials["cell"], sweep.trials["seed"])
    files, held = {}, trial_files_of(sweep.about)
    for name, state in records.states(names).items():
        attempts = {f"attempt-{attempt.attempt}.json" for attempt in state.attempts}
        for file in sorted(state.files.keys() & (held | attempts)):
            files[f"{TRIALS}/{name}/{file}"] = records.trial_folder(name) / file
    return files


def stage(sweep: Sweep, folder: Path, about: Manifest, accesses: Sequence[Access]) -> None:
    """Fill `folder` with the contents of a sweep's bundle; large files are links. The report is
    made from these files alone."""
    source, target = sweep.stored, folder / SWEEP
    (target / TRIALS).mkdir(parents=True)
    described = replace(sweep.about, directory="", tracking_uri="", files={})
    described.write(find_sweep(str(target)))
    if accesses:  # of a folder that is read only, too
        write_accesses(target / ACCESS_FILE, accesses)
    named = [f"{FIRST_STAGE}/{run}" for run in RUNS]
    named += [f"{QUERIES}/{sweep.split}.jsonl"]
    if about.qrels == "include":
        named += [str(TEXTS), *(f"qrels/{split}.qrels" for split in EVALUATED)]
    else:
        put_qrels(target, read_judgments(sweep.folder))
    files = {name: sweep.folder / name for name in named if (sweep.folder / name).is_file()}
    for path, file in (trial_files(sweep) | files).items():
        if file.is_symlink():
            raise BadInput(f"{file} is a link, which is not copied into a bundle: put a file there")
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).symlink_to(file.absolute())
    used = sweep.scores[["cell", "seed"]].drop_duplicates()
    values = read_scores(source, [*map(trial_name, used["cell"], used["seed"])])
    for name, content in report_of(target, about, values).items():
        (target / "report" / name).parent.mkdir(parents=True, exist_ok=True)
        (target / "report" / name).write_bytes(content)


def read_judgments(folder: Path) -> dict[str, Qrels]:
    """{split: judgments} in a sweep's folder."""
    paths = {split: folder / "qrels" / f"{split}.qrels" for split in EVALUATED}
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
    removed, so that no page shows them, nor which queries share relevant documents."""
    sweep = with_interpolated(load_sweep(folder, values))
    if about.qrels == "hash":
        sweep = replace(sweep, sharing={})
        for split in EVALUATED:
            (folder / "qrels" / f"{split}.qrels").unlink(missing_ok=True)
    return report_files(
        analysed := with_unjudged(analyse(sweep)),
        accesses=read_accesses(folder / ACCESS_FILE),
        queries=moved_queries(analysed),
        label=f"tab:{sweep.about.sweep}",
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


def unpack(path: Path, folder: Path, most: int = MOST_BYTES) -> None:
    """Unpack a zip file, from any source, into a folder; no entry leads out of it. Raises
    `BadInput` where the file is damaged, the disk full, or the content above `most` bytes."""
    try:
        with ZipFile(path) as archive:
            if not all(archive.namelist()):
                raise BadZipFile("a file in it has no name")
            size = sum(entry.file_size for entry in archive.infolist())
            if size > most:
                raise BadInput(
                    f"{path}: unpacks to {size:,} bytes, more than the {most:,} of --max-mib "
                    f"{most >> 20}. Raise it if you know the bundle"
                )
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
    actual = {name: file_sha256(folder / name) for name in files_of(folder)}
    for name in sorted({*stated, *actual}):
        if stated.get(name) != actual.get(name):
            yield name, stated.get(name, "none"), actual.get(name, "none")


@contextmanager
def own_measures(names: Sequence[str]) -> Iterator[None]:
    """A block that reads bundles and imports the modules of these measures alone. Raises `BadInput`
    for names of another form, and where one cannot be imported."""
    for name in names:
        if not is_reference(name):
            raise BadInput(f"--measure must be MODULE:NAME, as in my_module:f, got {shown(name)}")
        load("measure", name)
    with only_named(names):
        yield


def not_recomputed(measures: Iterable[str]) -> list[str]:
    """The measures of someone's own that `own_measures` does not name, sorted."""
    return sorted(m for m in {*measures} if is_reference(m) and not may_import(m))


@contextmanager
def unpacked(
    bundle: Path, max_mib: int = MOST_MIB, holds: Sequence[str] = (SWEEP,)
) -> Iterator[Path]:
    """Yields a temporary folder with a bundle's files, one of which it `holds`. Errors while it is
    read become a `BadInput` that names the bundle."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unpack(bundle, folder, max_mib << 20)
        if not any((folder / name).exists() for name in holds):
            raise BadInput(
                f"{bundle} must be a zip file as `bundle` wrote it: there is no {SWEEP}/ at its top"
                + (" but a comparison" if (folder / COMPARISON).exists() else "")
            )
        try:
            with at_most(max_mib << 20):  # its files are compressed themselves
                yield folder
        except BadInput as error:
            raise BadInput(f"{bundle}: {str(error).replace(f'{folder}/', '')}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError) as error:
            raise BadInput(f"{bundle} is not as `bundle` wrote it: {error!r}") from None


def check_unpacked(folder: Path, qrels: Qrels) -> Iterator[tuple[str, str]]:
    """The verdicts of `verify` on the files of a bundle; judgments it was given stay in the folder
    only where the bundle includes its own."""
    about = manifest(folder)
    yield "checked", f"SHA-256 of {len(files_of(folder))} files"
    for file, stated, actual in wrong_sums(folder):
        yield "wrong", f"{file}: SHA-256: states {stated}, is {actual}"
    root, folder = folder, folder / SWEEP
    sweep, records = read_sweep_file(folder), find_sweep(str(folder))
    if outside := [cell.cell for cell in sweep.cells if Path(cell.cell).name != cell.cell]:
        raise BadInput(f"a cell's name must be plain, got {shown(outside[0])}")
    names = finished_trials(sweep, records)
    held = trial_files_of(sweep)
    for name in files_of(root):
        if not _may_hold(name, sweep, held):
            yield "wrong", f"{name}: a bundle of this sweep has no such file"
    there = {path.name for path in (folder / TRIALS).iterdir()}
    lacking = sorted(({*sweep.trials} | there) - set(names))
    if lacking:
        yield "not checked", f"trials that are not in the table: {', '.join(lacking)}"
    for name, state in records.states(names).items():
        # A bundle has not all files of a trial.
        files = () if state.damage else records.result(name).files
        left_out = {file for file in files if Path(file).name == file} - held
        if damage := records.damage(state, thorough=True, may_lack=left_out):
            yield "wrong", f"{SWEEP}/{TRIALS}/{name}: {damage}"
            return
    stated = read_scores(records, names)
    if qrels:
        judges = give_qrels(folder, about, qrels, stated)
        yield "checked", f"--qrels judges {judges}"
    judged = read_judgments(folder)
    values = _recomputed(records, stated, judged)
    unknown = not_recomputed(stated["measure"].unique())
    for name in unknown:
        why = "code that a bundle names is not run; if its module is yours,"
        yield "not checked", f"{shown(name)}: not recomputed: {why} --measure {name}"
    if judged:
        number = int((~values["measure"].isin(unknown)).sum())
        yield "checked", f"{number:,} per-query values against runs and judgments"
        yield from _wrong_values(stated, values)
        shutil.rmtree(folder / INTERPOLATED, ignore_errors=True)  # made again with the report
    else:
        yield "not checked", ONLY_HASHED
    digest = access_hash(load_sweep(folder, values))
    if digest and digest not in {access.hash for access in read_accesses(folder / ACCESS_FILE)}:
        yield (
            "wrong",
            f"{SWEEP}/{ACCESS_FILE}: no record of the look at the test values of these trials",
        )
    if about.ranksweep != installed():
        yield "not checked", f"the report: written by ranksweep {about.ranksweep}, install that one"
        return
    if unknown:
        yield "not checked", "the report, which such a measure is part of"
        return
    if keeps_chunk_scores(sweep) and not {*EVALUATED} <= judged.keys():
        yield "not checked", f"the report: its rows are those of chunk scores; {BY_QRELS}"
        return
    for difference in _otherwise_described(records, sweep, names):
        yield "wrong", f"{SWEEP}/{FILE}: {difference}"
    yield from compared(folder / "report", report_of(folder, about, values), about)


def _may_hold(name: str, sweep: SweepFile, held: Collection[str]) -> bool:
    """Whether `bundle` writes a file of this path, with the files `held` of each trial. Those of
    the report are compared with a report that is made again."""
    planned = {trial_name(cell.cell, seed) for cell in sweep.cells for seed in sweep.seeds}
    if (inside := name.removeprefix(f"{SWEEP}/")) == name:
        return name == MANIFEST
    match inside.split("/"):
        case ["report", *_]:
            return True
        case ["trials", trial, file]:
            return trial in planned and (file in held or bool(_ATTEMPT.fullmatch(file)))
        case ["interpolated", file]:
            trial, _, kind = file.partition(".")
            return kind.endswith("parquet") and trial in {*planned, FIRST_STAGE}
    judged = [f"qrels/{split}.qrels{end}" for split in EVALUATED for end in ("", ".sha256")]
    runs = [f"{FIRST_STAGE}/{run}" for run in RUNS]
    facts = f"{QUERIES}/{sweep.split}.jsonl"
    return inside in {FILE, ACCESS_FILE, str(TEXTS), facts, *judged, *runs}


def compared(
    folder: Path, report: Mapping[str, bytes], about: Manifest, place: str = f"{SWEEP}/report"
) -> Iterator[Verdict]:
    """The verdicts on the files of a report, at a `place` of the bundle, against one that was made
    again. Figures are compared where the same matplotlib draws them, else those that differ are
    named."""
    texts = sorted(name for name in report if Path(name).suffix not in PICTURES)
    yield "checked", f"{len(texts)} files of the report, from these values"
    for name in sorted({*files_of(folder)} - {*report}):
        yield "wrong", f"{place}/{name}: the report of these values has no such file"
    others = []
    for name, made in sorted(report.items()):
        path = folder / name
        stated = path.read_bytes() if path.is_file() else b""
        if stated == made:
            continue
        where = f"{place}/{name}"
        if name in texts and (found := first_difference(name, stated.decode(), made.decode())):
            yield "wrong", f"{where}: {found}"
        elif not stated:
            yield "wrong", f"{where}: is missing"
        elif about.matplotlib != version("matplotlib"):
            others.append(name)
        elif name not in texts or figures_differ(stated.decode(), made.decode()):
            if not _same_picture(name, stated, made):
                yield "wrong", f"{where}: is not the figure of these values"
    if others:
        drawn = f"matplotlib {about.matplotlib}" if about.matplotlib else "an unknown matplotlib"
        yield "not checked", f"figures drawn by {drawn}: {', '.join(others)}"
    else:
        yield "checked", f"{len(report) - len(texts)} figures, drawn again"


def figures_differ(stated: str, made: str) -> bool:
    """Whether two versions of a page have other figures, but for the last digits of their
    coordinates."""
    both = [_SVG.findall(text) for text in (stated, made)]
    lines = [[line for figure in found for line in figure.splitlines()] for found in both]
    return any(not _nearly(*pair) for pair in zip_longest(*lines, fillvalue=""))


def _same_picture(name: str, stated: bytes, made: bytes) -> bool:
    """Whether two figures look alike: an SVG but for last digits, a PNG but for single shades."""
    if name.endswith(".svg"):
        lines = (text.decode(errors="replace").splitlines() for text in (stated, made))
        return all(_nearly(*pair) for pair in zip_longest(*lines, fillvalue=""))
    if not name.endswith(".png"):
        return False
    from PIL import Image

    try:
        pixels = [
            np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"), dtype=np.int16)
            for data in (stated, made)
        ]
    except (OSError, ValueError, Image.DecompressionBombError):
        return False
    same = pixels[0].shape == pixels[1].shape
    return same and bool(np.abs(pixels[0] - pixels[1]).max(initial=0) <= SHADES)


def manifest(folder: Path) -> Manifest:
    """The provenance of an unpacked bundle."""
    content = parsed_json((folder / MANIFEST).read_bytes(), MANIFEST)
    if content["format"] != FORMAT:
        raise BadInput(f"{MANIFEST} has format {content['format']}, of another ranksweep")
    return Manifest(**content)


def joined_judgments(names: Sequence[str], fields: Fields | None = None) -> Qrels:
    """The judgments of files or `ir:ID`, put together."""
    judgments: Qrels = {}
    for name in names:
        for query_id, grades in named_qrels(name, fields).items():
            judgments.setdefault(query_id, {}).update(grades)
    return judgments


def finished_trials(sweep: SweepFile, records: Records) -> list[str]:
    """The planned trials of an unpacked bundle that have a result."""
    names = [trial_name(cell.cell, seed) for cell in sweep.cells for seed in sorted(sweep.seeds)]
    return [name for name in names if (records.trial_folder(name) / RESULT).is_file()]


def _otherwise_described(records: Records, sweep: SweepFile, names: Sequence[str]) -> Iterator[str]:
    """The labels of the description against the settings of its trials."""
    labels, groups = {}, {cell.cell: cell.group for cell in sweep.cells}
    for name in names:
        cell, windows = cell_and_seed(name)[0], trial_config(records, name).chunking.windows
        labels[cell] = f"{groups[cell]} {windows}"  # the usual label
    for one in sweep.cells:
        usual = labels.get(one.cell, one.label)
        if one.label != usual and one.label in labels.values():
            yield f"the label {shown(one.label)} is another cell's, {one.cell} is {usual}"


def give_qrels(folder: Path, about: Manifest, given: Qrels, values: pd.DataFrame) -> str:
    """Write the judgments of `--qrels` into the folder; returns how many of the bundle's queries
    they have. Refuse those of none of them, and those with another hash than the bundle has.
    Queries that `--qrels` lacks keep those in the bundle."""
    measured = {*map(str, values["query_id"].unique())}
    if not measured & given.keys():
        raise BadInput("--qrels judges none of the bundle's queries: do the query ids match?")
    included = read_judgments(folder) if about.qrels == "include" else {}
    judgments = {query: grades for part in included.values() for query, grades in part.items()}
    judgments |= given
    notes = {path: path.read_text() for path in sorted((folder / "qrels").glob("*.sha256"))}
    queries = values.groupby("split", observed=True)["query_id"].unique()
    ids_of = {split: [q for q in queries.get(split, ()) if q in judgments] for split in EVALUATED}
    put_qrels(folder, {split: {q: judgments[q] for q in ids} for split, ids in ids_of.items()})
    for path, note in notes.items():
        if path.read_text() != note:
            raise BadInput(f"--qrels must name the judgments whose hash is qrels/{path.name}")
    return f"{len(measured & given.keys())} of the bundle's {len(measured)} queries"


def _recomputed(
    records: Records, stated: pd.DataFrame, judged: Mapping[str, Qrels]
) -> pd.DataFrame:
    """The stated per-query values with those of judged splits computed from runs, but for measures
    that are not recomputed."""
    unknown = not_recomputed(stated["measure"].unique())
    kept = ~stated["split"].isin(list(judged)) | stated["measure"].isin(unknown)
    tables = [stated[kept]]
    for (cell, seed), part in stated.groupby(["cell", "seed"], observed=True, sort=False):
        for split, qrels in judged.items():
            measures = sorted({*part.loc[part["split"] == split, "measure"]} - {*unknown})
            run = read_run(records.trial_folder(trial_name(cell, seed)) / f"{split}.run.gz")
            tables.append(per_query(qrels, run, measures).assign(cell=cell, seed=seed, split=split))
    plain = [table.astype(dict.fromkeys(IDS, str))[list(SCORE_COLUMNS)] for table in tables]
    whole = pd.concat(plain, ignore_index=True).set_index(KEYS)
    order = pd.MultiIndex.from_frame(stated.astype(dict.fromkeys(IDS, str))[KEYS])
    more = whole.index.difference(order, sort=False)
    return as_categories(whole.reindex(order.append(more)).reset_index()[list(SCORE_COLUMNS)])


def _wrong_values(stated: pd.DataFrame, made: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """The first value of each trial that differs."""
    tables = [table.astype(dict.fromkeys(IDS, str)) for table in (stated, made)]
    both = tables[0].merge(tables[1], on=KEYS, how="outer", suffixes=("", "_own"), sort=False)
    same = np.isclose(both["value"], both["value_own"], rtol=RELATIVE, atol=ABSOLUTE)
    for row in both[~same].drop_duplicates(["cell", "seed"]).to_dict("records"):
        trial = f"{SWEEP}/{TRIALS}/{trial_name(row['cell'], row['seed'])}/{SCORES}"
        place = f"{row['split']}, query {row['query_id']}, {row['measure']}"
        values = f"states {row['value']}, recomputed {row['value_own']}"
        yield "wrong", f"{trial}: {place}: {values}"


def first_difference(name: str, stated: str, made: str) -> str:
    """The first line in which two versions of a file of the report differ; "" where none does.
    Figures are left to the checksums."""
    lines = [_SVG.sub("", text).splitlines() for text in (stated, made)]
    for number, (left, right) in enumerate(zip_longest(*lines, fillvalue=""), start=1):
        if left != right and (name.endswith(EXACT) or not _nearly(left, right)):
            at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
            begin = max(0, at - LONGEST // 2)
            texts = [text[begin : begin + LONGEST].strip() for text in (left, right)]
            return f"line {number}: states {texts[0]!r}, recomputed {texts[1]!r}"
    return ""


def _nearly(stated: str, made: str) -> bool:
    """True if two lines differ in the last digits of unrounded numbers alone."""
    numbers = [[float(text) for text in _NUMBER.findall(line)] for line in (stated, made)]
    return _NUMBER.sub("#", stated) == _NUMBER.sub("#", made) and all(
        math.isclose(*pair, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        for pair in zip(*numbers, strict=True)
    )
