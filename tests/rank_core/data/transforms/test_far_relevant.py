"""FarRelevant: hand-computed documents, and properties of the collection made from passages."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from rank_core.data.transforms.far_relevant import FarRelevant, bury
from rank_core.errors import BadInput
from rank_core.records import Split

SMALL = {"first_position": 40, "max_length": 150}


class Drawn:
    """Stands for a generator: a given length and slot, and no shuffling."""

    def __init__(self, length, slot):
        self.numbers = [length, slot]

    def integers(self, *bounds):
        assert bounds[-1] > self.numbers[0] >= (bounds[0] if len(bounds) == 2 else 0)
        return self.numbers.pop(0)

    def permutation(self, count):
        return np.arange(count)


@pytest.mark.parametrize(
    ("length", "slot", "text", "offset"),
    [
        (4, 0, "a a R R", 2),
        (7, 0, "a a R R b b b", 2),
        (8, 1, "a a b b b R R c", 5),
        (9, 2, "a a b b b c R R", 6),  # d d would make 10
        (12, 3, "a a b b b c d d R R", 8),  # no distractor is left
    ],
)
def test_a_document_is_built_by_the_rules_of_the_paper(length, slot, text, offset):
    rules = {"first_position": 2, "max_length": 12, "rng": Drawn(length, slot)}
    made = bury("R R", ["a a", "b b b", "c", "d d"], **rules)
    assert (made.text, made.word_start, made.num_words) == (text, offset, 2)
    assert made.drawn_length == length


def test_a_distractor_that_leaves_no_room_for_the_relevant_passage_is_cut():
    drawn = ["a a", "", "b b  b b b b", "c"]
    rules = {"first_position": 3, "max_length": 6}
    made = bury("R R", drawn, **rules, rng=Drawn(5, 0))
    assert (made.text, made.word_start) == ("a a b b R R", 4)
    whole = bury("R R R", drawn, **rules, rng=Drawn(6, 0))
    assert (whole.text, whole.word_start) == ("a a b R R R", 3)  # the longest that fits
    with pytest.raises(BadInput, match="have 2 words in all, and 3 are needed"):
        bury("R R", drawn[:1], **rules, rng=Drawn(5, 0))


@pytest.fixture
def made(passages):
    return FarRelevant(**SMALL)(passages)


def test_every_document_has_one_relevant_passage_and_it_starts_past_the_limit(passages):
    settings = FarRelevant(**SMALL)
    made = settings(passages)
    relevant = {
        d for s in passages.splits.values() for q in s.qrels.values() for d, g in q.items() if g
    }
    owner = {word: p for p, text in passages.documents.items() for word in text.split()}
    spans = {span["doc_id"]: span for span in settings.spans(passages)}
    assert set(spans) == set(made.documents)
    for doc_id, text in made.documents.items():
        words, span = text.split(), spans[doc_id]
        [inside] = {owner[word] for word in words} & relevant
        assert inside == span["passage_id"]
        start, end = span["word_start"], span["word_start"] + span["num_words"]
        assert " ".join(words[start:end]) == passages.documents[inside]
        assert start >= 40
        assert len(words) == len(set(words))  # no passage twice, no other word twice
        assert len(words) <= 150


def test_one_document_answers_each_query_and_nothing_is_shared_between_splits(passages, made):
    spans = {span["query_id"]: span for span in FarRelevant(**SMALL).spans(passages)}
    seen = Counter()
    for name, split in made.splits.items():
        assert set(split.queries) == set(passages.splits[name].queries)
        for query_id, text in split.queries.items():
            assert text == passages.splits[name].queries[query_id]
            [(doc_id, grade)] = split.qrels[query_id].items()
            span = spans[query_id]
            assert (doc_id, grade) == (span["doc_id"], 1)
            assert passages.splits[name].qrels[query_id][span["passage_id"]] > 0
            seen.update([query_id, doc_id, span["passage_id"], text])
    assert set(seen.values()) == {1}
    assert len(made.documents) == 18


def test_the_best_passage_that_no_other_query_shares_is_buried(passages, made):
    by_query = {
        span["query_id"]: span["passage_id"] for span in FarRelevant(**SMALL).spans(passages)
    }
    # p000 (grade 2) answers train-0 and train-1; p001 has grade 1.
    assert by_query["train-0"] == "p001"
    assert by_query["train-1"] == "p003" and by_query["dev-0"] == "p018"


def test_unusable_queries_are_excluded(passages):
    train, test = passages.splits["train"], passages.splits["test"]
    repeated = train.queries | {"train-3": "  TEST question 0 ", "train-4": "train question 2"}
    qrels = train.qrels | {"train-5": {"p299": 0}, "train-2": {"p006": 1}}
    documents = dict(passages.documents) | {"p006": "long " * 120}
    splits = {"train": Split(repeated, qrels, {}), "test": test}
    made = FarRelevant(**SMALL)(
        dataclasses.replace(passages, documents=documents, splits=splits, content_hash="left out")
    )
    assert list(made.splits["train"].queries) == ["train-0", "train-1"]
    assert len(made.splits["test"].queries) == 6


def test_a_limit_on_queries_samples_each_split(passages):
    made = FarRelevant(**SMALL, max_queries=2)(passages)
    assert [len(split.queries) for split in made.splits.values()] == [2, 2, 2]
    assert len(made.documents) == 6
