"""Systems without trained weights: a trial evaluates their run."""

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.data.trec import read_run
from rank_core.ranking.scorer import first_stage_means
from rank_core.records import Collection, Split
from rank_core.settings.config import Evaluation
from rank_core.trial.trial import run_trial


def finish(config, folder):
    *progress, result = run_trial(config, folder)
    return progress, result


def test_bm25_is_the_candidate_list_itself(small_trial, tmp_path):
    config = small_trial.override({"model.name": "bm25"})
    progress, result = finish(config, tmp_path)
    collection = load_inputs(config.collection, config.model.backbone).collection
    for split, means in (("dev", result.dev), ("test", result.test)):
        assert means == pytest.approx(first_stage_means([collection], split, config.evaluation))
        run = read_run(tmp_path / f"{split}.run.gz")
        candidates = collection.splits[split].candidates
        assert {q: list(docs) for q, docs in run.items()} == {
            q: list(docs) for q, docs in candidates.items()
        }
    assert progress[0].dev == result.dev and result.encoder_tokens == 0
    assert (tmp_path / "result.json").exists() and (tmp_path / "per_query.parquet").exists()


def test_a_first_stage_is_measured_in_the_order_of_its_ranks():
    # trec_eval would put z first, MS MARCO's script a.
    tied = Split({"q": "text"}, {"q": {"m": 1}}, {"q": {"m": 1.0, "z": 1.0, "a": 1.0}})
    collection = Collection("tied", "hash", dict.fromkeys("maz", "text"), {"test": tied})
    measures = Evaluation(measures=("RR", "RR@10", "nDCG@10"))
    assert set(first_stage_means([collection], "test", measures).values()) == {1.0}


def test_a_random_order_depends_on_the_seed_and_scores_near_chance(small_trial, tmp_path):
    runs = []
    for number, seed in enumerate((1, 1, 2)):
        config = small_trial.override({"model.name": "random", "seed": seed})
        finish(config, tmp_path / str(number))
        runs.append(read_run(tmp_path / str(number) / "test.run.gz"))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("name", ["bm25", "random"])
def test_only_candidates_up_to_the_depth_are_ranked(name, small_trial, tmp_path):
    finish(small_trial.override({"model.name": name, "evaluation.depth": 2}), tmp_path)
    assert {len(docs) for docs in read_run(tmp_path / "test.run.gz").values()} == {2}
