"""all-MiniLM-L6-v2, as people use it: read, trained, exported and read again."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from rank_core.data.trec import read_run
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig
from sweeps.__main__ import main
from sweeps.store.sweep_file import read_sweep_file

pytestmark = [pytest.mark.long, pytest.mark.slow]
LONG = "the driver of a database connection pool retries failed transactions " * 90
MODELS = ("firstp", "maxp", "parade-attn")
SWEEP = f"""
name = "real"
question = "Which model?"
[base]
chunking.window = 64
chunking.stride = 48
training.keep_weights = "all"
[grid]
model.name = {json.dumps(MODELS[1:])}
[baseline]
model.name = "firstp"
chunking.stride = 64
"""


def test_a_long_text_has_all_its_tokens(minilm):
    """Its tokenizer.json cuts at 128."""
    theirs = AutoTokenizer.from_pretrained(minilm, local_files_only=True)
    expected = theirs(LONG, add_special_tokens=False, truncation=False)["input_ids"]
    assert len(expected) > 900
    backbone = resolve_backbone(str(minilm))
    ours = load_tokenizer(backbone.folder)([LONG], add_special_tokens=False)["input_ids"][0]
    assert ours == expected


def test_the_hidden_states_are_those_of_transformers(minilm):
    settings = {"model.name": "firstp", "model.backbone": str(minilm), "model.dropout": 0.0}
    config = TrialConfig().override(settings)
    model = build_model(config, resolve_backbone(str(minilm)), init_seed=1).eval()
    theirs = AutoModel.from_pretrained(minilm, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(minilm, local_files_only=True)
    texts = ["A query.", "Another one about pools of connections " * 3]
    rows = [tokenizer("which pool", text, return_tensors="pt") for text in texts]
    reranker = Reranker(ExportedModel(model, config, resolve_backbone(str(minilm))), "cpu", "fp32")
    found = dict(reranker.rank("which pool", texts))
    with torch.no_grad():
        states = [theirs(**row).last_hidden_state[0, 0] for row in rows]
        weight, bias = _head(model)
        expected = [float(state @ weight + bias) for state in states]
    np.testing.assert_allclose([found[0], found[1]], expected, atol=1e-5)


def _head(model):
    """Weight and bias of the scoring layer: one output over the first token."""
    [layer] = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == 1
    ]
    return layer.weight[0], layer.bias[0]


@pytest.fixture(scope="module")
def swept(minilm, collection_folder, tmp_path_factory):
    """The folder of a finished sweep of three models, of a few steps each."""
    home = tmp_path_factory.mktemp("real")
    (home / "real.toml").write_text(SWEEP)
    words = ["run", str(home / "real.toml"), "--engine", "local", "--backbone", str(minilm)]
    words += ["--collection", str(collection_folder), "--storage", str(home / "results")]
    words += ["--tracking-uri", "none", "--seeds", "1", "training.max_steps=4"]
    assert main([*words, "training.batch_size=4"]) == 0
    return home / "results" / "real" / "woods"


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_leaves_and_scores_as_its_trial_did(
    name, swept, collection_folder, tmp_path
):
    cells = {cell.settings.get("model.name"): cell for cell in read_sweep_file(swept).cells}
    label = cells[name].label
    folder = tmp_path / name
    assert main(["export", str(swept), "--cell", label, "--seed", "1", "--to", str(folder)]) == 0
    reranker = Reranker.load(folder, device="cpu", precision="fp32")
    [trial] = [path for path in (swept.parents[1] / "trials").glob(f"{name}-*")]
    run = read_run(trial / "test.run.gz")
    texts = {
        (document := json.loads(line))["doc_id"]: document["text"]
        for line in (collection_folder / "docs.jsonl").open()
    }
    queries = dict(
        line.rstrip("\n").split("\t")
        for line in (collection_folder / "test" / "queries.tsv").open()
    )
    for query_id, scores in run.items():
        ids = list(scores)
        found = dict(reranker.rank(queries[query_id], [texts[doc_id] for doc_id in ids]))
        expected = [scores[doc_id] for doc_id in ids]
        np.testing.assert_allclose([found[i] for i in range(len(ids))], expected, atol=1e-5)
