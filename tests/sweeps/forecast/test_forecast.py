"""Estimates against sums by hand; intervals against what they promise."""

import math
import os
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from sweeps.forecast import forecast as module
from sweeps.forecast.forecast import (
    SPREAD,
    TrialEstimate,
    calibrate,
    gpu_share,
    same_speed,
    trial_estimate,
    wall_seconds,
)
from sweeps.forecast.microbenchmark import Planned, Rate, Speed
from sweeps.plan.options import parse
from sweeps.plan.trial_cost import Reads

SPEED = Speed(
    scoring=Rate(0.02, 1.0),
    training=Rate(0.1, 2.0),
    start_seconds=5.0,
    evaluation_seconds=0.5,
    peak_bytes=100,
    device_bytes=0,
    device="x86_64",
)
READS = Reads(groups=4, documents=10, evaluations=3)
PLANNED = Planned(scoring=25.0, training=50.0)


def flat(seconds: float) -> TrialEstimate:
    return TrialEstimate(seconds, tokens=0.0, peak_bytes=0)


def test_a_trial_is_what_it_reads_times_the_rates_and_what_it_does_once():
    found = trial_estimate(READS, PLANNED, SPEED)
    scoring = 10 * 25 * 0.02
    assert found.seconds == pytest.approx(5 + 3 * 0.5 + scoring + 4 * 50 * 0.1)
    assert found.tokens == 10 * 25 + 2 * 4 * 50
    shared = trial_estimate(READS, PLANNED, SPEED, num_workers=2)
    assert shared.seconds == pytest.approx(5 + (1.5 + scoring + 20) / 2)


def test_validations_are_what_is_scored_and_measured_before_the_end():
    reads = Reads(groups=4, documents=10, evaluations=3, last_documents=4)
    whole = trial_estimate(reads, PLANNED, SPEED)
    assert whole.validation == pytest.approx(2 * 0.5 + 6 * 25 * 0.02)
    assert whole.validation + whole.start + whole.end < whole.seconds
    assert whole.part(0.25, ends=False).validation == pytest.approx(whole.validation / 4)
    assert trial_estimate(reads, PLANNED, SPEED, num_workers=4).validation == whole.validation / 4


def test_a_part_of_a_trial_starts_anew_and_only_the_last_one_scores_test():
    reads = Reads(groups=4, documents=10, evaluations=3, last_documents=4)
    whole = trial_estimate(reads, PLANNED, SPEED)
    assert whole.end == pytest.approx(0.5 + 4 * 25 * 0.02) and whole.start == 5
    epochs = whole.seconds - whole.start - whole.end
    assert whole.part(1.0, ends=True).seconds == pytest.approx(whole.seconds)
    first, last = whole.part(0.25, ends=False), whole.part(0.75, ends=True)
    assert first.seconds == pytest.approx(5 + epochs / 4)
    assert last.seconds == pytest.approx(5 + 0.75 * epochs + whole.end)


def test_without_training_no_rate_of_training_is_needed():
    untrained = Speed(**{**vars(SPEED), "training": Rate(0.0, 0.0)})
    found = trial_estimate(Reads(0, 10, 2), Planned(25.0, 0.0), untrained)
    assert found.seconds == pytest.approx(5 + 1 + 10 * 0.5)


def test_trials_start_in_order_on_the_first_free_slot():
    assert wall_seconds([4, 1, 1, 3], slots=2) == 5  # 4 | 1 1 3
    assert wall_seconds([4, 1, 1, 3], slots=1) == 9
    assert wall_seconds([4, 1], slots=9) == 4
    assert wall_seconds([], slots=2) == 0


def test_without_finished_trials_an_estimate_is_trusted_within_its_spread():
    trusted = calibrate([])
    assert (trusted.log_ratio, trusted.log_sd, trusted.num_trials) == (0.0, SPREAD, 0)
    low, middle, high = trusted.interval(40.0)
    assert middle == 40 and low * high == pytest.approx(1600) and low < 40 * math.exp(-SPREAD)


def test_finished_trials_move_the_estimate_towards_them_and_narrow_it():
    before = calibrate([])
    one = calibrate([(flat(10), 15.0)])
    many = calibrate([(flat(10), 15.0 + 0.1 * (i % 3)) for i in range(12)])
    assert one.log_ratio == pytest.approx(math.log(1.5) / 2)
    assert many.log_ratio == pytest.approx(12 / 13 * math.log(1.51), abs=0.001)
    assert many.log_sd < one.log_sd < before.log_sd
    assert many.interval(10.0)[0] < 15.1 < many.interval(10.0)[2]


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng, held = np.random.default_rng(1), 0
    for _ in range(2000):
        ratio = math.exp(rng.normal(0, SPREAD))
        real = [(flat(10), 10 * ratio * math.exp(rng.normal(0, SPREAD))) for _ in range(4)]
        low, _, high = calibrate(real).interval(10.0)
        held += low <= 10 * ratio <= high
    assert 0.93 < held / 2000 < 0.97


@pytest.mark.parametrize(
    ("peak", "device", "share"),
    [
        (9.5, 80, 1 / 7),
        (41, 80, 1),
        (35.5, 80, 0.5),
        (90, 80, 1),
        (0, 80, 1),
        (10, 0, 1),
        (0.01, 16, 1 / 28),  # each process takes half a GiB for itself
    ],
)
def test_as_many_trials_share_a_gpu_as_nine_tenths_of_its_memory_hold(peak, device, share):
    assert gpu_share(int(peak * 2**30), device * 2**30) == share


def test_only_how_much_is_read_may_differ_between_configurations_of_one_speed(small_trial):
    speed = same_speed(small_trial.settings())
    for much in ({"chunking.stride": 10}, {"seed": 4}, {"training.max_steps": 9}):
        assert same_speed(small_trial.override(much).settings()) == speed
    for other in ({"chunking.window": 41}, {"model.name": "sump"}, {"training.batch_size": 2}):
        assert same_speed(small_trial.override(other).settings()) != speed


class Pool:
    """A pool whose process is this one."""

    def __init__(self, number, mp_context, initializer=None):
        self.begin = initializer

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, work):
        if self.begin:
            self.begin()
        done = Future()
        done.set_result(work())
        return done


@pytest.mark.parametrize(
    ("gpus", "seen"), [("0", ("", 1.0)), ("0.5", ("0,1", 0.5)), ("1", ("0,1", 1.0))]
)
def test_a_machine_with_gpus_is_measured_on_what_is_reserved_of_them(
    plan_of, monkeypatch, gpus, seen
):
    def probe(settings, threads, enough, *, gpu_share):
        return [(os.environ["CUDA_VISIBLE_DEVICES"], gpu_share)]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(module, "probe", probe)
    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    plan = plan_of("chunking.window=48", "chunking.stride=32")
    options = parse(["--gpus-per-worker", gpus], prog="window_stride.py", description="")
    place, found = module._measure(plan.cells[:1], plan, options)
    assert found == [seen] and place.gpus == float(gpus)
