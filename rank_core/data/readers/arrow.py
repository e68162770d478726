"""Readers of Parquet, and of the Arrow files of a data set saved by Hugging Face's `datasets`,
batch by batch."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput

ROWS_AT_ONCE = 1024
STATE, SPLITS = "state.json", "dataset_dict.json"
"""Files that `Dataset.save_to_disk` and `DatasetDict.save_to_disk` write to their folder."""


def parquet_records(path: Path, names: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and row, {column: value}) of each row; only the columns in `names` are read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        columns = file.schema_arrow.names
        present = [name for name in columns if name in names]
        yield from _rows(path, file.iter_batches(ROWS_AT_ONCE, columns=present), columns)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is no complete parquet file: {error}") from None


def arrow_records(path: Path, names: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and row, {column: value}) of each row of an Arrow file, as `parquet_records`."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            columns = stream.schema.names
            present = [name for name in columns if name in names]
            parts = (
                part
                for batch in stream
                for part in pa.Table.from_batches([batch]).select(present).to_batches(ROWS_AT_ONCE)
            )
            yield from _rows(path, parts, columns)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is no complete Arrow stream: {error}") from None


def saved_files(folder: Path) -> list[Path] | None:
    """The Arrow files of a saved data set, in order; None for any other folder."""
    if (folder / SPLITS).is_file():
        names = _json(folder / SPLITS, "splits")
        if len(names) != 1:
            raise BadInput(
                f"{folder} has several splits of a data set ({', '.join(names)}), but a single "
                "table is needed; save one of them"
            )
        return saved_files(folder / str(names[0]))
    if not (folder / STATE).is_file():
        return None
    return [folder / part["filename"] for part in _json(folder / STATE, "_data_files")]


def _json(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))[name]
    except (ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{path} is no file of a saved data set: {error!r}") from None


def _rows(path: Path, batches: Any, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    unread: dict[str, Any] = dict.fromkeys(columns)  # named in messages
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            yield f"{path}:row {number}", unread | row
