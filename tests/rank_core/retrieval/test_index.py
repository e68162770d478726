"""An index of a collection: its runs are those of a matrix product over the texts of chunks."""

import pytest

from rank_core.errors import BadInput
from rank_core.retrieval import index as module
from rank_core.retrieval import vectors
from rank_core.retrieval.cuts import WholeDocument, cut_documents
from rank_core.retrieval.index import DenseIndex
from rank_core.settings.config import Chunking
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


def index_of(model, *, whole=False, **settings):
    settings = {"window": 5, **settings}
    cutting = WholeDocument(32) if whole else Chunking(stride=settings["window"], **settings)
    cuts = cut_documents(DOCUMENTS, {}, model.tokenizer, cutting, "documents")
    return DenseIndex(model, DOCUMENTS, cuts)


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
            doc_id: float((model.encode_documents(texts) @ query_D).max())
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
    index = index_of(Counting(content_hash="another"))
    found = index.search(query_QD, depth=3)
    assert "_in_memory" not in vars(index)
    for own, other in zip(found.documents, small.documents, strict=True):
        assert own.tolist() == other.tolist()
    said = capsys.readouterr().err
    assert f"{index.num_bytes:,} bytes" in said and "larger than memory" in said


def test_a_full_disk_is_refused_before_anything_is_embedded(monkeypatch):
    monkeypatch.setattr(module, "_free_bytes", lambda: 1000)
    model = Counting()
    with pytest.raises(BadInput, match=r"vectors need .* KiB, and .* free"):
        index_of(model).vectors  # noqa: B018
    assert model.read == []


def test_workers_share_the_documents_and_find_the_same(monkeypatch):
    model = Counting()
    query_QD = model.encode_queries(QUERIES)
    alone = index_of(model).search(query_QD, depth=3, num_chunks=6)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(module.distributed, "world", lambda rank=rank: (rank, 3))
        monkeypatch.setattr(module.distributed, "gather", lambda value: parts.append(value) or [])
        index_of(model).search(query_QD, depth=3, num_chunks=6)
    monkeypatch.setattr(module.distributed, "gather", lambda value: parts)
    found = index_of(model).search(query_QD, depth=3, num_chunks=6)
    for own, other in zip(found, alone, strict=True):
        assert [part.tolist() for part in own] == [part.tolist() for part in other]


def test_the_best_chunks_have_their_places():
    model = Counting()
    index = index_of(model)
    found = index.search(model.encode_queries(QUERIES[:1]), depth=1, num_chunks=2)
    best = index.chunks(found.chunks, ["q"])["q"]
    assert [DOCUMENTS[own.place.doc_id][own.place.start : own.place.end] for own in best] == [
        "read a line",
        "a line, then close",
    ] and [own.tokens for own in best] == [3, 5]
