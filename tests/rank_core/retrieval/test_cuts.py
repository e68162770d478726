"""Texts of chunks: windows at token offsets, sentences, titles."""

from dataclasses import replace

import pytest

from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.retrieval import cuts as module
from rank_core.retrieval.cuts import (
    Cut,
    Cuts,
    WholeDocument,
    cut_documents,
    cut_texts,
    overlap_tokens,
    step_of,
)
from rank_core.settings.config import Chunking

TEXT = "Open the file. Read each line of it! Then close the file, and return the list of lines."


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(resolve_backbone("tiny-docs").folder)


def cut(tokenizer, text, **settings):
    chunking = Chunking(stride=settings["window"], **settings)
    [cuts] = cut_texts([text], [0], tokenizer, chunking)
    return cuts


def texts_of(text, cuts):
    return [text[chunk.start : chunk.end] for chunk in cuts.chunks]


def test_an_overlap_of_whole_percent_has_its_whole_tokens():
    for percent in range(100):
        for window in (100, 200, 400):
            expected = percent * window // 100
            assert overlap_tokens(window, percent / 100) == expected
            assert step_of(window, percent / 100) == window - expected


def test_windows_end_at_tokens_and_the_last_one_at_the_end_of_the_text(tokenizer):
    words = "open the file read a line list"  # a token each
    assert texts_of(words, cut(tokenizer, words, window=3)) == [
        "open the file",
        "read a line",
        "list",
    ]
    # An overlap of a third: strides of the tokens.
    assert texts_of(words, cut(tokenizer, words, window=3, overlap=0.34)) == [
        "open the file",
        "file read a",
        "a line list",
    ]


@pytest.mark.parametrize("window", [1, 2, 5, 7, 64])
@pytest.mark.parametrize("overlap", [0.0, 0.125, 0.5, 0.9])
def test_the_chunks_cover_the_text_and_have_at_most_a_window_of_tokens(tokenizer, window, overlap):
    cuts = cut(tokenizer, TEXT, window=window, overlap=overlap)
    covered = {c for chunk in cuts.chunks for c in range(chunk.start, chunk.end)}
    assert all(c in covered or letter.isspace() for c, letter in enumerate(TEXT))
    assert max(chunk.tokens for chunk in cuts.chunks) <= window


def test_snapped_windows_end_with_sentences(tokenizer):
    pytest.importorskip("semantic_text_splitter")
    cuts = cut(tokenizer, TEXT, window=12, snap=True)
    assert texts_of(TEXT, cuts)[0] == "Open the file. Read each line of it!"
    assert all(chunk.tokens <= 12 for chunk in cuts.chunks)
    assert "".join(texts_of(TEXT, cuts)).replace(" ", "") == TEXT.replace(" ", "")


def test_a_title_counts_as_part_of_the_window(tokenizer):
    text = "a title\nopen the file read a line list"
    [cuts] = cut_texts([text], [7], tokenizer, Chunking(window=5, stride=5, title=True))
    assert text[: cuts.title] == "a title"
    assert texts_of(text, cuts) == ["open the file", "read a line", "list"]
    assert [chunk.tokens for chunk in cuts.chunks] == [5, 5, 3]
    # Half of a window at most is title.
    [cuts] = cut_texts([text], [7], tokenizer, Chunking(window=2, stride=2, title=True))
    assert text[: cuts.title] == "a" and texts_of(text, cuts)[0] == "open"


CHUNKS = Chunking(window=4, stride=4)
CHANGES = {
    "texts": {"content_hash": "another"},
    "tokenizer": {"tokenizer": "another"},
    "window": {"cutting": replace(CHUNKS, window=5)},
    "overlap": {"cutting": replace(CHUNKS, overlap=0.5)},
    "snap": {"cutting": replace(CHUNKS, snap=True)},
    "title": {"cutting": replace(CHUNKS, title=True)},
    "whole documents": {"cutting": WholeDocument(4)},
    "limit of whole documents": {"cutting": WholeDocument(5)},
    "version": {},
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_the_chunks_changes_the_key_of_the_cache(change, monkeypatch, tmp_path):
    keys: list[str] = []

    def no_folder(kind: str, key: str, build: object) -> None:
        keys.append(f"{kind}/{key}")
        raise InterruptedError  # before anything is cut

    monkeypatch.setattr(module, "cached_directory", no_folder)
    monkeypatch.setattr(module, "tokenizer_hash", str)
    usual = {"tokenizer": "one", "cutting": CHUNKS, "content_hash": "some texts"}
    for changed in ({}, {}, CHANGES[change]):
        if len(keys) == 2 and change == "version":
            monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
        with pytest.raises(InterruptedError):
            cut_documents({}, {}, **usual | changed)
    first, again, other = keys
    assert first == again != other


@pytest.mark.parametrize("cutting", [Chunking(window=4, stride=4), WholeDocument(4)])
def test_an_empty_document_has_one_empty_chunk(tokenizer, cutting):
    assert [*cut_texts(["", " "], [0, 0], tokenizer, cutting)] == [Cuts(0, [Cut(0, 0, 0)])] * 2


def test_a_whole_document_is_read_up_to_the_limit(tokenizer):
    [cuts] = cut_texts(["open the file read"], [0], tokenizer, WholeDocument(2))
    assert cuts.chunks == [Cut(0, len("open the"), 2)]


def test_the_table_has_the_chunks_of_each_document_in_order(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))
    documents = {"d1": "open the file", "d2": "", "d3": "read"}
    table = cut_documents(documents, {}, tokenizer, Chunking(window=2, stride=2), "hash")
    assert table.offsets.tolist() == [0, 2, 3, 4] and table.num_documents == 3
    assert table.tokens.tolist() == [2, 1, 0, 1]
    again = cut_documents({}, {}, tokenizer, Chunking(window=2, stride=2), "hash")  # not read again
    assert again.ends.tolist() == table.ends.tolist()
    # Another overlap is another table.
    other = cut_documents(
        documents, {}, tokenizer, Chunking(window=2, stride=2, overlap=0.5), "hash"
    )
    assert len(other) == 4 and other.starts.tolist() == [0, 5, 0, 0]
