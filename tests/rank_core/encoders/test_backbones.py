"""Backbones: usable length, contents, loading without side effects, errors with a remedy."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rank_core.encoders.backbones import load_encoder, own_tokenizer, resolve_backbone
from rank_core.errors import BadInput
from tests.contracts.small_backbones import make_backbone, write_backbone


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
        (
            "/no/such/folder",
            r"no folder /no/such/folder; a backbone is `tiny-docs`, a folder or a H",
        ),
        ("./missing", "no folder ./missing"),
        ("a b/c d", "a Hugging Face id"),
        ("nobody/no-such-model", "hf download nobody/no-such-model --local-dir FOLDER"),
    ],
)
def test_a_missing_backbone_is_refused_with_a_remedy(name, remedy):
    with pytest.raises(BadInput, match=remedy):
        resolve_backbone(name)


def without(*kinds):
    """Removes the files of these kinds."""
    return lambda folder: [path.unlink() for kind in kinds for path in folder.glob(kind)]


def without_marks(folder):
    inner = PreTrainedTokenizerFast.from_pretrained(folder).backend_tokenizer
    without("*token*")(folder)
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]").save_pretrained(folder)


def without_a_weight(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without_a_part(folder):
    BertModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    max(folder.glob("model-*.safetensors")).unlink()


def cut(size, pickled=False):
    """Leaves so many bytes of the weights."""

    def spoil(folder):
        path = folder / "model.safetensors"
        if pickled:
            torch.save(load_file(path), folder / "pytorch_model.bin")
            path.unlink()
            path = folder / "pytorch_model.bin"
        os.truncate(path, size)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (without("*"), r"config\.json"),
        (without("*token*"), "tokenizer"),
        (without_marks, r"\[CLS\] and \[SEP\]"),
        (without_a_weight, r"encoder\.layer\.1\.output\.dense\.weig"),
        (without_a_part, r"model-\d+-of-\d+\.safetensors"),
        (without("*.safetensors"), "has no weights"),
        (cut(0), r"model\.safetensors cannot be read"),
        (cut(5000), r"model\.safetensors cannot be read"),
        (cut(5000, pickled=True), r"pytorch_model\.bin cannot be read"),
    ],
)
def test_an_incomplete_checkpoint_is_refused_by_what_it_lacks(
    spoil, named, backbone_folder, tmp_path
):
    folder = shutil.copytree(backbone_folder, tmp_path / "b")
    spoil(folder)
    with pytest.raises(BadInput, match=named):
        load_encoder(resolve_backbone(str(folder)), 0.0)


def test_a_padding_token_that_does_not_fit_the_positions_is_refused(tmp_path):
    folder = make_backbone("roberta", tmp_path).folder
    assert resolve_backbone(str(folder)).pad_id == 1  # and again after the change
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 3}))
    with pytest.raises(BadInput, match=r"\(3 and 1\)"):
        resolve_backbone(str(folder))


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


def test_a_tokenizer_that_lowers_texts_is_the_same_after_it_was_saved(tmp_path):
    """As an export has it, with the settings of sentence-transformers beside it."""
    write_backbone("bert", tmp_path)
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    tokenizer = own_tokenizer(tmp_path)
    assert tokenizer("W7")["input_ids"] == tokenizer("w7")["input_ids"]
    tokenizer.save_pretrained(tmp_path)
    again = own_tokenizer(tmp_path)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
