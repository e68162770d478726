"""Deep and shallow sampling: properties on random judgments, and a hand-computed case."""

import numpy as np
import pytest

from rank_core.data.transforms.judgments import Deep, Shallow

both = pytest.mark.parametrize("kind", [Deep, Shallow])


def random_counts(seed, least=15):
    rng = np.random.default_rng(seed)
    return rng.integers(least, 90, size=rng.integers(20, 60)).tolist()


def qrels(collection):
    return collection.splits["train"].qrels


@both
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1.0])
def test_exactly_the_rate_of_all_judgments_is_kept(kind, rate, judged):
    """Deep: of a fraction of the queries, as a whole; shallow: of each query."""
    for seed in range(3):
        counts = random_counts(seed)
        source = judged(counts)
        made = kind(rate=rate, seed=seed)(source)
        kept = qrels(made)
        assert sum(map(len, kept.values())) == round(rate * sum(counts)), seed
        for query_id, of_query in kept.items():
            assert of_query.items() <= qrels(source)[query_id].items()
            assert list(of_query) == [d for d in qrels(source)[query_id] if d in of_query]
            if kind is Shallow:
                assert abs(len(of_query) - rate * counts[int(query_id[1:])]) < 1
        assert list(made.splits["train"].queries) == list(kept)
        assert made.splits["test"] is source.splits["test"]
        if kind is Shallow:
            assert len(kept) == len(counts)
            continue
        whole = [query_id for query_id, q in kept.items() if len(q) == counts[int(query_id[1:])]]
        assert len(whole) >= len(kept) - 1
        # The mean of r Q counts between 15 and 89 (sd 22 of 52): five standard errors, and the cut
        # one.
        expected = rate * len(counts)
        assert abs(len(kept) - expected) <= 1 + 5 * 0.42 * np.sqrt(expected * (1 - rate))


def test_shares_by_hand():
    # Shares 2.1, 1.2 and 0.9 of 4.2, so 4: floors 2, 1, 0 and one for the largest remainder.
    assert Shallow(rate=0.3).counts({"a": 7, "b": 4, "c": 3}) == {"a": 2, "b": 1, "c": 1}
    # 0.1, 0.1 and 2.8 of 3: one goes from the largest to each that has none.
    assert Shallow(rate=0.1).counts({"a": 1, "b": 1, "c": 28}) == {"a": 1, "b": 1, "c": 1}
    whole = Deep(rate=1.0).counts({"a": 5, "b": 3})
    assert whole == {"a": 5, "b": 3}


@both
def test_seeds_give_other_samples_and_a_smaller_rate_a_part_of_a_larger_one(kind, judged):
    source = judged(random_counts(1))

    def pairs(rate, seed):
        made = qrels(kind(rate=rate, seed=seed)(source))
        return {(query_id, doc_id) for query_id, of_query in made.items() for doc_id in of_query}

    assert pairs(0.3, 1) == pairs(0.3, 1) != pairs(0.3, 2)
    if kind is Deep:
        assert pairs(0.1, 1) < pairs(0.3, 1) < pairs(0.9, 1) < pairs(1.0, 1)


@both
def test_every_judgment_is_kept_equally_often(kind, judged):
    source = judged([20, 20, 20, 20])
    counts: dict[str, int] = {}
    for seed in range(400):
        for of_query in qrels(kind(rate=0.5, seed=seed)(source)).values():
            for doc_id in of_query:
                counts[doc_id] = counts.get(doc_id, 0) + 1
    # Binomial of 400 and .5, sd 10 (deep: whole queries, the same margin).
    assert len(counts) == 80 and all(abs(count - 200) < 50 for count in counts.values())


@both
def test_candidates_that_lost_their_judgment_stay_unless_they_are_hidden(kind, judged):
    source = judged([30, 40, 50])
    shown, hidden = kind(rate=0.4)(source), kind(rate=0.4, hide=True)(source)
    assert qrels(shown) == qrels(hidden)
    assert list(shown.splits["train"].candidates) == list(qrels(shown))
    for query_id, kept in qrels(shown).items():
        ranked = source.splits["train"].candidates[query_id]
        assert shown.splits["train"].candidates[query_id] == ranked
        assert list(hidden.splits["train"].candidates[query_id]) == [*kept, "other"]
