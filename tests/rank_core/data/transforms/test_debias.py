"""Debiasing: no word is lost, all positions are equally likely, and only training reads the
copies."""

import dataclasses

import numpy as np
import pytest

from rank_core.data.transforms.debias import SUFFIX, Debias, reorder

TEXT = "one  two\nthree four\tfive"


class Drawn:
    """Stands for a generator: the ring starts at a word, then cuts and order as given."""

    def __init__(self, start, cuts=(), order=(0,)):
        self.start, self.cuts, self.order = start, cuts, order

    def integers(self, bound):
        assert self.start < bound
        return self.start

    def choice(self, choices, size, replace):
        assert len(self.cuts) == size and set(self.cuts) <= set(choices) and not replace
        return np.array(self.cuts, dtype=int)

    def permutation(self, count):
        assert count == len(self.order)
        return np.array(self.order)


@pytest.mark.parametrize(
    ("parts", "drawn", "text"),
    [
        (2, Drawn(0), "one  two\nthree four\tfive"),
        (2, Drawn(3), "four\tfive one  two\nthree"),
        (3, Drawn(3, [2], [1, 0]), "one  two\nthree four\tfive"),
        (4, Drawn(1, [3, 1], [2, 0, 1]), "five one  two\nthree four"),
    ],
)
def test_parts_are_swapped_with_the_white_space_after_their_words(parts, drawn, text):
    assert reorder(TEXT, parts, drawn) == text


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_every_word_is_at_every_place_equally_often(parts):
    rng, words = np.random.default_rng(parts), [f"w{i}" for i in range(8)]
    counts = np.zeros((8, 8))
    for _ in range(2000):
        for place, word in enumerate(reorder(" ".join(words), parts, rng).split()):
            counts[int(word[1:]), place] += 1
    # Binomial with mean 250 and sd 15: five of them.
    assert np.abs(counts - 250).max() < 75


def test_training_reads_copies_and_the_measured_splits_the_documents_as_they_are(passages):
    made = Debias(seed=3)(passages)
    train, source = made.splits["train"], passages.splits["train"]
    assert dict(train.queries) == dict(source.queries)
    for query_id in train.queries:
        for ids, original in (
            (train.qrels[query_id], source.qrels[query_id]),
            (train.candidates[query_id], source.candidates[query_id]),
        ):
            assert ids == {f"{doc_id}{SUFFIX}": value for doc_id, value in original.items()}
    changed = 0
    for doc_id in {d for of_query in source.candidates.values() for d in of_query}:
        text, copy = passages.documents[doc_id], made.documents[f"{doc_id}{SUFFIX}"]
        assert made.documents[doc_id] == text
        assert sorted(copy.split()) == sorted(text.split())
        changed += copy != text
    assert changed > 9
    for name in ("dev", "test"):
        assert made.splits[name] is passages.splits[name]
    # Only the 18 passages that training reads have copies.
    assert len(made.documents) == 300 + 18
    assert f"p299{SUFFIX}" not in made.documents


def test_all_splits_may_be_reordered_under_the_same_ids(passages):
    made = Debias(splits="all")(passages)
    assert list(made.documents) == list(passages.documents)
    assert made.splits is passages.splits
    same = [made.documents[d] == text for d, text in passages.documents.items()]
    assert np.mean(same) < 0.3  # a text of one or two words often stays as it is


def test_a_text_depends_on_its_own_id_and_the_seed_alone(passages):
    first, other = Debias(splits="all")(passages), Debias(splits="all", seed=2)(passages)
    fewer = dataclasses.replace(passages, documents={"p100": passages.documents["p100"]})
    assert Debias(splits="all")(fewer).documents["p100"] == first.documents["p100"]
    assert any(first.documents[d] != other.documents[d] for d in passages.documents)
