"""Birch's interpolation: closed forms, and the weights that dev chooses."""

import numpy as np
import pytest
import torch

from rank_core.config import Chunking, Model, TrialConfig
from rank_core.errors import BadInput
from rank_core.interpolation import (
    Interpolation,
    best_sentences,
    interpolate,
    tune_interpolation,
)
from rank_core.models import build_model
from rank_core.models.birch import Birch

CANDIDATES = {"q": {"a": 4.0, "b": 2.0, "c": 1.0}}
BEST = {"q": {"a": (0.1, 0.1, 0.0), "b": (0.5, 0.5, 0.5), "c": (0.9, 0.0, 0.0)}}


def test_the_score_is_the_weighted_sum_of_the_paper():
    run = interpolate(BEST, CANDIDATES, Interpolation(alpha=0.2, beta=0.5, gamma=0.1))
    # .2 * 4 + .8 * (.1 + .05); .2 * 2 + .8 * (.5 + .25 + .05); .2 * 1 + .8 * .9
    assert run["q"] == pytest.approx({"a": 0.92, "b": 1.04, "c": 0.92})
    assert list(run["q"]) == ["b", "a", "c"], "a tie goes by doc_id"


def test_the_first_stage_alone_keeps_its_order():
    run = interpolate(BEST, CANDIDATES, Interpolation(1.0, 0.0, 0.0))
    assert run["q"] == pytest.approx(CANDIDATES["q"])


@pytest.mark.parametrize(
    ("relevant", "weights"),
    [
        # c first: .9 must exceed b's .5 (1 + beta + gamma), so all zero does, and comes first.
        ("c", Interpolation(0.0, 0.0, 0.0)),
        # b first at alpha 0: .5 + .5 beta + .5 gamma > .9, so beta + gamma >= 1 on a grid of .5;
        # (0, 1) comes before (.5, .5) and (1, 0).
        ("b", Interpolation(0.0, 0.0, 1.0)),
        # a first: 4 alpha + .1 (1 - alpha)(1 + beta) beats both others at alpha .5.
        ("a", Interpolation(0.5, 0.0, 0.0)),
    ],
)
def test_dev_chooses_the_first_best_point_of_the_grid(relevant, weights):
    qrels = {"q": {relevant: 1, "other": 0}, "elsewhere": {"a": 1}}
    assert tune_interpolation(BEST, CANDIDATES, qrels, "RR@10", step=0.5) == weights


def test_weights_need_a_judgment_to_be_chosen_by():
    with pytest.raises(BadInput, match="none of the 1 queries has a relevant document"):
        tune_interpolation(BEST, CANDIDATES, {"q": {"a": 0}}, "RR@10")
    with pytest.raises(BadInput, match="0 < step <= 1 must hold"):
        tune_interpolation(BEST, CANDIDATES, {"q": {"a": 1}}, "RR@10", step=0)


def test_best_sentences_are_those_of_each_candidate_within_the_depth(backbone):
    config = TrialConfig(
        model=Model("birch", backbone=str(backbone.folder)), chunking=Chunking(20, 20)
    )
    model = build_model(config, backbone, init_seed=1)
    documents = {f"d{n}": np.arange(5, 5 + n, dtype=np.int32) for n in (0, 30, 70)}
    pairs = Birch.reader(config, backbone, documents)
    query = np.arange(20, 25, dtype=np.int32)
    best = best_sentences(
        model,
        pairs,
        queries={"q": query, "none": query},
        candidates={"q": {"d70": 3.0, "d0": 2.0, "d30": 1.0}},
        depth=2,
        batch_tokens=100,
    )
    assert list(best["q"]) == ["d70", "d0"]
    assert best["none"] == {}
    with torch.inference_mode():
        score_C = model.score(model.encode(pairs.layout(pairs.chunks(query, "d70"))))
    expected = torch.sigmoid(score_C).sort(descending=True).values[:3].tolist()
    assert best["q"]["d70"] == pytest.approx(expected, abs=1e-5)
    assert best["q"]["d0"][1:] == (0.0, 0.0)
