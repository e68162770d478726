"""JSON lines: an object a line."""

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
        law = f"{place}: a line must be one JSON object"
        try:
            record = _DECODER.decode(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{law}: {error.msg} at character {error.colno}") from None
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond all bounds
            raise BadInput(f"{law}: {shown(str(error))}") from None
        if not isinstance(record, dict):
            raise BadInput(f"{law}, found {type(record).__name__}")
        yield place, record


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; JSON lets a later one of the same name replace the first."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a field stands in it twice")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_fields)
