"""Losses over groups: values by hand, and the same as a library's where it has them."""

import math

import pytest
import torch
from torch.nn import functional

from rank_core.errors import BadInput
from rank_core.settings.config import Training
from rank_core.settings.training import LOSS_NAMES, TEACHER_LOSSES
from rank_core.training.losses import LOSSES, Targets, check_loss, loss_of, pairwise_margin

HAND_NG = torch.tensor([[1.0, 0.0], [0.0, 2.0]])  # gaps 1 and -2
SCORE_NG = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.double) * 2
TEACHER_NG = torch.randn(6, 5, generator=torch.Generator().manual_seed(2), dtype=torch.double)
GRADE_NG = torch.tensor([[1.0, 0, 0, 0, 0]] * 5 + [[2.0, 0, 1, 0, 0]], dtype=torch.double)
TEACHER_NG[:, 0] = TEACHER_NG.max() + 1  # which finds the relevant document
TARGETS = Targets(GRADE_NG, TEACHER_NG)

every_loss = pytest.mark.parametrize("name", sorted(LOSSES))


def value(name, score_NG, targets=None, **settings):
    return LOSSES[name](score_NG, Training(loss=name, **settings), targets or Targets())


def test_the_losses_over_a_teachers_list_by_hand():
    # The teacher orders the documents 0, 2, 1; the scores have the gaps 0 - 2, 0 - 1 and 2 - 1.
    score_NG = torch.tensor([[1.0, 2.0, 0.0]])
    teacher = Targets(teacher_NG=torch.tensor([[5.0, 1.0, 3.0]]))
    expected = sum(math.log(1 + math.exp(-gap)) for gap in (1.0, -1.0, -2.0))
    assert float(value("teacher-ranknet", score_NG, teacher)) == pytest.approx(expected, rel=1e-6)
    total = sum(math.exp(s) for s in (1, 2, 0))
    log_p = [s - math.log(total) for s in (1, 2, 0)]
    for name, theirs in (("teacher-listnet", (0, -2, -1)), ("teacher-kl", (5, 1, 3))):
        target = [math.exp(s) / sum(map(math.exp, theirs)) for s in theirs]
        entropy = sum(t * math.log(t) for t in target) if name == "teacher-kl" else 0.0
        expected = entropy - sum(t * p for t, p in zip(target, log_p, strict=True))
        assert float(value(name, score_NG, teacher)) == pytest.approx(expected, rel=1e-6)
    # Only the order counts, but for the last.
    stretched = Targets(teacher_NG=teacher.teacher_NG**3)
    for name, same in (("teacher-ranknet", True), ("teacher-listnet", True), ("teacher-kl", False)):
        kept = value(name, score_NG, stretched) == value(name, score_NG, teacher)
        assert bool(kept) is same


def test_lambda_loss_by_hand():
    # One relevant document (grade 1) at rank 2 of three: ideal DCG 1 / log2 2 = 1, so G = 1, 0, 0.
    # Both others are one rank away: weight |1/log2 2 - 1/log2 3| = 0.36907.
    score_NG = torch.tensor([[1.0, 2.0, 0.0]])
    weight = 1 - 1 / math.log2(3)
    expected = weight * (math.log2(1 + math.e) + math.log2(1 + 1 / math.e))
    grades = Targets(torch.tensor([[1.0, 0.0, 0.0]]))
    assert float(value("lambda", score_NG, grades)) == pytest.approx(expected, rel=1e-6)
    # Grade 2 has gain 3 and ideal DCG 3: with one relevant document the grade cancels.
    twice = Targets(torch.tensor([[2.0, 0.0, 0.0]]))
    assert float(value("lambda", score_NG, twice)) == pytest.approx(expected, rel=1e-6)
    # Two ranks apart: |1/log2 3 - 1/log2 4|.
    far = torch.tensor([[0.0, 2.0, 1.0]])
    expected = (1 / math.log2(3) - 1 / 2) * math.log2(1 + math.e**2) + weight * math.log2(
        1 + math.e
    )
    assert float(value("lambda", far, grades)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        (
            "pairwise-margin",
            lambda s: functional.margin_ranking_loss(
                s[:, :1].expand(-1, 4), s[:, 1:], torch.ones(6, 4), margin=1.0, reduction="sum"
            ),
        ),
        ("pairwise-softmax", lambda s: (1 - torch.stack(pairs(s), -1).softmax(-1)[..., 0]).sum()),
        (
            "ranknet",
            lambda s: functional.binary_cross_entropy_with_logits(
                s[:, :1] - s[:, 1:], torch.ones(6, 4, dtype=s.dtype), reduction="sum"
            ),
        ),
        (
            # A two-class head whose logits differ by the score: one of them may stay at 0.
            "cross-entropy",
            lambda s: functional.cross_entropy(
                torch.stack([torch.zeros_like(s), s], -1).view(-1, 2),
                torch.tensor([1, 0, 0, 0, 0] * 6),
                reduction="sum",
            ),
        ),
        (
            "listwise-softmax",
            lambda s: functional.cross_entropy(s, torch.zeros(6).long(), reduction="sum"),
        ),
        (
            "listwise-margin",
            lambda s: functional.multi_margin_loss(s, torch.zeros(6).long(), reduction="sum"),
        ),
        (
            "margin-mse",
            lambda s: functional.mse_loss(
                s[:, :1] - s[:, 1:], TEACHER_NG[:, :1] - TEACHER_NG[:, 1:], reduction="sum"
            ),
        ),
    ],
)
def test_losses_equal_the_librarys(name, library):
    assert float(value(name, SCORE_NG, TARGETS)) == pytest.approx(float(library(SCORE_NG)))


def pairs(score_NG):
    """Positive and negative of each pair."""
    return score_NG[:, :1].expand(-1, 4), score_NG[:, 1:]


@every_loss
def test_the_parts_of_a_batch_add_up_to_the_batch(name):
    parts = sum(
        float(value(name, s, Targets(g, t)))
        for s, g, t in zip(SCORE_NG.split(4), GRADE_NG.split(4), TEACHER_NG.split(4), strict=True)
    )
    assert parts == pytest.approx(float(value(name, SCORE_NG, TARGETS)))


@every_loss
def test_a_gradient_reaches_every_score_of_a_group_in_the_wrong_order(name):
    score_NG = torch.tensor([[-3.0, 1.0, 0.5]], requires_grad=True)
    targets = Targets(torch.tensor([[1.0, 0, 0]]), torch.tensor([[2.0, 0.0, 1.0]]))
    value(name, score_NG, targets).backward()
    assert score_NG.grad[0, 0] < 0 < score_NG.grad[0, 1:].min()


@every_loss
def test_a_score_of_any_size_gives_a_finite_loss(name):
    score_NG = torch.tensor([[-1e4, 1e4], [1e4, -1e4], [0.0, 0.0]], requires_grad=True)
    targets = Targets(torch.tensor([[1.0, 0.0]] * 3), torch.tensor([[1.0, 0.0]] * 3))
    loss = value(name, score_NG, targets)
    loss.backward()
    assert loss.isfinite() and score_NG.grad.isfinite().all()


def test_a_loss_without_its_targets_is_refused():
    for name in TEACHER_LOSSES:
        with pytest.raises(BadInput, match=rf"{name} needs training\.teacher"):
            value(name, HAND_NG)
    with pytest.raises(BadInput, match="lambda needs relevance grades"):
        value("lambda", HAND_NG)


def test_the_settings_know_every_loss():
    assert tuple(LOSSES) == LOSS_NAMES
    assert loss_of(Training()) is pairwise_margin


OWN = """
def squared(score_NG, training, targets):
    return (training.margin - score_NG[:, :1] + score_NG[:, 1:]).square().sum()

def vector(score_NG, training, targets):
    return score_NG.sum(1)

def fails(score_NG, training):
    return score_NG.sum()
"""


def test_a_user_s_function_is_a_loss(tmp_path, monkeypatch):
    (tmp_path / "t2_losses.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    training = Training(loss="t2_losses:squared", margin=2.0)
    check_loss(training)
    assert float(loss_of(training)(HAND_NG, training, Targets())) == (2 - 1) ** 2 + (2 + 2) ** 2
    for name, message in (
        ("vector", "must return a finite scalar"),
        ("fails", "takes 2 positional arguments but 3 were given"),
        ("square", "did you mean squared"),
    ):
        with pytest.raises(BadInput, match=message):
            check_loss(Training(loss=f"t2_losses:{name}"))
    with pytest.raises(BadInput, match=r"unknown training\.loss 'rankne'; did you mean ranknet"):
        Training(loss="rankne")
