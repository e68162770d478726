"""A whole trial: its files, its checkpoint, and numbers that depend only on its settings."""

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest
import torch

from rank_core.data.load import load_collection
from rank_core.data.trec import read_run
from rank_core.errors import Diverged
from rank_core.evaluate import per_query
from rank_core.ranking.scorer import evaluated_queries
from rank_core.settings.config import TrialConfig
from rank_core.trial import fold_model
from rank_core.trial.trial import Progress, TrialResult, run_trial, trial_streams

ROOT = Path(__file__).parents[3]
MEASURED = ("train_seconds", "eval_seconds", "peak_memory_bytes")
RUN_ONE = """
import json, sys, torch
from pathlib import Path
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
torch.set_num_threads(1)
list(run_trial(TrialConfig().override(json.loads(sys.argv[1])), Path(sys.argv[2])))
"""


def finish(config, folder):
    """The progress and the result of a trial that ends well."""
    *progress, result = run_trial(config, folder)
    assert isinstance(result, TrialResult)
    assert all(isinstance(news, Progress) for news in progress)
    return progress, result


def numbers(folder):
    """A trial's result without times and memory."""
    result = json.loads((folder / "result.json").read_text())
    return {name: value for name, value in result.items() if name not in MEASURED}


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ("per_query.parquet", "test.run.gz")}


def scores(folder):
    run = read_run(folder / "test.run.gz")
    return {(q, doc_id): score for q, ranked in run.items() for doc_id, score in ranked.items()}


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
    assert written == vars(result) and written["status"] == "done"
    assert result.cell.startswith("maxp-w40-s20-") and result.seed == 1
    assert result.peak_memory_bytes > 10**7 and 0 <= result.padding_share < 0.5
    assert 0 < result.train_seconds < 60 and 0 < result.eval_seconds < 60
    steps = [point.step for news in progress for point in news.curve]
    assert steps == list(range(1, 7)) and progress[-1].num_steps == 6


def test_a_trial_is_chosen_and_measured_by_err_whatever_the_ids_of_its_queries(
    small_trial, collection_folder, tmp_path
):
    measures = {"evaluation.measures": ("ERR@1", "nDCG@10"), "training.max_steps": 2}
    _, result = finish(small_trial.override(measures), tmp_path / "trial")
    table = pd.read_parquet(tmp_path / "trial" / "per_query.parquet")
    for split, means in (("dev", result.dev), ("test", result.test)):
        judged = load_collection(str(collection_folder)).splits[split].qrels
        assert not any(query_id.isdigit() for query_id in judged)
        run = read_run(tmp_path / "trial" / f"{split}.run.gz")
        first = {query_id: judged[query_id].get(next(iter(run[query_id])), 0) for query_id in run}
        expected = {query_id: (2**grade - 1) / 16 for query_id, grade in first.items()}
        rows = table[(table.split == split) & (table.measure == "ERR@1")]
        found = dict(zip(rows.query_id, rows.value, strict=True))
        assert found == pytest.approx(expected, abs=1e-5) and max(found.values()) > 0
        assert means["ERR@1"] == pytest.approx(sum(expected.values()) / 8, abs=1e-5)


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


@pytest.mark.parametrize(("patience", "steps"), [(0, 8), (1, 3), (2, 6), (9, 8)])
def test_training_ends_when_dev_has_not_improved_for_so_many_validations(
    small_trial, tmp_path, monkeypatch, computed, patience, steps
):
    dev_values = iter([0.2, 0.3, 0.3, 0.4, 0.1, 0.4, 0.5, 0.2])
    values = lambda *_: dict.fromkeys(("nDCG@10", "RR@10"), next(dev_values))  # noqa: E731
    monkeypatch.setattr(fold_model.Scorer, "means", values)
    config = small_trial.override({"training.num_epochs": 4, "training.validate_every": 1})
    progress, result = finish(config.override({"training.patience": patience}), tmp_path)
    assert len(computed) == len(progress) == steps
    assert [news.step for news in progress] == list(range(1, steps + 1))
    assert {news.num_steps for news in progress} == {8}
    assert result.best_step == {3: 2, 6: 4, 8: 7}[steps]
    assert (tmp_path / "test.run.gz").exists()


@pytest.mark.slow
def test_the_same_trial_gives_the_same_numbers_in_every_process(small_trial, tmp_path):
    folders = [tmp_path / name for name in ("first", "other", "again", "fresh")]
    other = small_trial.override({"model.name": "parade-attn", "seed": 3, "chunking.stride": 30})
    fresh = subprocess.Popen(
        [sys.executable, "-c", RUN_ONE, json.dumps(small_trial.settings()), str(folders[3])],
        cwd=ROOT,
    )
    for config, folder in zip((small_trial, other, small_trial), folders, strict=False):
        finish(config, folder)
    assert fresh.wait(timeout=300) == 0
    assert numbers(folders[0]) == numbers(folders[2]) == numbers(folders[3])
    assert contents(folders[0]) == contents(folders[2]) == contents(folders[3])
    assert contents(folders[0]) != contents(folders[1])


def test_a_seed_changes_the_numbers_and_keeps_the_cell(small_trial, tmp_path):
    results = [
        finish(small_trial.override({"seed": seed}), tmp_path / str(seed))[1] for seed in (1, 2)
    ]
    assert results[0].cell == results[1].cell
    assert scores(tmp_path / "1") != scores(tmp_path / "2")


def test_a_backbone_in_another_folder_gives_the_same_trial(small_trial, backbone_folder, tmp_path):
    copied = shutil.copytree(backbone_folder, tmp_path / "copied")
    finish(small_trial, tmp_path / "here")
    finish(small_trial.override({"model.backbone": str(copied)}), tmp_path / "there")
    assert numbers(tmp_path / "here") == numbers(tmp_path / "there")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_without_dropout_the_size_of_a_micro_batch_changes_no_number(small_trial, tmp_path):
    # At small rates, because Adam enlarges the rounding of gradients that cancel.
    rates = {"training.backbone_learning_rate": 1e-5, "training.head_learning_rate": 1e-5}
    cells, losses = [], []
    for size in (10000, 1):
        config = small_trial.override(
            rates | {"training.micro_batch_tokens": size, "model.dropout": 0.0}
        )
        progress, result = finish(config, tmp_path / str(size))
        cells.append(result.cell)
        losses.append([point.loss for news in progress for point in news.curve])
    assert cells[0] == cells[1]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert scores(tmp_path / "1") == pytest.approx(scores(tmp_path / "10000"), abs=1e-3)


def test_evaluating_less_does_not_change_training(small_trial, done, tmp_path):
    less = {"training.num_epochs": 3, "evaluation.max_test_queries": 2, "evaluation.depth": 3}
    config = small_trial.override(less | {"evaluation.depth": 6})
    progress, _ = finish(config, tmp_path)
    losses = [[p.loss for news in reports for p in news.curve] for reports in (progress, done[1])]
    assert losses[0] == losses[1]
    collection = load_collection(config.collection)
    evaluated = evaluated_queries(collection, "test", config.evaluation)
    assert list(read_run(tmp_path / "test.run.gz")) == evaluated and len(evaluated) == 2


@pytest.mark.parametrize("max_steps", [1, 4])
def test_a_trial_that_diverges_fails(small_trial, tmp_path, max_steps):
    # With one step the loss was still a number; the weights after it are not.
    wild = {
        "training.backbone_learning_rate": 1e30,
        "training.warmup": 0.0,
        "training.num_epochs": 2,
        "training.max_steps": max_steps,
    }
    with pytest.raises(Diverged):
        finish(small_trial.override(wild), tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_a_trial_that_is_stopped_leaves_no_result(small_trial, tmp_path):
    running = run_trial(small_trial.override({"training.num_epochs": 3}), tmp_path)
    assert next(running).step == 2
    running.close()
    assert not (tmp_path / "result.json").exists()


def test_a_model_with_constant_scores_is_collapsed(small_trial, collection_folder, tmp_path):
    folder = shutil.copytree(collection_folder, tmp_path / "alike")
    records = [json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines()]
    lines = [json.dumps(record | {"text": "amber birch"}) for record in records]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    _, result = finish(small_trial.override({"collection": str(folder)}), tmp_path / "trial")
    assert result.status == "collapsed"


def test_paired_seeds_share_order_and_negatives_and_nothing_else():
    wide, narrow = ({"chunking.window": 150}, {"chunking.window": 100})
    apart = [trial_streams(TrialConfig().override(cell), "b") for cell in (wide, narrow)]
    assert set(vars(apart[0]).values()).isdisjoint(vars(apart[1]).values())
    paired = [
        vars(trial_streams(TrialConfig().override(cell | {"training.paired_seeds": True}), "b"))
        for cell in (wide, narrow)
    ]
    shared = {name for name in paired[0] if paired[0][name] == paired[1][name]}
    assert shared == {"order", "negatives"}
    other_seed = trial_streams(TrialConfig(seed=2).override({"training.paired_seeds": True}), "b")
    assert set(vars(other_seed).values()).isdisjoint(paired[0].values())


def test_evaluation_settings_do_not_move_the_streams():
    evaluation = {"evaluation.depth": 7, "evaluation.batch_tokens": 1}
    assert trial_streams(TrialConfig().override(evaluation), "b") == trial_streams(
        TrialConfig(), "b"
    )
