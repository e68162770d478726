"""Plans for GPUs that are not here: their hours by hand, their money, and a budget that a run would
refuse."""

import json
import os
import re

import pytest
import torch
from transformers import BertConfig

from rank_core.encoders.shipped import TRAINED, shipped_folder
from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.forecast import elsewhere, forecast
from sweeps.forecast.elsewhere import EncoderShape, shape_of
from sweeps.plan.machines import GPUS, Machines, parse_machines
from sweeps.plan.options import parse
from sweeps.plan.resources import resources_of


@pytest.fixture
def dry_run(inputs_words, tmp_path, monkeypatch, capsys):
    """(exit code, output) of a dry run of window_stride."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        code = main(["run", "window_stride", *inputs_words, "--dry-run", "--num-seeds=2", *words])
        out, err = capsys.readouterr()
        return code, out + err

    return run


def test_the_operations_of_an_encoder_are_those_of_its_matrices(tmp_path):
    config = BertConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
                        intermediate_size=20, vocab_size=50)  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    matrices = 3 * (4 * 8 * 8 + 2 * 8 * 20)
    vectors = 3 * (4 * 8 + 20 + 8 + 4 * 8) + 2 * 8 + (8 * 8 + 8)  # biases, norms, pooler
    assert shape_of(tmp_path) == EncoderShape(3, 8, matrices + vectors)
    # Queries times keys, and weights times values: 2 operations each, for every token of a row.
    assert shape_of(tmp_path).operations(10) == 2 * (matrices + vectors) + 3 * (2 * 2 * 8 * 10)
    assert shape_of(tmp_path / "none") is None


def test_training_takes_three_passes():
    h100 = GPUS["H100"]
    assert h100.seconds(989e12 * h100.scoring, 0) == pytest.approx(1)
    assert h100.seconds(0, 989e12 * h100.training / 3) == pytest.approx(1)


@pytest.mark.parametrize(
    "text", ["H100", "0xH100", "8xV100", "8xH100@", "8xH100@0", "8xH100@1.2.3"]
)
def test_other_forms_kinds_and_prices_are_refused(text):
    with pytest.raises(BadInput, match="--for"):
        parse_machines(text)


def test_a_plan_for_other_machines_has_hours_and_money_and_measures_nothing(dry_run, monkeypatch):
    monkeypatch.setattr("sweeps.launch.sweep.forecast", None)
    assert parse_machines("2xL4@0.5") == (Machines(2, "L4", 0.5),)
    code, text = dry_run("--for", "4xL4@1000000,1xA100", "--gpus-per-worker", "1")
    assert code == 0 and shape_of(shipped_folder(TRAINED)) is not None
    rows = re.findall(r"^(?:FirstP|MaxP) .* 2 +[\d.]+ [KM] +([\d.e-]+) +([\d.e-]+)$", text, re.M)
    l4, a100 = (sum(float(row[place]) for row in rows) for place in (0, 1))
    assert len(rows) > 2 and l4 > 2 * a100  # 121 and 312 T operations per second
    assert float(re.search(r"([\d.e-]+) L4-hours", text)[1]) == pytest.approx(l4, rel=0.05)
    assert float(re.search(r"an hour ([\d.,]+) ", text)[1]) == pytest.approx(1e6 * l4, rel=0.05)
    assert "lower bounds" in " ".join(text.split())


@pytest.mark.parametrize("words", [[], ["--for", "8xH100"]])
def test_a_dry_run_refuses_the_budget_that_the_run_refuses(dry_run, words):
    code, text = dry_run("--max-gpu-hours", "1e-12", *words)
    assert code == 2 and "error: the budget must hold one block of trials" in text
    assert dry_run("--max-gpu-hours", "1000", *words)[0] == 0


def test_a_range_of_workers_is_estimated_with_those_that_each_trial_has_room_for(dry_run):
    def text(gpus, number):
        return " ".join(dry_run("--for", f"{gpus}xH100", "--num-workers", number)[1].split())

    few, many, pairs = text(2, "1-4"), text(100, "2-4"), text(100, "4")
    assert "2 slots of 1-4 workers, estimated with 1" in few
    assert "25 slots of 2-4 workers, estimated with 4" in many
    hours = [re.search(r"on 25 slots.* ([\d.e-]+) H100-hours", own)[1] for own in (many, pairs)]
    assert hours[0] == hours[1]


@pytest.mark.parametrize(
    ("words", "trials", "workers", "slots"),
    [
        (["--gpus-per-worker", ".6"], 100, 1, 8),  # two shares of .6 leave .4 of two GPUs each
        (["--gpus-per-worker", ".5"], 100, 1, 16),
        (["--num-workers", "3"], 100, 3, 2),
        (["--num-workers", "1-4"], 100, 1, 8),
        (["--num-workers", "1-4"], 3, 2, 4),
        (["--num-workers", "1-4"], 1, 4, 2),
        (["--num-workers", "1-4", "--max-slots", "3"], 100, 2, 3),
        (["--accelerator", "H100"], 100, 1, 8),  # which Ray alone knows to be here
    ],
)
def test_a_plan_has_the_slots_that_the_engine_will_have(monkeypatch, words, trials, workers, slots):
    options = parse(words, prog="x", description="")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    here, _ = forecast._measure([], options, trials)
    there = elsewhere._resources(Machines(8, "H100"), options, trials)
    assert (here.num_workers, here.slots) == (there.num_workers, there.slots) == (workers, slots)
    node = {"CPU": 64.0, "GPU": 8.0, "accelerator_type:H100": 1.0}
    assert forecast.slots_of(options) == resources_of(options, [node], place="there").slots
    if trials == 100:
        assert forecast.slots_of(options) == slots


def test_a_trial_that_needs_more_gpus_than_are_named_is_refused(dry_run):
    code, text = dry_run("--for", "1xH100", "--num-workers", "2")
    assert code == 2 and "--for names 1xH100" in text
