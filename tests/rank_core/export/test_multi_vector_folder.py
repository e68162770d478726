"""An exported late-interaction model is read as the trial's by everything that reads it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import resolve_backbone
from rank_core.export.folder import CARD, FILE, ExportedModel, write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import TrialConfig
from tests.rank_core.encoders.test_published_heads import forget
from tests.rank_core.models.embedding_folders import encoder
from tests.rank_core.models.test_late_interaction import FORMS, PYLATE, library, pylate, saved

__all__ = ["library"]  # a fixture

TEXTS = ["w1 w2 w3 w4", "w9", "w5 w5 w6 w7 w8", "w30 w1 w7 w45 w5"]
QUERY = "w3 w4 w40"
SIZES = {"chunking.window": 8, "chunking.stride": 8, "chunking.max_query_tokens": 4}
GIVEN = {"model.query_prompt": "w8 w9 ", "model.document_prompt": ""}
FOLDERS = {
    "encoder alone": ("bert", None, GIVEN),
    "roberta": ("roberta", None, {}),
    "modernbert": ("modernbert", None, {}),
    "qwen3": ("qwen3", None, {}),
    **{
        name: ("bert", FORMS[name], {})
        for name in ("prompts", "skiplist", "expansion", "expansion, least, attended", "mean")
    },
    "PyLate": ("bert", "as it is", {}),
}


def config_of(folder, **settings):
    own = {"model.name": "late-interaction", "model.backbone": str(folder), "model.dropout": 0.0}
    return TrialConfig().override(own | SIZES | settings)


def scores(reranker):
    ranked = dict(reranker.rank(QUERY, TEXTS))
    return np.array([ranked[place] for place in range(len(TEXTS))])


def scores_of(model, config):
    backbone = resolve_backbone(config.model.backbone)
    backbone = model.backbone_of(config.model, backbone)
    return scores(Reranker(ExportedModel(model.eval(), config, backbone), "cpu", "fp32"))


def trained(library, folder, name):
    """(the scores of a model whose every weight has moved, its export)."""
    kind, form, settings = FOLDERS[name]
    if form is None:
        path = encoder(folder / "b", kind)
    elif isinstance(form, str):
        path = pylate(folder / "b", kind, **PYLATE[form])
    else:
        path = saved(library, folder / "b", kind, **form)
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
    return scores_of(model, config), str(folder / "m")


def content(folder):
    """What is in a folder, without hashes and the settings of the training."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            found[name] = {n: w.tolist() for n, w in load_file(path).items()}
        elif path.suffix == ".json" and name != FILE:
            found[name] = json.loads(path.read_text())
        elif path.is_file() and name not in (FILE, CARD):
            found[name] = path.read_bytes()
    return found


QUICK = ("encoder alone", "PyLate")


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FOLDERS],
)
def test_every_way_out_gives_the_scores_of_the_trial(name, library, tmp_path):
    expected, exported = trained(library, tmp_path, name)
    assert expected.std() > 1e-3
    found = scores(Reranker.load(exported, device="cpu", precision="fp32"))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-6)
    theirs = library.MultiVectorEncoder(exported, device="cpu", local_files_only=True)
    vectors = theirs.encode_query([QUERY]), theirs.encode_document(TEXTS)
    np.testing.assert_allclose(theirs.similarity(*vectors)[0], expected, atol=1e-5, rtol=1e-6)
    theirs.save(str(tmp_path / "again"), create_model_card=False)
    for folder in (exported, tmp_path / "again"):
        forget()
        config = config_of(folder, **{"training.num_epochs": 0})
        check_model(config, resolve_backbone(str(folder)))
        again = build_model(config, resolve_backbone(str(folder)), init_seed=3)
        np.testing.assert_allclose(scores_of(again, config), expected, atol=1e-5, rtol=1e-6)
    write_model(tmp_path / "twice", config_of(exported, **{"training.num_epochs": 0}), None)
    assert content(tmp_path / "twice") == content(exported)


def test_an_export_is_named_by_its_modules_and_not_by_its_training(library, tmp_path):
    _, exported = trained(library, tmp_path, "encoder alone")
    before = resolve_backbone(exported).content_hash
    settings = Path(exported, FILE)
    settings.write_text(settings.read_text() + " ")
    forget()
    assert resolve_backbone(exported).content_hash == before
    [weights] = Path(exported).glob("*_Dense/*.safetensors")
    save_file({name: w + 1 for name, w in load_file(weights).items()}, weights)
    forget()
    assert resolve_backbone(exported).content_hash != before
