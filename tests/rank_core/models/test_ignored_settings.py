"""The settings without effect on a trial: every other value of them is refused, or changes no
number."""

import pytest

from rank_core.models import MODELS, ignored_settings
from rank_core.settings.config import TrialConfig

STRIDE, CHUNKS, OVERFLOW = "chunking.stride", "chunking.max_chunks", "chunking.overflow"
BATCH, MARGIN = "training.batch_size", "training.margin"


def ignored(model, **settings):
    return set(ignored_settings(TrialConfig().override({"model.name": model, **settings})))


@pytest.mark.parametrize("model", MODELS)
def test_what_every_model_reads(model):
    read = {"collection", "seed", "model.name", "evaluation.measures", "evaluation.depth"}
    assert not read & ignored(model)


@pytest.mark.parametrize(
    ("model", "settings", "without", "with_"),
    [
        ("bm25", {}, {STRIDE, CHUNKS, BATCH, "model.backbone", "chat.model"}, set()),
        ("rankgpt", {}, {BATCH}, {"chat.model"}),
        ("firstp", {}, {STRIDE, CHUNKS}, {BATCH}),
        ("firstp", {"training.unit": "passage"}, {"training.chunk_dropout"}, {STRIDE, CHUNKS}),
        ("birch", {}, {STRIDE}, {CHUNKS}),
        ("maxp", {}, {OVERFLOW, "model.k"}, {"chunking.window", STRIDE, CHUNKS, MARGIN, BATCH}),
        ("maxp", {CHUNKS: 4}, {"training.teacher"}, {OVERFLOW}),
        ("maxp", {"training.loss": "ranknet"}, {MARGIN, "training.passage_keep"}, {BATCH}),
        ("kmax-avgp", {}, {"model.stage"}, {"model.k"}),
        ("parade-late-interaction", {}, set(), {"training.interaction_learning_rate"}),
        ("bi-encoder", {"training.num_epochs": 0}, {BATCH}, {"training.precision"}),
    ],
)
def test_settings_have_an_effect_where_something_reads_them(model, settings, without, with_):
    names = ignored(model, **settings)
    assert without <= names and not names & with_
