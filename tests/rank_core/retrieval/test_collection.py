"""Titles and relevant text of a collection's files."""

import gzip
import json

import pytest

from rank_core.data.folder import load_folder
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.errors import BadInput
from rank_core.retrieval.collection import asked_evidence, cuts_of, has_titles, titles_of
from rank_core.retrieval.evidence import Place
from rank_core.settings.config import Chunking, TrialConfig

TITLED = Chunking(window=5, stride=1, title=True)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    def write(*rows):
        own = tmp_path / "own"
        for split in ("train", "dev", "test"):
            (own / split).mkdir(parents=True)
            (own / split / "queries.tsv").write_text(f"{split}\topen a file\n")
            (own / split / "qrels.trec").write_text(f"{split} 0 d1 1\n{split} 0 d2 0\n")
        (own / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return own

    return write


def texts_of(folder, chunking):
    collection = load_folder(folder)
    tokenizer = load_tokenizer(resolve_backbone("tiny-docs").folder)
    cuts = cuts_of(str(folder), collection, tokenizer, chunking)
    rows = [text for text in collection.documents.values()]
    places = zip(cuts.offsets, cuts.offsets[1:], rows, strict=False)
    return [tuple(cuts.text(n, text)) for start, end, text in places for n in range(start, end)]


def test_each_chunk_has_the_title_of_its_document_before_it(folder):
    rows = [
        {"doc_id": "d1", "title": "a title", "text": "open the file read a line"},
        {"doc_id": "d2", "text": "read a line"},
    ]
    found = texts_of(folder(*rows), TITLED)
    assert found == [
        ("a title", "open the file"),
        ("a title", "read a line"),
        ("", "read a line"),
    ]


def test_equal_texts_with_other_titles_are_cut_anew(folder, tmp_path):
    other = {"doc_id": "d2", "title": "a line", "text": "read"}
    rows = [
        {"doc_id": "d1", "title": "a title", "text": "open the file"},
        {"doc_id": "d1", "text": "a title\nopen the file"},
    ]
    found = []
    for row in rows:
        own = folder(row, other)
        found.append(texts_of(own, TITLED))
        own.rename(tmp_path / f"titled {len(found)}")
        titles_of.cache_clear()
    assert found == [
        [("a title", "open the file"), ("a line", "read")],
        [("", "a title\nopen the file"), ("a line", "read")],
    ]


def test_without_the_setting_a_title_is_the_start_of_the_text(folder):
    own = folder(
        {"doc_id": "d1", "title": "a title", "text": "open the file"},
        {"doc_id": "d2", "text": "read a line"},
    )
    assert has_titles(str(own))
    plain = texts_of(own, Chunking(window=5, stride=1))
    assert plain == [("", "a title\nopen the file"), ("", "read a line")]


def test_a_collection_without_titles_is_refused(folder):
    own = folder({"doc_id": "d1", "text": "open the file"}, {"doc_id": "d2", "text": "a line"})
    assert not has_titles(str(own))
    with pytest.raises(BadInput, match=r"chunking\.title needs a collection whose documents have"):
        texts_of(own, TITLED)


@pytest.mark.parametrize("asked", ["auto", "yes", "no"])
def test_evidence_is_what_spans_say_of_relevant_documents(asked, folder):
    own = folder({"doc_id": "d1", "text": "open the file"}, {"doc_id": "d2", "text": "a line"})
    config = TrialConfig(str(own)).override({"evaluation.evidence": asked})
    if asked == "yes":
        with pytest.raises(BadInput, match=r"spans\.jsonl\.gz"):
            asked_evidence(config, load_folder(own))
    rows = [
        {"query_id": "test", "doc_id": "d1", "start": 5, "end": 13},
        {"query_id": "test", "doc_id": "d2", "start": 0, "end": 6},  # not relevant
    ]
    with gzip.open(own / "spans.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    expected = {} if asked == "no" else {"test": [Place("d1", 5, 13)]}
    assert asked_evidence(config, load_folder(own)) == expected
