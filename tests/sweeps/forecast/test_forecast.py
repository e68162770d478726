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
    same_speed,
    trial_estimate,
    wall_seconds,
)
from sweeps.forecast.microbenchmark import Speed
from sweeps.plan.options import parse
from sweeps.plan.trial_cost import Tokens

SPEED = Speed(scoring=0.02, training=0.1, start_seconds=5.0, peak_bytes=100, device="x86_64")


def flat(seconds: float) -> TrialEstimate:
    return TrialEstimate(seconds, tokens=0.0, peak_bytes=0)


def test_a_trial_is_what_it_reads_times_the_rates_and_what_it_does_once():
    tokens = Tokens(trained=200.0, scored=250.0)
    found = trial_estimate(tokens, SPEED)
    assert found == TrialEstimate(pytest.approx(5 + 250 * 0.02 + 200 * 0.1), 450.0, 100)
    shared = trial_estimate(tokens, SPEED, num_workers=2)
    assert shared.seconds == pytest.approx(5 + (5 + 20) / 2)


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
    def probe(settings, threads, *, gpu_share):
        return [(os.environ["CUDA_VISIBLE_DEVICES"], gpu_share)]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(module, "probe", probe)
    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    plan = plan_of("chunking.window=48", "chunking.stride=32")
    options = parse(["--gpus-per-worker", gpus], prog="window_stride.py", description="")
    place, found = module._measure(plan.cells[:1], options)
    assert found == [seen] and place.gpus == float(gpus)
