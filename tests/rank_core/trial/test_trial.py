"""A whole trial: its files, its checkpoint, and numbers that depend only on its settings."""

import json
import shutil
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from rank_core.chunking.inputs import load_inputs
from rank_core.data.load import load_collection
from rank_core.data.trec import read_run
from rank_core.errors import Diverged
from rank_core.evaluate import per_query
from rank_core.settings.config import TrialConfig
from rank_core.trial import fold_model
from rank_core.trial.trial import Progress, TrialResult, run_trial


def finish(config, folder):
    """The progress and the result of a trial that ends well."""
    *progress, result = run_trial(config, folder)
    assert isinstance(result, TrialResult)
    assert all(isinstance(news, Progress) for news in progress)
    return progress, result


@pytest.fixture(scope="module")
def done(small_trial, tmp_path_factory):
    """(folder, progress, result) of a trial of three epochs."""
    folder = tmp_path_factory.mktemp("trials") / "done"
    config = small_trial.override({"training.num_epochs": 3, "evaluation.max_test_queries": 5})
    return folder, *finish(config, folder)


def test_a_trial_leaves_its_files_and_they_agree(done, small_trial):
    folder, progress, result = done
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "dev.run.gz",
        "per_query.parquet",
        "result.json",
        "test.run.gz",
        "weights.safetensors",
    ]
    settings = json.loads((folder / "config.json").read_text())
    config = TrialConfig().override(settings)
    assert config == small_trial.override(
        {"training.num_epochs": 3, "evaluation.max_test_queries": 5}
    )
    written = json.loads((folder / "result.json").read_text())
    devices = {result.versions["device"]: 1}
    assert written["workers"] == [{"step": 0, "number": 1, "seconds": 0.0, "devices": devices}]
    workers = [vars(row) for row in result.workers]
    assert written == vars(result) | {"workers": workers} and written["status"] == "done"
    assert result.cell.startswith("maxp-w40-s20-") and result.seed == 1
    assert result.peak_memory_bytes > 10**7 and 0 <= result.padding_share < 0.5
    assert 0 < result.train_seconds < 60 and 0 < result.eval_seconds < 60
    steps = [point.step for news in progress for point in news.curve]
    assert steps == list(range(1, 7)) and progress[-1].num_steps == 6


def test_a_trial_records_whether_its_layers_were_compiled(small_trial, tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.BertModel, "layers_read", "not compiled", raising=False)
    assert finish(small_trial, tmp_path)[1].versions["layers"] == "not compiled"


def test_the_tokens_of_a_trial_are_known_before_it(small_trial):
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    mean = np.minimum(inputs.tokens.lengths(), 80).mean()
    # 2 steps of 4 groups of 8 documents, 8 queries of dev and 8 of test of 100 documents
    config = small_trial.override({"training.negatives": 7, "training.num_epochs": 1})
    assert fold_model.planned_tokens(config, inputs) == int((2 * 4 * 8 + 16 * 100) * mean)


def test_the_table_follows_from_the_runs(done, collection_folder):
    folder, _, result = done
    table = pd.read_parquet(folder / "per_query.parquet")
    assert list(table.columns) == ["cell", "seed", "split", "query_id", "measure", "value"]
    assert set(table.cell) == {result.cell} and set(table.seed) == {1}
    assert table.groupby("split").query_id.nunique().to_dict() == {"dev": 8, "test": 5}
    collection = load_collection(str(collection_folder))
    for split, means in (("dev", result.dev), ("test", result.test)):
        run = read_run(folder / f"{split}.run.gz")
        qrels = {query_id: collection.splits[split].qrels[query_id] for query_id in run}
        again = per_query(qrels, run, ["nDCG@10", "RR@10"])
        columns = ["query_id", "measure", "value"]
        pd.testing.assert_frame_equal(
            table[table.split == split][columns].reset_index(drop=True), again
        )
        assert means == pytest.approx(again.groupby("measure").value.mean().to_dict())


def test_the_best_checkpoint_on_dev_is_the_one_that_is_tested(small_trial, tmp_path, monkeypatch):
    dev_values, weights, real = iter([0.2, 0.9, 0.9, 0.1]), defaultdict(list), []
    score_split, mean = fold_model.Scorer.share, fold_model.Scorer.means

    def share(self, name, depth=0):
        weights[name].append(self.model.head.weight.detach().clone())
        return score_split(self, name, depth)

    def means(self, name, share):
        real.append(mean(self, name, share))
        value = next(dev_values)
        return {"nDCG@10": value, "RR@10": 1 - value}

    monkeypatch.setattr(fold_model.Scorer, "share", share)
    monkeypatch.setattr(fold_model.Scorer, "means", means)
    config = small_trial.override({"training.num_epochs": 2, "training.validate_every": 1})
    progress, result = finish(config, tmp_path)
    assert [news.dev["nDCG@10"] for news in progress] == [0.2, 0.9, 0.9, 0.1]
    assert result.best_step == 2 and result.dev == real[1] != real[3]
    assert len(weights["test"]) == 1, "test is read once, at the end"
    assert torch.equal(weights["test"][0], weights["dev"][1])
    assert not torch.equal(weights["dev"][1], weights["dev"][3])


@pytest.mark.parametrize(("patience", "steps"), [(0, 8), (1, 3), (2, 6)])
def test_training_ends_when_dev_has_not_improved_for_so_many_validations(
    small_trial, tmp_path, monkeypatch, computed, patience, steps
):
    dev_values = iter([0.2, 0.3, 0.3, 0.4, 0.1, 0.4, 0.5, 0.2])
    values = lambda *_: dict.fromkeys(("nDCG@10", "RR@10"), next(dev_values))  # noqa: E731
    monkeypatch.setattr(fold_model.Scorer, "means", values)
    few = {"evaluation.max_dev_queries": 2, "evaluation.max_test_queries": 2}
    config = small_trial.override({"training.num_epochs": 4, "training.validate_every": 1} | few)
    progress, result = finish(config.override({"training.patience": patience}), tmp_path)
    assert len(computed) == len(progress) == steps
    assert [news.step for news in progress] == list(range(1, steps + 1))
    assert {news.num_steps for news in progress} == {8}
    assert result.best_step == {3: 2, 6: 4, 8: 7}[steps]
    assert (tmp_path / "test.run.gz").exists()


@pytest.mark.parametrize(("max_steps", "what"), [(1, "score"), (4, "the training loss")])
def test_a_trial_that_diverges_fails(small_trial, tmp_path, max_steps, what):
    # With one step the loss was still a number; the weights after it are not.
    wild = {
        "training.backbone_learning_rate": 1e30,
        "training.warmup": 0.0,
        "training.num_epochs": 2,
        "training.max_steps": max_steps,
    }
    with pytest.raises(Diverged, match=what):
        finish(small_trial.override(wild), tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_a_model_with_constant_scores_is_collapsed(small_trial, collection_folder, tmp_path):
    folder = shutil.copytree(collection_folder, tmp_path / "alike")
    records = [json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines()]
    lines = [json.dumps(record | {"text": "amber birch"}) for record in records]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    _, result = finish(small_trial.override({"collection": str(folder)}), tmp_path / "trial")
    assert result.status == "collapsed"
