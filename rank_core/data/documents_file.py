"""The documents of a collection folder: a JSON object {doc_id, text, title (optional)} per line."""

import json
from pathlib import Path
from typing import Any

from rank_core.data.text_files import read_lines, require_identifier, shown
from rank_core.errors import BadInput


def read_documents(path: Path) -> dict[str, str]:
    """{doc_id: title, newline and text}."""
    documents: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        doc_id, text = _parse_document(line, place)
        if doc_id in lines:
            raise BadInput(
                f"{place}: a doc_id may occur once, found {doc_id!r} in lines "
                f"{lines[doc_id]} and {number}"
            )
        lines[doc_id] = number
        documents[doc_id] = text
    if not documents:
        raise BadInput(f"{path} must hold at least one document, found none")
    return documents


def _parse_document(line: str, place: str) -> tuple[str, str]:
    law = f"{place}: a line must be one JSON object"
    try:
        record = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{law}: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond all bounds
        raise BadInput(f"{law}: {shown(str(error))}") from None
    if not isinstance(record, dict):
        raise BadInput(f"{law}, found {type(record).__name__}")
    for field in ("doc_id", "text"):
        if field not in record:
            known = ", ".join(name if name.isidentifier() else shown(name) for name in record)
            raise BadInput(
                f"{place}: a document must have doc_id and text, found {known or 'no field'}"
            )
    doc_id, text = _text(record, "doc_id", place), _text(record, "text", place)
    require_identifier(place, "doc_id", doc_id)
    if record.get("title") is not None:
        text = f"{_text(record, 'title', place)}\n{text}"
    if not text.strip():
        raise BadInput(f"{place}: a document must not be empty, found document {doc_id!r}")
    return doc_id, text


def _text(record: dict[str, Any], field: str, place: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        # What is nested may be nested too deep to be written.
        kind = "an object" if isinstance(value, dict) else "a list"
        found = kind if isinstance(value, dict | list) and value else json.dumps(value)[:80]
        raise BadInput(f"{place}: {field} must be a text, found {found}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{place}: {field} must be valid Unicode, found half of a surrogate pair "
            f"at character {error.start}"
        ) from None
    return value


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; JSON lets a later one of the same name replace the first."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a field stands in it twice")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_fields)
