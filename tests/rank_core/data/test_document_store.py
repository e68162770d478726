"""Texts on disk: every look-up gives the right document or a KeyError, in any process or thread."""

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rank_core.data.disk import build, document_store
from rank_core.data.disk.document_store import DocumentStore, stored_documents, write_document_store
from rank_core.data.disk.run_store import RunStore, write_run_store
from rank_core.errors import BadInput

TEXTS = {"d1": "one", "d10": "", "b": "zwei ü\n", "é7": "drei\tvier"}


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def store(tmp_path):
    return write_document_store(tmp_path, TEXTS.items, source="four texts")


def test_it_is_a_mapping_in_the_order_of_the_source(store):
    assert dict(store) == TEXTS
    assert list(store) == list(TEXTS)
    assert len(store) == 4
    assert list(store.rows(["b", "d1", "none"])) == [2, 0, -1]
    assert store.ids_of(np.array([2, 0])) == ["b", "d1"]
    assert list(store.items()) == list(TEXTS.items())
    assert ("b", TEXTS["b"]) in store.items() and ("b", "") not in store.items()
    assert len(store.items()) == 4


@pytest.mark.parametrize("name", ["d1xyz", "d", "d11", "", "d1\0", "D1", 1, None, "d10 "])
def test_an_unknown_id_is_never_another_document(store, name):
    assert name not in store
    with pytest.raises(KeyError):
        store[name]


def test_it_pickles_as_its_folder_and_opens_again(store):
    assert store["b"] == "zwei ü\n"
    copy = pickle.dumps(store)
    assert len(copy) < 500
    assert dict(pickle.loads(copy)) == TEXTS


def test_the_hash_names_ids_and_texts(tmp_path):
    variants = [TEXTS, TEXTS | {"d10": "x"}, {"d1": "on", "ed10": ""}, {"d1": "one", "d10": ""}]
    hashes = []
    for number, texts in enumerate([*variants, TEXTS]):
        (tmp_path / str(number)).mkdir()
        hashes.append(
            write_document_store(tmp_path / str(number), texts.items, source="x").content_hash
        )
    assert len(set(hashes)) == 4
    assert hashes[-1] == hashes[0]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "has no documents"),
        ([("a", "x"), ("b", "y"), ("a", "x")], "duplicate doc_id 'a'"),
        ([("a b", "x")], "one word without white space, found 'a b'"),
    ],
)
def test_documents_that_cannot_be_looked_up_are_refused(tmp_path, pairs, message):
    with pytest.raises(BadInput, match=message):
        write_document_store(tmp_path, lambda: pairs, source="x")


def test_a_killed_build_resumes_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    pairs = [(f"d{n}", "amber " * (n % 7)) for n in range(2000)]
    monkeypatch.setattr(build, "SECONDS_BETWEEN_CHECKPOINTS", -1)
    seen = []

    def dying():
        for pair in pairs[:1500]:
            seen.append(pair)
            yield pair
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_documents("key", dying, source="x")
    encoded = []

    def counted(texts):
        encoded.extend(texts)
        return utf8(texts)

    utf8 = document_store._utf8
    monkeypatch.setattr(document_store, "_utf8", counted)
    resumed = stored_documents("key", lambda: pairs, source="x")
    assert len(encoded) == 2000 - 1024, "two batches were whole"
    straight = tmp_path / "straight"
    straight.mkdir()
    write_document_store(straight, lambda: pairs, source="x")
    for path in straight.iterdir():
        assert path.read_bytes() == (resumed.folder / path.name).read_bytes(), path.name
    assert stored_documents("key", dying, source="x").folder == resumed.folder, "nothing is read"


def test_half_of_a_surrogate_pair_becomes_a_question_mark(tmp_path):
    assert write_document_store(tmp_path, lambda: [("a", "x\ud800y")], source="x")["a"] == "x?y"


def test_all_documents_are_read_in_one_pass_without_a_look_up(store, monkeypatch):
    monkeypatch.setattr(DocumentStore, "__getitem__", None)
    assert dict(store.items()) == TEXTS


@pytest.fixture
def numbered(tmp_path):
    pairs = [(f"doc-{n * 7919 % 5003}", f"text {n * 7919 % 5003}") for n in range(5003)]
    return write_document_store(tmp_path, lambda: pairs, source="numbered")


def wrong_lookups(store, seed, count):
    """Out of `count` look-ups, a tenth of them of names that no document has."""
    wrong = 0
    for number in np.random.default_rng(seed).integers(0, 5003, size=count):
        if number % 10:
            wrong += store[f"doc-{number}"] != f"text {number}"
        else:
            wrong += f"doc-{number}x" in store
    return wrong


def test_lookups_of_a_store_shared_over_fork_are_right(numbered):
    assert numbered["doc-1"] == "text 1"  # opened before the fork
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        wrong = pool.starmap(wrong_lookups, [(numbered, seed, 2000) for seed in range(4)])
    assert wrong == [0] * 4


def test_lookups_of_a_store_shared_by_threads_are_right(numbered):
    with ThreadPoolExecutor(8) as threads:
        wrong = list(threads.map(lambda seed: wrong_lookups(numbered, seed, 2000), range(8)))
    assert wrong == [0] * 8


def test_a_run_reads_back_in_rank_order_with_its_scores(store, tmp_path):
    run = {"q2": {"b": 0.1, "d1": 2.5, "é7": 2.5}, "elsewhere": {"b": 1.0}}
    (tmp_path / "queries").mkdir()
    texts = {"q1": "one", "q2": "two"}
    queries = write_document_store(tmp_path / "queries", texts.items, source="queries")
    write_run_store(tmp_path / "run", run.items(), queries, store)
    read = RunStore(tmp_path / "run", queries, store)
    assert dict(read) == {"q1": {}, "q2": {"d1": 2.5, "é7": 2.5, "b": 0.1}}
    assert list(read["q2"]) == ["d1", "é7", "b"]
    assert dict(pickle.loads(pickle.dumps(read))) == dict(read)
    assert read.get("elsewhere") is None


def test_stores_do_not_depend_on_the_folder_they_were_written_in(numbered, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in [path for path in tmp_path.iterdir() if path.is_file()]:
        path.rename(moved / path.name)
    assert DocumentStore(moved)["doc-5002"] == "text 5002"
