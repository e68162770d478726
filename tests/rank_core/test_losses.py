"""The pairwise margin loss, by hand."""

import pytest
import torch

from rank_core.losses import pairwise_margin


def test_the_loss_is_the_sum_of_the_missing_margins():
    positive_N = torch.tensor([2.0, 1.0, 0.0, 0.5])
    negative_N = torch.tensor([0.0, 0.5, 1.0, -0.5])
    assert pairwise_margin(positive_N, negative_N, 1.0) == 0 + 0.5 + 2 + 0
    assert pairwise_margin(positive_N, negative_N, 2.0) == 0 + 1.5 + 3 + 1


def test_only_pairs_inside_the_margin_pull():
    positive_N = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    negative_N = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    pairwise_margin(positive_N, negative_N, 1.0).backward()
    assert positive_N.grad.tolist() == [0, -1, -1]
    assert negative_N.grad.tolist() == [0, 1, 1]


def test_the_parts_of_a_batch_add_up_to_the_batch():
    positive_N, negative_N = torch.randn(2, 16, generator=torch.Generator().manual_seed(1))
    parts = sum(
        pairwise_margin(p, n, 1.0)
        for p, n in zip(positive_N.split(5), negative_N.split(5), strict=True)
    )
    assert float(parts) == pytest.approx(float(pairwise_margin(positive_N, negative_N, 1.0)))


def test_a_loss_that_is_no_number_stays_none():
    assert pairwise_margin(torch.tensor([torch.nan]), torch.tensor([0.0]), 1.0).isnan()
