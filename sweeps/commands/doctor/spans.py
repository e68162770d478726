"""Where the relevant text of a document stands, for collections that say so.

`spans.jsonl.gz` beside the documents holds, for a query and a document, {query_id (or qid), doc_id,
start, end} in characters or {query_id, doc_id, word_start, num_words} in words at white space.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rank_core.cache import cache_root
from rank_core.chunking.chunks import Span
from rank_core.chunking.inputs import Inputs
from rank_core.data.folder import load_folder
from rank_core.data.trec import read_lines
from rank_core.encoders.backbones import load_tokenizer
from rank_core.errors import BadInput
from rank_core.records import Collection

FILE = "spans.jsonl.gz"
_WORD = re.compile(r"\S+")


class Passage(NamedTuple):
    """The relevant text of one document for one query."""

    query_id: str
    doc_id: str
    tokens: Span


def spans_file(name: str, collection: Collection) -> Path | None:
    """The file of spans of a folder, or of a made collection's folder in the cache."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder / FILE if (folder / FILE).exists() else None
    for path in sorted(cache_root().glob(f"collections/{name}-*/{FILE}")):
        if load_folder(path.parent).content_hash == collection.content_hash:
            return path
    return None


def relevant_passages(path: Path, inputs: Inputs) -> list[Passage]:
    """The spans of relevant documents in tokens of the backbone; a span may be empty."""
    documents = inputs.collection.documents
    tokenizer = load_tokenizer(inputs.backbone.folder)
    passages = []
    for query_id, doc_id, start, end in _relevant(path, inputs.collection):
        # Of one text at a time: offsets of all would be larger than the collection.
        offsets = tokenizer(
            documents[doc_id],
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            verbose=False,
        )["offset_mapping"]
        inside = [i for i, (first, last) in enumerate(offsets) if first < end and last > start]
        span = Span(inside[0], inside[-1] + 1) if inside else Span(0, 0)
        passages.append(Passage(query_id, doc_id, span))
    return passages


def _relevant(path: Path, collection: Collection) -> Iterator[tuple[str, str, int, int]]:
    """(query_id, doc_id, start, end) in characters, of documents that are judged relevant."""
    grades = {
        (query_id, doc_id): grade
        for split in collection.splits.values()
        for query_id, judged in split.qrels.items()
        for doc_id, grade in judged.items()
    }
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            query_id, doc_id = row.get("query_id") or row["qid"], row["doc_id"]
            if grades.get((query_id, doc_id), 0) > 0:
                text = collection.documents[doc_id]
                start, end = _characters(row, text)
                if not 0 <= start <= end <= len(text):
                    raise ValueError(f"{start} to {end} of {len(text)} characters")
                yield query_id, doc_id, start, end
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"{path}:{number}: a line must place a relevant passage in its document: "
                f"{type(error).__name__} {error}"
            ) from None


def _characters(row: dict[str, Any], text: str) -> tuple[int, int]:
    if "word_start" not in row:
        return int(row["start"]), int(row["end"])
    words = [match.span() for match in _WORD.finditer(text)]
    last = row["word_start"] + row["num_words"] - 1
    return words[row["word_start"]][0], words[last][1]
