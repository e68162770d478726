"""Columns between tabs, with or without a line of their names."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rank_core.data.trec import read_lines
from rank_core.errors import BadInput, shown


def tsv_records(
    path: Path, columns: dict[int, tuple[str, ...]], names: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, {column: text}) of each line. The first line names the columns where it has
    one of `names` in it; without such a line a file of n columns has those of `columns[n]`, or the
    numbers 1 .. n where `names` have numbers."""
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
                known = " or ".join(", ".join(some) for some in columns.values())
                raise BadInput(
                    f"{place}: a file without a line of column names has {known}, found "
                    f"{len(fields)} columns: {shown(line)}; name them (--fields 1=...)"
                )
        if len(fields) != len(header):
            raise BadInput(
                f"{place}: a line must have {len(header)} columns as the first has, found "
                f"{len(fields)}: {shown(line)}"
            )
        yield place, dict(zip(header, fields, strict=True))
