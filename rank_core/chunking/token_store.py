"""A collection's documents as token ids, tokenised once and memory-mapped by every trial. Token ids
below 65,536 are stored in two bytes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.cache import cached_directory
from rank_core.data.store import Stored, TableWriter, batches
from rank_core.parsing import parsed_json
from rank_core.progress import reported

TOKENS = "tokens"
STORE_VERSION = 3


class TokenStore(Stored[NDArray[np.int32]]):
    """{doc_id: int32 token ids of the whole document, without special tokens}, read-only and in the
    collection's order."""

    def value(self, row: int) -> NDArray[np.int32]:
        """The tokens of a row."""
        tokens = self.table.column(TOKENS)[row]
        if tokens.dtype != np.int32:
            # Copied on access: torch has no operations on 16 bits without a sign.
            tokens = tokens.astype(np.int32)
            tokens.flags.writeable = False  # like the memory-mapped ones
        return tokens

    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every document, in store order."""
        return self.table.column(TOKENS).lengths()


def open_token_store(
    documents: Mapping[str, str],
    *,
    content_hash: str,
    tokenizer: Any,
    before: str = "",
    what: str = "documents",
) -> TokenStore:
    """The token store of `documents`, each with the text `before` it, built on first use;
    `content_hash` names their contents. Tokenisation uses all cores."""
    text = json.dumps(
        [STORE_VERSION, content_hash, tokenizer_hash(tokenizer), *([before] if before else [])]
    )
    # The smallest type that holds every id of the vocabulary, whose ids may have gaps.
    largest = max(tokenizer.get_vocab().values(), default=0)
    dtype = np.dtype(np.uint16 if largest <= np.iinfo(np.uint16).max else np.int32)

    def build(folder: Path) -> None:
        pairs = reported(documents.items(), f"token store: {what}", total=len(documents))
        with TableWriter(folder, **{TOKENS: dtype}) as table:
            for batch in batches(pairs):
                rows = tokenize(tokenizer, [text for _, text in batch], before)
                # An id too large for the type raises OverflowError here.
                arrays = [np.fromiter(row, dtype=dtype, count=len(row)) for row in rows]
                table.append([doc_id for doc_id, _ in batch], **{TOKENS: arrays})

    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return TokenStore(cached_directory("tokens", key, build))


def tokenizer_hash(tokenizer: Any) -> str:
    """16 hex digits that identify the tokenizer's behaviour."""
    state = parsed_json(tokenizer.backend_tokenizer.to_str())
    # Texts are never truncated or padded here.
    del state["truncation"], state["padding"]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def tokenize(tokenizer: Any, texts: list[str], before: str = "") -> list[list[int]]:
    """The token ids of each text with the text `before` it, not truncated, without special
    tokens."""
    return tokenizer(
        [before + text for text in texts] if before else texts,
        add_special_tokens=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
