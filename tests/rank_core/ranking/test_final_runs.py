"""Birch's interpolation: closed forms, and the weights that dev chooses."""

import json

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.data.trec import read_run
from rank_core.evaluate import mean_values, per_query
from rank_core.ranking.final_runs import Interpolation, interpolate, tune_interpolation
from rank_core.ranking.scorer import first_stage_means
from rank_core.trial.trial import run_trial

CANDIDATES = {"q": {"a": 4.0, "b": 2.0, "c": 1.0}}
BEST = {"q": {"a": (0.1, 0.1, 0.0), "b": (0.5, 0.5, 0.5), "c": (0.9, 0.0, 0.0)}}


def test_the_score_is_the_weighted_sum_of_the_paper():
    run = interpolate(BEST, CANDIDATES, Interpolation(alpha=0.2, beta=0.5, gamma=0.1))
    # .2 * 4 + .8 * (.1 + .05); .2 * 2 + .8 * (.5 + .25 + .05); .2 * 1 + .8 * .9
    assert run["q"] == pytest.approx({"a": 0.92, "b": 1.04, "c": 0.92})
    assert list(run["q"]) == ["b", "a", "c"], "a tie goes by doc_id"


@pytest.mark.parametrize(
    ("relevant", "weights"),
    [
        # c first: .9 must exceed b's .5 (1 + beta + gamma), so all zero does, and comes first.
        ("c", Interpolation(0.0, 0.0, 0.0)),
        # b first at alpha 0: .5 + .5 beta + .5 gamma >= .9, a tie with c going by doc_id;
        # (0, .8) comes before all others with beta + gamma >= .8.
        ("b", Interpolation(0.0, 0.0, 0.8)),
        # a first: 4 alpha + .1 (1 - alpha) beats c's alpha + .9 (1 - alpha) above alpha .21.
        ("a", Interpolation(0.3, 0.0, 0.0)),
    ],
)
def test_dev_chooses_the_first_best_point_of_the_grid(relevant, weights):
    qrels = {"q": {relevant: 1, "other": 0}, "elsewhere": {"a": 1}}
    assert tune_interpolation(BEST, CANDIDATES, qrels, "RR@10") == weights


def test_birch_is_tested_with_the_interpolation_tuned_on_dev(small_trial, tmp_path):
    few = {"evaluation.max_dev_queries": 2, "evaluation.max_test_queries": 2}
    config = small_trial.override({"model.name": "birch", "chunking.stride": 40} | few)
    *_, result = run_trial(config, tmp_path)
    weights = json.loads((tmp_path / "interpolation.json").read_text())
    assert set(weights) == {"alpha", "beta", "gamma"}
    inputs = load_inputs(config.collection, config.model.backbone)
    for split, means in (("dev", result.dev), ("test", result.test)):
        run = read_run(tmp_path / f"{split}.run.gz")
        of_split = inputs.collection.splits[split]
        qrels = {query_id: of_split.qrels[query_id] for query_id in run}
        assert means == pytest.approx(mean_values(per_query(qrels, run, list(means))))
        # alpha S_doc + (1 - alpha)(S_1 + beta S_2 + gamma S_3), where each S_i is in (0, 1).
        for query_id in run:
            for doc_id, first_stage in of_split.candidates[query_id].items():
                sentences = run[query_id][doc_id] - weights["alpha"] * first_stage
                most = (1 - weights["alpha"]) * (1 + weights["beta"] + weights["gamma"])
                assert -1e-4 < sentences < most + 1e-4
    # The grid has the first stage alone, alpha = 1, so dev cannot end below it.
    first_stage = first_stage_means([inputs.collection], "dev", config.evaluation)
    assert result.dev["nDCG@10"] >= first_stage["nDCG@10"] - 1e-9
