"""Folds: every query is tested once, and none by a model trained on it."""

from rank_core.data.folds import huston_croft, rotate, round_robin

POOL = [str(n) for n in range(95, 112)]


def test_round_robin_follows_the_numbers_not_the_strings():
    folds = round_robin(POOL)
    assert folds["fold1"] == {"95", "100", "105", "110"}
    assert sorted(map(len, folds.values())) == [3, 3, 3, 4, 4]


def test_each_rotation_divides_the_pool_and_each_query_is_tested_once():
    tested = []
    for k in range(1, 6):
        splits = rotate(round_robin(POOL), f"fold{k}", POOL)
        divided = [query_id for query_ids in splits.values() for query_id in query_ids]
        assert sorted(divided) == sorted(POOL)
        assert splits["dev"] == rotate(round_robin(POOL), f"fold{k % 5 + 1}", POOL)["test"]
        tested += splits["test"]
    assert sorted(tested) == sorted(POOL)


def test_the_folds_of_huston_and_croft_hold_each_topic_once(ir_home):
    folds = huston_croft()
    topics = {str(n) for n in (*range(301, 451), *range(601, 701))}
    assert sum(map(len, folds.values())) == len(topics) == 250
    assert set().union(*folds.values()) == topics
