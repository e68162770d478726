"""A collection's documents as token ids, tokenised once and memory-mapped by every trial.

Opening takes milliseconds and no memory per document; all processes of a machine share the pages.
Token ids below 65,536 are stored in two bytes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.cache import cached_directory
from rank_core.data.disk.build import build_store, open_store_files
from rank_core.data.disk.rows import IdIndex

TOKENS = "tokens"
STORE_VERSION = 2


class TokenStore(Mapping[str, NDArray[np.int32]]):
    """{doc_id: int32 token ids of the whole document, without special tokens}, read-only and in the
    collection's order. It is pickled as its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ids, self._tokens = open_store_files(folder, TOKENS)
        self._index = IdIndex(folder, ids)

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Path]]:
        return TokenStore, (self.folder,)

    def __getitem__(self, doc_id: str) -> NDArray[np.int32]:
        tokens = self._tokens[self._index.row(doc_id)]
        if tokens.dtype != np.int32:
            tokens = tokens.astype(np.int32)
            tokens.flags.writeable = False  # like the memory-mapped ones
        return tokens

    def __contains__(self, doc_id: object) -> bool:
        return self._index.find(doc_id) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._tokens)

    def rows(self, doc_ids: Sequence[str]) -> NDArray[np.int32]:
        """The row numbers of documents; -1 for unknown ones."""
        return np.array([self._index.find(doc_id) for doc_id in doc_ids], dtype=np.int32)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The doc_ids of row numbers, in store order."""
        return [self._index.id_of(row) for row in rows.tolist()]

    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every document, in store order."""
        return self._tokens.lengths()


def open_token_store(
    documents: Mapping[str, str], *, content_hash: str, tokenizer: Any, what: str = "documents"
) -> TokenStore:
    """The token store of `documents`, built on first use; `content_hash` names their contents. A
    killed build is resumed by the next call. Tokenisation uses all cores."""
    text = json.dumps([STORE_VERSION, content_hash, tokenizer_hash(tokenizer)])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    dtype = _smallest_type(tokenizer)

    def encode(texts: list[str]) -> tuple[NDArray[Any], list[int]]:
        rows = tokenize(tokenizer, texts)
        # An id too large for the type raises OverflowError here.
        return np.fromiter(chain.from_iterable(rows), dtype=np.dtype(dtype)), [*map(len, rows)]

    def build(folder: Path) -> None:
        total, step = len(documents), f"token store: {what}"
        build_store(folder, TOKENS, dtype, documents.items, encode, what=step, total=total)

    return TokenStore(cached_directory("tokens", key, build, resume=True))


def tokenizer_hash(tokenizer: Any) -> str:
    """16 hex digits that identify the tokenizer's behaviour."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # Texts are never truncated or padded here.
    del state["truncation"], state["padding"]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def tokenize(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """The token ids of each text, not truncated, without special tokens."""
    return tokenizer(
        texts,
        add_special_tokens=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]


def _smallest_type(tokenizer: Any) -> DTypeLike:
    """The smallest type that holds every id of the vocabulary, whose ids may have gaps."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    return np.uint16 if largest <= np.iinfo(np.uint16).max else np.int32
