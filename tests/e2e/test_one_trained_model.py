"""One trained model on another collection: one run in its sweep's report, also in a folder whose
trials have been computed as several."""

import json

import pytest

from rank_core.checkpoints.weights import save_weights
from rank_core.chunking.inputs import load_inputs
from rank_core.models.build import build_model
from sweeps.__main__ import main
from sweeps.plan import make_plan


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_a_sweep_over_one_trained_model_has_a_report(
    before, small_trial, tmp_path, capsys, monkeypatch
):
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    maxp = small_trial.override({"model.name": "maxp"})
    model = build_model(maxp, inputs.backbone, init_seed=4)
    save_weights(tmp_path / "start", model.learned_state())
    words = ["run", "seeds", "--collection", small_trial.collection, "--engine", "local"]
    words += ["--backbone", small_trial.model.backbone, "--storage", str(tmp_path / "results")]
    words += ["--init-from", str(tmp_path / "start"), "training.num_epochs=0"]
    words += ["--seeds", "1,2,3", "--tracking-uri", "none", "evaluation.max_test_queries=4"]
    monkeypatch.setattr("rank_core.stats.matrix.QUERIES_THAT_PROVE", 4)
    if before:  # every seed was a run
        with monkeypatch.context() as patch:
            patch.setattr(make_plan, "is_deterministic", lambda config, backbone: False)
            assert main(words) == 2
        assert "have identical values" in capsys.readouterr().err
    assert main(words) == 0, capsys.readouterr().err
    [folder] = (tmp_path / "results" / "seeds").iterdir()
    results = json.loads((folder / "report" / "results.json").read_text())
    assert {cell["seeds_used"] for cell in results["cells"]} == {1}
    assert main(["report", str(folder)]) == 0
