"""The shipped backbone: its training texts, its start, and files that are those of the recipe."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest
import torch

from rank_core.data.made.python_docs import load_python_docs
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.shipped import FOLDER
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig
from tests.benchmarks.tiny_docs import RECIPE, DocsRecipe, library_pairs, make


def test_the_shipped_files_are_those_of_the_recipe() -> None:
    facts = json.loads((FOLDER / "recipe.json").read_text())
    assert facts["recipe"] == json.loads(json.dumps(asdict(RECIPE)))
    digests = {
        name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
        for name in facts["files_sha256"]
    }
    assert digests == facts["files_sha256"]
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000


def test_a_model_is_built_of_it_with_the_head_that_it_was_trained_with() -> None:
    backbone = resolve_backbone("tiny-docs")
    config = TrialConfig().override({"model.name": "maxp", "model.backbone": "tiny-docs"})
    one, other = (build_model(config, backbone, init_seed=seed) for seed in (1, 2))
    assert torch.equal(one.head.weight, other.head.weight)
    assert next(one.parameters()).dtype == torch.float32


def test_the_untrained_backbone_has_its_size_its_tokenizer_and_other_weights() -> None:
    one, other = (
        build_model(TrialConfig(), resolve_backbone(name), init_seed=1)
        for name in ("tiny-docs", "tiny-docs-untrained")
    )
    weights = [m.encoder.get_input_embeddings().weight for m in (one, other)]
    assert weights[0].shape == weights[1].shape and not torch.equal(*weights)


@pytest.mark.slow
@pytest.mark.long
def test_made_again_it_reads_the_same_texts_and_starts_as_a_matcher(tmp_path: Path) -> None:
    stated = json.loads((FOLDER / "recipe.json").read_text())
    installed = {one.name: one.version for one in distributions()}
    if not stated["versions"].items() <= installed.items():
        pytest.skip("other versions of the libraries are installed than those it was trained on")
    pairs = library_pairs(RECIPE.packages)
    splits = load_python_docs().splits
    held_out = {text for name in ("dev", "test") for text in splits[name].queries.values()}
    assert not held_out & {pair.summary for pair in pairs}
    make(tmp_path, DocsRecipe(steps=5, decay=1), pairs)
    made = json.loads((tmp_path / "recipe.json").read_text())
    assert made["texts_sha256"] == stated["texts_sha256"]
    assert made["files_sha256"]["tokenizer.json"] == stated["files_sha256"]["tokenizer.json"]
    # Singular vectors have no sign of their own and differ between processors, and the losses with
    # them. A random start has log 4 = 1.39.
    assert np.mean(made["first_losses"]) == pytest.approx(np.mean(stated["first_losses"]), rel=0.2)
