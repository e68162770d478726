"""What is measured is what a trial reads."""

from dataclasses import replace

import pytest
import torch

from rank_core.chunking.chunks import document_spans
from rank_core.chunking.inputs import load_inputs
from rank_core.models.build import build_model
from rank_core.ranking.scorer import Scorer
from sweeps.forecast import microbenchmark as module
from sweeps.forecast.microbenchmark import Rate, draw, planned_tokens, probe


@pytest.fixture
def inputs(small_trial):
    return load_inputs(small_trial.collection, small_trial.model.backbone)


def test_the_sample_is_the_same_again(small_trial, inputs):
    sample = draw(small_trial, inputs)
    again = draw(small_trial, inputs)
    assert sample.scored == again.scored and len(sample.scored) == 8 * 6  # all test pairs
    assert [g.query_id for g in sample.trained] == [g.query_id for g in again.trained]


def test_the_planned_tokens_of_a_whole_sample_are_those_of_the_candidates(small_trial, inputs):
    sample = draw(small_trial, inputs)
    counts = []
    for query_id, doc_id in sample.scored:
        spans = document_spans(doc_id, len(inputs.tokens[doc_id]), small_trial.chunking)
        own = len(sample.queries[query_id]) + 3
        counts.append(sum(span.end - span.start + own for span in spans))
    found = planned_tokens(small_trial, inputs, sample)
    assert found.scoring == pytest.approx(sum(counts) / len(counts))


def test_a_smaller_stride_plans_more_tokens_of_the_same_sample(small_trial, inputs):
    dense = small_trial.override({"chunking.stride": 10})
    sample = draw(small_trial, inputs)
    assert draw(dense, inputs).scored == sample.scored
    for kind in ("scoring", "training"):
        one, more = (getattr(planned_tokens(c, inputs, sample), kind) for c in (small_trial, dense))
        assert more > 1.5 * one > 0


def test_scoring_and_training_are_timed(small_trial):
    [speed] = probe([small_trial.settings()], 1, lambda speed: 0.0)
    assert all(1e-9 < rate.seconds < 1 for rate in (speed.scoring, speed.training))
    assert speed.scoring.read == 1
    assert speed.start_seconds > 0 and speed.evaluation_seconds > 0
    assert speed.peak_bytes > 2**26 and speed.device_bytes == 0


def test_a_measured_batch_has_the_tokens_that_suit_the_device(small_trial, monkeypatch):
    sizes, rerank = set(), module.rerank

    def noted(*arguments, batch_tokens, **more):
        sizes.add(batch_tokens)
        return rerank(*arguments, batch_tokens=batch_tokens, **more)

    monkeypatch.setattr(module, "rerank", noted)
    probe([small_trial.settings()], 1, lambda speed: 0.0)
    assert sizes == {4096}


def test_what_is_not_trained_is_not_timed_in_training(small_trial):
    untrained = small_trial.override({"training.num_epochs": 0})
    [speed] = probe([untrained.settings()], 1, lambda speed: 0.0)
    assert speed.training == Rate(0.0, 0.0) and speed.scoring.seconds > 0


def test_as_many_kinds_are_measured_as_begin_in_the_time_for_it(small_trial, monkeypatch):
    measured, clock = [], [0.0]

    def speed(config):
        clock[0] += 1.0
        measured.append(config.chunking.window)
        return len(measured)

    monkeypatch.setattr(module, "_speed", speed)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    windows = [small_trial.override({"chunking.window": n}).settings() for n in (40, 41, 42, 43)]
    threads = torch.get_num_threads()
    assert probe(windows, 1, lambda first: 2.5 * first) == [1, 2, 3]
    assert probe(windows, 1, lambda first: 0.0) == [4], "one tells more than none"
    assert measured == [40, 41, 42, 40] and torch.get_num_threads() == threads


def test_a_model_without_candidates_to_sample_is_no_error(small_trial, inputs):
    test = replace(inputs.collection.splits["test"], queries={}, candidates={})
    splits = {**inputs.collection.splits, "test": test}
    empty = replace(inputs, collection=replace(inputs.collection, splits=splits))
    assert draw(small_trial, empty).scored == []


def test_the_memory_that_a_trial_needs_is_taken_in_small_micro_batches(
    small_trial, inputs, monkeypatch
):
    scorer = Scorer(
        small_trial, inputs, build_model(small_trial, inputs.backbone, init_seed=0), None
    )
    train, sizes, scored = module.train, [], []

    def trains(model, pairs, queries, training, **others):
        sizes.append(training.micro_batch_tokens)
        return train(model, pairs, queries, training, **others)

    rerank = module.rerank
    monkeypatch.setattr(module, "train", trains)
    monkeypatch.setattr(module, "rerank", lambda *a, **b: (scored.append(1), rerank(*a, **b)))
    sample = draw(small_trial, inputs)
    next(module._steps(scorer, sample.trained))
    module._work_in_little_memory(scorer, sample)
    assert sizes == [0, 8192] and scored == [1]


def test_the_share_of_a_gpu_holds_before_anything_is_measured(small_trial, monkeypatch):
    said = []
    monkeypatch.setattr(module, "begin_on_device", lambda share: said.append(share))
    monkeypatch.setattr(module, "_speed", lambda config: said.append("measured"))
    probe([small_trial.settings()], 1, lambda speed: 0.0, gpu_share=0.5)
    assert said == [0.5, "measured"]
