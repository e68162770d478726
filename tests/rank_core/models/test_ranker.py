"""Chunk vectors grouped by document: order, gradients, and a constant number of operations."""

import torch

from rank_core.models.ranker import pad_chunks


def test_padding_keeps_the_order_and_gradients_of_chunks():
    x_CH = torch.arange(12.0).view(6, 2).requires_grad_()
    x_BPH, mask_BP = pad_chunks(x_CH, (2, 1, 3))
    assert mask_BP.tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    assert x_BPH[:, :, 0].tolist() == [[0, 2, 0], [4, 0, 0], [6, 8, 10]]
    assert torch.equal(x_BPH[mask_BP], x_CH)
    (x_BPH * torch.arange(1.0, 10).view(3, 3, 1)).sum().backward()
    assert x_CH.grad[:, 1].tolist() == [1, 2, 4, 7, 8, 9]
    score_BP, _ = pad_chunks(torch.arange(3.0), [1, 2])
    assert score_BP.tolist() == [[0, 0], [1, 2]]
