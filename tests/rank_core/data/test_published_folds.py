"""Cross-validation over a pool whose folds are published: those, and no others."""

import pytest

from rank_core.data.folds import huston_croft
from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from rank_core.trial.cross_validation import load_folds


def test_robust04_is_cross_validated_over_the_folds_of_huston_and_croft(written, backbone_folder):
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


def test_a_fold_of_a_pool_has_the_queries_of_the_pool(written, backbone_folder):
    written("robust04")
    whole, one = (
        load_folds(name, str(backbone_folder), 5)
        for name in ("robust04-title", "robust04-title/fold3")
    )
    hashes = [[part.collection.content_hash for part in parts] for parts in (whole, one)]
    assert hashes[0] == hashes[1] and len(set(hashes[0])) == 5
    assert load_collection("robust04-title/fold2").content_hash == hashes[0][1]


def test_other_folds_of_such_a_pool_are_refused(written, backbone_folder):
    written("robust04")
    with pytest.raises(BadInput, match=r"evaluation\.folds=5"):
        load_folds("robust04-title", str(backbone_folder), 4)
