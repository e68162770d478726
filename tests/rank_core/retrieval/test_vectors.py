"""Vectors by content: each text is embedded once, whatever ends a process."""

import numpy as np
import pytest

from rank_core.retrieval import vectors
from rank_core.retrieval.vectors import KEY, Text, VectorStore


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))
    monkeypatch.setattr(vectors, "SHARD", 3)


class Encoder:
    """A vector of a text's length; raises when it is killed."""

    def __init__(self, killed_after=10**9):
        self.texts, self.killed_after = [], killed_after

    def __call__(self, texts):
        self.texts += texts
        if len(self.texts) > self.killed_after:
            raise KeyboardInterrupt
        return np.array([[len(own.text), len(own.title)] for own in texts], np.float32)


def embed(store, texts, encode):
    keys = np.array([text.key for text in texts], KEY)
    store.embed(keys, store.missing(keys), lambda some: [texts[i] for i in some], encode)
    return store.open(keys)


TEXTS = [Text("", "a" * n) for n in range(1, 9)]


def test_every_text_is_embedded_once_and_read_back_in_order():
    encode, store = Encoder(), VectorStore("model")
    found = embed(store, [*TEXTS, TEXTS[0], *TEXTS], encode)
    assert len(encode.texts) == 8
    assert found.block(0, 17)[:, 0].tolist() == [*range(1, 9), 1, *range(1, 9)]
    assert found.block(7, 10)[:, 0].tolist() == [8, 1, 1]
    embed(store, TEXTS[::-1], encode)
    assert len(encode.texts) == 8  # a second time nothing is embedded
    assert len(store.shards()) == 3


def test_a_killed_process_loses_the_shard_in_work_and_no_other():
    store = VectorStore("model")
    for killed_after in (4, 2, 4):  # in the second shard, at once, in the third
        with pytest.raises(KeyboardInterrupt):
            embed(store, TEXTS, Encoder(killed_after))
    last = Encoder()
    found = embed(store, TEXTS, last)
    assert [len(own.text) for own in last.texts] == [7, 8]
    assert found.block(0, 8)[:, 0].tolist() == [*range(1, 9)]


def test_what_another_process_stores_in_the_meantime_is_not_embedded_again():
    """A cell without overlap and one whose chunks contain all of the first one's."""
    store, first, other = VectorStore("model"), Encoder(), Encoder()

    def while_the_first_shard_is_made(texts):
        if not first.texts:
            embed(store, [*TEXTS[3:], Text("", "b")], other)
        return first(texts)

    found = embed(store, TEXTS, while_the_first_shard_is_made)
    assert [len(own.text) for own in first.texts] == [1, 2, 3] and len(other.texts) == 6
    assert found.block(0, 8)[:, 0].tolist() == [*range(1, 9)]


def test_models_share_nothing_and_a_title_is_part_of_the_text():
    embed(VectorStore("model"), TEXTS, Encoder())
    other = Encoder()
    embed(VectorStore("another"), TEXTS, other)
    assert len(other.texts) == 8
    titled = Encoder()
    embed(VectorStore("model"), [Text("a", "b"), Text("", "ab"), Text("ab", "")], titled)
    assert len(titled.texts) == 3


def test_a_missing_vector_is_an_error():
    store = VectorStore("model")
    embed(store, TEXTS[:2], Encoder())
    with pytest.raises(KeyError, match="no vector"):
        store.open(np.array([TEXTS[5].key], KEY))
