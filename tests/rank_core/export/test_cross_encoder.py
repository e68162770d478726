"""An exported FirstP as the `CrossEncoder` of sentence-transformers, by its documented files."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import resolve_backbone
from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker
from rank_core.export.serving import ENCODER_FOLDER, row_tokens
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import suited
from tests.contracts.small_backbones import make_backbone

# The small qwen2 has a token per character: these texts are longer than a row.
PLAIN = sorted(k for k, row in TYPES.items() if row.loader == "AutoModel" and k != "qwen2")
QUICK = ("bert", "modernbert", "qwen3", "roberta")  # positions, segments and poolings of all
QUERY = "w1 w5 w9"
TEXTS = [" ".join(f"w{(i * j) % 46}" for j in range(1, 4 + 5 * i)) for i in range(1, 6)]


def written(kind, name, folder):
    (folder / "b").mkdir(parents=True)
    backbone = make_backbone(kind, folder / "b")
    config = TrialConfig().override({"model.name": name, "model.backbone": str(backbone.folder)})
    config = config.override(suited(config, backbone))
    model = build_model(config, backbone, init_seed=1)
    save_weights(folder, model.state_dict())
    write_model(folder / "m", config, folder / WEIGHTS)
    return folder / "m", config


def by_the_documented_files(folder, query, texts):
    """score of each text as the three modules of the folder compute it."""
    place = folder / json.loads((folder / "modules.json").read_text())[0]["path"]
    tokenizer, encoder = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place)
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode"]
    dense = load_file(folder / "2_Dense" / "model.safetensors")
    takes = {"token_type_ids"} if TYPES[encoder.config.model_type].segments else set()
    scores = []
    for text in texts:
        row = tokenizer([query], [text], truncation="longest_first", return_tensors="pt")
        row = {
            name: x for name, x in row.items() if name in {"input_ids", "attention_mask"} | takes
        }
        with torch.inference_mode():
            hidden_LH = encoder(**row).last_hidden_state[0]
        vector_H = {"cls": hidden_LH[0], "mean": hidden_LH.mean(0), "lasttoken": hidden_LH[-1]}
        score = vector_H[pooling] @ dense["linear.weight"][0] + dense["linear.bias"][0]
        scores.append(float(score))
    return scores


@pytest.mark.parametrize(
    "kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in PLAIN]
)
def test_the_modules_of_the_folder_give_the_scores_of_the_reranker(kind, tmp_path):
    folder, config = written(kind, "firstp", tmp_path)
    ranked = dict(Reranker.load(folder).rank(QUERY, TEXTS))
    found = by_the_documented_files(folder, QUERY, TEXTS)
    assert found == pytest.approx([ranked[i] for i in range(len(TEXTS))], abs=1e-5)
    assert np.std(found) > 1e-3
    modules = json.loads((folder / "modules.json").read_text())
    assert [(module["path"], module["type"]) for module in modules] == [
        ("encoder", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
        ("2_Dense", "sentence_transformers.base.modules.dense.Dense"),
    ]
    tokenizer = json.loads((folder / ENCODER_FOLDER / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == row_tokens(
        config, resolve_backbone(str(folder / ENCODER_FOLDER))
    )


@pytest.mark.long  # the import alone takes seconds
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "qwen3", "eurobert"])
@pytest.mark.parametrize("name", ["firstp", "longp"])
def test_a_cross_encoder_gives_the_scores_of_the_reranker(kind, name, tmp_path):
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", minversion="5.4", reason="pip install -e '.[serve]' brings it"
    )
    folder, _ = written(kind, name, tmp_path)
    ranked = dict(Reranker.load(folder).rank(QUERY, TEXTS))
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    found = model.predict([(QUERY, text) for text in TEXTS])
    assert found == pytest.approx([ranked[i] for i in range(len(TEXTS))], abs=1e-5)
    assert [one["corpus_id"] for one in model.rank(QUERY, TEXTS)] == list(ranked)


@pytest.mark.parametrize(
    ("kind", "name"), [("bert", "parade-max"), ("longformer", "longp"), ("jina-bert", "firstp")]
)
def test_what_is_no_cross_encoder_cannot_be_opened_as_one(kind, name, tmp_path):
    """With a head drawn at random it would rank, differently each time."""
    folder, _ = written(kind, name, tmp_path)
    assert not (folder / "modules.json").exists()
    with pytest.raises((OSError, ValueError)):
        AutoModelForSequenceClassification.from_pretrained(folder)
