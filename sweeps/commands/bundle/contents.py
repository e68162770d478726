"""The contents of a bundle: the report of a sweep and the files behind it.

    sweep/        the sweep's folder: settings, runs, judgments, per-query values, report
    bundle.json   the bundle's provenance
    README.md, CITATION.cff, ro-crate-metadata.json, SHA256SUMS

`bundle` and `verify` make the report by the same `report_of`, from such a folder alone.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from rank_core.data.ir_datasets.collection import PREFIX, is_dataset, is_fold
from rank_core.data.load import COLLECTIONS
from rank_core.data.made.long_embed import is_task
from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.data.trec import read_qrels, write_qrels
from rank_core.errors import BadInput
from rank_core.files import write_json
from rank_core.records import Qrels
from sweeps.report.access import ACCESS_FILE, read_accesses
from sweeps.report.analysis import analyse
from sweeps.report.build import report_files
from sweeps.report.interpolation import digest_file, with_interpolated
from sweeps.report.load import Sweep, load_sweep, score_table
from sweeps.report.query_page import TEXTS, moved_queries
from sweeps.store.checksums import RESULT, SCORES
from sweeps.store.sweep_file import FIRST_STAGE, read_sweep_file
from sweeps.store.trial_events import EVENTS, read_lines
from sweeps.store.trial_store import HISTORY

SWEEP, MANIFEST = "sweep", "bundle.json"
SPLITS = ("dev", "test")
FILES = ("trials.parquet", "failures.parquet", ACCESS_FILE, EVENTS)
TRIAL_FILES = (RESULT, "config.json", HISTORY, "folds.parquet", "interpolation.json",
               *(f"{split}.run.gz" for split in SPLITS))  # fmt: skip
EMBEDDED = ("python-docs", "python-docs-passages")
"""Collections whose judgments come with this package."""
FORMAT = 1
LIBRARIES = ("ranksweep", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "ir_measures")


@dataclass(frozen=True)
class Manifest:
    """The provenance of a bundle: the content of its `bundle.json`."""

    format: int
    qrels: str  # "include" or "hash"
    interpolate: str  # the cells with a row "+BM25"
    date: str  # of the sweep's last event
    license: str  # its SPDX name; "" without one
    authors: tuple[str, ...]
    made_with: Mapping[str, str]  # of the libraries that wrote the report

    def write(self, folder: Path) -> None:
        """Write it into a bundle's folder."""
        write_json(folder / MANIFEST, asdict(self))

    def other_versions(self) -> dict[str, str]:
        """{library: version} of those that are not the installed ones."""
        here = installed()
        return {k: v for k, v in self.made_with.items() if k in here and here[k] != v}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an unpacked bundle; raises `BadInput` where there is none of this format."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
        manifest = Manifest(**content | {"authors": tuple(content["authors"])})
        if manifest.format > FORMAT:
            raise BadInput(
                f"{MANIFEST} has format {manifest.format}, written by a later ranksweep: "
                "install that one"
            )
        return manifest
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadInput(f"not a bundle: {MANIFEST} cannot be read ({error!r})") from None


def installed() -> dict[str, str]:
    """{library: version} of the libraries behind the numbers and figures of a report."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "of a checkout"
    return versions


def ended(folder: Path) -> str:
    """The day of the last event of a sweep, ISO 8601; of version 0.1, that of its table."""
    times = [int(line.event.time) for line in read_lines(folder / EVENTS) if line.event]
    last = max(times) / 1000 if times else (folder / "trials.parquet").stat().st_mtime
    return datetime.fromtimestamp(last, UTC).date().isoformat()


def qrels_mode(collection: str, requested: str) -> str:
    """`include` or `hash`, as the collection allows. Judgments that come with this package are
    included. Those of ir_datasets have licences of their own and are only hashed. Those of the
    user's folder or function are hashed unless `wanted` is `include`: a publication cannot be taken
    back."""
    base = folder_and_fields(base_of(collection))[0]
    own = os.path.isdir(os.path.expanduser(base))
    if base in EMBEDDED:
        return requested or "include"
    theirs = base in COLLECTIONS or is_task(base) or is_fold(base) or base.startswith(PREFIX)
    if not own and (theirs or is_dataset(base)):
        if requested == "include":
            raise BadInput(
                f"--qrels include: the judgments of {collection} have a licence of their own; "
                "without this flag the bundle has their hash"
            )
        return "hash"
    return requested or "hash"


def collection_of(sweep: Sweep) -> str:
    """The name, folder or expression by which the trials know their collection."""
    for path in sorted(sweep.folder.glob("runs/*/config.json")):
        if name := json.loads(path.read_bytes()).get("collection"):
            return str(name)
    return str(sweep.collection.get("name", ""))


def stage(sweep: Sweep, folder: Path, manifest: Manifest) -> None:
    """Fill `folder` with the contents of a sweep's bundle; large files are links. The report is
    made from these files alone."""
    source, target = sweep.folder, folder / SWEEP
    described = replace(read_sweep_file(source), directory="", tracking_uri="")
    target.mkdir(parents=True)
    described.write(target)
    names = map("{}-seed{}".format, sweep.trials["cell"], sweep.trials["seed"])
    paths = [*FILES, *(f"runs/{name}/{file}" for name in names for file in TRIAL_FILES)]
    if (source / SCORES).is_file():
        paths.append(SCORES)  # of version 0.1
    else:
        used = {f"{cell}-seed{seed}.parquet" for cell, seed in used_trials(sweep)}
        paths += [f"{SCORES}/{name}" for name in used]
    paths += [f"{FIRST_STAGE}/{split}.run.gz" for split in SPLITS]
    included = manifest.qrels == "include"
    paths += [str(TEXTS), *(f"qrels/{split}.qrels" for split in SPLITS)] if included else []
    for path in paths:
        if (source / path).is_file():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).symlink_to((source / path).absolute())
    if not included:
        put_qrels(target, read_judgments(source))
    values = score_table(source, sweep.trials, described)
    for name, content in report_of(target, manifest, values).items():
        (target / "report" / name).parent.mkdir(parents=True, exist_ok=True)
        (target / "report" / name).write_bytes(content)


def used_trials(sweep: Sweep) -> list[tuple[str, int]]:
    """(cell, seed) of the trials with a result, in the order of the cells."""
    keys = sweep.scores[["cell", "seed"]].drop_duplicates()
    return [(str(cell), int(seed)) for cell, seed in zip(keys["cell"], keys["seed"], strict=True)]


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
        note.write_text(f"{digest_file(path)}  {path.name}\n", encoding="utf-8")


def report_of(folder: Path, manifest: Manifest, values: pd.DataFrame) -> dict[str, bytes]:
    """{file: contents} of the report on a bundle's sweep with these per-query values. Rows with the
    first stage are computed from runs and judgments; then judgments that are only hashed are
    removed, so that no page shows them."""
    sweep = with_interpolated(load_sweep(folder, values), manifest.interpolate)
    if manifest.qrels == "hash":
        for split in SPLITS:
            (folder / "qrels" / f"{split}.qrels").unlink(missing_ok=True)
    return report_files(
        analysed := analyse(sweep),
        accesses=read_accesses(folder / ACCESS_FILE),
        queries=moved_queries(analysed),
        label=f"tab:{sweep.name}",
    )
