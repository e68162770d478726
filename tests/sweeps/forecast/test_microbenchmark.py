"""What is measured is what a trial reads."""

import pytest
import torch

from sweeps.forecast import microbenchmark as module
from sweeps.forecast.forecast import forecast
from sweeps.forecast.microbenchmark import probe
from sweeps.plan.options import parse


@pytest.mark.parametrize("epochs", [0, 1])
def test_scoring_and_training_are_timed(small_trial, epochs):
    settings = small_trial.override({"training.num_epochs": epochs}).settings()
    [speed] = probe([settings], 1)
    assert 1e-9 < speed.scoring < 1 and (0 < speed.training < 1) is bool(epochs)
    assert speed.start_seconds > 0 and speed.peak_bytes > 2**26


def test_a_measured_batch_has_the_tokens_that_suit_the_device(small_trial, monkeypatch):
    sizes, rerank = set(), module.rerank

    def noted(*arguments, batch_tokens, **more):
        sizes.add(batch_tokens)
        return rerank(*arguments, batch_tokens=batch_tokens, **more)

    monkeypatch.setattr(module, "rerank", noted)
    probe([small_trial.settings()], 1)
    assert sizes == {4096}


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
    for seconds, found in ((2.5, [1, 2, 3]), (0.0, [4])):  # one tells more than none
        monkeypatch.setattr(module, "MOST_SECONDS", seconds)
        assert probe(windows, 1) == found
    assert measured == [40, 41, 42, 40] and torch.get_num_threads() == threads


def test_the_share_of_a_gpu_holds_before_anything_is_measured(small_trial, monkeypatch):
    said = []
    monkeypatch.setattr(module, "begin_on_device", lambda share: said.append(share))
    monkeypatch.setattr(module, "_speed", lambda config: said.append("measured"))
    probe([small_trial.settings()], 1, gpu_share=0.5)
    assert said == [0.5, "measured"]


def test_a_smaller_stride_is_forecast_to_take_longer(plan_of):
    words = ("chunking.window=48", "chunking.stride=16,32", "--num-seeds", "1")
    plan = plan_of(*words)
    options = parse(["--engine", "local"], prog="window_stride.py", description="")
    known = forecast(plan, options)
    _, dense, sparse = (known.trials[cell.cell] for cell in plan.cells)
    assert dense.seconds > sparse.seconds > 0 and dense.tokens > 1.5 * sparse.tokens
