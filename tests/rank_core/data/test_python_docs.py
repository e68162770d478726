"""`python-docs`: properties of its construction, for this interpreter's collection."""

import json

import numpy as np
import pytest

from rank_core.data.load import load_collection
from rank_core.data.made.python_docs import (
    FIRST_POSITION,
    MAX_BODY_WORDS,
    MAX_LENGTH,
    assemble,
    load_python_docs,
    without_near_duplicates,
)
from rank_core.data.made.stdlib_docstrings import DocstringPair
from rank_core.data.trec import read_lines

whole = pytest.mark.slow  # builds the collection, in four seconds


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("RANKSWEEP_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def collection(cache):
    return load_python_docs()


@pytest.fixture(scope="module")
def passages(collection, cache):
    return read_records(cache, "passages")


def read_records(cache, name):
    (path,) = cache.glob(f"collections/python-docs-[0-9a-f]*/{name}.jsonl.gz")
    return [json.loads(line) for _, line in read_lines(path)]


@whole
def test_every_query_has_one_relevant_document_of_its_own(collection):
    relevant = []
    for split in collection.splits.values():
        for judged in split.qrels.values():
            assert list(judged.values()) == [1]
            relevant += judged
    assert sorted(relevant) == sorted(collection.documents)


@whole
def test_the_relevant_passage_starts_after_the_first_position_and_is_whole(
    collection, passages, cache
):
    body_of = {row["doc_id"]: row["body"] for row in passages if row["doc_id"]}
    spans = read_records(cache, "spans")
    assert len(spans) == len(collection.documents)
    for span in spans:
        words = collection.documents[span["doc_id"]].split()
        end = span["word_start"] + span["num_words"]
        assert " ".join(words[span["word_start"] : end]) == body_of[span["doc_id"]]
        assert FIRST_POSITION <= span["word_start"] < FIRST_POSITION + MAX_BODY_WORDS
        assert len(words) == max(MAX_LENGTH, end)


@whole
def test_no_document_holds_the_answer_of_another_query(collection, passages):
    answers = {row["doc_id"]: row["body"] for row in passages if row["split"] != "pool"}
    everything = "\n".join(collection.documents.values())
    for doc_id, body in answers.items():
        assert everything.count(body) == 1
        assert body in collection.documents[doc_id]


def pair(name, body):
    return DocstringPair(name, f"Summary of {name}.", body)


def test_the_later_of_two_near_duplicates_is_excluded():
    pairs = [
        pair("a", "one two three four"),
        pair("b", "unrelated words"),
        pair("c", "four three TWO five"),  # 3 of 4 words are in a
        pair("d", "four five six two"),  # 2 of 4 are in a; c, which is nearer, is gone
        pair("e", "before one two three four and after"),  # contains a
    ]
    assert [kept.name for kept in without_near_duplicates(pairs)] == ["a", "b", "d"]


@whole
def test_the_passages_are_a_collection_that_far_relevant_is_made_from(collection):
    passages = load_collection("python-docs-passages")
    assert [*passages.splits] == ["train", "dev", "test"]
    answers = {
        doc_id
        for split in passages.splits.values()
        for judged in split.qrels.values()
        for doc_id in judged
    }
    assert 0 < len(answers) == len(collection.documents) < len(passages.documents)
    for name, split in passages.splits.items():
        texts = sorted(split.queries.values())
        assert texts == sorted(collection.splits[name].queries.values())
    made = load_collection("python-docs-passages|far-relevant")
    assert len(made.documents) == len(answers)


class InOrder:
    """Stands for a generator whose permutation is the identity, to compute cases by hand."""

    def permutation(self, count):
        return np.arange(count)


@pytest.mark.parametrize(
    ("first_position", "max_length", "text", "offset"),
    [
        (0, 2, "R R", 0),
        (0, 5, "R R a a b", 0),
        (1, 5, "a a R R b", 2),
        (2, 6, "a a R R b b", 2),
        (3, 6, "a a b b b R R", 5),  # only the relevant passage exceeds max_length
        (3, 9, "a a b b b R R c", 5),  # the distractors end before max_length
    ],
)
def test_a_document_is_filled_before_and_after_the_relevant_passage(
    first_position, max_length, text, offset
):
    distractors = ["a a", "b b b", "c"]
    made = assemble(
        "R R", distractors, first_position=first_position, max_length=max_length, rng=InOrder()
    )
    assert made == (text, offset)
