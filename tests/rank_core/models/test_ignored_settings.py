"""The settings without effect on a trial: every other value of them is refused, or changes no
number."""

import pytest

from rank_core.models import MODELS, ignored_settings
from rank_core.settings.config import TrialConfig

WINDOWS = {"chunking.window", "chunking.stride", "chunking.max_chunks"}


def ignored(model: str, **settings) -> set[str]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return set(ignored_settings(TrialConfig().override({"model.name": model, **named})))


@pytest.mark.parametrize("model", MODELS)
def test_what_every_model_reads(model):
    read = {"collection", "seed", "model.name", "evaluation.measures", "evaluation.depth"}
    assert not read & ignored(model)


def test_a_system_without_weights_reads_neither_windows_nor_settings_of_training():
    names = ignored("bm25")
    assert WINDOWS | {"model.backbone", "training.batch_size", "chat.model"} <= names
    assert "chat.model" not in ignored("rankgpt")


def test_windows_that_a_model_does_not_read():
    assert {"chunking.stride", "chunking.max_chunks"} <= ignored("firstp")
    assert not {"chunking.stride", "chunking.max_chunks"} & ignored(
        "firstp", training__unit="passage"
    )
    assert "chunking.stride" in ignored("birch") and "chunking.max_chunks" not in ignored("birch")
    assert not WINDOWS & ignored("maxp")
    assert "chunking.overflow" in ignored("maxp")
    assert "chunking.overflow" not in ignored("maxp", chunking__max_chunks=4)


def test_optional_settings_of_other_models():
    assert "model.k" not in ignored("kmax-avgp") and "model.k" in ignored("maxp")
    assert "training.interaction_learning_rate" not in ignored("parade-late-interaction")


def test_settings_of_other_losses_and_of_training_where_there_is_none():
    names = ignored("maxp", training__loss="ranknet")
    assert {"training.margin", "training.teacher", "training.passage_keep"} <= names
    assert "training.margin" not in ignored("maxp") and "training.batch_size" not in names
    untrained = ignored("bi-encoder", training__num_epochs=0)
    assert "training.batch_size" in untrained and "training.precision" not in untrained
