"""Losses over groups, by hand."""

import pytest
import torch

from rank_core.config import Training
from rank_core.errors import BadInput
from rank_core.losses import loss_of, pairwise_margin


def margin(positive_N, negative_N, size=1.0):
    return pairwise_margin(torch.stack([positive_N, negative_N], 1), Training(margin=size))


def test_the_loss_is_the_sum_of_the_missing_margins():
    positive_N = torch.tensor([2.0, 1.0, 0.0, 0.5])
    negative_N = torch.tensor([0.0, 0.5, 1.0, -0.5])
    assert margin(positive_N, negative_N) == 0 + 0.5 + 2 + 0
    assert margin(positive_N, negative_N, 2.0) == 0 + 1.5 + 3 + 1


def test_only_pairs_inside_the_margin_pull():
    positive_N = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    negative_N = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    margin(positive_N, negative_N).backward()
    assert positive_N.grad.tolist() == [0, -1, -1]
    assert negative_N.grad.tolist() == [0, 1, 1]


def test_the_parts_of_a_batch_add_up_to_the_batch():
    positive_N, negative_N = torch.randn(2, 16, generator=torch.Generator().manual_seed(1))
    parts = sum(margin(p, n) for p, n in zip(positive_N.split(5), negative_N.split(5), strict=True))
    assert float(parts) == pytest.approx(float(margin(positive_N, negative_N)))


def test_a_loss_that_is_no_number_stays_none():
    assert margin(torch.tensor([torch.nan]), torch.tensor([0.0])).isnan()


def test_a_group_adds_up_its_negatives():
    score_NG = torch.tensor([[1.0, 0.5, 2.0], [3.0, 0.0, 2.5]])
    assert pairwise_margin(score_NG, Training()) == (0.5 + 2.0) + (0 + 0.5)


def test_an_unknown_loss_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match=r"training\.loss.*margin.*pairwise-margin"):
        loss_of(Training(loss="margin"))
