"""The positions of relevant text, if a collection has them.

`spans.jsonl.gz`, or `spans.jsonl`, beside the documents has, per query and document, {query_id (or
qid), doc_id, start, end} in characters, or {query_id, doc_id, word_start, num_words} in white-space
words.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rank_core.cache import cache_root
from rank_core.data.folder import load_folder
from rank_core.data.transforms.expression import folder_and_fields
from rank_core.data.trec import read_lines
from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.records import Collection

FILES = ("spans.jsonl.gz", "spans.jsonl")
_WORD = re.compile(r"\S+")


def spans_file(name: str, collection: Collection) -> Path | None:
    """The file of spans of a folder, or of a generated collection's folder in the cache."""
    folder = Path(os.path.expanduser(folder_and_fields(name)[0]))
    if os.path.isdir(folder):
        return spans_beside(folder)
    for path in sorted(cache_root().glob(f"collections/{name}-*/{FILES[0]}")):
        if load_folder(path.parent).content_hash == collection.content_hash:
            return path
    return None


def spans_beside(folder: Path) -> Path | None:
    """The file of spans in a folder of documents. Raises `BadInput` for two of them."""
    files = [folder / name for name in FILES if (folder / name).exists()]
    if len(files) > 1:
        raise BadInput(f"{folder} must have one file of spans, but has {' and '.join(FILES)}")
    return files[0] if files else None


def relevant_spans(path: Path, collection: Collection) -> Iterator[tuple[str, str, int, int]]:
    """(query_id, doc_id, start, end) in characters, for documents judged relevant."""
    qrels = {
        name: judged for split in collection.splits.values() for name, judged in split.qrels.items()
    }
    for number, line in read_lines(path):
        try:
            row = parsed_json(line)
            query_id, doc_id = row.get("query_id") or row["qid"], row["doc_id"]
            if qrels.get(query_id, {}).get(doc_id, 0) > 0:
                text = collection.documents[doc_id]
                start, end = _characters(row, text)
                if not 0 <= start <= end <= len(text):
                    raise ValueError(f"{start} to {end} of {len(text)} characters")
                yield query_id, doc_id, start, end
        except Exception as error:  # of any kind, from a bad line
            what = f"{type(error).__name__} {error}"
            raise BadInput(f"{path}:{number}: no position of a relevant passage: {what}") from None


def _characters(row: dict[str, Any], text: str) -> tuple[int, int]:
    if "word_start" not in row:
        return int(row["start"]), int(row["end"])
    words = [match.span() for match in _WORD.finditer(text)]
    last = row["word_start"] + row["num_words"] - 1
    return words[row["word_start"]][0], words[last][1]
