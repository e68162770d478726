"""CK: the small convolutional kernel network that chooses passages before BERT reads them
(Hofstätter et al. 2021)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rank_core.chunking.batches import EncoderInput

CENTRES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
WIDTH = 0.1
NGRAM = 3
LEAST = 1e-4  # under the logarithm


class ConvolutionalKernels(nn.Module):
    """score_C of chunks: cosines of the query's and the chunk's contextual trigrams, counted in 11
    soft bins, logged, summed over the query and weighted.

    It reads the encoder's word vectors as they are: no gradient goes to them. Positions and
    segments, which the reference takes along, say nothing about whether words match.
    """

    def __init__(self, embedding_size: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(embedding_size, embedding_size, NGRAM)
        self.scale_K = nn.Parameter(torch.ones(len(CENTRES)))
        # A constant would move all chunks alike: no bias.
        self.bins = nn.Linear(len(CENTRES), 1, bias=False)
        nn.init.uniform_(self.bins.weight, -0.01, 0.01)

    def forward(self, words: nn.Module, inputs: EncoderInput) -> Tensor:
        """score_C in fp32."""
        with torch.autocast(inputs.input_ids_CL.device.type, enabled=False):
            query_CQE, query_CQ = self._trigrams(words, inputs, *_query_places(inputs))
            text_CTE, text_CT = self._trigrams(words, inputs, *_text_places(inputs))
            cosine_CQT = query_CQE @ text_CTE.transpose(1, 2)
            logs = []
            # Bin by bin: all at once would take eleven times the memory.
            for centre, scale in zip(CENTRES, self.scale_K, strict=True):
                kernel_CQT = torch.exp(-((cosine_CQT - centre) ** 2) / (2 * WIDTH**2))
                count_CQ = (kernel_CQT * text_CT[:, None]).sum(2)
                logs.append(((scale * count_CQ).clamp(min=LEAST).log() * query_CQ).sum(1))
            score_C: Tensor = self.bins(torch.stack(logs, dim=1)).squeeze(1)
            return score_C

    def _trigrams(
        self, words: nn.Module, inputs: EncoderInput, place_CT: Tensor, mask_CT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Unit vectors of the trigrams that begin at some places, and the mask as numbers."""
        ids_CT = inputs.input_ids_CL.gather(1, place_CT)
        mask = mask_CT.to(self.scale_K.dtype)
        x_CTE = words(ids_CT).detach().to(mask.dtype) * mask[:, :, None]
        padded_CET = functional.pad(x_CTE.transpose(1, 2), (0, NGRAM - 1))
        gram_CTE = torch.relu(self.convolution(padded_CET)).transpose(1, 2)
        return functional.normalize(gram_CTE, dim=2), mask


def selection_loss(student_BP: Tensor, teacher_BP: Tensor, mask_BP: Tensor, num: int) -> Tensor:
    """The LambdaLoss of the student's order, summed over documents: NDCG-Loss2 (Wang et al. 2018)
    where the teacher's best `num` chunks have the relevance num, .., 1 and all others 0.

    A pair (i, j) with relevance y_i > y_j costs log2(1 + exp(s_j - s_i)) times the difference of
    gains (2^y - 1) / max DCG times |1/D(d) - 1/D(d + 1)|, where d is the distance of their ranks
    in the student's order and D(d) = log2(1 + d).
    """
    places = torch.arange(1, mask_BP.shape[1] + 1, device=mask_BP.device, dtype=student_BP.dtype)
    teacher_BP = teacher_BP.masked_fill(~mask_BP, float("-inf"))
    rank_BP = teacher_BP.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    relevance_BP = (num - rank_BP).clamp(min=0) * mask_BP
    gain_BP = 2.0**relevance_BP - 1
    ideal_BP = gain_BP.sort(dim=1, descending=True).values / torch.log2(1 + places)
    gain_BP = gain_BP / ideal_BP.sum(1, keepdim=True)
    own_BP = student_BP.detach().masked_fill(~mask_BP, float("-inf"))
    own_rank_BP = own_BP.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    distance_BPP = (own_rank_BP[:, :, None] - own_rank_BP[:, None]).abs().to(student_BP.dtype)
    near, far = torch.log2(1 + distance_BPP.clamp(min=1)), torch.log2(2 + distance_BPP)
    weight_BPP = (1 / near - 1 / far) * (gain_BP[:, :, None] - gain_BP[:, None]).abs()
    difference_BPP = student_BP[:, :, None] - student_BP[:, None]
    cost_BPP = functional.softplus(-difference_BPP) / math.log(2)
    counts_BPP = (relevance_BP[:, :, None] > relevance_BP[:, None]) & mask_BP[:, None]
    return torch.where(counts_BPP, weight_BPP * cost_BPP, 0.0).sum()


def _query_places(inputs: EncoderInput) -> tuple[Tensor, Tensor]:
    """(place_CQ, mask_CQ) of the query's tokens."""
    return _places(inputs, torch.ones_like(inputs.query_length_C), inputs.query_length_C)


def _text_places(inputs: EncoderInput) -> tuple[Tensor, Tensor]:
    """(place_CT, mask_CT) of the chunk's tokens."""
    start_C = inputs.query_length_C + 2
    return _places(inputs, start_C, inputs.attention_mask_CL.sum(1) - start_C - 1)


def _places(inputs: EncoderInput, start_C: Tensor, length_C: Tensor) -> tuple[Tensor, Tensor]:
    """Places of so many tokens from a start on, as wide as the input: no wait for the longest."""
    width = inputs.input_ids_CL.shape[1]
    step_L = torch.arange(width, device=start_C.device)
    place_CL = (start_C[:, None] + step_L).clamp(max=width - 1)
    return place_CL, step_L < length_C[:, None]
