"""Fields of the lines of a published file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rank_core.data.trec import read_lines
from rank_core.errors import BadInput
from rank_core.parsing import parsed_json


def records(path: Path, names: Sequence[str]) -> Iterator[list[Any]]:
    """The values of these fields of each line. Raises `BadInput` with file and line for one that
    lacks a field."""
    for number, line in read_lines(path):
        row = parsed_json(line, f"{path}:{number}")
        if not (isinstance(row, dict) and row.keys() >= {*names}):
            raise BadInput(
                f"{path}:{number} must have {', '.join(names)}, as the published file has"
            )
        yield [row[name] for name in names]
