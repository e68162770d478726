"""Schedules by hand, learning-rate groups, precision."""

import pytest
import torch

from rank_core.errors import BadInput
from rank_core.machine import autocast_type, device_class
from rank_core.models.build import build_model
from rank_core.settings.config import Model, Training, TrialConfig
from rank_core.training.optimizer import (
    Timetable,
    build_optimizer,
    rate_factor,
    set_learning_rates,
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.5, 1, 1, 1, 1, 1]),  # warm-up: a third of 6 steps
        ({"epoch_decay": 0.95}, [0.5, 1, 1, 0.95, 0.95, 0.95]),
        # Boytsov et al. 2022: warm-up in each epoch, here 1 of 3 steps
        ({"epoch_decay": 0.95, "reset_optimizer": True}, [1, 1, 1, 0.95, 0.95, 0.95]),
        (
            {"epoch_decay": 0.5, "reset_optimizer": True, "warmup": 2 / 3},
            [0.5, 1, 1, 0.25, 0.5, 0.5],
        ),
        # CAP: 1 / (1 + 0.1 epoch) once the warm-up is over
        ({"schedule": "inverse-epoch"}, [0.5, 1, 1, 1 / 1.1, 1 / 1.1, 1 / 1.1]),
        ({"schedule": "inverse-epoch", "warmup": 2 / 3}, [0.25, 0.5, 0.75, 1, 1 / 1.1, 1 / 1.1]),
        ({"schedule": "linear", "warmup": 0.0}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        (
            {"schedule": "linear", "warmup": 0.0, "reset_optimizer": True},
            [1, 2 / 3, 1 / 3, 1, 2 / 3, 1 / 3],
        ),
        # half a cosine over the last two of the last three steps
        ({"schedule": "one-cycle-last-epoch"}, [0.5, 1, 1, 1, 1, 0.5]),
        ({"schedule": "one-cycle-last-epoch", "warmup": 0.0}, [1, 1, 1, 1, 0.75, 0.25]),
        # from 1/25 up in 1 of 2 steps, down to 1/250000 in the third
        (
            {"schedule": "one-cycle-linear-last-epoch", "warmup": 2 / 3},
            [1 / 4, 2 / 4, 3 / 4, 1 / 25, 1, 1 / 250_000],
        ),
    ],
)
def test_rates_over_two_epochs_have_the_values_computed_by_hand(settings, expected):
    training = Training(**{"warmup": 1 / 3, **settings})
    timetable = Timetable(num_steps=6, batch_size=1, epoch_groups=3)
    found = [rate_factor(training, timetable, step) for step in range(6)]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("batch_size", "epoch_groups", "num_steps", "first_steps"),
    [
        (1, 3, 6, [0, 3]),
        (16, 100, 25, [0, 6, 12, 18]),  # 6.25 steps each: epoch 4 starts where there are no more
        (4, 6, 6, [0, 1, 3, 4]),  # 1.5 steps each
        (16, 100, 3, [0]),
        (4, 8, 2, [0]),
    ],
)
def test_an_epoch_starts_at_the_step_in_which_its_first_whole_batch_ends(
    batch_size, epoch_groups, num_steps, first_steps
):
    timetable = Timetable(num_steps, batch_size, epoch_groups)
    assert [step for step in range(num_steps) if timetable.starts(step)] == first_steps
    spans = [timetable.span(epoch) for epoch in range(len(first_steps))]
    assert [first for first, _ in spans] == first_steps
    assert sum(size for _, size in spans) == num_steps
    for epoch, (first, size) in enumerate(spans):
        assert {timetable.epoch(step) for step in range(first, first + size)} == {epoch}


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
    four = Timetable(num_steps=4, batch_size=1, epoch_groups=4)
    halves = Training(warmup=1.0, warmup_backbone=True)
    set_learning_rates(optimizer, halves, four, 1)
    set_learning_rates(optimizer, halves, four, 0)
    rates = [group["lr"] for group in optimizer.param_groups]
    expected = [0.25e-5, 0.5e-4, 0.75e-3]
    assert rates == pytest.approx(expected), "a share of the peak, not of the last rate"


@pytest.mark.parametrize("backbone_too", [True, False])
def test_the_backbone_warms_up_with_the_others_or_not_at_all(model, backbone_too):
    # Zhang et al. 2021 (`warmupbert False`): the head alone warms up.
    rates = {"backbone_learning_rate": 1e-5, "head_learning_rate": 2e-4, "warmup": 1.0}
    training = Training(**rates, warmup_backbone=backbone_too, aggregator_learning_rate=3e-3)
    optimizer = build_optimizer(model, training)
    four = Timetable(num_steps=4, batch_size=1, epoch_groups=4)
    for step, share in ((0, 0.25), (1, 0.5), (3, 1.0)):
        set_learning_rates(optimizer, training, four, step)
        own = [1e-5 * (share if backbone_too else 1), 2e-4 * share, 3e-3 * share]
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(own)


@pytest.mark.parametrize(("own", "expected"), [(0.0, 3e-3), (4e-2, 4e-2)])
def test_an_interaction_encoder_learns_at_the_aggregators_rate_or_at_its_own(
    own, expected, backbone
):
    settings = Model("parade-late-interaction", str(backbone.folder))
    model = build_model(TrialConfig(model=settings), backbone, init_seed=1)
    training = Training(aggregator_learning_rate=3e-3, interaction_learning_rate=own)
    groups = build_optimizer(model, training).param_groups
    first = next(model.interaction.parameters())
    [rate] = [g["lr"] for g in groups if any(p is first for p in g["params"])]
    assert rate == expected


def test_precision_follows_the_device():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert autocast_type("auto", cpu) is None
    assert autocast_type("bf16", cpu) is torch.bfloat16
    assert autocast_type("fp32", gpu) is autocast_type("fp32", cpu) is None
    assert autocast_type("fp16", gpu) is torch.float16
    with pytest.raises(BadInput, match="fp16 needs a GPU; on a CPU use fp32 or bf16"):
        autocast_type("fp16", cpu)


@pytest.mark.parametrize(("real", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_uses_bf16_only_if_the_gpu_supports_it(monkeypatch, real, dtype):
    # As torch answers on a T4: yes with emulation, no without.
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or real,
    )
    assert autocast_type("auto", torch.device("cuda")) is dtype
    has = "with" if real else "without"
    assert device_class(torch.device("cuda")) == f"cuda {has} bf16"
    assert device_class(torch.device("cpu")) == "cpu"


def test_the_moments_are_there_before_the_first_step_and_are_what_it_would_make(model):
    optimizer = build_optimizer(model, Training())
    lazy = torch.optim.AdamW(optimizer.param_groups, fused=True)
    parameters = [p for group in lazy.param_groups for p in group["params"]]
    before = {p: dict(optimizer.state[p]) for p in parameters}
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    lazy.step()
    for parameter in parameters:
        made, expected = before[parameter], lazy.state[parameter]
        assert made.keys() == expected.keys()
        assert made["step"] == 0 and made["step"].dtype == expected["step"].dtype
        for moment in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(made[moment], expected[moment])
            assert made[moment].stride() == expected[moment].stride()
