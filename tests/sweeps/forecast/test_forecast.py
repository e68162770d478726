"""Estimates against sums by hand; intervals against what they promise."""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rank_core.chunking.inputs import load_inputs
from rank_core.models.ranker import Ranker
from rank_core.trial import fold_model
from sweeps.chunk_size import EXPERIMENT as CHUNK_SIZE
from sweeps.forecast import forecast as module
from sweeps.forecast.forecast import (
    SPREAD,
    Speed,
    TrialEstimate,
    calibrate,
    forecast,
    probe,
    real_seconds,
    same_speed,
    trial_estimate,
    wall_seconds,
)
from sweeps.plan.options import parse
from sweeps.plan.trial_cost import Tokens
from sweeps.store.records import State
from sweeps.store.trial_status import TrialStatus

SPEED = Speed(scoring=0.02, training=0.1, start_seconds=5.0, peak_bytes=100, device="x86_64")


def flat(seconds: float) -> TrialEstimate:
    return TrialEstimate(seconds, tokens=0.0, peak_bytes=0)


def test_a_trial_is_what_it_reads_times_the_rates_and_what_it_does_once():
    tokens = Tokens(trained=200.0, scored=250.0)
    found = trial_estimate(tokens, SPEED)
    assert found == TrialEstimate(pytest.approx(5 + 250 * 0.02 + 200 * 0.1), 450.0, 100, 200.0)
    shared = trial_estimate(tokens, SPEED, num_workers=2)
    assert shared.seconds == pytest.approx(5 + (5 + 20) / 2)


def test_trials_start_in_order_on_the_first_free_slot():
    assert wall_seconds([4, 1, 1, 3], slots=2) == 5  # 4 | 1 1 3
    assert wall_seconds([4, 1, 1, 3], slots=1) == 9
    assert wall_seconds([4, 1], slots=9) == 4
    assert wall_seconds([], slots=2) == 0


@pytest.mark.parametrize("rows", [[(4, 0.0)], [(1, 0.0)], [(1, 0.0), (4, 100.0)], []])
def test_a_trial_counts_by_its_workers_whatever_their_number(rows):
    """400 seconds of a worker are 100 of the four that the trial is estimated for."""
    workers = [{"step": 0, "number": number, "seconds": begun} for number, begun in rows]
    total = {4: 100.0, 1: 400.0}[rows[0][0]] if len(rows) == 1 else 175.0 if rows else 100.0
    facts = {"versions": {"device": "x", "threads": "1"}, "workers": workers}
    facts |= {"train_seconds": total - 20.0, "eval_seconds": 20.0}
    known = SimpleNamespace(trials={"c": flat(100.0)}, device="x", threads=1, num_workers=4)
    state = State("c-seed1", TrialStatus.DONE, facts=facts)
    assert real_seconds([state], known) == [(flat(100.0), 100.0)]


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


@pytest.mark.parametrize("epochs", [0, 1])
def test_scoring_and_training_are_timed_with_layers_as_in_the_trial(
    small_trial, epochs, monkeypatch
):
    read: list[int] = []
    monkeypatch.setattr(Ranker, "compile_layers", lambda _, number: read.append(number))
    ticks = count()  # every look at the clock is a quarter of a second later
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) / 4)
    monkeypatch.setattr(module, "time", clock)
    config = small_trial.override({"training.num_epochs": epochs})
    [speed] = probe([config.settings()], 1)
    inputs = load_inputs(config.collection, config.model.backbone)
    assert read == [fold_model.planned_tokens(config, inputs)]
    documents = 0.25 / speed.scoring  # of a batch, of the 48 candidates of 8 queries
    assert documents == pytest.approx(round(documents)) and 1 <= documents <= 48
    assert speed.training == (0.25 / (4 * 2) if epochs else 0.0)  # a step: 4 pairs
    assert speed.start_seconds == 0.25 and speed.peak_bytes > 2**26


def test_the_speed_is_that_of_the_last_batch_which_is_warm(monkeypatch):
    def speed(*batches):
        """Seconds a document of batches (documents, seconds)."""
        now = [0.0]
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

        def work():
            for documents, seconds in batches:
                now[0] += seconds
                yield documents

        return module._seconds_each(work())

    monkeypatch.setattr(module, "ENOUGH_SECONDS", 2.0)
    assert speed((10, 1.5), (20, 0.5)) == 0.5 / 20  # the first one warms up
    assert speed((10, 0.25), (20, 0.5), (40, 1.25)) == 1.25 / 40
    assert speed((10, 4.0)) == 4.0 / 10, "a long batch is enough"


def test_as_many_kinds_are_measured_as_begin_in_the_time_for_it(small_trial, monkeypatch):
    measured, clock = [], [0.0]

    def speed(config):
        clock[0] += 1.0
        measured.append(config.chunking.window)
        return module.Speed(1.0, 1.0, float(len(measured)), 1, "cpu")

    monkeypatch.setattr(module, "_speed", speed)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    windows = [small_trial.override({"chunking.window": n}).settings() for n in (40, 41, 42, 43)]
    threads = torch.get_num_threads()
    for seconds, found in ((2.5, [1, 2, 3]), (0.0, [4])):  # one tells more than none
        monkeypatch.setattr(module, "MOST_SECONDS", seconds)
        assert [one.start_seconds for one in probe(windows, 1)] == found
    assert measured == [40, 41, 42, 40] and torch.get_num_threads() == threads


def test_a_smaller_stride_is_forecast_to_take_longer(plan_of):
    words = ("chunking.window=48", "chunking.stride=16,32", "--num-seeds", "1")
    plan = plan_of(*words)
    options = parse(["--engine", "local"], prog="window_stride.py", description="")
    known = forecast(plan, options)
    _, dense, sparse = (known.trials[cell.cell] for cell in plan.cells)
    assert dense.seconds > sparse.seconds > 0 and dense.tokens > 1.5 * sparse.tokens


def test_every_kind_has_its_own_speed_where_all_are_measured(plan_of, monkeypatch):
    rates = {"fp32": 1.0, "bf16": 3.0}
    monkeypatch.setattr(
        module,
        "_speed",
        lambda config: replace(SPEED, scoring=rates[config.training.precision], start_seconds=0.0),
    )
    plan = plan_of("training.precision=fp32,bf16", experiment=CHUNK_SIZE)
    known = forecast(plan, parse(["--engine", "local"], prog="chunk_size.py", description=""))
    assert known.num_measured == known.num_kinds
    seconds = defaultdict(dict)
    for cell in plan.cells:
        chunking, precision = cell.config.chunking, cell.config.training.precision
        seconds[chunking][precision] = known.trials[cell.cell].seconds
    pairs = [each for each in seconds.values() if len(each) == 2]
    assert pairs and all(pair["bf16"] > 2 * pair["fp32"] for pair in pairs)
