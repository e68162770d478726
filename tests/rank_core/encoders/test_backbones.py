"""Backbones: usable length, contents, loading without side effects, errors with a remedy."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from rank_core.encoders.backbones import _config, load_encoder, load_tokenizer, resolve_backbone
from rank_core.errors import BadInput
from rank_core.models import check_model
from rank_core.settings.config import Chunking, TrialConfig


@pytest.fixture(scope="module")
def roberta_folder(tmp_path_factory):
    """A random RoBERTa of 40 positions, of which it numbers the first pad_token_id + 1 away."""
    folder = tmp_path_factory.mktemp("roberta")
    words = ["<s>", "<pad>", "</s>", "<unk>", "amber", "birch"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<s>",
        pad_token="<pad>",
        sep_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        type_vocab_size=1,
        pad_token_id=1,
    )
    RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def test_the_facts_of_a_bert_folder_are_read_from_it(backbone, backbone_folder):
    assert backbone.folder == backbone_folder.resolve()
    assert backbone.max_input_tokens == 131
    assert backbone.max_window(32) == 96
    assert (backbone.pad_id, backbone.cls_id, backbone.sep_id) == (0, 2, 3)
    assert backbone.num_segments == 2


def test_a_roberta_reads_two_tokens_less_than_its_positions(roberta_folder):
    backbone = resolve_backbone(str(roberta_folder))
    assert backbone.max_input_tokens == 38
    assert (backbone.cls_id, backbone.pad_id, backbone.sep_id) == (0, 1, 2)
    assert backbone.num_segments == 1
    encoder = load_encoder(backbone, dropout=0.0).eval()

    def read(length):
        ids = torch.full((1, length), 4)
        return encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state

    assert read(38).isfinite().all()
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        read(39)


def test_the_longest_window_is_accepted_and_one_more_token_is_not(backbone_folder):
    backbone = resolve_backbone(str(backbone_folder))
    fits = TrialConfig(chunking=Chunking(window=96, stride=48))
    check_model(fits, backbone)
    with pytest.raises(BadInput, match=r"chunking.window <= 96 must hold .*131 positions.*=97"):
        check_model(fits.override({"chunking.window": 97}), backbone)
    check_model(fits.override({"chunking.window": 97, "chunking.max_query_tokens": 31}), backbone)


@pytest.mark.parametrize(
    ("settings", "law"),
    [
        (
            {"model.name": "maxP"},
            r"unknown model 'maxP'; did you mean maxp\? Nearest: maxp, .*lists all",
        ),
        ({"model.name": "firstp"}, r"stride has no effect with model firstp.*=60, got 30"),
        ({"model.name": "firstp", "chunking.stride": 60, "chunking.max_chunks": 2}, "no effect"),
        (
            {"model.name": "parade-transformer", "chunking.window": 2, "chunking.stride": 1},
            r"reads at most 509 chunks per document, got up to 1430",
        ),
    ],
)
def test_settings_that_a_model_cannot_use_are_refused(settings, law, backbone):
    config = TrialConfig(chunking=Chunking(window=60, stride=30)).override(settings)
    with pytest.raises(BadInput, match=law):
        check_model(config, backbone)


def test_parade_transformer_reads_as_many_chunks_as_it_has_places(backbone):
    settings = {"model.name": "parade-transformer", "chunking.window": 2, "chunking.stride": 1}
    config = TrialConfig().override(settings | {"chunking.max_chunks": 509})
    check_model(config, backbone)
    with pytest.raises(BadInput, match="at most 509"):
        check_model(config.override({"chunking.max_chunks": 510}), backbone)


def test_the_given_dropout_is_everywhere_and_the_next_load_has_its_own(backbone):
    for dropout in (0.3, 0.0):
        encoder = load_encoder(backbone, dropout)
        rates = {module.p for module in encoder.modules() if isinstance(module, nn.Dropout)}
        assert rates == {dropout}
        assert encoder.config.attention_probs_dropout_prob == dropout


def test_an_encoder_is_fp32_and_has_no_part_that_ranking_does_not_use(backbone, roberta_folder):
    for some in (backbone, resolve_backbone(str(roberta_folder))):
        encoder = load_encoder(some, 0.1)
        assert encoder.pooler is None
        assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


def test_a_checkpoint_in_half_precision_is_trained_in_fp32(backbone_folder, tmp_path):
    folder = tmp_path / "half"
    shutil.copytree(backbone_folder, folder)
    BertModel.from_pretrained(backbone_folder, dtype=torch.bfloat16).save_pretrained(folder)
    encoder = load_encoder(resolve_backbone(str(folder)), 0.0)
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


def test_the_content_hash_follows_the_contents_and_not_the_place(backbone, tmp_path):
    def copied(name):
        return shutil.copytree(backbone.folder, tmp_path / name)

    same, trained, renamed = copied("same"), copied("trained"), copied("cased")
    (same / "README.md").write_text("no part of the checkpoint")
    BertModel(BertConfig.from_pretrained(trained), add_pooling_layer=False).save_pretrained(trained)
    tokenizer = (renamed / "tokenizer.json").read_text()
    (renamed / "tokenizer.json").write_text(tokenizer.replace("amber", "umber2"))
    hashes = [resolve_backbone(str(p)).content_hash for p in (same, trained, renamed)]
    assert hashes[0] == backbone.content_hash
    assert len({*hashes}) == 3


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("/no/such/folder", r"no folder /no/such/folder; a backbone is `tiny`, a folder or a H"),
        ("./missing", "no folder ./missing"),
        ("a b/c d", "a Hugging Face id"),
        ("nobody/no-such-model", "hf download nobody/no-such-model --local-dir DIR"),
    ],
)
def test_a_missing_backbone_is_refused_with_a_remedy(name, remedy):
    with pytest.raises(BadInput, match=remedy):
        resolve_backbone(name)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"is no Hugging Face checkpoint .*config.json"):
        resolve_backbone(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(backbone_folder, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(backbone_folder / name, tmp_path)
    with pytest.raises(BadInput, match="tokenizer"):
        resolve_backbone(str(tmp_path))


def test_a_tokenizer_without_marks_is_refused(backbone_folder, tmp_path):
    folder = tmp_path / "markless"
    shutil.copytree(backbone_folder, folder)
    inner = load_tokenizer(backbone_folder).backend_tokenizer
    for path in folder.glob("*token*"):
        path.unlink()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]").save_pretrained(folder)
    with pytest.raises(BadInput, match=r"\[CLS\] and \[SEP\]"):
        resolve_backbone(str(folder))


def test_a_checkpoint_that_lacks_weights_is_refused(backbone_folder, tmp_path):
    folder = tmp_path / "partial"
    shutil.copytree(backbone_folder, folder)
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"lacks 1 weights .* encoder.layer.1.output.dense.weig"):
        load_encoder(resolve_backbone(str(folder)), 0.0)


def test_a_pickled_checkpoint_is_read_and_named_by_its_contents(backbone_folder, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(backbone_folder, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    old = resolve_backbone(str(folder))
    encoder = load_encoder(old, 0.0)
    assert torch.equal(
        encoder.get_input_embeddings().weight, weights["embeddings.word_embeddings.weight"]
    )
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    torch.save({name: weight + 1 for name, weight in weights.items()}, other / "pytorch_model.bin")
    assert resolve_backbone(str(other)).content_hash != old.content_hash


def test_a_padding_token_that_does_not_fit_the_positions_is_refused(roberta_folder, tmp_path):
    folder = tmp_path / "padded"
    shutil.copytree(roberta_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 3}))
    with pytest.raises(BadInput, match=r"padding token \(3 and 1\)"):
        resolve_backbone(str(folder))


def test_a_config_is_the_same_after_many_loads(backbone):
    before = _config(backbone.name, backbone.folder).to_dict()
    for dropout in (0.3, 0.1):
        load_encoder(backbone, dropout)
    assert _config(backbone.name, backbone.folder).to_dict() == before


def test_loading_does_not_report_unused_weights(backbone_folder, tmp_path, caplog):
    folder = tmp_path / "pooled"
    shutil.copytree(backbone_folder, folder)
    BertModel.from_pretrained(backbone_folder).save_pretrained(folder)
    caplog.clear()
    load_encoder(resolve_backbone(str(folder)), 0.0)
    assert caplog.records == []
