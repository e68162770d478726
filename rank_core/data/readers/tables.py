"""Readers of JSON lines, of tab-separated columns with or without a header, and of Parquet: one
record, with its place, at a time."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rank_core.data.trec import read_lines
from rank_core.errors import BadInput, shown

ROWS_AT_ONCE = 1024
Record = tuple[str, dict[str, Any]]
"""(file and line, {field: value})."""


def json_records(path: Path) -> Iterator[Record]:
    """The object of each line."""
    for number, line in read_lines(path):
        rule = f"{path}:{number}: a line must be one JSON object"
        try:
            record = _DECODER.decode(line)
        except (ValueError, RecursionError) as error:  # also of too large a number
            raise BadInput(f"{rule}: {shown(str(error))}") from None
        if not isinstance(record, dict):
            raise BadInput(f"{rule}, found {type(record).__name__}")
        yield f"{path}:{number}", record


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; raises ValueError for duplicates, which JSON would accept."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("it has a duplicate field")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_fields)


def tsv_records(
    path: Path, columns: dict[int, tuple[str, ...]], names: Collection[str]
) -> Iterator[Record]:
    """The columns of each line. The first line is a header if it has two of `names`. Without a
    header, a file of n columns has those of `columns[n]`, or the numbers 1 .. n if `names` contains
    numbers."""
    header: tuple[str, ...] | None = None
    for number, line in read_lines(path):
        place, fields = f"{path}:{number}", tuple(field.strip() for field in line.split("\t"))
        if header is None:
            if len({*fields} & {*names}) > 1:
                header = fields
                continue
            header = columns.get(len(fields))
            if any(name.isdigit() for name in names):
                header = tuple(str(column + 1) for column in range(len(fields)))
            if header is None:
                expected = " or ".join(", ".join(known) for known in columns.values())
                raise BadInput(
                    f"{place}: without a header a file must have the columns {expected}, found "
                    f"{len(fields)}: {shown(line)}; name them (--fields 1=...)"
                )
        if len(fields) != len(header):
            raise BadInput(
                f"{place}: a line must have {len(header)} columns, as the first, found "
                f"{len(fields)}: {shown(line)}"
            )
        yield place, dict(zip(header, fields, strict=True))


def parquet_records(path: Path, names: Collection[str]) -> Iterator[Record]:
    """The columns of each row; only those in `names` are read, the others are None."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        columns = file.schema_arrow.names
        present = [name for name in columns if name in names]
        batches = file.iter_batches(ROWS_AT_ONCE, columns=present)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield f"{path}:row {number}", dict.fromkeys(columns) | row
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is no complete parquet file: {error}") from None
