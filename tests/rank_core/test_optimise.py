"""Schedules by hand, learning-rate groups, precision."""

import pytest
import torch

from rank_core.config import Model, Training, TrialConfig
from rank_core.errors import BadInput
from rank_core.models import build_model
from rank_core.optimise import (
    autocast_type,
    build_optimizer,
    schedule_factor,
    set_learning_rates,
)


def factors(schedule, warmup, num_steps):
    return [schedule_factor(schedule, warmup, step, num_steps) for step in range(num_steps)]


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0.0, [1, 1, 1, 1]),
        ("constant", 0.5, [0.5, 1, 1, 1]),
        ("constant", 1.0, [0.25, 0.5, 0.75, 1]),
        ("linear", 0.0, [1, 0.75, 0.5, 0.25]),
        ("linear", 0.5, [0.5, 1, 1, 0.5]),
        ("linear", 0.2, [1, 1, 2 / 3, 1 / 3]),
        ("one-cycle", 0.0, [1, 0.5 + 8**-0.5, 0.5, 0.5 - 8**-0.5]),
        ("one-cycle", 0.5, [0.5, 1, 1, 0.5]),
    ],
)
def test_schedules_have_the_values_computed_by_hand(schedule, warmup, expected):
    assert factors(schedule, warmup, 4) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["constant", "linear", "one-cycle"])
@pytest.mark.parametrize("num_steps", [1, 2, 7, 100])
def test_a_rate_rises_to_its_peak_once_and_never_stops_learning(schedule, num_steps):
    rates = factors(schedule, 0.2, num_steps)
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(1)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert min(rates) > 0


@pytest.fixture
def model(backbone):
    config = TrialConfig(model=Model("parade-attn", backbone=str(backbone.folder)))
    return build_model(config, backbone, init_seed=1)


def test_every_role_has_its_own_peak_rate(model):
    optimizer = build_optimizer(
        model,
        Training(
            backbone_learning_rate=1e-5,
            head_learning_rate=2e-4,
            aggregator_learning_rate=3e-3,
            weight_decay=0.5,
        ),
    )
    assert [group["lr"] for group in optimizer.param_groups] == [1e-5, 2e-4, 3e-3]
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.5}
    assert optimizer.param_groups[2]["params"][0] is model.attention
    set_learning_rates(optimizer, 0.5)
    set_learning_rates(optimizer, 0.1)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([1e-6, 2e-5, 3e-4]), "a share of the peak, not of the last rate"


def test_frozen_parameters_are_left_out(model):
    model.encoder.requires_grad_(False)
    groups = build_optimizer(model, Training()).param_groups
    assert [len(group["params"]) for group in groups] == [2, 1]  # head, attention


def test_precision_follows_the_device():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert autocast_type("auto", cpu) is None
    assert autocast_type("bf16", cpu) is torch.bfloat16
    assert autocast_type("fp32", gpu) is autocast_type("fp32", cpu) is None
    assert autocast_type("fp16", gpu) is torch.float16
    with pytest.raises(BadInput, match="fp16 needs a GPU; on a CPU use fp32 or bf16"):
        autocast_type("fp16", cpu)
