"""A collection's documents as model tokens, tokenised once and memory-mapped by every trial."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rank_core.cache import cached_directory

STORE_VERSION = 1
DOCUMENTS_AT_ONCE = 512


class TokenStore(Mapping[str, NDArray[np.int32]]):
    """doc_id -> int32 token ids of the whole document, without special tokens. Read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        size = int(self._offsets[-1])
        self._tokens: NDArray[np.int32] = (
            np.memmap(folder / "tokens.i32", dtype=np.int32, mode="r", shape=(size,))
            if size
            else np.zeros(0, dtype=np.int32)
        )
        doc_ids = json.loads((folder / "doc_ids.json").read_text(encoding="utf-8"))
        self._index = {doc_id: i for i, doc_id in enumerate(doc_ids)}

    def __getitem__(self, doc_id: str) -> NDArray[np.int32]:
        i = self._index[doc_id]
        return self._tokens[self._offsets[i] : self._offsets[i + 1]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every document, in store order."""
        return np.diff(self._offsets)


def open_token_store(
    documents: Mapping[str, str], *, content_hash: str, tokenizer: Any
) -> TokenStore:
    """The token store of `documents`, built on first use; `content_hash` names their contents."""
    text = json.dumps([STORE_VERSION, content_hash, tokenizer_hash(tokenizer)])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return TokenStore(
        cached_directory("tokens", key, lambda folder: _build(folder, documents, tokenizer))
    )


def tokenizer_hash(tokenizer: Any) -> str:
    """16 hex digits that name what the tokenizer does to a text."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # We never truncate or pad here, whatever limits the tokenizer's files bring along.
    del state["truncation"], state["padding"]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def tokenize(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Token ids of each text, whole, without special tokens."""
    ids: list[list[int]] = tokenizer(
        texts,
        add_special_tokens=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    return ids


def _build(folder: Path, documents: Mapping[str, str], tokenizer: Any) -> None:
    doc_ids = list(documents)
    offsets = [0]
    with (folder / "tokens.i32").open("wb") as file:
        for some in _batches(doc_ids):
            for ids in tokenize(tokenizer, [documents[doc_id] for doc_id in some]):
                _append(file, ids)
                offsets.append(offsets[-1] + len(ids))
    np.save(folder / "offsets.npy", np.asarray(offsets, dtype=np.int64))
    (folder / "doc_ids.json").write_text(json.dumps(doc_ids), encoding="utf-8")


def _append(file: BinaryIO, ids: list[int]) -> None:
    file.write(np.asarray(ids, dtype=np.int32).tobytes())


def _batches(doc_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(doc_ids), DOCUMENTS_AT_ONCE):
        yield doc_ids[start : start + DOCUMENTS_AT_ONCE]
