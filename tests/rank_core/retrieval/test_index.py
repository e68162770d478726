"""An index of a collection: its runs are those of a matrix product over the texts of chunks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.retrieval import index as module
from rank_core.retrieval import vectors
from rank_core.retrieval.cuts import WholeDocument, cut_documents
from rank_core.retrieval.index import DenseIndex
from rank_core.settings.config import STORED, Chunking
from tests.rank_core.retrieval.stand_in import Counting

DOCUMENTS = {
    "d1": "open the file and read a line, then close the file",
    "d2": "",
    "d3": "sort a list of lines and return the list " * 4,
    "d4": "read a line",
}
QUERIES = ["read a line", "sort the list"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))


def index_of(model, *, whole=False, stored="fp32", **settings):
    settings = {"window": 5, **settings}
    cutting = WholeDocument(32) if whole else Chunking(stride=settings["window"], **settings)
    cuts = cut_documents(DOCUMENTS, {}, model.tokenizer, cutting, "documents")
    return DenseIndex(model, DOCUMENTS, cuts, stored)


def texts_of(index):
    """{doc_id: texts of its chunks}."""
    cuts, ends = index.cuts, index.cuts.offsets.tolist()
    return {
        doc_id: [DOCUMENTS[doc_id][cuts.starts[n] : cuts.ends[n]] for n in range(start, end)]
        for doc_id, start, end in zip(DOCUMENTS, ends, ends[1:], strict=False)
    }


@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.6])
def test_a_run_is_the_maximum_over_the_texts_of_chunks(overlap):
    model = Counting()
    index = index_of(model, overlap=overlap)
    query_QD = model.encode_queries(QUERIES)
    run = index.run(index.search(query_QD, depth=4).documents, ["q1", "q2"])
    for query_id, query_D in zip(run, query_QD, strict=True):
        expected = {
            doc_id: float((model.encode_whole(texts) @ query_D).max())
            for doc_id, texts in texts_of(index).items()
        }
        assert run[query_id] == expected
        assert [*run[query_id].values()] == sorted(expected.values(), reverse=True)


def test_a_whole_document_is_given_to_the_model_uncut():
    model = Counting(max_length=6)
    index = index_of(model, whole=True)
    index.search(model.encode_queries(QUERIES), depth=4)
    assert sorted(model.read) == sorted(DOCUMENTS.values())
    assert index.cost.tokens == 6 + 2 + 6 + 5  # cut at six, with two special tokens


def test_equal_chunks_of_several_windows_are_embedded_once():
    first, wider, again = Counting(), Counting(), Counting()
    one = index_of(first, window=6)
    assert len(one.vectors) == len(one.cuts)
    half = index_of(wider, window=6, overlap=0.5)
    assert len(half.vectors) > len(one.vectors)
    assert not set(wider.read) & set(first.read)
    shared = {text for texts in texts_of(half).values() for text in texts} & set(first.read)
    assert "read a line" in shared and len(shared) > 2
    assert index_of(again, window=6, overlap=0.5).vectors.block(0, 5).shape == (5, 32)
    assert again.read == [] and half.cost.embedded_tokens < half.cost.tokens


def test_killed_three_times_gives_the_same_vectors(monkeypatch, tmp_path):
    monkeypatch.setattr(vectors, "SHARD", 2)
    whole = index_of(Counting(), overlap=0.6).vectors
    expected = whole.block(0, len(whole))
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "killed"))
    for texts in (1, 4, 3):
        with pytest.raises(KeyboardInterrupt):
            index_of(Counting(fails_after=texts), overlap=0.6).vectors  # noqa: B018
    last = Counting()
    resumed = index_of(last, overlap=0.6).vectors
    assert resumed.block(0, len(resumed)).tobytes() == expected.tobytes()
    assert 0 < len(last.read) < len(expected)


def test_an_index_larger_than_memory_is_searched_from_the_disk_and_said(monkeypatch, capsys):
    model = Counting()
    query_QD = model.encode_queries(QUERIES)
    small = index_of(model).search(query_QD, depth=3)
    monkeypatch.setattr(module, "memory_bytes", lambda: 100)
    monkeypatch.setattr(module, "FEWEST", 2)
    monkeypatch.setattr(module, "SCORES", 2)
    capsys.readouterr()
    index = index_of(Counting(vectors_hash="another"))
    found = index.search(query_QD, depth=3)
    assert "_in_memory" not in vars(index)
    for own, other in zip(found.documents, small.documents, strict=True):
        assert own.tolist() == other.tolist()
    said = capsys.readouterr().err
    assert f"{4 * 32 * len(index.cuts):,} bytes" in said and "larger than memory" in said


def test_a_full_disk_is_refused_before_anything_is_embedded(monkeypatch):
    monkeypatch.setattr(module, "_free_bytes", lambda: 1000)
    model = Counting()
    with pytest.raises(BadInput, match=r"vectors need .* KiB, and .* free"):
        index_of(model).vectors  # noqa: B018
    assert model.read == []


def together(monkeypatch, workers, call):
    """What each of several workers gets from a call, as threads."""
    own, values, barrier = threading.local(), dict(), threading.Barrier(workers, timeout=60)

    def work(rank):
        own.rank = rank
        return call()

    def gather(value):
        values[own.rank] = value
        barrier.wait()
        found = [values[rank] for rank in range(workers)]
        barrier.wait()
        return found

    monkeypatch.setattr(module.distributed, "world", lambda: (own.rank, workers))
    monkeypatch.setattr(module.distributed, "gather", gather)
    with ThreadPoolExecutor(workers) as pool:
        return [*pool.map(work, range(workers))]


@pytest.mark.parametrize("stored", STORED)
def test_workers_share_the_documents_and_find_the_same(stored, monkeypatch):
    """Some of eight workers have no document."""
    model = Counting()
    query_QD = model.encode_queries(QUERIES)
    alone = index_of(model, stored=stored).search(query_QD, depth=3, num_chunks=6)
    for workers in (3, 8):
        for own in together(
            monkeypatch,
            workers,
            lambda: index_of(model, stored=stored).search(query_QD, depth=3, num_chunks=6),
        ):
            for one, other in zip(own, alone, strict=True):
                assert [part.tolist() for part in one] == [part.tolist() for part in other]


def test_the_best_chunks_have_their_places():
    model = Counting()
    index = index_of(model)
    found = index.search(model.encode_queries(QUERIES[:1]), depth=1, num_chunks=2)
    best = index.chunks(found.chunks, ["q"])["q"]
    assert [DOCUMENTS[own.place.doc_id][own.place.start : own.place.end] for own in best] == [
        "read a line",
        "a line, then close",
    ] and [own.tokens for own in best] == [3, 5]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize(("stored", "size"), [("fp32", 64), ("int8", 16), ("binary", 2)])
def test_an_index_is_searched_as_it_is_stored(stored, size, similarity, monkeypatch):
    """The first dimensions of the vectors of one embedding, coded by the library, and a query in
    fp32."""
    quantization = pytest.importorskip("sentence_transformers.util.quantization")
    first = Counting(similarity=similarity)
    len(index_of(first).vectors)
    model = Counting(dimensions=16, similarity=similarity)
    index = index_of(model, stored=stored)
    query_QD = model.encode_queries(QUERIES)
    run = index.run(index.search(query_QD, depth=4).documents, ["q1", "q2"])
    assert model.read == [] and index.cost.bytes == size * len(index.cuts)
    vector_ND = np.concatenate([first.encode_whole(texts) for texts in texts_of(index).values()])
    vector_ND = vector_ND[:, :16]
    if similarity == "cosine":
        vector_ND = module.unit(vector_ND)
        query_QD = module.unit(query_QD)
    if stored == "int8":
        code_ND = quantization.quantize_embeddings(vector_ND, "int8").astype(np.float64)
        low_D, high_D = vector_ND.min(axis=0), vector_ND.max(axis=0)
        step_D = np.where(high_D == low_D, 1, (high_D - low_D) / 255)
        vector_ND = (code_ND + 128) * step_D + low_D
    if stored == "binary":
        vector_ND = np.unpackbits(quantization.quantize_embeddings(vector_ND, "ubinary"), axis=-1)
    score_QN = query_QD @ vector_ND.T
    for query_id, score_N in zip(run, score_QN, strict=True):
        best_D = np.maximum.reduceat(score_N, index.cuts.offsets[:-1])
        assert run[query_id] == pytest.approx(dict(zip(DOCUMENTS, best_D, strict=True)), abs=1e-6)
    monkeypatch.setattr(module, "memory_bytes", lambda: 100)
    monkeypatch.setattr(module, "CODED", 3)
    on_disk = index_of(model, stored=stored)
    found = on_disk.run(on_disk.search(query_QD, depth=4).documents, ["q1", "q2"])
    assert found == {query_id: pytest.approx(own, abs=1e-6) for query_id, own in run.items()}


def test_signs_are_not_compared_by_a_distance():
    with pytest.raises(BadInput, match=r"stored=binary needs a model .* compares them by euclid"):
        index_of(Counting(similarity="euclidean"), stored="binary")
