"""training.init_from=sweep:DIR: each cell starts from the finished cell of the same model."""

import json
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from sweeps.model_zoo import EXPERIMENT, SMALL_ROWS
from sweeps.plan.starts import with_start
from tests.e2e.conftest import run_local
from tests.sweeps.launch.test_test_sets import ALIKE, SETTINGS, by_label, content, other_texts
from tests.sweeps.systems.test_load import write_sweep

__all__ = ["run_local"]


def start_of(folder: Path, **settings: object) -> str:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    named["training.init_from"] = f"sweep:{folder}"
    return with_start(TrialConfig().override(named)).training.init_from


@pytest.mark.slow
def test_values_from_a_start_are_those_of_the_trained_sweep_s_test_set(
    run_local, collection_folder, tmp_path
):
    """Of every model of the zoo over a small backbone; FirstP, which reads no stride, cannot have
    the windows of the others."""
    marsh = other_texts(collection_folder, tmp_path / "marsh", seed=1)
    settings = (*SETTINGS[2:], "--num-seeds", "1")
    trained = run_local(
        tmp_path / "a", *settings, "training.keep_weights=all", "--test-on", str(marsh),
        experiment=EXPERIMENT,
    ).folder  # fmt: skip
    words = ("--collection", str(marsh), "--init-from", f"sweep:{trained}", "training.num_epochs=0")
    settings = tuple(word for word in settings if not word.startswith("training."))
    ran = run_local(tmp_path / "b", *settings, *words, experiment=EXPERIMENT)
    tested = by_label(trained.with_name("woods+marsh"))
    assert len(tested) == 1 + len(SMALL_ROWS)
    for key, trial in by_label(ran.folder.with_name("marsh")).items():
        config = json.loads((trial / "config.json").read_text())
        own = by_label(trained)[key]
        assert config["training.init_from"] == str(own).rpartition("-seed")[0]
        for file in ALIKE:
            assert content(tested[key], file) == content(trial, file)


def test_a_sweep_without_such_a_cell_or_with_several_is_refused(tmp_path):
    write_sweep(tmp_path / "window_stride" / "woods")
    folder = tmp_path / "window_stride" / "woods"
    with pytest.raises(BadInput, match="has no cell of model parade-attn"):
        start_of(folder, model__name="parade-attn")
    with pytest.raises(BadInput, match=r"several cells of model maxp: .*; name one as"):
        start_of(folder, model__name="maxp", chunking__window=999)
    assert start_of(folder, model__name="bm25") == ""
