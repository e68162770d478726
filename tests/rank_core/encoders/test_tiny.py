"""The embedded backbone: its parts by default, the trained whole as a long test."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rank_core.encoders.backbones import load_encoder, load_tokenizer, resolve_backbone
from rank_core.encoders.tiny import (
    NAMES,
    RECIPE,
    SETTINGS,
    SPECIAL,
    _loss,
    _pairs_batch,
    _share_of_rate,
    _tell_rarity,
    build_backbone,
    matched_bert,
    tiny_folder,
    train_tokenizer,
)
from rank_core.models import check_model
from rank_core.models.build import build_model
from rank_core.settings.config import Chunking, TrialConfig, setting_types

ROOT = Path(__file__).parents[3]
TEXTS = ["The heron waits by the harbour.", "Lanterns, lanterns at the harbour!", "a slate roof"]
VOCABULARY = """
import json, sys
from rank_core.encoders.tiny import train_tokenizer
print(train_tokenizer(json.loads(sys.argv[1]), 70).backend_tokenizer.to_str())
"""


def test_the_tokenizer_learns_lower_case_words_beside_the_special_tokens():
    tokenizer = train_tokenizer(TEXTS, 200)
    assert tokenizer.convert_ids_to_tokens(range(5)) == SPECIAL
    assert (tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id) == (0, 2, 3)
    words = tokenizer.tokenize("The HARBOUR, the lanterns")
    assert words == ["the", "harbour", ",", "the", "lanterns"]
    assert tokenizer.decode(tokenizer("a slate roof")["input_ids"]) == "[CLS] a slate roof [SEP]"


def test_words_are_read_without_their_endings_on_demand():
    tokenizer = train_tokenizer(TEXTS, 200, stems=True)
    assert tokenizer.tokenize("harbours") == tokenizer.tokenize("Harbour") == ["harbour"]
    assert tokenizer.tokenize("slates, slated, slating") == [*("slat", ",") * 2, "slat"]
    assert tokenizer.tokenize("the") == ["the"]  # three letters would not be left


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


def test_making_a_backbone_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rank_core.progress.FILE_SECONDS", 0.0)
    small = replace(RECIPE, hidden=16, heads=1, layers=1, vocabulary=90, batch=2, positions=60)
    build_backbone(tmp_path, replace(small, steps=4), [(text, text) for text in TEXTS])
    lines = [line for line in capsys.readouterr().err.splitlines() if "embedded" in line]
    assert re.match(r"making the embedded backbone, steps: 3 of 4, [\d.]+/s, about ", lines[-2])
    assert lines[-1].startswith("making the embedded backbone, steps: done after ")


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


@pytest.mark.slow
def test_a_backbone_is_the_same_on_any_number_of_threads(tmp_path):
    # Large enough that sums are cut between threads: without the recipe's own number it differs.
    passages = [(f"query {i} {text}", " ".join([text] * 9)) for i in range(20) for text in TEXTS]
    made, before = [], torch.get_num_threads()
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        torch.set_num_threads(threads)
        try:
            build_backbone(folder, replace(RECIPE, steps=3), passages)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        made.append((folder / "model.safetensors").read_bytes())
    assert made[0] == made[1]


def test_the_recipes_differ_in_what_they_say():
    changes = {
        name: {field for field, value in asdict(recipe).items() if asdict(RECIPE)[field] != value}
        for name, recipe in NAMES.items()
    }
    words = {"vocabulary", "stems", "heads", "rarity_scale", "negatives", "steps", "decay"}
    assert changes == {"tiny": set(), "tiny-raw": {"steps"}, "tiny-words": words}


def test_the_learning_rate_rises_and_then_falls():
    recipe = replace(RECIPE, steps=10, warmup=2, decay=4)
    shares = [_share_of_rate(step, recipe) for step in range(10)]
    assert shares == [0.5, *[1.0] * 6, 0.75, 0.5, 0.25]
    assert _share_of_rate(9, replace(recipe, decay=0)) == 1.0


def test_rarity_is_the_first_coordinate_of_an_embedding_and_no_other():
    torch.manual_seed(0)
    model = matched_bert(9)
    before = model.embeddings.word_embeddings.weight.detach().clone()
    _tell_rarity(model, [([5, 6], [6, 7]), ([5], [7, 7, 8]), ([5], [5])], 0.05)
    after = model.embeddings.word_embeddings.weight.detach()
    assert torch.equal(after[:, 1:], before[:, 1:])
    rarity = after[:, 0]
    assert rarity[5] < rarity[7] < rarity[6] == rarity[8] < rarity[4]  # in 3, 2, 1, 1, 0 pairs
    assert rarity.mean().item() == pytest.approx(0, abs=1e-7)
    assert rarity.std().item() == pytest.approx(0.05)


def test_a_batch_holds_each_querys_own_passage_and_then_its_negatives():
    pairs = [([10 + i], [20 + i] * 5) for i in range(6)]
    recipe = replace(RECIPE, batch=4, negatives=3, inverse_cloze_share=0.0)
    ids = _pairs_batch(pairs, np.random.default_rng(1), recipe)["input_ids"]
    queries, passages = ids[:, 1] - 10, ids[:, 3] - 20
    assert torch.equal(passages[:4], queries[:4]) and len(set(queries[:4].tolist())) == 4
    assert torch.equal(queries[4:], queries[:4].repeat_interleave(3))
    assert len(ids) == 16 and (ids[:, 3:8] == ids[:, 3:4]).all()


def test_one_negative_is_the_logistic_pairwise_loss():
    scores = torch.tensor([1.0, -2.0, 0.5, 0.3], requires_grad=True)
    loss = _loss(scores, 2)
    gradient = torch.autograd.grad(loss, scores)[0]
    plain = torch.nn.functional.softplus(scores[2:] - scores[:2]).mean()
    assert torch.equal(loss, plain)
    assert torch.equal(gradient, torch.autograd.grad(plain, scores)[0])


def test_several_negatives_are_a_softmax():
    scores = torch.tensor([1.0, -2.0, 0.5, 0.3, -1.0, 0.2])
    rows = torch.tensor([[1.0, 0.5, 0.3], [-2.0, -1.0, 0.2]])
    expected = torch.nn.functional.cross_entropy(rows, torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(_loss(scores, 2), expected)


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
        for seed in range(2)
    }
    assert len(outputs) == 1


@pytest.mark.long
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
