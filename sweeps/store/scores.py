"""`per_query.parquet` of a sweep: a dataset, which is a folder with a file per trial. A file is the
trial's own table; `pandas.read_parquet` reads the folder as one, with the trials in the order of
their names. `_checksums.json` in it has the SHA-256 of each file.

Version 0.1 wrote one file under the same name, which is read as it is.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rank_core.errors import BadInput
from rank_core.files import atomic_write, write_json
from sweeps.store.checksums import SCORES, read_checked
from sweeps.store.trial_store import Store

if TYPE_CHECKING:
    import pandas as pd

CHECKSUMS = "_checksums.json"
SCORE_COLUMNS = ("cell", "seed", "split", "query_id", "measure", "value")
TEXTS = ("cell", "split", "query_id", "measure")
"""Columns of few different texts: read as categories, a row takes 32 bytes."""


def write_dataset(folder: Path, names: Iterable[str]) -> None:
    """Copy missing tables of these trials into the dataset and remove all other files. Raises
    `DamagedTrial`."""
    dataset = folder / SCORES
    if dataset.is_file():
        dataset.unlink()  # of version 0.1
    dataset.mkdir(exist_ok=True)
    checksums = {}
    for name in names:
        content = read_checked(folder / "runs" / name, SCORES)
        file = dataset / f"{name}.parquet"
        checksums[file.name] = _sha256(content)
        if not file.exists() or _sha256(file.read_bytes()) != checksums[file.name]:
            with atomic_write(file) as unfinished:
                unfinished.write_bytes(content)
    for file in dataset.glob("*.parquet"):
        if file.name not in checksums:
            file.unlink()
    write_json(dataset / CHECKSUMS, checksums)


def read_checksums(content: bytes) -> dict[str, str]:
    """{file: SHA-256} of a dataset; empty if the content is not a table of checksums."""
    try:
        return {str(name): str(digest) for name, digest in json.loads(content).items()}
    except (ValueError, AttributeError):
        return {}


def read_dataset(folder: Path, names: Sequence[str], remedy: str) -> "pd.DataFrame":
    """The per-query values of these trials in the dataset, `TEXTS` as sorted categories. A missing
    or changed file raises `BadInput`."""
    import pyarrow as pa
    from pyarrow import dataset as arrow

    dataset = folder / SCORES
    listed = dataset / CHECKSUMS
    checksums = read_checksums(listed.read_bytes()) if listed.is_file() else {}
    for name in names:
        _check(dataset / f"{name}.parquet", checksums.get(f"{name}.parquet"), remedy)
    text = pa.dictionary(pa.int32(), pa.string())
    types = {name: text for name in TEXTS} | {"seed": pa.int64(), "value": pa.float64()}
    files = [str(dataset / f"{name}.parquet") for name in names]
    layout = arrow.ParquetFileFormat(dictionary_columns=set(TEXTS))
    schema = pa.schema([(name, types[name]) for name in SCORE_COLUMNS])
    try:
        table = arrow.dataset(files, schema=schema, format=layout).to_table()
    except Exception as error:  # pyarrow has many kinds
        reason = str(error).partition("\n")[0]
        raise BadInput(f"{dataset} must hold tables of trials: {reason}; {remedy}") from None
    values = table.unify_dictionaries().to_pandas(self_destruct=True, split_blocks=True)
    return as_categories(values)


def as_categories(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table with its `TEXTS` columns as categories, which sort as the texts do."""
    for name in TEXTS:
        column = table[name].astype("category")
        table[name] = column.cat.reorder_categories(sorted(column.cat.categories))
    return table


def _check(file: Path, known: str | None, remedy: str) -> None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{file} is missing; {remedy}") from None
    if known is not None and _sha256(content) != known:
        raise BadInput(f"{file} was changed after the trial's end; {remedy}")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def push_dataset(store: Store) -> None:
    """Send the files that the storage lacks, in parallel, and remove obsolete ones."""
    if store.is_local:
        return
    root, folder = f"{store.root}/{SCORES}", store.folder / SCORES
    store.fs.invalidate_cache()
    if store.fs.isfile(root):
        store.fs.rm_file(root)  # of version 0.1
    remote, local = _remote_checksums(store), read_checksums((folder / CHECKSUMS).read_bytes())
    changed = [name for name in local if remote.get(name) != local[name]]
    if changed:
        files = [str(folder / name) for name in changed]
        store.fs.put(files, [f"{root}/{name}" for name in changed])
    if obsolete := remote.keys() - local.keys():
        store.fs.rm([f"{root}/{name}" for name in sorted(obsolete)])
    store.fs.put_file(str(folder / CHECKSUMS), f"{root}/{CHECKSUMS}")


def pull_dataset(store: Store) -> None:
    """Fetch the files of the storage's dataset that `folder` lacks, in parallel; of version 0.1 its
    one file."""
    root, folder = f"{store.root}/{SCORES}", store.folder / SCORES
    if not (remote := _remote_checksums(store)):
        if folder.is_file():
            folder.unlink()
        store.pull_file(SCORES)
        return
    if folder.is_file():
        folder.unlink()
    folder.mkdir(exist_ok=True)
    local = {path.name: _sha256(path.read_bytes()) for path in folder.glob("*.parquet")}
    if lacking := [name for name in remote if local.get(name) != remote[name]]:
        files = [str(folder / name) for name in lacking]
        store.fs.get([f"{root}/{name}" for name in lacking], files)
    write_json(folder / CHECKSUMS, remote)


def _remote_checksums(store: Store) -> dict[str, str]:
    try:
        return read_checksums(store.fs.cat_file(f"{store.root}/{SCORES}/{CHECKSUMS}"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
