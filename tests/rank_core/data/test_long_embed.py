"""Needle and Passkey: generated, seeded, of exact length, with one answer to each question."""

import numpy as np
import pytest

from rank_core.data.load import load_collection
from rank_core.data.made.long_embed import (
    COLOURS,
    NUM_DOCUMENTS,
    NUM_QUERIES,
    bury,
    load_task,
    needle_filler,
)
from rank_core.errors import BadInput


@pytest.mark.parametrize("name", ["needle-100", "passkey-64"])
def test_each_question_has_one_document_among_a_hundred_candidates(name):
    collection = load_collection(name)
    length = int(name.partition("-")[2])
    assert collection.name == name
    assert len(collection.documents) == 3 * NUM_DOCUMENTS
    assert {len(text.split()) for text in collection.documents.values()} == {length}
    for split in collection.splits.values():
        assert len(split.queries) == NUM_QUERIES
        for query_id, question in split.queries.items():
            person = " ".join(word for word in question.rstrip("?").split() if word.istitle())
            person = person.removeprefix("Where ").removeprefix("What ")
            [relevant] = split.qrels[query_id]
            candidates = split.candidates[query_id]
            assert len(candidates) == NUM_DOCUMENTS
            holders = [d for d in candidates if person in collection.documents[d]]
            assert holders == [relevant]


def test_the_answer_is_at_a_random_position():
    collection = load_collection("needle-100")
    places = []
    for doc_id in collection.documents:
        words = collection.documents[doc_id].split()
        places.append(words.index("keeps") / len(words))
    assert np.histogram(places, bins=4, range=(0, 1))[0].min() > 30


def test_filler_has_no_names_and_the_exact_length():
    rng = np.random.default_rng(1)
    text = bury("Ada keeps it.", needle_filler(rng), 90, rng)
    assert len(text.split()) == 90
    assert text.count("Ada keeps it.") == 1
    assert not {"red", "violet"} & set(text.split()) & set(COLOURS)


@pytest.mark.parametrize("name", ["needle-10", "haystack", "needle-"])
def test_a_length_too_short_or_another_task_is_refused(name):
    with pytest.raises(BadInput, match=r"must hold|a task must be"):
        load_task(name)


@pytest.mark.long
@pytest.mark.slow
def test_the_full_task_has_eight_lengths():
    collection = load_collection("needle")
    lengths = {len(text.split()) for text in collection.documents.values()}
    assert lengths == {256 * 2**n for n in range(8)}
    assert len(collection.splits["test"].queries) == 8 * NUM_QUERIES
