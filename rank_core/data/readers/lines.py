"""Readers of JSON lines, and of tab-separated columns with or without a header."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rank_core.data.trec import read_lines
from rank_core.errors import BadInput, shown


def json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of each line."""
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        rule = f"{place}: a line must be one JSON object"
        try:
            record = _DECODER.decode(line)
        except json.JSONDecodeError as error:
            what = error.msg.removesuffix(" at")
            raise BadInput(f"{rule}: {what} at character {error.colno}") from None
        except (ValueError, RecursionError) as error:  # too large a number or too deep a nesting
            raise BadInput(f"{rule}: {shown(str(error))}") from None
        if not isinstance(record, dict):
            raise BadInput(f"{rule}, found {type(record).__name__}")
        yield place, record


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; raises ValueError for duplicates, which JSON would accept."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("it has a duplicate field")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_fields)


def tsv_records(
    path: Path, columns: dict[int, tuple[str, ...]], names: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, {column: text}) of each line. The first line is a header if it has two of
    `names`. Without a header, a file of n columns has those of `columns[n]`, or the numbers 1 .. n
    if `names` contains numbers."""
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
