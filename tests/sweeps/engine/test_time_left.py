"""The forecast of a running sweep, on simulated sweeps whose processes take long to start."""

import heapq
import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from rank_core.training.train import CurvePoint
from rank_core.trial.trial import Progress
from sweeps.engine.time_left import TimeLeft

STEPS, REPORTS = 60, 6


@dataclass
class Sweep:
    """Trials on slots: what each takes, and what a process takes to start."""

    trials: list
    seconds: dict  # of a trial, by name
    slots: int
    start: float  # seconds until a process computes
    gap: float = 0.3  # between two trials of one process


def trial(cell, seed, cost, share=1.0):
    cell = SimpleNamespace(cell=cell, cost=cost)
    return SimpleNamespace(name=f"{cell.cell}-seed{seed}", cell=cell, share=share)


def drawn(seed):
    """A grid of a cheap baseline and dearer cells, of which a token costs more or less."""
    rng = np.random.default_rng(seed)
    costs = {"base": 1e4, **{f"c{i}": 1e4 * rng.uniform(2, 8) for i in range(rng.integers(3, 8))}}
    rate = rng.uniform(3e-4, 2e-3)  # seconds per token: a trial of 6 s to 2 min
    fixed = rng.uniform(0.5, 4)
    cell_seconds = {
        name: fixed + rate * cost * rng.lognormal(0, 0.25) for name, cost in costs.items()
    }
    trials = [trial(name, s, cost) for s in range(3) for name, cost in costs.items()]
    seconds = {one.name: cell_seconds[one.cell.cell] * rng.lognormal(0, 0.1) for one in trials}
    return Sweep(trials, seconds, slots=int(rng.choice([1, 2, 4])), start=rng.uniform(5, 30))


def played(sweep, forecast):
    """(share of the computing that is done, seconds left, forecast) after each end of a trial."""
    order, waiting, events = itertools.count(), list(sweep.trials), []
    now, total, done, lines = 0.0, sum(sweep.seconds.values()), 0.0, []
    left = TimeLeft(lambda: now) if forecast is None else forecast(lambda: now)

    def begin(first):
        if not waiting:
            return
        one = waiting.pop(0)
        takes = 0.95 * sweep.seconds[one.name]
        left.started(one)
        begun = now + (sweep.start if first else sweep.gap)
        times = [begun + takes * (step + 1) / STEPS for step in range(STEPS)]  # then its test
        for steps in np.array_split(np.arange(STEPS), REPORTS):
            points = tuple(CurvePoint(int(i) + 1, times[i], 1.0, 1e-3, 1.0) for i in steps)
            news = Progress(int(steps[-1]) + 1, STEPS, points, None)
            heapq.heappush(events, (times[steps[-1]], next(order), one, news))
        heapq.heappush(events, (begun + sweep.seconds[one.name], next(order), one, None))

    for _ in range(sweep.slots):
        begin(first=True)
    while events:
        now, _, one, news = heapq.heappop(events)
        if news:
            left.news(one, news)
            continue
        done += sweep.seconds[one.name]
        left.ended(one, sweep.seconds[one.name])
        lines.append((done / total, now, left.estimate(waiting)))
        begin(first=False)
    return [(share, now - at, guess) for share, at, guess in lines]


@pytest.mark.parametrize("seed", range(40))
def test_after_a_third_of_the_work_the_forecast_is_within_a_factor_of_one_and_a_half(seed):
    sweep = drawn(seed)
    lines = played(sweep, None)
    whole = lines[0][1]
    judged = [(left, guess) for share, left, guess in lines if share > 1 / 3 and left > whole / 10]
    assert judged
    worst = max(max(guess / left, left / guess) for left, guess in judged)
    assert worst < 1.5
    assert lines[-1][2] == 0


def test_the_last_trial_alone_counts_in_full():
    trials = [trial("base", s, 10.0) for s in range(3)]
    sweep = Sweep(trials, dict.fromkeys((t.name for t in trials), 10.0), slots=2, start=5.0)
    # Two side by side, then the third alone: ten seconds, and not five.
    assert [round(guess) for _, _, guess in played(sweep, None)] == [10, 10, 0]


def test_nothing_is_foretold_before_anything_is_known():
    one, two = trial("base", 1, 1.0), trial("c", 1, 5.0)
    left = TimeLeft(lambda: 0.0)
    assert left.estimate([one, two]) is None
    left.started(one)
    assert left.estimate([two]) is None
    left.ended(one)  # without a result
    assert left.estimate([two]) is None


def test_a_system_that_reads_no_tokens_has_a_pace_of_its_own():
    now = 0.0
    left = TimeLeft(lambda: now)
    server, own = trial("server", 1, 0.0), trial("own", 1, 100.0)
    left.started(server)
    now = 7.0
    left.ended(server, 7.0)
    assert left.estimate([trial("server", 2, 0.0)]) == pytest.approx(7)
    left.started(own)
    left.ended(own, 20.0)
    assert left.estimate([trial("own", 2, 100.0)]) == pytest.approx(20)
