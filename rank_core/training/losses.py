"""Training losses over groups: score_NG has a row per group, the relevant document's score first.

Every loss is a sum over groups, not a mean, so that the gradients of micro-batches and of workers
add up to the gradient of the batch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rank_core.errors import BadInput, shown, unknown
from rank_core.own_code import guarded, is_reference, load
from rank_core.settings.config import Training


@dataclass(frozen=True)
class Targets:
    """Further facts about the documents of a group for a loss; the first one is relevant."""

    relevance_NG: Tensor | None = None  # relevance grades
    teacher_NG: Tensor | None = None  # scores of another ranker


NOTHING = Targets()
Loss = Callable[[Tensor, Training, Targets], Tensor]


def pairwise_margin(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over groups and negatives of max(0, margin - positive + negative)."""
    return torch.clamp(training.margin - _gap(score_NG), min=0).sum()


def pairwise_softmax(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum of 1 - softmax(positive, negative)[positive] (MacAvaney et al. 2019). FlexNeuART averages
    over the negatives of a group, here and in `ranknet`; with one negative this is the same."""
    # Of a softmax over two scores, 1 - P(positive) is the sigmoid of the negative difference.
    return torch.sigmoid(-_gap(score_NG)).sum()


def ranknet(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum of -log sigmoid(positive - negative) (Burges et al. 2005)."""
    # softplus(-x) = -log sigmoid(x), without an overflow or a logarithm of 0.
    return softplus(-_gap(score_NG)).sum()


def cross_entropy(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over documents of -log P(class) with two classes (Dai & Callan 2019).

    Of a two-class softmax head only the difference of its logits matters: P(relevant) =
    sigmoid(difference). That difference is the score here.
    """
    return softplus(-score_NG[:, 0]).sum() + softplus(score_NG[:, 1:]).sum()


def listwise_softmax(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over groups of -log softmax(scores)[positive] (LCE, Gao et al. 2021)."""
    # -log softmax, without a softmax that underflows to 0.
    return (score_NG.logsumexp(1) - score_NG[:, 0]).sum()


def listwise_margin(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over groups of the margin losses / group size: torch's multi-margin loss, as in
    FlexNeuART."""
    return pairwise_margin(score_NG, training) / score_NG.shape[1]


def margin_mse(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over pairs of (gap - the teacher's gap)^2 (Hofstätter et al. 2020)."""
    return (_gap(score_NG) - _gap(_teacher(training, targets))).square().sum()


def teacher_ranknet(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over pairs that the teacher orders, better before worse, of -log sigmoid(better - worse)
    (permutation distillation, Sun et al. 2023, equation 2)."""
    teacher_NG = _teacher(training, targets)
    ordered_NGG = teacher_NG[:, :, None] > teacher_NG[:, None]
    gap_NGG = score_NG[:, :, None] - score_NG[:, None]
    return (ordered_NGG * softplus(-gap_NGG)).sum()


def teacher_listnet(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over groups of the cross-entropy of softmax(scores) with softmax(-place), the places of
    the teacher's order from 0 on (ListNet's top-one probabilities, Cao et al. 2007)."""
    order_NG = _teacher(training, targets).argsort(dim=1, descending=True, stable=True)
    # The argsort of a permutation is its inverse: from documents by place to the place of each
    # document.
    place_NG = order_NG.argsort(dim=1).to(score_NG.dtype)
    return -((-place_NG).softmax(1) * score_NG.log_softmax(1)).sum()


def teacher_kl(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """sum over groups of KL(softmax(the teacher's scores) || softmax(scores))."""
    log_NG = _teacher(training, targets).to(score_NG.dtype).log_softmax(1)
    return (log_NG.exp() * (log_NG - score_NG.log_softmax(1))).sum()


def lambda_loss(score_NG: Tensor, training: Training, targets: Targets = NOTHING) -> Tensor:
    """NDCG-Loss2 of LambdaLoss (Wang et al. 2018, equation 14), with sigma 1:

    sum over pairs with y_i > y_j of |1/D(d) - 1/D(d+1)| |G_i - G_j| log2(1 + exp(s_j - s_i)), where
    d is the distance of their ranks under the current scores, D(r) = log2(1 + r), and G is the gain
    2^y - 1 divided by the group's ideal DCG.
    """
    if targets.relevance_NG is None:
        raise BadInput("training.loss=lambda needs relevance grades")
    grade_NG = targets.relevance_NG.to(score_NG.dtype)
    places_G = torch.arange(1, score_NG.shape[1] + 1, device=score_NG.device, dtype=score_NG.dtype)
    gain_NG = torch.exp2(grade_NG) - 1
    # The ideal DCG is that of the group, which is all that a loss over groups knows of the query.
    ideal_NG = gain_NG.sort(dim=1, descending=True).values / torch.log2(1 + places_G)
    gain_NG = gain_NG / ideal_NG.sum(1, keepdim=True).clamp(min=1e-9)
    # Ranks are constants of the step: their derivative is 0 almost everywhere, and LambdaLoss's
    # bound is over scores at fixed ranks.
    rank_NG = score_NG.detach().argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    # A distance of 0 (a document and itself) has weight 0, because the gains are equal.
    distance_NGG = (rank_NG[:, :, None] - rank_NG[:, None]).abs().clamp(min=1)
    discount_NGG = (1 / torch.log2(1.0 + distance_NGG) - 1 / torch.log2(2.0 + distance_NGG)).abs()
    # The clamp leaves the pairs with y_i > y_j, each once.
    weight_NGG = discount_NGG * (gain_NG[:, :, None] - gain_NG[:, None]).clamp(min=0)
    gap_NGG = score_NG[:, :, None] - score_NG[:, None]
    return (weight_NGG * softplus(-gap_NGG)).sum() / math.log(2)


LOSSES: dict[str, Loss] = {
    "pairwise-margin": pairwise_margin,
    "pairwise-softmax": pairwise_softmax,
    "ranknet": ranknet,
    "cross-entropy": cross_entropy,
    "listwise-softmax": listwise_softmax,
    "listwise-margin": listwise_margin,
    "margin-mse": margin_mse,
    "teacher-ranknet": teacher_ranknet,
    "teacher-listnet": teacher_listnet,
    "teacher-kl": teacher_kl,
    "lambda": lambda_loss,
}


def loss_of(training: Training) -> Loss:
    """The entry of `LOSSES` for the settings, or a user's function with the signature of `Loss`.
    Raises `BadInput` for an unknown name."""
    if is_reference(training.loss):
        loss: Loss = load("loss", training.loss)
        return loss
    if training.loss not in LOSSES:
        raise unknown("training.loss", training.loss, LOSSES)
    return LOSSES[training.loss]


def check_loss(training: Training) -> None:
    """Raises `BadInput` for a user's loss that fails on two groups or returns no finite scalar."""
    if not is_reference(training.loss):
        return
    score_NG = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 0.5]], requires_grad=True)
    known = torch.tensor([[2.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    with guarded(f"loss {training.loss}"):
        loss = loss_of(training)(score_NG, training, Targets(known, known))
    if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.isfinite() and loss.requires_grad):
        raise BadInput(
            f"loss {training.loss} must return a finite scalar that depends on the scores, got "
            f"{shown(loss)}"
        )


def _teacher(training: Training, targets: Targets) -> Tensor:
    """teacher_NG; raises `BadInput` without one."""
    if targets.teacher_NG is None:
        raise BadInput(
            f"training.loss={training.loss} needs training.teacher, a teacher's run file"
        )
    return targets.teacher_NG


def _gap(score_NG: Tensor) -> Tensor:
    """gap_NK: the relevant document's score minus that of each other document."""
    return score_NG[:, :1] - score_NG[:, 1:]
