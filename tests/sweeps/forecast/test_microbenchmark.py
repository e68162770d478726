"""What is measured is what a trial reads."""

from dataclasses import replace

import pytest

from rank_core.chunking.chunks import document_spans
from rank_core.chunking.inputs import load_inputs
from sweeps.forecast.microbenchmark import draw, planned_tokens, probe


@pytest.fixture
def inputs(small_trial):
    return load_inputs(small_trial.collection, small_trial.model.backbone)


def test_the_sample_is_the_same_again_and_in_buckets_from_short_to_long(small_trial, inputs):
    sample = draw(small_trial, inputs)
    again = draw(small_trial, inputs)
    assert sample.scored == again.scored
    assert [g.query_id for b in sample.trained for g in b] == [
        g.query_id for b in again.trained for g in b
    ]
    lengths = [[len(inputs.tokens[d]) for _, d in bucket] for bucket in sample.scored]
    assert len(lengths) == 3 and sum(map(len, lengths)) == 8 * 6  # all test pairs
    assert max(lengths[0]) <= min(lengths[1]) and max(lengths[1]) <= min(lengths[2])


def test_the_planned_tokens_of_a_whole_sample_are_those_of_the_candidates(small_trial, inputs):
    sample = draw(small_trial, inputs)
    pairs = [pair for bucket in sample.scored for pair in bucket]
    counts = []
    for query_id, doc_id in pairs:
        spans = document_spans(doc_id, len(inputs.tokens[doc_id]), small_trial.chunking)
        own = len(sample.queries[query_id]) + 3
        counts.append(sum(span.end - span.start + own for span in spans))
    found = planned_tokens(small_trial, inputs, sample)
    assert sum(found.scoring) == pytest.approx(sum(counts) / len(counts))


def test_a_smaller_stride_plans_more_tokens_of_the_same_sample(small_trial, inputs):
    dense = small_trial.override({"chunking.stride": 10})
    sample = draw(small_trial, inputs)
    assert draw(dense, inputs).scored == sample.scored
    for kind in ("scoring", "training"):
        one, more = (getattr(planned_tokens(c, inputs, sample), kind) for c in (small_trial, dense))
        assert len(one) == len(more) == 3 and sum(more) > 1.5 * sum(one)


def test_scoring_and_training_are_timed_in_every_bucket(small_trial):
    [speed] = probe([small_trial.settings()], threads=1, seconds=0.01)
    assert len(speed.scoring) == len(speed.training) == 3
    assert all(1e-9 < rate.seconds < 1 for rate in (*speed.scoring, *speed.training))
    assert all(rate.read == 1 for rate in speed.scoring)
    assert speed.start_seconds > 0 and speed.evaluation_seconds > 0
    assert speed.peak_bytes > 2**26 and speed.device_bytes == 0 and speed.threads == 1


def test_what_is_not_trained_is_not_timed_in_training(small_trial):
    [speed] = probe([small_trial.override({"training.num_epochs": 0}).settings()], 1, 0.0)
    assert speed.training == () and len(speed.scoring) == 3


def test_a_model_without_candidates_to_sample_is_no_error(small_trial, inputs):
    test = replace(inputs.collection.splits["test"], queries={}, candidates={})
    splits = {**inputs.collection.splits, "test": test}
    empty = replace(inputs, collection=replace(inputs.collection, splits=splits))
    assert draw(small_trial, empty).scored == ()
