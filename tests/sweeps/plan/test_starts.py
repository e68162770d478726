"""training.init_from=sweep:DIR: each cell starts from the finished cell of the same model."""

import json
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from sweeps.plan.starts import with_start
from tests.e2e.conftest import run_local
from tests.sweeps.launch.test_test_sets import SETTINGS, by_label, content, other_texts
from tests.sweeps.systems.test_load import write_sweep

__all__ = ["run_local"]


def start_of(folder: Path, **settings: object) -> str:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    named["training.init_from"] = f"sweep:{folder}"
    return with_start(TrialConfig().override(named)).training.init_from


@pytest.mark.slow
def test_each_cell_starts_from_its_own_with_the_same_seed(run_local, collection_folder, tmp_path):
    marsh = other_texts(collection_folder, tmp_path / "marsh", 1, splits=("dev", "test"))
    trained = run_local(
        tmp_path / "a", *SETTINGS, "training.keep_weights=all", "--test-on", str(marsh)
    ).folder
    words = ("--collection", str(marsh), "--init-from", f"sweep:{trained}", "training.num_epochs=0")
    settings = [word for word in SETTINGS if not word.startswith("training.")]
    ran = run_local(tmp_path / "b", *settings, *words)
    for (label, seed), trial in by_label(ran.folder.with_name("marsh")).items():
        config = json.loads((trial / "config.json").read_text())
        own = by_label(trained)[label, seed]
        assert config["training.init_from"] == str(own).rpartition("-seed")[0]
        there = by_label(trained.with_name("woods+marsh"))[label, seed]
        assert content(there, "test.run.gz") == content(trial, "test.run.gz")


def test_a_sweep_without_such_a_cell_or_with_several_is_refused(tmp_path):
    write_sweep(tmp_path / "window_stride" / "woods")
    folder = tmp_path / "window_stride" / "woods"
    with pytest.raises(BadInput, match="has no cell of model parade-attn"):
        start_of(folder, model__name="parade-attn")
    with pytest.raises(BadInput, match=r"several cells of model maxp: .*; name one as"):
        start_of(folder, model__name="maxp", chunking__window=999)
    assert start_of(folder, model__name="bm25") == ""
