"""Vectors by content: each text is embedded once, whatever ends a process."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

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


def embed(store, texts, encode, own=lambda place: 0):
    """The vectors; `own` is the part of the collection that a text is of, by its place."""
    keys = np.array([text.key for text in texts], KEY)
    parts = {}
    for place in store.missing(keys).tolist():
        parts.setdefault(str(own(place)), []).append(place)
    parts = {name: np.array(places) for name, places in parts.items()}
    places = store.embed(keys, parts, lambda some: [texts[i] for i in some], encode)
    if len(places) and isinstance(encode, Encoder):
        assert [texts[place] for place in places] == encode.texts[-len(places) :]
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


def test_cells_that_begin_together_embed_a_common_text_once():
    """Each has four parts of the collection; half of the first cell's texts are the other's."""
    store, threes, encoded = VectorStore("model"), lambda place: place // 3, []
    texts = [Text("", "a" * n) for n in range(1, 13)]
    other = [text if place % 2 else Text("b", text.text) for place, text in enumerate(texts)]
    meet = threading.Barrier(2, timeout=60)

    def run(own):
        def encode(some):
            if not meet.broken:
                with suppress(threading.BrokenBarrierError):
                    meet.wait()  # both are in their first part now
            meet.abort()
            encoded.extend(some)
            return np.array([[len(text.text), len(text.title)] for text in some], np.float32)

        return embed(store, own, encode, threes).block(0, 12).tolist()

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, (texts, other)))
    assert found == [[[len(t.text), len(t.title)] for t in own] for own in (texts, other)]
    assert len(encoded) == len(set(encoded)) == len({*texts, *other}) == 18


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
