"""Evaluated queries."""

import pytest

from rank_core.ranking.scorer import evaluated_queries
from rank_core.records import Collection, Split
from rank_core.settings.config import Evaluation

NAMES = [f"{year}-{number:03}" for year in (1999, 2005) for number in range(300)]


def queries(names, limit, split="test"):
    splits = {name: Split(dict.fromkeys(names, "words"), {}, {}) for name in ("dev", "test")}
    evaluation = Evaluation(max_dev_queries=limit, max_test_queries=limit)
    return evaluated_queries(Collection("made", "", {}, splits), split, evaluation)


def test_all_queries_are_evaluated_by_id_unless_there_is_a_limit():
    for limit in (0, 600, 1000):
        assert queries(NAMES[::-1], limit) == sorted(NAMES)


@pytest.mark.parametrize("limit", [40, 100])
def test_a_limit_takes_a_sample_of_all_ids_and_not_the_first(limit):
    found = queries(NAMES, limit)
    assert len(found) == limit and found == sorted(found)
    first_half = sum(name.startswith("1999") for name in found)
    assert 0.3 * limit < first_half < 0.7 * limit


def test_the_sample_depends_on_the_ids_alone_and_grows_with_the_limit():
    before: set[str] = set()
    for limit in range(1, 60):
        found = set(queries(NAMES, limit))
        assert before < found == set(queries(NAMES[::-1], limit, "dev"))
        before = found
    without = [name for name in NAMES if name not in before]
    assert before == set(queries([*before, *without[:5]], 59))
