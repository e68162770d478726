"""An exported bi-encoder is read as the trial's by everything that reads it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import resolve_backbone
from rank_core.export.folder import FILE, ExportedModel, _digest, write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import TrialConfig
from tests.rank_core.encoders.test_published_heads import forget
from tests.rank_core.models.embedding_folders import CHAINS, encoder, saved

TEXTS = ["w1 w2 w3 w4", "w9", "w5 w5 w6 w7 w8", "w30 w1 w7 w45"]
QUERY = "w3 w4 w40"
SIZES = {"chunking.window": 8, "chunking.stride": 5, "chunking.max_query_tokens": 4}
GIVEN = {"model.query_prompt": "w8 w9 ", "model.document_prompt": "", "model.truncate_dim": 7}
WAYS = {
    "encoder alone": (None, {}),
    "encoder alone, prompts given": (None, GIVEN),
    "encoder alone, last token": (None, {"model.pool": "last"}),
    "another pooling": (CHAINS["Dense, Normalize"], {"model.pool": "cls"}),
    **{
        name: (CHAINS[name], {})
        for name in ("Dense, Normalize", "LayerNorm", "prompts", "truncate_dim", "dot", "max")
    },
}
AT = {"prompts": {"query": "@w30 ", "document": "@@w31 ", "w30 ": "w2 "}}
WAYS["prompts that begin with a sign"] = (AT, {})
KINDS = ("bert", "longformer", "modernbert", "qwen3", "roberta")


@pytest.fixture(scope="module")
def library():
    reason = "needs sentence-transformers (extra st)"
    return pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)


def config_of(folder, **settings):
    own = {"model.name": "bi-encoder", "model.backbone": str(folder), "model.dropout": 0.0}
    return TrialConfig().override(own | SIZES | settings)


def scores(reranker):
    ranked = dict(reranker.rank(QUERY, TEXTS))
    return np.array([ranked[place] for place in range(len(TEXTS))])


def scores_of(model, config):
    backbone = resolve_backbone(config.model.backbone)
    backbone = model.backbone_of(config.model, backbone)
    return scores(Reranker(ExportedModel(model.eval(), config, backbone), "cpu", "fp32"))


def trained(library, folder, name, kind="bert"):
    """(model, its scores, its export) of a bi-encoder whose every weight has moved."""
    chain, settings = WAYS[name]
    if chain is None:
        path = encoder(folder / "b", kind)
    else:
        path = saved(library, folder / "b", kind, **chain)
    config = config_of(path, **settings)
    backbone = resolve_backbone(path)
    check_model(config, backbone)
    model = build_model(config, backbone, init_seed=1)
    with torch.no_grad():
        for number, (_, weight) in enumerate(model.trainable()):
            weight.mul_(1 + 0.01 * (number % 7)).add_(0.01)
    save_weights(folder, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(folder / "m", config, folder / WEIGHTS)
    forget()
    return model, scores_of(model, config), str(folder / "m")


def similarity_of(model, score_N):
    """Scores without the learned scale."""
    return score_N / model.head.weight.item()


CASES = [("bert", name) for name in WAYS]
CASES += [(kind, name) for kind in KINDS for name in ("encoder alone, prompts given", "prompts")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_way_out_gives_the_scores_of_the_trial(kind, name, library, tmp_path):
    model, expected, exported = trained(library, tmp_path, name, kind)
    assert expected.std() > 1e-4
    found = scores(Reranker.load(exported, device="cpu", precision="fp32"))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-6)
    similarity = similarity_of(model, expected)
    if not (Path(exported) / "modules.json").exists():
        assert kind == "longformer" and name.startswith("encoder alone")
        return
    theirs = library.SentenceTransformer(exported, device="cpu", local_files_only=True)
    vectors = theirs.encode_query([QUERY]), theirs.encode_document(TEXTS)
    np.testing.assert_allclose(theirs.similarity(*vectors)[0], similarity, atol=1e-5, rtol=1e-6)
    ours = EmbeddingModel.load(exported, device="cpu")
    vectors = ours.encode_queries([QUERY]), ours.encode_documents(TEXTS)
    np.testing.assert_allclose(ours.scores(*vectors)[0], similarity, atol=1e-5, rtol=1e-6)
    theirs.save(str(tmp_path / "again"), create_model_card=False)
    for folder in (exported, tmp_path / "again"):
        forget()
        config = config_of(folder, **{"training.num_epochs": 0})
        again = build_model(config, resolve_backbone(str(folder)), init_seed=3)
        found = similarity_of(again, scores_of(again, config))
        np.testing.assert_allclose(found, similarity, atol=1e-5, rtol=1e-6)


def test_a_prompt_of_an_older_folder_is_a_text_whatever_it_begins_with(library, tmp_path):
    _, expected, exported = trained(library, tmp_path, "prompts that begin with a sign")
    file = Path(exported, FILE)
    content = json.loads(file.read_text())
    assert content["settings"]["model.query_prompt"] == "@@w30 "
    content["settings"]["model.query_prompt"] = "@w30 "
    content.pop("sha256")
    file.write_text(json.dumps(content | {"sha256": _digest(content)}))
    found = scores(Reranker.load(exported, device="cpu", precision="fp32"))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-6)


def test_a_folder_from_before_prompts_were_settings_has_those_of_e5(library, tmp_path):
    settings = {"model.query_prompt": "query: ", "model.document_prompt": "passage: "}
    WAYS["E5"] = (None, settings)
    try:
        _, expected, exported = trained(library, tmp_path, "E5")
    finally:
        del WAYS["E5"]
    file = Path(exported, FILE)
    content = json.loads(file.read_text())
    for name in (*settings, "model.truncate_dim", "sha256"):
        (content if name == "sha256" else content["settings"]).pop(name)
    for name in [name for name in content["files"] if "Pooling" in name or "transformers" in name]:
        del content["files"][name]
        Path(exported, name).unlink()
    Path(exported, "modules.json").unlink()
    del content["files"]["modules.json"]
    file.write_text(json.dumps(content | {"sha256": _digest(content)}))
    found = scores(Reranker.load(exported, device="cpu", precision="fp32"))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-6)
