"""IDCM: the sum of a document's best passage scores, for passages selected by a small model before
BERT reads them (Hofstätter, Mitra, Zamani, Craswell & Hanbury 2021).

Training has three stages, each starting from the weights of the last: `passages` (the maximum over
chunks), `document` (a weighted sum of the best three), `student` (BERT is frozen and teaches the
small model to rank chunks; only the student's choice is read afterwards).
"""

import itertools
import math
from collections.abc import Sequence

import torch
from numpy import int32
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rank_core.chunking.batches import Chunk, ChunkBatch, PairEncoder
from rank_core.chunking.chunks import Span
from rank_core.chunking.encoder_input import EncoderInput, SelectedRows
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput, unknown
from rank_core.models import poolings
from rank_core.models.poolings import at_least_fp32
from rank_core.models.ranker import Ranker, pad_chunks
from rank_core.models.ranking_system import BlocksRead
from rank_core.settings.config import Model, TrialConfig

CENTRES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
WIDTH = 0.1
NGRAM = 3
LEAST = 1e-4  # lower bound inside the logarithm


class ConvolutionalKernels(nn.Module):
    """score_C of chunks: kernel-pooled cosines of contextual trigrams of query and chunk, in 11
    bins, with logarithms summed over the query and weighted (the student, after K-NRM).

    It reads the encoder's word embeddings without a gradient.
    """

    def __init__(self, embedding_size: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(embedding_size, embedding_size, NGRAM)
        self.scale_K = nn.Parameter(torch.ones(len(CENTRES)))
        # No bias: it would shift all chunks alike.
        self.bins = nn.Linear(len(CENTRES), 1, bias=False)
        nn.init.uniform_(self.bins.weight, -0.01, 0.01)

    def forward(self, words: nn.Module, inputs: EncoderInput) -> Tensor:
        """score_C in fp32."""
        with torch.autocast(inputs.device.type, enabled=False):
            length_C = inputs.query_length_C
            start_C, end_C = length_C + 2, inputs.attention_mask_CL.sum(1) - 1
            query_CQE, query_CQ = self._trigrams(
                words, inputs, *_places(inputs, torch.ones_like(length_C), length_C)
            )
            text_CTE, text_CT = self._trigrams(
                words, inputs, *_places(inputs, start_C, end_C - start_C)
            )
            cosine_CQT = query_CQE @ text_CTE.transpose(1, 2)
            logs = []
            # Bin by bin, for a memory eleven times smaller.
            for centre, scale in zip(CENTRES, self.scale_K, strict=True):
                kernel_CQT = torch.exp(-((cosine_CQT - centre) ** 2) / (2 * WIDTH**2))
                count_CQ = (kernel_CQT * text_CT[:, None]).sum(2)
                logs.append(((scale * count_CQ).clamp(min=LEAST).log() * query_CQ).sum(1))
            return self.bins(torch.stack(logs, dim=1)).squeeze(1)

    def _trigrams(
        self, words: nn.Module, inputs: EncoderInput, place_CT: Tensor, mask_CT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Unit vectors of the trigrams starting at some positions, and the mask as numbers."""
        ids_CT = inputs.input_ids_CL.gather(1, place_CT)
        mask = mask_CT.to(self.scale_K.dtype)
        x_CTE = words(ids_CT).detach().to(mask.dtype) * mask[:, :, None]
        padded_CET = functional.pad(x_CTE.transpose(1, 2), (0, NGRAM - 1))
        gram_CTE = torch.relu(self.convolution(padded_CET)).transpose(1, 2)
        return functional.normalize(gram_CTE, dim=2), mask


def selection_loss(student_BP: Tensor, teacher_BP: Tensor, mask_BP: Tensor, num: int) -> Tensor:
    """LambdaLoss of the student's order, summed over documents: NDCG-Loss2 (Wang et al. 2018),
    where the teacher's best `num` chunks have relevance num, .., 1 and all others 0.

    A pair (i, j) with relevance y_i > y_j costs log2(1 + exp(s_j - s_i)) times the difference of
    gains (2^y - 1) / max DCG times |1/D(d) - 1/D(d + 1)|, where d is the distance of their ranks
    in the student's order and D(d) = log2(1 + d).
    """
    places = torch.arange(1, mask_BP.shape[1] + 1, device=mask_BP.device, dtype=student_BP.dtype)
    # Padding ranks last, where its relevance is 0.
    teacher_BP = teacher_BP.masked_fill(~mask_BP, float("-inf"))
    rank_BP = teacher_BP.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    relevance_BP = (num - rank_BP).clamp(min=0) * mask_BP
    gain_BP = 2.0**relevance_BP - 1
    ideal_BP = gain_BP.sort(dim=1, descending=True).values / torch.log2(1 + places)
    gain_BP = gain_BP / ideal_BP.sum(1, keepdim=True)
    own_BP = student_BP.detach().masked_fill(~mask_BP, float("-inf"))
    own_rank_BP = own_BP.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    distance_BPP = (own_rank_BP[:, :, None] - own_rank_BP[:, None]).abs().to(student_BP.dtype)
    # A chunk and itself: the gains are equal, so that the weight is 0 whatever the discount.
    near, far = torch.log2(1 + distance_BPP.clamp(min=1)), torch.log2(2 + distance_BPP)
    weight_BPP = (1 / near - 1 / far) * (gain_BP[:, :, None] - gain_BP[:, None]).abs()
    difference_BPP = student_BP[:, :, None] - student_BP[:, None]
    cost_BPP = functional.softplus(-difference_BPP) / math.log(2)
    counts_BPP = (relevance_BP[:, :, None] > relevance_BP[:, None]) & mask_BP[:, None]
    return torch.where(counts_BPP, weight_BPP * cost_BPP, 0.0).sum()


def _places(inputs: EncoderInput, start_C: Tensor, length_C: Tensor) -> tuple[Tensor, Tensor]:
    """(place_CL, mask_CL) of tokens from a start on, as wide as the input: finding the longest
    would block on the GPU."""
    width = inputs.width
    step_L = torch.arange(width, device=start_C.device)
    place_CL = (start_C[:, None] + step_L).clamp(max=width - 1)
    return place_CL, step_L < length_C[:, None]


STAGES = ("passages", "document", "student")
BEST = 3  # chunk scores in a document's score


def overlapping_spans(num_tokens: int, window: int, stride: int) -> list[Span]:
    """Consecutive cores of `stride` tokens, each extended on both sides to `window` tokens (the
    paper's 50 + 2 * 7 are window 64, stride 50)."""
    before = (window - stride) // 2
    starts = range(0, max(1, num_tokens), stride)
    return [Span(max(0, s - before), min(num_tokens, s - before + window)) for s in starts]


class OverlappingChunks(PairEncoder):
    """Documents as extended cores, in rows [CLS] query [SEP] chunk [SEP]."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """A chunk per core; `max_chunks` keeps the first ones."""
        cut = self.chunking
        document = self.document(doc_id)
        spans = overlapping_spans(len(document), cut.window, cut.stride)
        return [Chunk(query, document[s:e]) for s, e in spans[: cut.max_chunks or None]]


class Idcm(Ranker):
    """score = sum_k w_k s_(k) over the k-th best chunk scores; missing chunks add nothing.

    In the stage `student`, `forward` in training mode adds the student's loss to `extra_loss`,
    which the training loop adds to its loss and resets; the score has no gradient there. In
    evaluation BERT reads the student's choice only.

    Unlike here, the published code has no [SEP] after a chunk, counts the document's last [SEP] as
    a token (in its own chunk if the cores are full), and masks padding before the first core, which
    shifts its tokens' positions. Its student (CK) adds positions, segments and their LayerNorm to
    the word embeddings and counts the query's [CLS] and [SEP] as words.
    """

    label = "IDCM"
    paper = "Hofstätter et al. 2021"
    citation = (
        "Intra-Document Cascading: Learning to Select Passages for Neural Document Ranking. SIGIR"
        " 2021, arXiv:2105.09816"
    )
    family = "key blocks"
    pair_encoder = OverlappingChunks
    unread = ("chunking.overflow",)
    one_chunk_is_firstp = False
    options = ("pool", "k", "stage")
    no_adapters = "is trained in stages"
    DEFAULT_K = 3  # chunks of a document that the student selects

    @classmethod
    def rates_read(cls, settings: Model) -> tuple[str, ...]:
        """Its stage decides: weights of the best chunks are learned after `passages`, and those of
        the student alone at last."""
        stages = {"passages": ("backbone", "head"), "student": ("aggregator",)}
        return stages.get(stage_of(settings), cls.rates)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.stage = stage_of(settings)
        self.num_chosen = settings.k or self.DEFAULT_K
        self.extra_loss: Tensor | None = None
        if self.stage != "passages":
            self.weight_K = nn.Parameter(torch.ones(BEST))
        if self.stage == "student":
            self.requires_grad_(False)
            words = encoder.get_input_embeddings()  # type: ignore[operator]
            self.student = ConvolutionalKernels(words.weight.shape[1])

    @classmethod
    def selects_blocks(cls, settings: Model) -> bool:
        """The trained student does."""
        return stage_of(settings) == "student"

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects unknown stages and settings without effect."""
        stage_of(config.model)

    def train(self, mode: bool = True) -> "Idcm":
        """Sets training mode; the teacher stays in evaluation mode."""
        super().train(mode)
        if self.stage == "student":
            self.encoder.eval()
            self.dropout.eval()
        return self

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B."""
        if self.stage == "student":
            if self.training:
                loss, score_B = self._student_loss(batch)
                self.extra_loss = loss if self.extra_loss is None else self.extra_loss + loss
                return score_B
            batch = self.chosen(batch)
        return self.of_chunks(*pad_chunks(self.chunk_scores(batch.inputs), batch.counts))

    def chunk_scores(self, inputs: EncoderInput) -> Tensor:
        """score_C of chunks by BERT, with the head in fp32 or wider."""
        x_CH = self.encode(inputs)
        with torch.autocast(x_CH.device.type, enabled=False):
            return self.score(at_least_fp32(x_CH))

    def of_chunks(self, score_BP: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from chunk scores; missing chunks are masked."""
        if self.stage == "passages":
            return poolings.masked_max(score_BP, mask_BP)
        best_BK, _ = poolings.masked_top(score_BP, mask_BP, BEST)
        with torch.autocast(score_BP.device.type, enabled=False):
            return (best_BK * self.weight_K[: best_BK.shape[1]].to(best_BK.dtype)).sum(1)

    def choose(self, batch: ChunkBatch) -> list[Tensor]:
        """The numbers of the chunks of each document that the student selects for BERT, in document
        order."""
        with torch.no_grad():
            student_BP, mask_BP = self.student_scores(batch)
        number = min(self.num_chosen, student_BP.shape[1])
        best = student_BP.masked_fill(~mask_BP, float("-inf")).topk(number, dim=1)
        return [
            index_K[: min(number, count)].sort().values
            for index_K, count in zip(best.indices, batch.counts, strict=True)
        ]

    def blocks_read(
        self, pairs: PairEncoder, query: NDArray[int32], doc_ids: Sequence[str]
    ) -> list[BlocksRead]:
        """The chunks that BERT reads of each document."""
        documents = [pairs.chunks(query, doc_id) for doc_id in doc_ids]
        chosen = self.choose(pairs.collate(documents, self.device).to(self.device))
        return [
            BlocksRead(tuple(index_K.tolist()), len(document))
            for index_K, document in zip(chosen, documents, strict=True)
        ]

    def chosen(self, batch: ChunkBatch) -> ChunkBatch:
        """The chunks of a batch that the student selects for BERT, in document order."""
        indices = self.choose(batch)
        counts = [len(index_K) for index_K in indices]
        ends = itertools.accumulate(batch.counts)
        row_C = torch.cat([
            index_K + (end - own)
            for index_K, end, own in zip(indices, ends, batch.counts, strict=True)
        ])  # fmt: skip
        given, segments_CL = batch.inputs, batch.inputs.token_type_ids_CL
        inputs = SelectedRows(
            given.input_ids_CL[row_C],
            given.attention_mask_CL[row_C],
            None if segments_CL is None else segments_CL[row_C],
            given.query_length_C[row_C],
        )
        return ChunkBatch(inputs, tuple(counts))

    def student_scores(self, batch: ChunkBatch) -> tuple[Tensor, Tensor]:
        """(score_BP, mask_BP) of the student."""
        words = self.encoder.get_input_embeddings()  # type: ignore[operator]
        return pad_chunks(self.student(words, batch.inputs), batch.counts)

    def _student_loss(self, batch: ChunkBatch) -> tuple[Tensor, Tensor]:
        """(the loss of the student's order of chunks against BERT's, summed over documents;
        score_B of all chunks)."""
        with torch.no_grad():
            teacher_BP, mask_BP = pad_chunks(self.chunk_scores(batch.inputs), batch.counts)
            score_B = self.of_chunks(teacher_BP, mask_BP)
        student_BP, _ = self.student_scores(batch)
        loss = selection_loss(student_BP, teacher_BP.to(student_BP.dtype), mask_BP, self.num_chosen)
        return loss, score_B


def stage_of(settings: Model) -> str:
    """The stage of the settings, `document` by default. Raises `BadInput` for unknown stages and
    settings without effect."""
    stage = settings.stage or "document"
    if stage not in STAGES:
        raise unknown("model.stage", stage, STAGES)
    if settings.k and stage != "student":
        raise BadInput(
            f"model.k has no effect with model.stage={stage}, got {settings.k}; it is the number "
            "of chunks that the student selects"
        )
    if settings.k < 0:
        raise BadInput(f"model.k > 0 must hold, got model.k={settings.k}")
    return stage
