"""Folds: every query is tested once, and none by a model trained on it; published ones are used."""

import pytest

from rank_core.data.folds import huston_croft, rotate, round_robin
from rank_core.errors import BadInput
from rank_core.trial.cross_validation import load_folds

POOL = [str(n) for n in range(95, 112)]
TEXTS = {query_id: f"text {query_id}" for query_id in POOL}


def test_round_robin_follows_the_numbers_not_the_strings():
    folds = round_robin(TEXTS)
    assert folds["fold1"] == {"95", "100", "105", "110"}
    assert sorted(map(len, folds.values())) == [3, 3, 3, 4, 4]


def test_each_rotation_divides_the_pool_and_each_query_is_tested_once():
    tested = []
    for k in range(1, 6):
        splits = rotate(round_robin(TEXTS), f"fold{k}", POOL)
        divided = [query_id for query_ids in splits.values() for query_id in query_ids]
        assert sorted(divided) == sorted(POOL)
        assert splits["dev"] == rotate(round_robin(TEXTS), f"fold{k % 5 + 1}", POOL)["test"]
        tested += splits["test"]
    assert sorted(tested) == sorted(POOL)


def test_the_folds_of_huston_and_croft_hold_each_topic_once(ir_home):
    folds = huston_croft()
    topics = {str(n) for n in (*range(301, 451), *range(601, 701))}
    assert sum(map(len, folds.values())) == len(topics) == 250
    assert set().union(*folds.values()) == topics


@pytest.mark.slow
def test_robust04_is_cross_validated_over_the_folds_of_huston_and_croft(
    written, backbone_folder, tmp_path
):
    written("robust04")
    parts = load_folds("robust04-title", str(backbone_folder), 5)
    assert [part.collection.name for part in parts] == [
        f"robust04-title/fold{n}" for n in range(1, 6)
    ]
    known = set().union(*(part.collection.splits["test"].queries for part in parts))
    assert len(known) == 249
    published = huston_croft()
    for number, part in enumerate(parts, start=1):
        splits = part.collection.splits
        assert set(splits["test"].queries) == published[f"fold{number}"] & known
        assert set(splits["dev"].queries) == published[f"fold{number % 5 + 1}"] & known
    assert len({id(part.tokens) for part in parts}) == 1
    with pytest.raises(BadInput, match=r"evaluation\.folds=5"):
        load_folds("robust04-title", str(backbone_folder), 4)
    # The same folds in a file are the same splits, with all judgments.
    path = tmp_path / "folds.tsv"
    of = [(q, name) for name, members in published.items() for q in sorted(members & known)]
    path.write_text("".join(f"{query_id}\t{name}\n" for query_id, name in of))
    for part, same in zip(
        parts, load_folds("robust04-title", str(backbone_folder), 5, str(path)), strict=True
    ):
        one, other = part.collection, same.collection
        assert one.name == other.name and one.documents is other.documents
        for split in ("train", "dev", "test"):
            assert dict(one.splits[split].qrels) == dict(other.splits[split].qrels)
