"""The training loop: the same numbers whatever ran before and however a batch is split."""

from math import ceil

import pytest
import torch

from rank_core.chunking.inputs import load_inputs
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work
from rank_core.ranking.scorer import Scorer
from rank_core.settings.config import Training
from rank_core.training.examples import training_groups, training_queries
from rank_core.training.losses import pairwise_margin
from rank_core.training.step_times import StepSeconds, StepTimes
from rank_core.training.train import Streams, num_training_steps, train, validation_interval

STREAMS = Streams(init=1, order=2, negatives=3, dropout=4)


@pytest.fixture(scope="module")
def start(small_trial):
    """`start(settings)` -> (model, pairs, queries, training) before training."""

    def build(settings=None):
        config = small_trial.override(settings or {})
        inputs = load_inputs(config.collection, config.model.backbone)
        model = build_model(config, inputs.backbone, init_seed=5)
        scorer = Scorer(config, inputs, model, None)
        return model, scorer.pairs, training_queries(inputs, config), config.training

    return build


def trained(parts, streams=STREAMS):
    """(model, its curve) after training."""
    model, pairs, queries, training = parts
    records = train(model, pairs, queries, training, streams=streams, autocast=None, work=Work())
    return model, [point for record in records for point in record.curve]


def losses(curve):
    return [point.loss for point in curve]


def test_steps_are_whole_batches_over_all_epochs_and_at_least_one():
    assert num_training_steps(Training(batch_size=16), 100) == 6
    assert num_training_steps(Training(batch_size=16, num_epochs=4), 100) == 25
    assert num_training_steps(Training(batch_size=16), 5) == 1
    assert num_training_steps(Training(batch_size=16, max_steps=3), 100) == 3
    assert num_training_steps(Training(batch_size=16, max_steps=30), 100) == 6
    assert num_training_steps(Training(batch_size=16, num_epochs=3, epoch_steps=32), 100) == 96
    assert validation_interval(Training(epoch_steps=32), 100) == 32
    assert validation_interval(Training(epoch_steps=32, validate_every=5), 100) == 5


@pytest.mark.parametrize(
    ("settings", "validated", "num_records"),
    [
        ({}, [2], 1),  # once, at the end of the epoch
        ({"training.num_epochs": 3}, [2, 4, 6], 3),
        ({"training.num_epochs": 3, "training.validate_every": 4}, [4, 6], 2),
        ({"training.num_epochs": 3, "training.max_steps": 1}, [1], 1),
        ({"training.num_epochs": 12, "training.validate_every": 100}, [24], 2),  # news at 20
    ],
)
def test_records_say_when_to_validate_and_lose_no_step(start, settings, validated, num_records):
    model, pairs, queries, training = start(settings)
    assert len(queries) == 8
    records = list(
        train(model, pairs, queries, training, streams=STREAMS, autocast=None, work=Work())
    )
    assert [record.step for record in records if record.validate] == validated
    assert len(records) == num_records
    steps = [point.step for record in records for point in record.curve]
    assert steps == list(range(1, validated[-1] + 1))
    assert {record.num_steps for record in records} == {validated[-1]}


def test_parts_of_steps_are_timed_only_while_asked_for_and_without_validations(start, monkeypatch):
    """Two epochs of two steps; the second is timed, by a clock that goes on by 1 at each look and
    by 100 in a validation."""
    now = iter(range(10**6))
    monkeypatch.setattr(StepTimes, "_now", lambda self: float(next(now)))
    model, pairs, queries, training = start({"training.num_epochs": 2})
    times, same = StepTimes(model.device), {"streams": STREAMS, "autocast": None, "work": Work()}
    for record in train(model, pairs, queries, training, times=times, **same):
        assert record.validate
        for _ in range(100):
            next(now)
        times.on = record.step == 2
    # Passes and update are one part.
    assert times.steps == [StepSeconds(data=1, compute=2, sums=1)] * 2


@pytest.mark.parametrize("stream", ["order", "negatives", "dropout"])
def test_every_stream_of_a_trial_matters(start, stream):
    settings = {"training.num_epochs": 2}
    _, expected = trained(start(settings))
    moved = Streams(**{**vars(STREAMS), stream: 99})
    assert losses(trained(start(settings), moved)[1]) != losses(expected)


def test_the_curve_has_rate_and_norm_before_clipping(start):
    settings = {"training.num_epochs": 5, "training.warmup": 0.4, "model.dropout": 0.0}
    _, free = trained(start(settings | {"training.gradient_clip": 0.0}))
    _, clipped = trained(start(settings | {"training.gradient_clip": 1e-3}))
    rates = [point.learning_rate for point in free]
    assert rates == pytest.approx([1e-3 * min(1, (step + 1) / ceil(4)) for step in range(10)])
    assert free[0].gradient_norm == clipped[0].gradient_norm > 1e-3


def test_clipping_limits_the_step(start):
    # With plain AdamW a scale of the gradient cancels, so the limit shows beside epsilon only.
    settings = {"training.max_steps": 1, "model.dropout": 0.0, "training.warmup": 0.0}
    before = start(settings)[0].head.weight.detach()
    free, clipped = (
        trained(start(settings | {"training.gradient_clip": clip}))[0].head.weight.detach()
        for clip in (0.0, 1e-12)
    )
    assert float((free - before).abs().max()) == pytest.approx(1e-2, rel=0.05)
    assert (clipped - before).abs().max() < 1e-4


STILL = {"model.dropout": 0.0, "training.warmup": 0.0}


def test_the_first_loss_of_passage_training_is_the_sum_over_the_kept_pairs(start):
    settings = {"training.unit": "passage", "training.passage_keep": 1.0}
    model, pairs, queries, training = start(STILL | settings)
    total, rows = 0.0, 0
    stream = training_groups(queries, 1, order_seed=2, negatives_seed=3)
    for pair, _ in zip(stream, range(4), strict=False):
        positive, negative = (pairs.chunks(pair.query, d) for d in pair.documents)
        for i in range(min(len(positive), len(negative))):
            with torch.no_grad():
                score_NG = model(pairs.collate([[positive[i]], [negative[i]]])).view(1, 2)
            total, rows = total + float(pairwise_margin(score_NG, training)), rows + 1
    assert rows > 8
    _, curve = trained((model, pairs, queries, training))
    assert curve[0].loss == pytest.approx(total / 4, abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"model.name": "sump"},
        {"model.name": "parade-transformer", "training.batch_size": 16},
        {"training.unit": "passage", "training.passage_keep": 0.5},
        {"training.chunk_dropout": 0.5, "model.name": "sump"},
        {"training.loss": "listwise-softmax", "training.negatives": 3, "model.name": "sump"},
        {"training.loss": "lambda", "training.negatives": 3, "model.name": "sump"},
    ],
)
def test_the_size_of_a_micro_batch_changes_no_number_in_any_mode(start, settings):
    settings = STILL | {"training.backbone_learning_rate": 1e-5} | settings
    ends = []
    for size in (10**6, 1):
        # Some gradients cancel up to rounding, which Adam enlarges to a full step; in double
        # precision it is too small for that.
        model, *others = start(settings | {"training.micro_batch_tokens": size})
        ends.append(trained((model.double(), *others)))
    (whole, curve), (split, split_curve) = ends
    assert losses(split_curve) == pytest.approx(losses(curve), abs=1e-6)
    norms = [[point.gradient_norm for point in points] for points in (curve, split_curve)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    untrained = start(settings)[0].parameters()
    moved = 0.0
    for a, b, before in zip(whole.parameters(), split.parameters(), untrained, strict=True):
        assert (a - b).abs().max() <= 1e-6
        moved = max(moved, (a - before).abs().max().item())
    assert moved > 1e-4


def steps(start, settings):
    """How far the weights of the head go in each step, on average."""
    model, pairs, queries, training = start(STILL | {"training.validate_every": 1} | settings)
    before, sizes = model.head.weight.detach().clone(), []
    for _ in train(model, pairs, queries, training, streams=STREAMS, autocast=None, work=Work()):
        sizes.append(float((model.head.weight.detach() - before).abs().mean()))
        before = model.head.weight.detach().clone()
    return sizes


def test_a_reset_optimizer_has_no_moments(start):
    # Adam's first step is one learning rate long whatever the gradient, for every weight.
    rate = 1e-2
    settings = {"training.num_epochs": 3, "training.epoch_decay": 0.5}
    anew = steps(start, settings | {"training.reset_optimizer": True})
    assert anew[::2] == pytest.approx([rate, rate / 2, rate / 4], rel=1e-3)
    same = steps(start, settings)
    assert same[:2] == anew[:2]
    assert same[2] < 0.95 * rate / 2, "moments of the first epoch live on"
