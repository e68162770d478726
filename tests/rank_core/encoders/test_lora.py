"""LoRA adapters: nothing but they and the head learns, and merged they are the same model."""

import pytest
import torch
from safetensors.torch import load_file

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.encoders import lora
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.export.folder import read_model, write_model
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.trial.trial import run_trial
from tests.contracts.small_backbones import make_backbone
from tests.rank_core.encoders.test_decoder_rerankers import publish as publish_decoder
from tests.rank_core.encoders.test_published_heads import config_of, publish, scores

pytest.importorskip("peft")
RANK = {"training.lora_rank": 2}


def published(kind, folder):
    return publish_decoder(kind, folder) if kind == "qwen3" else publish(kind, folder)


def learnt(model, seed=5):
    """The model with adapters that are no longer 0."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.trainable():
            if lora.ADAPTER in name:
                parameter.copy_(torch.randn(parameter.shape, generator=draw) / 4)
    return model


@pytest.fixture(scope="module")
def done(small_trial, tmp_path_factory):
    """(config, folder) of a trained trial."""
    folder = tmp_path_factory.mktemp("lora") / "t"
    config = small_trial.override(RANK | {"training.keep_weights": "all", "model.dropout": 0.1})
    list(run_trial(config, folder))
    return config, folder


@pytest.mark.parametrize("kind", ["bert", "deberta-v2", "distilbert", "modernbert", "qwen3"])
def test_adapters_change_nothing_before_the_first_step_and_merge_exactly(kind, tmp_path):
    folder = published(kind, tmp_path / "published")
    config = config_of(folder, "maxp", **RANK)
    backbone = resolve_backbone(folder)
    model = build_model(config, backbone, init_seed=1)
    whole = config.override({"training.lora_rank": 0})
    torch.testing.assert_close(scores(config, model), scores(whole), atol=1e-5, rtol=0)
    adapted = scores(config, learnt(model))
    assert (adapted - scores(whole)).abs().max() > 1e-3
    names = [name for name, _ in model.encoder.named_parameters()]
    lora.merge_adapters(model.encoder)
    torch.testing.assert_close(scores(config, model), adapted, atol=1e-5, rtol=0)
    assert len(list(model.encoder.parameters())) < len(names)
    assert not lora.has_adapters(model.encoder)


@pytest.mark.parametrize("kind", ["bert", pytest.param("longt5", marks=pytest.mark.slow)])
def test_the_encoder_stands_still_while_adapters_and_head_learn(kind, tmp_path, collection_folder):
    (tmp_path / "b").mkdir()
    backbone = make_backbone(kind, tmp_path / "b")
    settings = {"collection": str(collection_folder), "training.max_steps": 3}
    rates = {"training.backbone_learning_rate": 1e-2, "training.head_learning_rate": 1e-2}
    sizes = {"evaluation.max_dev_queries": 2, "evaluation.max_test_queries": 2}
    config = config_of(str(backbone.folder), "maxp", **settings, **rates, **sizes, **RANK)
    config = config.override({"training.keep_weights": "all", "training.batch_size": 4})
    list(run_trial(config, tmp_path / "t"))
    kept = load_file(tmp_path / "t" / WEIGHTS)
    model = build_model(config, backbone, init_seed=0)
    learns = {name for name, _ in model.trainable()}
    assert kept.keys() == learns and {n for n in learns if lora.ADAPTER in n}
    assert all(weight.abs().sum() > 0 for name, weight in kept.items() if "lora_B" in name)


def test_the_frozen_layers_are_kept_in_the_type_of_their_products(small_trial):
    backbone = resolve_backbone(small_trial.model.backbone)
    config = small_trial.override(RANK)
    found = []
    for thin in (False, True):
        model = learnt(build_model(config, backbone, init_seed=1)).eval()
        if thin:
            lora.thin_base(model.encoder, torch.bfloat16)
        ids = torch.arange(4, 40).view(2, 18)
        with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
            found.append(model.encoder(input_ids=ids).last_hidden_state)
        types = {p.dtype for n, p in model.encoder.named_parameters() if "base_layer" in n}
        assert types == {torch.bfloat16 if thin else torch.float32}
    assert torch.equal(*found)


def test_an_export_is_merged_and_ranks_alike(done, tmp_path):
    config, folder = done
    backbone = resolve_backbone(config.model.backbone)
    write_model(tmp_path / "m", config, folder / WEIGHTS)
    exported = read_model(tmp_path / "m")
    assert exported.config.training.lora_rank == 0
    adapted = build_model(config, backbone, init_seed=3)
    adapted.load_learned(load_file(folder / WEIGHTS))
    ids = torch.arange(4, 40).view(2, 18)
    both = []
    for model in (adapted, exported.model):
        with torch.inference_mode():
            hidden = model.eval().encoder(input_ids=ids).last_hidden_state[:, 0]
            both.append(model.score(hidden))
    torch.testing.assert_close(*both, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"training.lora_rank": 0, "training.lora_alpha": 4.0}, "lora_rank"),
        ({"training.lora_dropout": 1.0}, "lora_dropout"),
        ({"training.lora_targets": ("nothing",)}, "lora_targets.*query"),
        ({"model.name": "deeprank", "chunking.stride": 40}, "lora_rank.*deeprank"),
        ({"model.name": "idcm", "model.stage": "student"}, "lora_rank.*idcm"),
    ],
)
def test_adapters_that_cannot_be_are_refused(small_trial, settings, named):
    with pytest.raises(BadInput, match=named):
        config = small_trial.override(RANK | settings)
        backbone = resolve_backbone(config.model.backbone)
        check_model(config, backbone)
        build_model(config, backbone, init_seed=1)
