"""Nodes with caches of their own give each other vectors through the storage: a text is embedded
once, and what is killed, damaged or away costs time alone."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rank_core.retrieval import vectors
from rank_core.retrieval.vectors import KEY, Text, VectorStore, exchanged
from sweeps.store import shared_vectors as module
from sweeps.store.prepared import FOLDER, LIST
from sweeps.store.shared_vectors import SharedVectors, pays
from sweeps.store.storage import Storage

TEXTS = [Text("", "a" * n) for n in range(1, 10)]
PARTS = {str(part): np.arange(3 * part, 3 * part + 3) for part in range(3)}


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "SHARD", 2)
    monkeypatch.setattr(vectors, "PAUSE", 0.01)
    monkeypatch.setattr(module, "FREE_BYTES", 0)
    storage = Storage(str(tmp_path / "s"))
    storage.open()
    return storage


@pytest.fixture
def on_node(storage, tmp_path, monkeypatch):
    """Embeds the texts on a node; returns which ones it has embedded itself, by their lengths, and
    the vectors of all."""

    def embed(cache, *, texts=TEXTS, exchange=None, dies_after=None):
        monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / cache))
        store, embedded = VectorStore("m"), []
        keys = np.array([text.key for text in texts], KEY)

        def encode(some):
            if dies_after is not None and len(embedded) >= dies_after:
                raise KeyboardInterrupt
            embedded.extend(len(text.text) for text in some)
            return np.array([[len(text.text), 0.1 * len(text.text)] for text in some], np.float32)

        with exchanged(exchange or SharedVectors(storage.uri)):
            store.embed(keys, PARTS, lambda some: [texts[i] for i in some], encode)
        return embedded, store.open(keys).block(0, len(texts)).tobytes()

    return embed


def files(storage, name):
    return sorted(Path(storage.root, FOLDER, "vectors").rglob(name))


def test_a_text_is_embedded_once_on_all_nodes_with_the_same_bits(storage, on_node):
    first, values = on_node("a")
    again, same = on_node("b")
    assert first == [*range(1, 10)] and again == [] and same == values
    # A cell of other chunks: the third text of each part is new.
    other = [text if n % 3 else Text("", "b" * 9 * n) for n, text in enumerate(TEXTS, start=1)]
    assert on_node("c", texts=other)[0] == [27, 54, 81]
    # One without a common chunk brings nothing to its node.
    assert len(on_node("d", texts=[Text("d", text.text) for text in TEXTS])[0]) == 9
    assert len(VectorStore("m").shards()) == 6
    assert not files(storage, module.CLAIM)


def test_a_part_that_another_node_embeds_is_left_until_it_has_ended(storage, on_node):
    """Its claim is there: the other parts come first."""
    other = SharedVectors(storage.uri)
    with other.turn("m-0") as mine:
        assert mine
        ends = threading.Timer(0.5, lambda: storage.remove(f"{FOLDER}/vectors/m-0/{module.CLAIM}"))
        ends.start()
        assert on_node("a")[0] == [4, 5, 6, 7, 8, 9, 1, 2, 3]
        ends.join()


def test_a_killed_node_holds_a_part_for_a_minute_at_most(storage, on_node, monkeypatch):
    """The claim stays, as of a process that could not remove it."""
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Storage, "remove", lambda *_: None)
        on_node("a", dies_after=4)  # in the second part: two of its three texts are not stored
    [first, claim] = files(storage, module.CLAIM)
    first.unlink()  # which an ended process removes
    old = time.time() - module.STALE_SECONDS - 1
    assert "m-1" in str(claim)
    os.utime(claim, (old, old))
    embedded, values = on_node("b")
    assert embedded == [6, 7, 8, 9] and values == on_node("alone", exchange=_Nobody())[1]


class _Nobody(SharedVectors):
    """Shares nothing."""

    def __init__(self):
        self._shares = False


def test_a_claim_is_touched_while_its_part_is_embedded(storage, monkeypatch):
    monkeypatch.setattr(module, "TOUCH_SECONDS", 0.01)
    with SharedVectors(storage.uri).turn("m-0") as mine:
        [claim] = files(storage, module.CLAIM)
        os.utime(claim, (0, 0))
        deadline = time.monotonic() + 60
        while not claim.stat().st_mtime and time.monotonic() < deadline:
            time.sleep(0.01)
        assert mine and claim.stat().st_mtime
    assert not files(storage, module.CLAIM)


@pytest.mark.parametrize("name", ["vectors.npy", "keys.npy", LIST])
def test_damaged_vectors_are_refused_and_embedded_anew(storage, on_node, name):
    _, values = on_node("a")
    damaged = files(storage, name)[0]
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    embedded, same = on_node("b")
    assert 0 < len(embedded) <= 2 and same == values
    assert on_node("c") == ([], values)  # it was put there again


@pytest.mark.parametrize("method", ["create", "files", "read_all", "_read", "_put"])
def test_a_storage_that_is_away_costs_no_trial(storage, on_node, monkeypatch, method):
    """Another node has embedded the first part."""
    _, values = on_node("alone", exchange=_Nobody())
    on_node("a", texts=[*TEXTS[:3], *[Text("c", "c")] * 6])

    def away(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Storage, method, away)
    embedded, same = on_node("b")
    assert embedded == [*range(1, 10)] and same == values


def test_what_takes_longer_to_put_than_to_embed_is_shared_no_more(storage, on_node, monkeypatch):
    assert pays(embedding=2.1, sharing=1.0) and not pays(embedding=2.0, sharing=1.0)
    monkeypatch.setattr(module, "JUDGED_AFTER", -1.0)
    monkeypatch.setattr(module, "pays", lambda embedding, sharing: False)
    assert on_node("a")[0] == [*range(1, 10)]
    assert len(files(storage, LIST)) == 1 and not files(storage, module.CLAIM)


def test_results_keep_room_on_their_disk(storage, on_node, monkeypatch, caplog):
    monkeypatch.setattr(module, "FREE_BYTES", 2**60)
    assert on_node("a")[0] == [*range(1, 10)]
    assert not files(storage, LIST) and "of the storage's disk are free" in caplog.text
