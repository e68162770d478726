"""PARADE's second encoders: their rates, dropout and limits. Scores are those of test_by_hand, laws
those of every model."""

import copy

import pytest

from rank_core.encoders import backbones
from rank_core.errors import BadInput
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import Chunking, Model, TrialConfig
from tests.contracts.small_backbones import write_backbone

CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60, max_query_tokens=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Second encoders of 96 positions."""
    made = {kind: tmp_path_factory.mktemp(kind) for kind in ("bert", "llama")}
    for kind, folder in made.items():
        write_backbone(kind, folder)
    return {kind: str(folder) for kind, folder in made.items()}


@pytest.fixture
def config(backbone):
    """A trial of a model with some settings changed."""

    def build(name, chunking=CHUNKING, **model):
        return TrialConfig(
            model=Model(name, backbone=str(backbone.folder), **model), chunking=chunking
        )

    return build


def test_dropout_of_a_trial_reaches_its_second_encoder_and_no_other_trial(
    folders, config, backbone
):
    shared = backbones.load_config(
        folders["bert"], backbones.resolve_backbone(folders["bert"]).folder
    )
    before = copy.deepcopy(shared.to_dict())
    for dropout in (0.3, 0.0):
        trial = config("parade-transformer-pretrained", aggregator=folders["bert"], dropout=dropout)
        model = build_model(trial, backbone, init_seed=1)
        assert model.aggregator.config.hidden_dropout_prob == dropout
        assert not any("word_embeddings" in name for name, _ in model.aggregator.named_parameters())
    assert shared.to_dict() == before


def test_a_decoder_is_refused_as_a_second_encoder(config, backbone, folders):
    with pytest.raises(BadInput, match=r"model\.aggregator"):
        check_model(config("parade-late-interaction", aggregator=folders["llama"]), backbone)


@pytest.mark.parametrize(
    ("name", "setting", "longest", "longer"),
    [
        # [C, SEP, 93 chunks, SEP], 84 beside the query, [C, SEP, 8 + 3, SEP, 78 + 3, SEP]
        ("parade-transformer-pretrained", "aggregator", (2, 1, 94), (2, 1, 95)),
        ("parade-transformer-query", "aggregator", (2, 1, 85), (2, 1, 86)),
        ("parade-late-interaction", "interaction", (78, 78, 78), (79, 79, 79)),
    ],
)
def test_sequences_must_fit_the_second_encoder(
    name, setting, longest, longer, config, backbone, folders
):
    def trial(window, stride, limit):
        chunking = Chunking(window, stride, max_document_tokens=limit, max_query_tokens=8)
        return config(name, chunking, **{setting: folders["bert"]})

    check_model(trial(*longest), backbone)
    with pytest.raises(BadInput, match=rf"model\.{setting}=.* 96 positions"):
        check_model(trial(*longer), backbone)
