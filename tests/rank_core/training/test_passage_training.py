"""What of a document is read in training, and that a draw depends on its own names alone."""

from itertools import islice

import numpy as np
import pytest

from rank_core.chunking.batches import PairEncoder
from rank_core.settings.config import Chunking, Training
from rank_core.training.examples import (
    TrainingGroup,
    TrainingQuery,
    TrainingReader,
    training_groups,
)

DOCUMENTS = {name: np.arange(size, dtype=np.int32) for name, size in (("a", 100), ("b", 70))}
QUERY = np.arange(3, dtype=np.int32)
CHUNKING = Chunking(window=10, stride=10)  # a: 10 chunks, b: 7


def reader(backbone, seed=1, first_chunk_only=False, **settings):
    pairs = PairEncoder(DOCUMENTS, CHUNKING, first_chunk_only, backbone)
    return TrainingReader.of(pairs, Training(**settings), seed)


def group(passes=0, query_id="q", positive="a", negatives=("b",)):
    return TrainingGroup(query_id, QUERY, positive, 1, negatives, passes, None)


def starts(row):
    """First tokens of the chunks of each document, which here are their places."""
    return [[int(chunk.text[0]) for chunk in document] for document in row.documents]


def test_a_document_is_read_as_a_whole_unless_said(backbone):
    [row] = reader(backbone).rows(group())
    assert starts(row) == [list(range(0, 100, 10)), list(range(0, 70, 10))]
    assert row.tokens == 100 + 70 + 17 * (3 + 3)


def test_every_passage_may_be_a_row_of_its_own(backbone):
    rows = list(reader(backbone, unit="passage", passage_keep=1.0).rows(group()))
    # Passages 7, 8 and 9 of a have no partner in b.
    assert [starts(row) for row in rows] == [[[i], [i]] for i in range(0, 70, 10)]
    assert all(row.group == group() for row in rows)


def test_the_first_passage_is_always_kept_and_the_others_by_a_draw(backbone):
    none = reader(backbone, unit="passage", passage_keep=0.0)
    assert [starts(row) for row in none.rows(group())] == [[[0], [0]]]
    some = reader(backbone, unit="passage", passage_keep=0.3)
    kept = [
        [starts(row)[0][0] for row in some.rows(group(passes, query_id))]
        for passes in range(40)
        for query_id in ("q", "r")
    ]
    assert all(places[0] == 0 and places == sorted(set(places)) for places in kept)
    share = sum(len(places) - 1 for places in kept) / (80 * 6)
    assert share == pytest.approx(0.3, abs=0.07)  # 3.3 standard errors
    assert {place for places in kept for place in places} == set(range(0, 70, 10))


@pytest.mark.parametrize("settings", [{"unit": "passage"}, {"chunk_dropout": 0.5}])
def test_a_draw_depends_on_seed_pass_query_and_document_alone(backbone, settings):
    def drawn(one, **names):
        return [starts(row) for row in one.rows(group(**names))]

    settings = settings | ({"passage_keep": 0.5} if "unit" in settings else {})
    one = reader(backbone, **settings)
    expected = drawn(one)
    list(one.rows(group(passes=3)))
    assert drawn(one) == expected == drawn(reader(backbone, **settings))
    others = [
        drawn(one, passes=1),
        drawn(one, query_id="r"),
        drawn(reader(backbone, 2, **settings)),
    ]
    assert all(other != expected for other in others)
    swapped = drawn(one, positive="b", negatives=("a",))
    if "unit" not in settings:
        assert swapped == [expected[0][::-1]], "each document has a draw of its own"


def test_chunks_after_the_first_may_be_left_out(backbone):
    one = reader(backbone, chunk_dropout=0.75)
    lengths = []
    for passes in range(50):
        [row] = one.rows(group(passes))
        for places in starts(row):
            assert places[0] == 0 and places == sorted(set(places))
        lengths.append(len(starts(row)[0]) - 1)
    assert np.mean(lengths) == pytest.approx(9 * 0.25, abs=0.65)  # 3.5 standard errors


def test_firstp_reads_all_passages_in_training_when_passages_are_trained(backbone):
    passages = reader(backbone, first_chunk_only=True, unit="passage", passage_keep=1.0)
    assert len(list(passages.rows(group()))) == 7
    [row] = reader(backbone, first_chunk_only=True).rows(group())
    assert starts(row) == [[0], [0]]


def test_the_draw_of_a_group_does_not_depend_on_the_batch_order(backbone):
    queries = [TrainingQuery(f"q{i}", QUERY, ("a",), (1,), (("b",),)) for i in range(20)]
    one = reader(backbone, unit="passage", passage_keep=0.5)

    def drawn(order_seed):
        groups = training_groups(queries, 1, order_seed=order_seed, negatives_seed=1)
        return {
            (g.passes, g.query_id): [starts(row) for row in one.rows(g)] for g in islice(groups, 40)
        }

    assert drawn(1) == drawn(2)
