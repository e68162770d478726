"""The embedded backbone: its parts by default, the trained whole as a slow test."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rank_core.backbones import load_encoder, load_tokenizer, resolve_backbone
from rank_core.config import Chunking, TrialConfig, setting_types
from rank_core.models import build_model, check_model
from rank_core.tiny import (
    NAMES,
    RECIPE,
    SETTINGS,
    SPECIAL,
    build_backbone,
    matched_bert,
    tiny_folder,
    train_tokenizer,
)

ROOT = Path(__file__).parents[2]
TEXTS = ["The heron waits by the harbour.", "Lanterns, lanterns at the harbour!", "a slate roof"]
VOCABULARY = """
import json, sys
from rank_core.tiny import train_tokenizer
print(train_tokenizer(json.loads(sys.argv[1]), 70).backend_tokenizer.to_str())
"""


def test_the_tokenizer_learns_lower_case_words_beside_the_special_tokens():
    tokenizer = train_tokenizer(TEXTS, 200)
    assert tokenizer.convert_ids_to_tokens(range(5)) == SPECIAL
    assert (tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id) == (0, 2, 3)
    words = tokenizer.tokenize("The HARBOUR, the lanterns")
    assert words == ["the", "harbour", ",", "the", "lanterns"]
    assert tokenizer.decode(tokenizer("a slate roof")["input_ids"]) == "[CLS] a slate roof [SEP]"


def test_the_vocabulary_stays_within_its_size():
    assert len(train_tokenizer(TEXTS, 60)) <= 60 < len(train_tokenizer(TEXTS, 200))


def test_the_first_layer_looks_at_equal_tokens_from_the_start():
    torch.manual_seed(0)
    model = matched_bert(200).eval()
    attention = model.encoder.layer[0].attention.self
    assert torch.equal(attention.key.weight, attention.query.weight)
    model.set_attn_implementation("eager")
    ids = torch.arange(10, 40)[None]
    ids[0, 20] = ids[0, 3]
    [weight_HLL] = model(input_ids=ids, output_attentions=True).attentions[0]
    weight_LL = weight_HLL.mean(0)
    assert weight_LL[3, 20] > 3 * weight_LL[3].median()
    other = matched_bert(200).config
    assert other.max_position_embeddings == RECIPE.positions == 131


def test_the_settings_for_tiny_are_settings_of_a_trial():
    assert set(SETTINGS) <= set(setting_types())
    changed = TrialConfig().override(SETTINGS).settings()
    assert all(changed[name] == value for name, value in SETTINGS.items())


def test_the_passages_of_the_recipe_fit_its_positions():
    assert 32 + RECIPE.passage_tokens + 3 <= RECIPE.positions


def test_a_backbone_is_what_its_recipe_says_and_is_changed_by_training(tmp_path):
    passages = [(text, " ".join(TEXTS)) for text in TEXTS]
    small = replace(RECIPE, hidden=16, heads=1, layers=1, vocabulary=90, batch=2, positions=60)
    weights = []
    for steps in (0, 1, 1):
        folder = tmp_path / str(len(weights))
        folder.mkdir()
        build_backbone(folder, replace(small, steps=steps), passages)
        backbone = resolve_backbone(str(folder))
        encoder = load_encoder(backbone, 0.0)
        weights.append(encoder.get_input_embeddings().weight.detach())
        config = encoder.config
        assert (config.hidden_size, config.num_hidden_layers) == (16, 1)
        assert (config.num_attention_heads, backbone.max_input_tokens) == (1, 60)
        assert weights[-1].shape[0] <= 90
    assert torch.equal(weights[1], weights[2]) and not torch.equal(weights[0], weights[1])


def test_the_recipes_differ_in_how_long_and_with_how_many_heads_they_train():
    assert {replace(one, steps=0, heads=2) for one in NAMES.values()} == {NAMES["tiny-raw"]}


@pytest.mark.slow
def test_every_process_learns_the_same_vocabulary():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", VOCABULARY, json.dumps(TEXTS)],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(outputs) == 1


@pytest.mark.slow
def test_tiny_is_trained_once_and_fits_a_trial():
    folder = tiny_folder()
    before = folder.stat().st_mtime_ns
    assert tiny_folder() == folder and folder.stat().st_mtime_ns == before
    backbone = resolve_backbone("tiny")
    assert backbone.max_window(32) == 96
    config = TrialConfig(chunking=Chunking(window=96, stride=48)).override(SETTINGS)
    check_model(config, backbone)
    assert build_model(config, backbone, init_seed=1).encoder.config.hidden_size == RECIPE.hidden
    assert len(load_tokenizer(folder)) <= RECIPE.vocabulary
