"""The token store: the tokenizer's output on disk, built once (the laws of all tables:
tests/rank_core/data/test_table.py)."""

import numpy as np
import pytest

from rank_core.chunking.token_store import open_token_store, tokenizer_hash
from rank_core.encoders.backbones import load_tokenizer
from rank_core.testing.tokenizer import train_tokenizer

DOCUMENTS = {"a": "amber birch", "empty": " ", "b": "Cedar, DELTA! " * 400, "last": "zephyr"}


class Lengths:
    """A tokenizer that needs no library, so that a process starts at once: a word becomes its
    length. It keeps the numbers of characters that it was given."""

    def __init__(self, largest=99):
        self.largest, self.sizes = largest, []

    @property
    def backend_tokenizer(self):
        return self

    def to_str(self):
        return '{"truncation": null, "padding": null, "model": "lengths of words"}'

    def get_vocab(self):
        return {"longest": self.largest}

    def __call__(self, texts, **settings):
        self.sizes.append([len(text) for text in texts])
        return {"input_ids": [[len(word) for word in text.split()] for text in texts]}


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def tokenizer(backbone_folder):
    return load_tokenizer(backbone_folder)


def test_the_store_holds_the_tokenizers_own_ids_whole_and_without_special_tokens(tokenizer):
    store = open_token_store(DOCUMENTS, content_hash="x", tokenizer=tokenizer)
    for doc_id, text in DOCUMENTS.items():
        expected = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        assert store[doc_id].tolist() == expected
    assert len(store["b"]) == 400 * 4 and len(store["empty"]) == 0
    assert store.lengths().tolist() == [len(store[doc_id]) for doc_id in DOCUMENTS]


@pytest.mark.parametrize(("largest", "bytes_each"), [(65_535, 2), (65_536, 4)])
def test_tokens_take_two_bytes_where_the_vocabulary_allows_and_are_int32_to_read(
    largest, bytes_each
):
    documents = {"short": "a bb", "long": "x" * largest}
    store = open_token_store(documents, content_hash="x", tokenizer=Lengths(largest))
    assert store["long"].tolist() == [largest] and store["short"].tolist() == [1, 2]
    [file] = store.folder.glob("tokens.*int*")
    assert file.stat().st_size == 3 * bytes_each
    for tokens in store.values():
        assert tokens.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            tokens[0] = 1


def test_other_contents_or_another_tokenizer_make_another_store(tokenizer):
    def folder(content_hash, some, **before):
        return open_token_store(
            DOCUMENTS, content_hash=content_hash, tokenizer=some, **before
        ).folder

    other = train_tokenizer(["amber birch"], 60)
    assert tokenizer_hash(other) != tokenizer_hash(tokenizer)
    stores = [folder("x", tokenizer), folder("y", tokenizer), folder("x", other)]
    stores += [folder("x", tokenizer, before=prompt) for prompt in ("amber ", "birch ")]
    assert len({*stores}) == 5
