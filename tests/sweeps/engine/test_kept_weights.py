"""Which weights a sweep keeps, and which it would have run again."""

import json

import pytest

from rank_core.settings.config import TrialConfig
from sweeps.engine.kept_weights import KeptWeights, lacking
from sweeps.store.records import COSTS

WEIGHTS = b"w" * 100


@pytest.fixture
def leave(records, tmp_path):
    """Publishes a finished trial with a value on dev, and weights unless it kept none."""

    def leave(name, dev, keep="best", weights=WEIGHTS):
        folder = tmp_path / "work" / name
        folder.mkdir(parents=True)
        facts = {"status": "done", "dev": {"nDCG@10": dev}} | dict.fromkeys(COSTS, 1)
        (folder / "result.json").write_text(json.dumps(facts))
        (folder / "config.json").write_text(json.dumps({"training.keep_weights": keep}))
        if keep != "none":
            (folder / "weights.safetensors").write_bytes(weights)
        records.publish(name, folder)

    return leave


class Named:
    """As much of a plan's trial as is looked at."""

    def __init__(self, name, model="maxp"):
        self.name, self.config = name, TrialConfig().override({"model.name": model})


def states(records):
    names = records.storage.folders("trials")
    return [state for state in records.states(names).values() if state.status.used]


def with_weights(records):
    return {state.name for state in states(records) if "weights.safetensors" in state.files}


def kept_after(records, quota=10_000, cells=(), eliminated=()):
    weights = KeptWeights(records, "nDCG@10", quota)
    weights.take_in(states(records))
    weights.prune(cells, eliminated)
    return weights


def test_each_cell_keeps_its_best_seed_on_dev_the_first_of_equals(records, leave):
    for name, dev in (("a-seed1", 0.1), ("a-seed2", 0.3), ("a-seed3", 0.3), ("b-seed1", 0.2)):
        leave(name, dev)
    weights = kept_after(records)
    assert with_weights(records) == {"a-seed2", "b-seed1"} and weights.over_quota == set()
    damage = {state.name: records.damage(state, thorough=True) for state in states(records)}
    # A trial is whole without its weights.
    assert damage == dict.fromkeys(("a-seed1", "a-seed2", "a-seed3", "b-seed1"), "")


def test_a_better_seed_takes_the_place_of_the_one_before_as_it_ends(records, leave):
    leave("a-seed1", 0.1)
    weights = kept_after(records)
    for name, dev, kept in (("a-seed2", 0.05, "a-seed1"), ("a-seed3", 0.2, "a-seed3")):
        leave(name, dev)
        weights.finished(name)
        assert with_weights(records) == {kept}


def test_an_end_is_compared_with_other_cells_only_beyond_the_quota(records, leave):
    weights = KeptWeights(records, "nDCG@10", 200)
    for name, dev, exceed in (("a-seed1", 0.2, False), ("b-seed1", 0.1, False),
                              ("a-seed2", 0.4, False), ("c-seed1", 0.3, True)):  # fmt: skip
        leave(name, dev)
        weights.finished(name)
        assert weights.exceed is exceed
    weights.prune("abc")
    assert with_weights(records) == {"a-seed2", "c-seed1"} and weights.over_quota == {"b"}
    assert not weights.exceed


def test_weights_that_could_not_be_removed_are_removed_at_the_next_end(
    records, leave, monkeypatch, caplog
):
    weights = KeptWeights(records, "nDCG@10", 10_000)

    def fails(name, files):
        raise OSError("busy")

    for name, dev in (("a-seed1", 0.2), ("a-seed2", 0.1)):
        leave(name, dev)
        with monkeypatch.context() as away:
            away.setattr(records, "remove", fails)
            weights.finished(name)
    assert "a-seed2 could not be removed" in caplog.text and weights.exceed
    weights.prune("a")
    assert with_weights(records) == {"a-seed1"} and not weights.exceed


def test_the_quota_holds_the_best_cells_and_the_best_one_always(records, leave):
    values = {"a-seed1": 0.2, "b-seed1": 0.5, "b-seed2": 0.1, "c-seed1": 0.4}  # means .2 .3 .4
    for name, dev in values.items():
        leave(name, dev)
    weights = kept_after(records, quota=200)
    assert with_weights(records) == {"b-seed1", "c-seed1"} and weights.over_quota == {"a"}
    assert weights.missing([*map(Named, values)]) == set()  # it would only be removed again
    assert kept_after(records, quota=10).over_quota == {"b"}
    assert with_weights(records) == {"c-seed1"}
    assert kept_after(records, quota=200).missing([*map(Named, values)]) == {"b-seed1"}


@pytest.mark.parametrize(
    ("cells", "eliminated", "kept"),
    [("ab", "", "a"), ("ba", "", "b"), ("abc", "", "c"), ("abc", "c", "a"), ("abc", "abc", "c")],
)
def test_the_quota_goes_by_the_rule_of_the_report(records, leave, cells, eliminated, kept):
    """The mean on dev, eliminated cells last, the plan's first among equals."""
    values = {"a-seed1": 0.2, "b-seed1": 0.2, "c-seed1": 0.4}
    for name in values:
        if name[0] in cells:
            leave(name, values[name])
    kept_after(records, quota=10, cells=cells, eliminated=eliminated)
    assert with_weights(records) == {f"{kept}-seed1"}


def test_what_was_kept_by_name_is_never_removed(records, leave):
    for name, keep in (("a-seed1", "all"), ("a-seed2", "best"), ("a-seed3", "all")):
        leave(name, 0.1 * int(name[-1]), keep)
    kept_after(records, quota=1)
    assert with_weights(records) == {"a-seed1", "a-seed2", "a-seed3"}


def test_the_best_seed_of_a_cell_is_missing_where_it_kept_nothing(records, leave):
    leave("a-seed1", 0.1, "none")
    leave("a-seed2", 0.3, "none")
    leave("b-seed1", 0.2)
    leave("bm25-seed1", 0.9, "none")
    trials = [*map(Named, ("a-seed1", "a-seed2", "b-seed1")), Named("bm25-seed1", "bm25")]
    assert kept_after(records).missing(trials) == {"a-seed2"}


def test_only_a_trial_that_selects_blocks_lacks_their_file(records, leave):
    names = {"keyb": "keyb", "idcm": "idcm", "maxp": "maxp"}
    trials = [Named(f"{name}-seed1", model) for name, model in names.items()]
    for trial in trials:
        leave(trial.name, 0.5, keep="none")
        keep = {"evaluation.keep_selected_blocks": True, "training.keep_weights": "none"}
        trial.config = trial.config.override(keep)
    trained = Named("student-seed1", "idcm")
    trained.config = trials[0].config.override({"model.name": "idcm", "model.stage": "student"})
    leave(trained.name, 0.5, keep="none")
    missing = lacking([*trials, trained], {state.name: state for state in states(records)})
    assert missing == dict.fromkeys(["keyb-seed1", "student-seed1"], "selected_blocks.json")
