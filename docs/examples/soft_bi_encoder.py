"""A model of one's own on an embedding model: chunks weighted by their likeness to the query."""

import torch
from torch import Tensor

from rank_core.models.bi_encoder import BiEncoder


class SoftBiEncoder(BiEncoder):
    """score = sum_p w_p s_p with w = softmax(s) and the scaled similarity s of query and chunk: an
    attention of the query over the chunks, between their mean and their maximum."""

    label = "Bi-encoder, soft"  # in tables
    paper = "none"
    family = "long context"
    chunks_that_learn = 0  # all

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B of B documents from the scores of their P chunks; the mask tells real ones."""
        score_BP = self.score(x_BPH)
        logit_BP = score_BP.masked_fill(~mask_BP, float("-inf"))
        return (torch.softmax(logit_BP, dim=1) * score_BP).sum(1)
