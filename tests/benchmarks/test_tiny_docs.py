"""The shipped backbone: its training texts, its start, and files that are those of the recipe."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rank_core.data.made.python_docs import load_python_docs
from rank_core.data.made.stdlib_docstrings import DocstringPair
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.shipped import FOLDER, SETTINGS
from rank_core.errors import BadInput
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig, setting_types
from tests.benchmarks import library_docstrings
from tests.benchmarks.library_docstrings import library_pairs
from tests.benchmarks.tiny_docs import (
    RECIPE,
    DocsRecipe,
    _layout,
    counted,
    hard_negatives,
    make,
    matched_bert,
    start_as_matcher,
)

BODY = "The heron stands still in shallow water for hours until a fish comes near its long bill"
SOURCE = f'''
"""Tell where the herons are. {BODY}."""
class Boat:
    """Open a boat at the harbour wall. {BODY.replace("heron", "sailor")}, at night."""
def lantern():
    """Light every lantern of the pier. Oil is poured, wicks are cut, and one match after another
    burns down before the wind lets any flame live."""
def lit():
    """Light every lantern of the pier. Wicks and oil are brought up from the store below, ten each,
    and the match is struck behind the wall."""
def short():
    """Too short."""
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "harbour_lib"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text(SOURCE)
    (folder / "broken.py").write_text("def {{ name }}")
    (folder / "tests" / "test_it.py").write_text(SOURCE.replace("lantern", "torch"))
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


def test_docstrings_that_resemble_a_known_one_are_left_out(library: str) -> None:
    every = [pair.summary for pair in library_pairs([library], known=[])]
    assert every == [
        "Tell where the herons are.",
        "Open a boat at the harbour wall.",
        "Light every lantern of the pier.",
    ]
    body = DocstringPair("os.heron", "Quite another summary here.", BODY.upper())
    assert [p.summary for p in library_pairs([library], known=[body])] == every[2:]
    summary = DocstringPair("os.light", "light every lantern of the pier", "x " * 12)
    assert [p.summary for p in library_pairs([library], known=[summary])] == every[:2]
    with pytest.raises(BadInput, match="no_such_library is not installed"):
        library_pairs(["no_such_library"], known=[])


def test_all_of_the_standard_library_is_known_by_default(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = DocstringPair("os.light", "Light every lantern of the pier.", "x " * 12)
    monkeypatch.setattr(library_docstrings, "collect_pairs", lambda: [own])
    assert len(library_pairs([library])) == 2


def test_untrained_weights_already_find_the_passage_with_the_rare_words_of_a_query() -> None:
    rng = np.random.default_rng(3)
    pairs = [
        (rng.integers(5, 300, 6).tolist(), rng.integers(5, 300, 40).tolist()) for _ in range(200)
    ]
    recipe = DocsRecipe(semantic=16)
    corpus = counted(pairs, ["lib"] * 200, 300)
    torch.manual_seed(1)
    model, head = matched_bert(300, recipe), nn.Linear(96, 1)
    start_as_matcher(model, head, corpus, recipe)
    wins = 0
    for query, passage in pairs[:40]:
        own = passage[:20] + query[:4] + passage[24:]
        with torch.no_grad():
            hidden = model(**_layout([(query, own), (query, passage)])).last_hidden_state[:, 0]
            with_words, without = head(hidden).squeeze(-1).tolist()
        wins += with_words > without
    assert wins >= 36


def test_hard_negatives_are_of_the_same_package_and_never_the_pair_itself() -> None:
    rng = np.random.default_rng(3)
    pairs = [(rng.integers(5, 60, 5).tolist(), rng.integers(5, 60, 20).tolist()) for _ in range(60)]
    found = hard_negatives(counted(pairs, ["a"] * 30 + ["b"] * 30, 60), 8)
    assert found.shape == (60, 8) and (found[:30] < 30).all() and (found[30:] >= 30).all()
    assert not (found == np.arange(60)[:, None]).any()


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


def test_its_settings_are_settings_of_a_trial() -> None:
    assert set(SETTINGS) <= set(setting_types())
    changed = TrialConfig().override(SETTINGS).settings()
    assert all(changed[name] == value for name, value in SETTINGS.items())


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
