"""What judgments can tell of a run."""

import pytest

from rank_core.data.judged import judged_depth, num_without_relevant, without_relevant_note

RUN = {f"q{i}": {f"d{rank}": -float(rank) for rank in range(1, 41)} for i in range(10)}


def judged(*ranks: int) -> dict[str, dict[str, int]]:
    return {query_id: {f"d{rank}": rank % 2 for rank in ranks} for query_id in RUN}


@pytest.mark.parametrize(
    ("qrels", "depth"),
    [
        (judged(1, 3, 10), 10),
        (judged(1, 3, 20), 20),
        (judged(1, 3, 21), 0),  # the lists are hardly longer
        ({**judged(1, 2, 3), "q3": {"elsewhere": 1}}, 0),
        ({**judged(1, 2, 3), "q3": {"d11": 0}}, 11),
        ({"q1": {"d1": 1, "d2": 0}}, 0),  # by chance
        ({**judged(1, 2, 3), "another": {"d1": 1}}, 3),
    ],
)
def test_judgments_of_what_a_run_showed_are_as_deep_as_the_last_of_them(qrels, depth):
    assert judged_depth(qrels, RUN) == depth


def test_queries_without_a_relevant_document_are_counted():
    qrels = {"a": {"d": 1, "e": 0}, "b": {"d": 0}, "c": {"d": -1}, "e": {}}
    assert num_without_relevant(qrels) == 3
    assert without_relevant_note(1, 4).startswith("1 of 4 judged queries has no relevant document")
