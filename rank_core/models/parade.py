"""PARADE and its relatives: the chunk vectors of a document are aggregated, then scored once (Li et
al. 2020; AvgP over [CLS] and the pretrained aggregators: Boytsov et al. 2022)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch
from rank_core.chunking.chunks import document_spans
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models import poolings
from rank_core.models.poolings import row_vectors
from rank_core.models.ranker import Ranker, pad_chunks
from rank_core.models.readers import UNMASKED, EqualChunks, check_quirks, first_rows
from rank_core.models.vector_encoders import (
    RANDOM_POSITIONS,
    Part,
    input_size,
    most_vectors,
    output_size,
    pretrained_body,
    projection,
    random_body,
    random_special,
    read_first,
)
from rank_core.settings.config import Model, TrialConfig

ELEMENTWISE = "elementwise-attention"
"""Weights over chunks for every dimension apart, softmax_p(W cls_p + b): the PARADE-Attn of the
code that the numbers of Boytsov et al. 2022 come from."""

SEQUENCE_2022 = "sequence-2022"
"""The pretrained aggregator's input in the code of 2022 (FlexNeuART's branch pypi2021), which has
no SEP: [cls_1 .. cls_n, C] of one segment, of which the first chunk's output is scored, not C's;
with the query [C, q_1 .. q_m, cls_1 .. cls_n], of which C's is."""


class Parade(Ranker):
    """The base of the variants of PARADE."""

    paper = "Li et al. 2020"
    family = "PARADE"
    options: ClassVar[tuple[str, ...]] = ("pool", "quirks")
    QUIRKS: ClassVar[tuple[str, ...]] = (UNMASKED,)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Only quirks that the variant has."""
        super().check(config, backbone)
        check_quirks(config, cls.QUIRKS)


class ParadeAvg(Parade):
    """head(mean of the chunk vectors)."""

    label = "PARADE-Avg"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Means, then scores."""
        return self.score(poolings.masked_mean(cls_BPH, mask_BP))


class ParadeMax(Parade):
    """head(element-wise maximum of the chunk vectors)."""

    label = "PARADE-Max"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Maxima per dimension, then scores."""
        return self.score(poolings.masked_max(cls_BPH, mask_BP))


class ParadeAttn(Parade):
    """head(sum_p w_p cls_p), w = softmax(C . cls_p) with one learned vector C (the paper's form;
    the element-wise one of later code is a quirk)."""

    label = "PARADE-Attn"
    QUIRKS = (UNMASKED, ELEMENTWISE)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        self.attention: nn.Parameter | nn.Linear
        if ELEMENTWISE in settings.quirks:
            self.attention = nn.Linear(hidden, hidden)
            return
        self.attention = nn.Parameter(torch.empty(hidden))
        nn.init.trunc_normal_(self.attention, std=0.02)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Attends over chunks, then scores."""
        if isinstance(self.attention, nn.Linear):
            weight = poolings.masked_softmax(self.attention(cls_BPH), mask_BP)
        else:
            weight = poolings.masked_softmax(cls_BPH @ self.attention, mask_BP)[:, :, None]
        return self.score((weight * cls_BPH).sum(1))


class AvgCls(ParadeAvg):
    """head(mean of the chunk vectors) over disjoint chunks of equal length, at most a window."""

    label = "AvgP [CLS]"
    paper = "Boytsov et al. 2022"
    family = "passage scores"
    pair_encoder = EqualChunks
    overlapping_chunks = False
    options = ("pool",)
    QUIRKS = ()


class ParadeCnn(Parade):
    """head of the last vector of a tree: x <- relu(W [x_2i; x_2i+1] + b), a filter of width and
    stride 2, level after level.

    The paper gives every document 16 chunks and each of its 4 levels a filter. Here documents have
    any number of chunks, so all levels share one filter: a level that only the longest documents
    reach would hardly be trained. Where a level has an odd number, its last vector goes up as it
    is; a document of one chunk is scored by that chunk's own vector.
    """

    label = "PARADE-CNN"
    options = ("pool",)
    QUIRKS = ()

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        # The filter as a linear layer over both vectors: the same products, whatever the device.
        self.pair = nn.Linear(2 * hidden, hidden)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Merges pairs until one vector per document is left, then scores."""
        while cls_BPH.shape[1] > 1:
            if cls_BPH.shape[1] % 2:
                cls_BPH = nn.functional.pad(cls_BPH, (0, 0, 0, 1))
                mask_BP = nn.functional.pad(mask_BP, (0, 1))
            both_BQK = torch.cat([cls_BPH[:, 0::2], cls_BPH[:, 1::2]], dim=-1)
            paired_BQ1 = mask_BP[:, 1::2, None]
            cls_BPH = torch.where(paired_BQ1, self.pair(both_BQK).relu(), cls_BPH[:, 0::2])
            mask_BP = mask_BP[:, 0::2]
        return self.score(cls_BPH[:, 0])


class ParadeTransformer(Parade):
    """A transformer with random weights over [C, SEP, cls_1 .. cls_n, SEP]; C's output is scored.

    The RAND-L2 of Boytsov et al. as meant: 2 layers, 4 heads (their later code takes as many as the
    backbone has), C and SEP start as the encoder's embeddings of [CLS] and [SEP], positions and
    segments (0, 0, 1 .. 1, 0) are embedded, absent chunks are masked, and the SEP that closes a
    document follows its own last chunk. C is written to and read from position 0.
    """

    label = "PARADE-Transformer"
    one_chunk_is_firstp = False
    NUM_LAYERS = 2
    NUM_HEADS = 4
    max_chunks = RANDOM_POSITIONS - 3  # less C and two SEP

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        self.aggregator = random_body(hidden, self.NUM_LAYERS, self.NUM_HEADS, settings.dropout)
        words = encoder.get_input_embeddings().weight  # type: ignore[operator]
        special_2H = words[[backbone.cls_id, backbone.sep_id]]
        self.special_2H = nn.Parameter(special_2H.detach().clone())

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Runs the aggregator over each document's chunk vectors and scores C's output."""
        part = Part(cls_BPH, mask_BP, segment=1)
        return self.score(read_first(self.aggregator, self.special_2H, [part]))


class ParadeTransformerL3(ParadeTransformer):
    """PARADE-Transformer with 3 layers: RAND-L3 of Boytsov et al. 2022 as meant.

    Their code attended across the documents of a batch and scored the first chunk's output; that is
    not reproduced.
    """

    label = "PARADE-Transformer-L3"
    paper = "Boytsov et al. 2022"
    NUM_LAYERS = 3


class SecondEncoder(Parade):
    """A PARADE variant whose settings may name encoders beside the backbone."""

    paper = "Boytsov et al. 2022"
    one_chunk_is_firstp = False

    def body(self, setting: str, settings: Model) -> nn.Module:
        """The encoder that a setting of `Model` names; where it names none, two layers of the
        backbone's width with random weights."""
        name = getattr(settings, setting)
        if name:
            return pretrained_body(f"model.{setting}", name, settings.dropout)
        return random_body(self.head.in_features, 2, 4, settings.dropout)

    def head_over(self, body: nn.Module) -> nn.Linear:
        """A head over a body's output, with Xavier weights."""
        head = nn.Linear(output_size(body), 1)
        nn.init.xavier_uniform_(head.weight)
        return head

    @classmethod
    def refuse_longer(cls, config: TrialConfig, setting: str, places: int, what: str) -> None:
        """Refuses sequences of more `places` than the encoder that a setting names has."""
        name = getattr(config.model, setting)
        limit = most_vectors(f"model.{setting}", name)
        if places > limit:
            raise BadInput(
                f"model.{setting}={name or '(two random layers)'} has {limit} places, and {what} "
                f"may take {places}; lower chunking.max_chunks or chunking.window, or raise "
                "chunking.stride"
            )


class ParadePretrained(SecondEncoder):
    """A pretrained encoder (`model.aggregator`) over [C, SEP, cls_1 .. cls_n, SEP].

    Chunk vectors pass a linear map where the sizes differ; C and SEP are new, N(0, 1) / sqrt(H);
    C's output is scored. The papers' aggregators are cross-encoder/ms-marco-MiniLM-L-{2,4,6}-v2.
    """

    label = "PARADE-Transformer-pretrained"
    options = ("aggregator", "pool", "quirks")
    QUIRKS = (UNMASKED, SEQUENCE_2022)
    OTHER_PLACES = 3  # C and two SEP

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.aggregator = self.body("aggregator", settings)
        self.projection = projection(self.head.in_features, input_size(self.aggregator))
        self.as_in_2022 = SEQUENCE_2022 in settings.quirks
        self.in_place = UNMASKED in settings.quirks
        self.special_2H = random_special(self.aggregator, 1 if self.as_in_2022 else 2)
        self.head = self.head_over(self.aggregator)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """The aggregator has a place for everything it is given."""
        super().check(config, backbone)
        chunking = config.chunking
        places = 1 if SEQUENCE_2022 in config.model.quirks else cls.OTHER_PLACES
        places += len(document_spans("", chunking.max_document_tokens, chunking))
        what = "the chunks of a document"
        if cls.reads_tokens:
            places, what = places + chunking.max_query_tokens, f"the query and {what}"
        cls.refuse_longer(config, "aggregator", places, what)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Runs the aggregator over each document's chunk vectors and scores C's output."""
        part = Part(self.projection(cls_BPH), mask_BP, segment=1)
        if not self.as_in_2022:
            return self.score(read_first(self.aggregator, self.special_2H, [part]))
        nothing_0H, c_1H = self.special_2H.tensor_split([0])
        c = Part(c_1H.expand(len(cls_BPH), 1, -1), mask_BP[:, :1], segment=0)
        return self.score(read_first(self.aggregator, nothing_0H, [part._replace(segment=0), c]))


class ParadeWithQuery(ParadePretrained):
    """A pretrained encoder over [C, SEP, q_1 .. q_m, SEP, cls_1 .. cls_n, SEP].

    The aggregator sees the query: q are the encoder's outputs at the query's tokens beside the
    first chunk; they pass the same linear map as the chunk vectors and have segment 0. With the
    quirk `unmasked-chunks` m is max_query_tokens, of which those after the query are masked.
    """

    label = "PARADE-Transformer-query"
    by_chunks = False
    reads_tokens = True
    OTHER_PLACES = 4  # C and three SEP

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents."""
        inputs = batch.inputs
        hidden_CLH = self.hidden(inputs)
        cls_BPH, mask_BP = pad_chunks(
            row_vectors(hidden_CLH, inputs.attention_mask_CL, self.pooling), batch.counts
        )
        firsts = first_rows(batch.counts)
        first_B = torch.tensor(firsts).to(hidden_CLH.device, non_blocking=True)
        length_B = inputs.query_length_C[first_B]
        longest = max(inputs.sizes[row].num_query for row in firsts)
        query_BQH = hidden_CLH[first_B, 1 : 1 + longest]
        mask_BQ = torch.arange(longest, device=hidden_CLH.device) < length_B[:, None]
        mask_BQ &= inputs.attention_mask_CL[first_B, 1 : 1 + longest].bool()
        return self.aggregate_with(query_BQH, mask_BQ, cls_BPH, mask_BP)

    def aggregate_with(
        self, query_BQH: Tensor, mask_BQ: Tensor, cls_BPH: Tensor, mask_BP: Tensor
    ) -> Tensor:
        """score_B from query and chunk vectors, in fp32 as all aggregation."""
        with torch.autocast(cls_BPH.device.type, enabled=False):
            exact = torch.promote_types(query_BQH.dtype, torch.float32)
            parts = [
                Part(self.projection(query_BQH.to(exact)), mask_BQ, segment=0),
                Part(self.projection(cls_BPH.to(exact)), mask_BP, segment=1),
            ]
            return self.score(
                read_first(self.aggregator, self.special_2H, parts, in_place=self.in_place)
            )
