import pytest

from docs.examples import own_model
from rank_core.chunking.inputs import cell_of, load_inputs
from rank_core.errors import BadInput
from rank_core.models import MODELS, model_class
from rank_core.models.passage_scores import MaxP
from rank_core.trial.trial import own_paths, portable_config

MODULE = "docs.examples.own_model"
OWN = f"{MODULE}:SmoothMaxP"


@pytest.mark.parametrize(
    ("kind", "message"),
    [(int, "subclass of Ranker or ListRanker"), (type("Heir", (MaxP,), {}), "its own label")],
)
def test_a_class_without_its_own_label_or_no_ranker_is_refused(kind, message, monkeypatch):
    monkeypatch.setattr(own_model, "Given", kind, raising=False)
    with pytest.raises(BadInput, match=message):
        model_class(f"{MODULE}:Given")


def test_the_source_of_a_model_is_part_of_the_cell_s_name(small_trial, monkeypatch):
    config = small_trial.override({"model.name": OWN})
    inputs = load_inputs(config.collection, config.model.backbone)
    before, ours = cell_of(config, inputs), cell_of(small_trial, inputs)
    assert before.startswith("docs-examples-own_model-SmoothMaxP-w40-s20-")
    monkeypatch.setattr("rank_core.chunking.inputs.meaning_hash", lambda path: "another")
    assert cell_of(config, inputs) != before and cell_of(small_trial, inputs) == ours


@pytest.mark.parametrize("setting", ["training.loss", "evaluation.measures"])
def test_a_user_s_loss_and_measures_are_part_of_the_cell_and_travel(
    setting, small_trial, monkeypatch
):
    monkeypatch.setattr("rank_core.chunking.inputs.meaning_hash", lambda path: "one")
    config = small_trial.override({setting: ("nDCG@10", "m:f") if "meas" in setting else "m:f"})
    inputs = load_inputs(config.collection, config.model.backbone)
    before, ours = cell_of(config, inputs), cell_of(small_trial, inputs)
    assert own_paths(config) == ("m:f",) and before != ours
    monkeypatch.setattr("rank_core.chunking.inputs.meaning_hash", lambda path: "another")
    assert cell_of(config, inputs) != before and cell_of(small_trial, inputs) == ours


def test_other_processes_receive_references(small_trial, monkeypatch):
    monkeypatch.setitem(MODELS, "mine", OWN)
    assert portable_config(small_trial.override({"model.name": "mine"})).model.name == OWN
    assert portable_config(small_trial) == small_trial and own_paths(small_trial) == ()
    both = {"model.name": OWN, "collection": "m:f|deep(rate=0.5)"}
    assert own_paths(small_trial.override(both)) == (OWN, "m:f")
