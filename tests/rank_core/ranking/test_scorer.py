"""Evaluated queries, and their division among workers."""

import random
from types import SimpleNamespace

import pytest

from rank_core import distributed
from rank_core.evaluate import mean_values, per_query
from rank_core.ranking.scorer import Scorer, Share, evaluated_queries
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


@pytest.mark.parametrize("num_workers", [1, 2, 3, 70])
def test_the_means_of_all_workers_shares_are_those_of_the_whole_run(monkeypatch, num_workers):
    rng = random.Random(3)
    run = {name: {f"d{i}": -float(i) for i in range(9)} for name in NAMES[:60]}
    qrels = {name: {f"d{i}": rng.randrange(3) for i in rng.sample(range(12), 5)} for name in run}
    measures, sizes = ("nDCG@10", "RR@10"), []

    def table(name, share):
        sizes.append(len(share))
        return per_query({query_id: qrels[query_id] for query_id in share}, share, measures)

    def gather(own):
        others = [[*run][rank::num_workers] for rank in range(1, num_workers)]
        return [own, *(table("dev", {query_id: run[query_id] for query_id in o}) for o in others)]

    monkeypatch.setattr(distributed, "gather", gather)
    own = {query_id: run[query_id] for query_id in [*run][::num_workers]}
    found = Scorer.means(SimpleNamespace(table=table), "dev", Share(own, None))
    assert found == mean_values(per_query(qrels, run, measures))  # every bit
    assert sizes[0] == -(-60 // num_workers) and len(sizes) == num_workers
