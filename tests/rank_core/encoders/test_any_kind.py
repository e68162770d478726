"""Classifiers and encoders of kinds without a line in the table, as transformers computes them."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import FNetForSequenceClassification, GPT2Config, T5Config

from rank_core.chunking.encoder_input import RowFormat, lay_out
from rank_core.encoders.any_kind import ALONE, BY_LENGTH, PADDED, AsItIs, head_names, positions_of
from rank_core.encoders.backbone_types import ABSENT, NO_TABLE
from rank_core.encoders.backbones import load_encoder, resolve_backbone
from rank_core.encoders.packed import why_not
from rank_core.errors import BadInput
from rank_core.export.folder import read_model, write_model
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import TrialConfig
from tests.benchmarks.kinds import (
    KINDS,
    compared,
    cross_encoder,
    own_class,
    scores_here,
    write_classifier,
    write_encoder,
)

PASSES = {"gpt2": PADDED, "t5": PADDED, "fnet": BY_LENGTH, "gemma2": PADDED}
"""A decoder without special tokens, a tokenizer that writes none before, an encoder without a mask,
and a decoder with windows."""
UNREAD = {
    "big_bird": "heads of kind big_bird are not read",
    "bigbird_pegasus": "heads of kind bigbird_pegasus are not read",
    "layoutlmv2": "detectron2",
}
TEXTS = {name: np.arange(4, 4 + size, dtype=np.int32) for name, size in (("a", 9), ("b", 30))}


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("t5", "gemma2")]


@pytest.fixture(params=["gpt2", "fnet", *SLOW])
def kind(request):
    return request.param


@pytest.fixture
def folder(kind, tmp_path):
    (tmp_path / "published").mkdir()
    write_classifier(kind, tmp_path / "published")
    return tmp_path / "published"


def config_of(folder, name="maxp", **settings):
    usual = {"chunking.window": 12, "chunking.stride": 8, "chunking.max_query_tokens": 8}
    usual |= {"model.name": name, "model.backbone": str(folder), "model.dropout": 0.0}
    return TrialConfig().override(usual | settings)


def built(config):
    backbone = resolve_backbone(config.model.backbone)
    check_model(config, backbone)
    return build_model(config, backbone, init_seed=1), backbone


def batch_of(model, config, backbone):
    reader = type(model).reader(config, backbone, TEXTS)
    return reader.collate([reader.chunks(np.array([5, 6, 7], np.int32), d) for d in TEXTS])


def test_scores_are_those_of_the_checkpoint_s_own_class(kind, tmp_path):
    read = compared(kind, tmp_path, own_class)
    assert (read.refused, read.packing) == ("", PASSES[kind])
    assert read.difference < 1e-5


@pytest.mark.slow
@pytest.mark.long
def test_every_kind_of_transformers_is_read_or_refused(tmp_path):
    pytest.importorskip("sentence_transformers")
    read = 0
    for number, kind in enumerate(KINDS):
        (place := tmp_path / str(number)).mkdir()
        found = compared(kind, place, cross_encoder)
        assert found.difference <= 1e-5, found
        assert kind not in UNREAD or UNREAD[kind] in found.refused, found
        read += not found.refused
    assert read >= 100


def test_a_library_that_is_missing_is_not_told_as_a_damaged_checkpoint(tmp_path, monkeypatch):
    write_classifier("fnet", tmp_path)

    def absent(*args, **more):
        raise ModuleNotFoundError("No module named 'detectron2'", name="detectron2")

    monkeypatch.setattr(FNetForSequenceClassification, "__init__", absent)
    with pytest.raises(BadInput, match=r"detectron2.*; install it"):
        built(config_of(tmp_path))


def test_training_moves_all_of_a_classifier_and_its_export_is_the_model(folder, tmp_path):
    config = config_of(folder)
    model, backbone = built(config)
    groups = model.learning_rate_groups()
    heads = {id(p) for n, p in model.encoder.named_parameters() if n in head_names(model.encoder)}
    assert heads == {id(p) for p in groups["head"]} != set()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        model.train()
        loss = (model(batch_of(model, config, backbone)) - 1).square().sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] > losses[1] > losses[2]
    weights = tmp_path / "weights.safetensors"
    save_file({n: p.contiguous().clone() for n, p in model.state_dict().items()}, weights)
    write_model(tmp_path / "exported", config, weights)
    with torch.inference_mode():
        expected = model.eval()(batch_of(model, config, backbone))
        again = read_model(tmp_path / "exported")
        found = again.model(batch_of(again.model, again.config, again.backbone))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    pair = "w1 w2 w3", "w0 w1 w2 w3 w4 w5 w6 w7 w8"
    theirs = own_class(tmp_path / "exported" / "encoder")(pair)
    assert theirs == pytest.approx(float(expected[0]), abs=1e-5)


def test_an_encoder_of_any_kind_gives_one_vector_per_token(folder):
    config = config_of(folder, "maxp", **{"model.head": "new"})
    model, backbone = built(config)
    assert isinstance(model.encoder, AsItIs) and model.pooling == "mean"
    assert "as transformers has it" in why_not(model.encoder)
    rows = batch_of(model, config, backbone).inputs
    with torch.inference_mode():
        together = model.encode(rows)
        model.encoder.packing = ALONE
        torch.testing.assert_close(together, model.encode(rows), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["gpt2"])
@pytest.mark.parametrize("targets", [(), ("c_attn",)])
def test_adapters_learn_over_a_classifier_that_stands_still(targets, folder):
    pytest.importorskip("peft")
    config = config_of(folder, **{"training.lora_rank": 2, "training.lora_targets": targets})
    model, backbone = built(config)
    state = model.learned_state()
    assert state and all("lora_" in name for name in state)
    with torch.no_grad():
        before = model.eval()(batch_of(model, config, backbone))
    plain, _ = built(config_of(folder))
    with torch.no_grad():
        torch.testing.assert_close(before, plain.eval()(batch_of(plain, config, backbone)))
    model(batch_of(model, config, backbone)).sum().backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} <= state.keys()


def test_empty_parts_of_a_row_take_no_place():
    texts = [np.array(ids, np.int32) for ids in ([5, 6], [7, 8, 9])]
    form = RowFormat(ABSENT, 3, ABSENT, 1, has_segments=True, absent=ABSENT, closes_up=True)
    rows = lay_out([texts[0]] * 2, [texts[1], texts[0]], form)
    assert rows.input_ids_CL.tolist() == [[5, 6, 3, 7, 8, 9], [5, 6, 3, 5, 6, 1]]
    assert rows.attention_mask_CL.tolist() == [[1] * 6, [1] * 5 + [0]]
    assert rows.token_type_ids_CL.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0]]
    assert rows.parts.position_T.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]


OF_TEXTS = ("bi-encoder", "late-interaction")
ENCODERS = [("gpt2", name) for name in OF_TEXTS] + [("fnet", name) for name in OF_TEXTS]
ENCODERS += [
    pytest.param(kind, name, marks=pytest.mark.slow)
    for kind in ("t5", "bart", "gemma3_text")
    for name in OF_TEXTS
]


@pytest.mark.parametrize(("kind", "name"), ENCODERS)
def test_an_exported_model_of_separate_texts_is_the_trial_s(kind, name, tmp_path):
    (tmp_path / "published").mkdir()
    write_encoder(kind, tmp_path / "published")
    config = config_of(tmp_path / "published", name)
    model, backbone = built(config)
    weights = tmp_path / "weights.safetensors"
    save_file({n: p.contiguous().clone() for n, p in model.state_dict().items()}, weights)
    write_model(tmp_path / "m", config, weights)
    expected = scored(model.eval(), config, backbone)
    again = read_model(tmp_path / "m")
    found = scored(again.model, again.config, again.backbone)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    padded = model.encoder.packing == PADDED
    assert (tmp_path / "m" / "modules.json").exists() is padded
    if not padded:
        return
    found = scored(*built_with(config_of(tmp_path / "m", name, **{"training.num_epochs": 0})))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    library = pytest.importorskip("sentence_transformers", minversion="6.2")
    reads = library.SentenceTransformer if name == "bi-encoder" else library.MultiVectorEncoder
    theirs = reads(str(tmp_path / "m"), device="cpu", local_files_only=True)
    texts = theirs.encode_document(["w0 w1 w2 w3 w4 w5 w6 w7 w8", "w1"])
    similar = theirs.similarity(theirs.encode_query(["w1 w2 w3"]), texts)[0, 0]
    scale = model.head.weight.item() if name == "bi-encoder" else 1.0
    torch.testing.assert_close(similar * scale, expected[0], atol=1e-4, rtol=0)


def built_with(config):
    model, backbone = built(config)
    return model.eval(), config, backbone


def scored(model, config, backbone):
    with torch.inference_mode():
        return model(batch_of(model, config, backbone))


@pytest.mark.parametrize("name", OF_TEXTS)
def test_the_size_of_vectors_is_that_of_the_part_that_reads_texts(name, tmp_path):
    write_encoder("gemma3", tmp_path)  # of images, too
    config = config_of(tmp_path, name)
    assert scored(*built_with(config)).isfinite().all()


def test_an_encoder_whose_vectors_are_larger_than_it_says_is_refused(tmp_path):
    write_encoder("reformer", tmp_path)
    with pytest.raises(BadInput, match=r"reformer, whose vectors have 32 elements where .* 16"):
        load_encoder(resolve_backbone(str(tmp_path)), 0.0)


def test_vectors_that_are_not_finite_are_called_so(tmp_path):
    write_encoder("gpt2", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["ln_f.weight"].fill_(3e38)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match="gpt2, whose vectors are not finite"):
        load_encoder(resolve_backbone(str(tmp_path)), 0.0)


@pytest.mark.parametrize("kind", ["gpt2"])
def test_a_rate_of_dropout_may_be_a_whole_number(folder):
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stated | {"resid_pdrop": 0}))
    model, _ = built(config_of(folder, **{"model.dropout": 0.25}))
    assert model.encoder.config.resid_pdrop == 0.25


@pytest.mark.parametrize("name", OF_TEXTS)
def test_a_class_that_adds_to_an_encoder_is_not_left_out_in_silence(name, tmp_path):
    write_encoder("gpt2", tmp_path)
    stated = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stated | {"architectures": ["HF_ColBERT"]}))
    epochs = 0 if name == "bi-encoder" else 1  # trained, the encoder alone is meant
    with pytest.raises(BadInput, match="is a HF_ColBERT, which transformers does not have"):
        built(config_of(tmp_path, name, **{"training.num_epochs": epochs}))


def test_the_length_that_a_t5_was_trained_with_is_no_limit():
    assert positions_of(T5Config(n_positions=512), nn.Module()) == NO_TABLE
    assert positions_of(GPT2Config(n_positions=512), nn.Module()) == 512


LIMITS = {"opt": 96, "data2vec-text": 94, "t5": NO_TABLE, "gpt2": 96}
"""Of 96 positions; one that numbers them behind its padding token 1 has two less, and the table of
OPT has two more."""


@pytest.mark.parametrize(
    "kind",
    ["gpt2", "data2vec-text", *(pytest.param(k, marks=pytest.mark.slow) for k in ("opt", "t5"))],
)
def test_a_row_has_as_many_tokens_as_the_encoder_has_positions(kind, folder):
    limit = resolve_backbone(str(folder)).max_input_tokens
    assert limit == LIMITS[kind]
    if limit == NO_TABLE:
        return
    encoder = load_encoder(resolve_backbone(str(folder)), 0.0)
    with torch.inference_mode():
        encoder(torch.full((1, limit), 9))
        with pytest.raises((IndexError, RuntimeError), match="index"):
            encoder(torch.full((1, limit + 1), 9))


@pytest.mark.parametrize("kind", ["gpt2"])
def test_models_that_read_places_of_a_row_need_tokens_there(folder):
    config = config_of(folder, "parade-max")
    with pytest.raises(BadInput, match=r"writes no token before the query"):
        check_model(config, resolve_backbone(str(folder)))


@pytest.mark.parametrize("kind", ["gpt2"])
def test_code_of_a_vendor_is_never_run(folder):
    stated = json.loads((folder / "config.json").read_text())
    maps = {"auto_map": {"AutoModelForSequenceClassification": "theirs.Model"}}
    for change, words in (
        (maps, r"needs code of the checkpoint \(auto_map\), which is never run"),
        (
            maps | {"model_type": "new"},
            r"is a new, which transformers does not have; .* never run",
        ),
    ):
        (folder / "config.json").write_text(json.dumps(stated | change))
        with pytest.raises(BadInput, match=words):
            scores_here(folder, ["w1"], ["w2 w3"], "maxp")


def test_other_models_that_score_chunks_take_a_whole_classifier(tmp_path):
    write_classifier("gpt2", tmp_path)
    for name in ("avgp", "kmax-avgp", "randp"):
        assert model_class(name).scores_chunks
        assert scores_here(tmp_path, ["w1"], ["w2 w3"], name)["scores"].shape == (1, 1)
