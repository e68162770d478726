"""A collection made of frames, dictionaries or datasets, and its folder in the cache, which trials
read as any other."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rank_core.arguments import by_name, is_unicode, text, unwrapped
from rank_core.cache import cached_directory
from rank_core.data import given
from rank_core.data.folder import DECLARED
from rank_core.data.load import contents_hash
from rank_core.data.trec import has_control, write_qrels, write_run
from rank_core.errors import BadInput, shown, unknown
from rank_core.records import SPLITS, Collection, Split

PARTS = {"queries": given.query_texts, "qrels": given.qrels, "candidates": given.run}
"""{part of a split: how it is read}."""
FIRST_STAGE = "first-stage"
MAX_NAME = 200  # bytes; a file system allows 255, and the folder in the cache has a hash, too


def collection_of(
    documents: Any, splits: Any, *, name: str, first_stage: str, language: str
) -> Collection:
    """A collection of frames, dictionaries or datasets. Raises `BadInput` for what is no text."""
    named = by_name("{train, dev or test: {queries, qrels, candidates}}")("splits", splits)
    read = {split: _split(split, parts) for split, parts in named.items()}
    if not read:
        raise BadInput("splits must hold train, dev or test, got none")
    texts = given.document_texts("documents", _table(documents))
    found = Collection(text("name", name), "", dict(texts), read, first_stage, language=language)
    return replace(found, content_hash=contents_hash(found))


def _split(name: str, parts: Any) -> Split:
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    read = by_name("{queries, qrels and, where there is a first stage, candidates}")(name, parts)
    for part in read:
        if part not in PARTS:
            raise unknown(f"part of {name}", part, PARTS)
    if lacking := [part for part in ("queries", "qrels") if part not in read]:
        raise BadInput(f"{name} must hold queries and qrels; it lacks {' and '.join(lacking)}")
    values: dict[str, Any] = {
        part: PARTS[part](f"{name}: {part}", _table(rows)) for part, rows in read.items()
    }
    return Split(values["queries"], values["qrels"], values.get("candidates", {}))


def _table(value: Any) -> Any:
    """A dataset of Hugging Face as a data frame; anything else as it is."""
    value = unwrapped(value)
    if hasattr(value, "column_names") and hasattr(value, "to_pandas"):
        return value.to_pandas()
    return value


def folder_of(collection: Collection) -> Path:
    """The folder of a collection in the cache, written once for its contents: trials read it by
    its path, as any other folder. Raises `BadInput` for one that was read from files, which trials
    read themselves, and for a name that no folder can have."""
    if not isinstance(collection.documents, dict):
        raise BadInput(
            f"a Collection must hold its documents in a dictionary, and {shown(collection.name)} "
            "was read from files: give its name or its folder instead"
        )
    for what, name in (("name", collection.name), ("first_stage", collection.first_stage or "-")):
        if not _is_file_name(name):
            raise BadInput(
                f"the {what} of a Collection must be a file name of at most {MAX_NAME} bytes, "
                f"without / and |, got {shown(name)}"
            )
    about = f"{collection.first_stage} {collection.language} {collection.leaves_own_out}"
    key = contents_hash(collection, about)

    def build(folder: Path) -> None:
        _write(collection, folder / collection.name)

    return cached_directory("collections", f"{key}-{collection.name}", build) / collection.name


def _is_file_name(name: str) -> bool:
    # A bar begins the transforms of a collection, whose white space at the ends is not read.
    if name in ("", ".", "..") or name != name.strip() or {*name} & {*"/|"} or has_control(name):
        return False
    return is_unicode(name) and len(name.encode()) <= MAX_NAME


def _write(collection: Collection, folder: Path) -> None:
    folder.mkdir()
    _write_lines(folder / "docs.jsonl", (
        {"doc_id": doc_id, "text": text} for doc_id, text in collection.documents.items()
    ))  # fmt: skip
    declared: dict[str, Any] = {}
    if collection.language:
        declared["language"] = collection.language
    if collection.leaves_own_out:
        declared["own_documents"] = False
    if declared:
        (folder / DECLARED).write_text(json.dumps(declared), encoding="utf-8")
    for name, split in collection.splits.items():
        (folder / name).mkdir()
        _write_lines(folder / name / "queries.jsonl", (
            {"query_id": query_id, "text": text} | _group(split, query_id)
            for query_id, text in split.queries.items()
        ))  # fmt: skip
        write_qrels(folder / name / "qrels.trec", split.qrels)
        if split.candidates:
            called = collection.first_stage or FIRST_STAGE
            write_run(folder / name / f"{called}.run", split.candidates, FIRST_STAGE)


def _group(split: Split, query_id: str) -> dict[str, str]:
    return {"group": split.groups[query_id]} if query_id in split.groups else {}


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
