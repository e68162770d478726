"""TF-IDF and BM25 of blocks, against values worked out by hand."""

import math

import numpy as np
import pytest

from rank_core.chunking.token_store import open_token_store, tokenize
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models.key_blocks import (
    BlockWords,
    WordPieces,
    bm25,
    count_documents,
    document_frequencies,
    tf_idf,
)
from rank_core.testing.tokenizer import train_tokenizer

TEXTS = ["amber birch", "amber, Amber. cedar", "delta", "birch? northern lanterns"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([*TEXTS, "zephyr waxy !"] * 3, 120)


@pytest.fixture(scope="module")
def pieces(tokenizer):
    return WordPieces(tokenizer)


@pytest.fixture
def words(tokenizer, pieces):
    """The words of a text."""

    def of(text):
        return pieces.words(np.asarray(tokenize(tokenizer, [text])[0], dtype=np.int32))[0]

    return of


@pytest.fixture
def frequencies(tokenizer, pieces):
    documents = [np.asarray(ids, np.int32) for ids in tokenize(tokenizer, TEXTS)]
    return count_documents(documents, pieces)


def test_a_word_is_its_pieces_in_order_whatever_its_case(words, tokenizer):
    assert len(tokenize(tokenizer, ["zephyrzephyr"])[0]) > 1
    assert len(words("zephyrzephyr, AMBER!")) == 2
    assert words("Amber amber").tolist()[0] == words("amber").tolist()[0]
    assert words("xyzzy")[0] != words("yxzzy")[0]
    assert words("amber.")[0] == words("amber")[0]
    assert len(words("")) == 0 and len(words("?!")) == 0


class ByteLevel:
    """A byte-level vocabulary: a marker stands for the space before a word."""

    all_special_ids = (0,)

    def get_vocab(self):
        return {"<s>": 0, "Ġnorth": 1, "ern": 2, "North": 3, ".": 4, "Ġa": 5, "Ġnorthern": 6}


def test_words_of_byte_level_tokenizers_begin_at_the_space():
    words, places = WordPieces(ByteLevel()).words(np.array([3, 2, 1, 4, 2, 5, 1, 0], np.int32))
    # north+ern | north | . | ern | a | north | <s>
    assert places.tolist() == [0, 2, 4, 5, 6]
    assert words[1] == words[4] and len(set(words.tolist())) == 4


def blocks(words, *texts):
    """A document whose blocks are the texts."""
    parts = [words(text) for text in texts]
    number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return BlockWords(np.concatenate(parts), number, len(parts))


def test_bm25_of_blocks_is_what_the_formula_gives(words, frequencies):
    # Blocks of 4, 2 and 0 words: mean 2. Documents: N = 4, df(amber) = 2, df(cedar) = 1.
    document = blocks(words, "amber amber delta birch", "cedar amber", "?")
    amber = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))  # ln 2
    cedar = math.log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    long, mean = 0.9 * (0.6 + 0.4 * 2), 0.9 * (0.6 + 0.4 * 1)  # 1.26 and 0.9
    expected = [amber * 2 / (long + 2), amber / (mean + 1) + cedar / (mean + 1), 0]
    got = bm25(words("cedar, amber amber?"), document, frequencies)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_tf_idf_of_blocks_is_what_the_formula_gives(words, frequencies):
    document = blocks(words, "amber amber delta birch", "cedar amber", "?")
    amber, cedar = math.log(5 / 3) + 1, math.log(5 / 2) + 1  # (1 + N) / (1 + df)
    expected = [(1 + math.log10(2)) * amber, cedar + amber, 0]
    got = tf_idf(words("cedar, amber amber?"), document, frequencies)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(("score", "expected"), [(bm25, 10 / 1.9), (tf_idf, 10.0)])
def test_an_unseen_word_has_idf_ten(score, expected, words, frequencies):
    # One word in each of two blocks of one word: the length norm is 0.9, so BM25 is 10 / 1.9.
    got = score(words("xyzzy"), blocks(words, "xyzzy", "delta"), frequencies)
    np.testing.assert_allclose(got, [expected, 0], rtol=1e-12)


def test_the_frequencies_of_a_store_are_counted_once(tmp_path, monkeypatch, backbone_folder):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))
    tokenizer = load_tokenizer(backbone_folder)
    documents = {"a": "amber birch", "b": "amber", "c": ""}
    store = open_token_store(documents, content_hash="x", tokenizer=tokenizer)
    pieces = WordPieces(tokenizer)
    counted = document_frequencies(store, pieces)
    [folder] = [p for p in (tmp_path / "document-frequencies").iterdir() if p.is_dir()]
    written = (folder / "words.npy").stat().st_mtime_ns
    again = document_frequencies(store, pieces)
    assert (folder / "words.npy").stat().st_mtime_ns == written
    query = pieces.words(store["a"])[0]
    assert counted.of(query).tolist() == again.of(query).tolist() == [2, 1]
    assert counted.num_documents == again.num_documents == 3
    plain = document_frequencies(dict(store), pieces)
    assert plain.of(query).tolist() == [2, 1]
