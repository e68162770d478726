"""Reader of JSON lines."""

import json
from collections.abc import Iterator
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
            raise BadInput(f"{rule}: {error.msg} at character {error.colno}") from None
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
