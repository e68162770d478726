"""Which weights a sweep keeps, and which it would have run again."""

import json

import pytest

from rank_core.settings.config import TrialConfig
from sweeps.store.checksums import damage, seal
from sweeps.store.kept_weights import KeptWeights
from sweeps.store.trial_store import Store

WEIGHTS = b"w" * 100


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "s"), "ws/woods")
    store.open()
    return store


@pytest.fixture
def leave(store, tmp_path):
    """Publishes a finished trial with a value on dev, and weights unless it kept none."""

    def leave(name, dev, keep="best", weights=WEIGHTS):
        folder = tmp_path / "work" / name
        folder.mkdir(parents=True)
        facts = {"status": "done", "dev": {"nDCG@10": dev}, "train_seconds": 1, "eval_seconds": 1}
        facts |= dict.fromkeys(("peak_memory_bytes", "encoder_tokens", "padding_share"), 0)
        facts |= dict.fromkeys(("training_padding_share", "ties"), 0)
        (folder / "result.json").write_text(json.dumps(facts))
        (folder / "config.json").write_text(json.dumps({"training.keep_weights": keep}))
        if keep != "none":
            (folder / "weights.safetensors").write_bytes(weights)
        seal(folder)
        store.publish(folder, name)

    return leave


class Named:
    """As much of a plan's trial as is looked at."""

    def __init__(self, name, model="maxp"):
        self.name, self.config = name, TrialConfig().override({"model.name": model})


def kept_after(store, quota=10_000):
    weights = KeptWeights(store, "nDCG@10", quota)
    weights.take_in(sorted(store.finished()))
    weights.prune()
    return weights


def test_each_cell_keeps_its_best_seed_on_dev_the_first_of_equals(store, leave):
    for name, dev in (("a-seed1", 0.1), ("a-seed2", 0.3), ("a-seed3", 0.3), ("b-seed1", 0.2)):
        leave(name, dev)
    weights = kept_after(store)
    assert store.with_weights() == {"a-seed2", "b-seed1"} and weights.over_quota == set()
    assert store.finished() == {"a-seed1", "a-seed2", "a-seed3", "b-seed1"}
    for name in store.finished():  # a trial is whole without its weights
        assert damage(store.folder / "runs" / name, thorough=True) == ""


def test_a_better_seed_takes_the_place_of_the_one_before_as_it_ends(store, leave):
    leave("a-seed1", 0.1)
    weights = kept_after(store)
    for name, dev, kept in (("a-seed2", 0.05, "a-seed1"), ("a-seed3", 0.2, "a-seed3")):
        leave(name, dev)
        weights.finished(name)
        assert store.with_weights() == {kept}


def test_the_quota_holds_the_best_cells_and_the_best_one_always(store, leave):
    values = {"a-seed1": 0.2, "b-seed1": 0.5, "b-seed2": 0.1, "c-seed1": 0.4}  # means .2 .3 .4
    for name, dev in values.items():
        leave(name, dev)
    weights = kept_after(store, quota=200)
    assert store.with_weights() == {"b-seed1", "c-seed1"} and weights.over_quota == {"a"}
    assert weights.missing(map(Named, values)) == set()  # it would only be removed again
    assert kept_after(store, quota=10).over_quota == {"b"}
    assert store.with_weights() == {"c-seed1"}
    assert kept_after(store, quota=200).missing(map(Named, values)) == {"b-seed1"}


def test_what_was_kept_by_name_is_never_removed(store, leave):
    for name, keep in (("a-seed1", "all"), ("a-seed2", "best"), ("a-seed3", "all")):
        leave(name, 0.1 * int(name[-1]), keep)
    kept_after(store, quota=1)
    assert store.with_weights() == {"a-seed1", "a-seed2", "a-seed3"}


def test_the_best_seed_of_a_cell_is_missing_where_it_kept_nothing(store, leave):
    leave("a-seed1", 0.1, "none")
    leave("a-seed2", 0.3, "none")
    leave("b-seed1", 0.2)
    leave("bm25-seed1", 0.9, "none")
    trials = [*map(Named, ("a-seed1", "a-seed2", "b-seed1")), Named("bm25-seed1", "bm25")]
    assert kept_after(store).missing(trials) == {"a-seed2"}


def test_weights_that_cannot_be_removed_are_tried_again(store, leave, monkeypatch, caplog):
    leave("a-seed1", 0.1)
    leave("a-seed2", 0.2)

    def away(name):
        raise OSError("away")

    monkeypatch.setattr(store, "remove_weights", away)
    weights = kept_after(store)
    assert "the weights of a-seed1 could not be removed: away" in caplog.text
    monkeypatch.undo()
    weights.prune()
    assert store.with_weights() == {"a-seed2"}
