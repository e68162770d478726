"""PARADE: chunk vectors are aggregated into a document vector, which is scored (Li et al. 2020,
section 3; AvgP over [CLS] and pretrained aggregators: Boytsov et al. 2022). With late interaction
(LATEIR, Boytsov et al. 2025) query and chunks are encoded separately, so that documents could be
encoded in advance."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch
from rank_core.chunking.chunks import document_spans
from rank_core.chunking.encoder_input import NUM_SPECIAL
from rank_core.encoders.any_kind import vector_size
from rank_core.encoders.attention import use_own_attention
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_encoder, resolve_backbone
from rank_core.encoders.flat_rows import on, rows_of_lengths
from rank_core.encoders.packed import flat_states, packs, products
from rank_core.errors import BadInput
from rank_core.models import poolings
from rank_core.models.poolings import at_least_fp32, row_vectors
from rank_core.models.ranker import Ranker, pad_chunks
from rank_core.models.readers import UNMASKED, ApartPairs, EqualChunks, first_rows
from rank_core.settings.config import Model, TrialConfig

READERS = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
)
"""Model types that accept input vectors and attend in both directions."""

RANDOM_POSITIONS = 512


class Part(NamedTuple):
    """N vectors per document (or per chunk), with padding masked."""

    x_BNH: Tensor
    mask_BN: Tensor
    segment: int
    counts: tuple[int, ...] = ()  # of the real ones, if known on the host


def random_body(hidden: int, num_layers: int, num_heads: int, dropout: float) -> nn.Module:
    """A BERT with random weights and no word embeddings."""
    config = transformers.BertConfig(
        vocab_size=1,
        hidden_size=hidden,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=RANDOM_POSITIONS,
    )
    body = transformers.BertModel(config, add_pooling_layer=False)
    use_own_attention(body, plain=False)
    return without_words(body)


def vector_reader(setting: str, name: str) -> Backbone:
    """The files of the encoder `name`; raises `BadInput` if it does not accept input vectors."""
    backbone = resolve_backbone(name)
    if backbone.kind not in READERS:
        raise BadInput(
            f"{setting} must be an encoder that accepts input vectors, one of "
            f"{', '.join(READERS)}; {name} is a {backbone.kind}"
        )
    return backbone


def without_words(body: nn.Module) -> nn.Module:
    """`body` without its word embeddings, which would be unused."""
    body.set_input_embeddings(nn.Identity())  # type: ignore[operator]
    return body


def input_size(body: nn.Module) -> int:
    """The size of a body's input vectors, which may be smaller than its hidden size."""
    config: Any = body.config
    return int(getattr(config, "embedding_size", vector_size(config)))


def output_size(body: nn.Module) -> int:
    """The size of a body's output vectors."""
    return vector_size(body.config)


def random_special(body: nn.Module, number: int = 2) -> nn.Parameter:
    """C and SEP (2, H), or C alone (1, H), drawn from N(0, 1) / sqrt(H)."""
    size = input_size(body)
    return nn.Parameter(torch.randn(number, size) / size**0.5)


def projection(from_size: int, to_size: int) -> nn.Module:
    """A linear map with Xavier weights, or the identity for equal sizes."""
    if from_size == to_size:
        return nn.Identity()
    linear = nn.Linear(from_size, to_size)
    nn.init.xavier_uniform_(linear.weight)
    return linear


def read_first(
    body: nn.Module, special_SH: Tensor, parts: Sequence[Part], *, in_place: bool = False
) -> Tensor:
    """out_BH: the output at C, the first position, over [C, SEP, part, SEP, ..., part, SEP].
    `special_SH` is C and SEP, C alone, or empty.

    Padding is moved to the end, so that positions do not depend on the batch; with `in_place` it
    stays where it is and is masked.
    """
    x_BTH, mask_BT, segment_BT = pack(special_SH, parts, in_place=in_place)
    config: Any = body.config
    segments = getattr(config, "type_vocab_size", 0) > 1
    if not in_place and all(part.counts for part in parts) and packs(body, products(x_BTH.device)):
        seps = max(0, len(special_SH) - 1)
        special = len(special_SH) + seps * len(parts)
        lengths = [special + sum(counts) for counts in zip(*(p.counts for p in parts), strict=True)]
        flat = on(x_BTH.device, rows_of_lengths(lengths, x_BTH.shape[1]))
        own = segment_BT if segments else None
        [first_B1H] = flat_states(body, x_BTH, flat, segments=own, cls_alone=True)
        return first_B1H[:, 0]
    extra = {"token_type_ids": segment_BT} if segments else {}
    output = body(inputs_embeds=x_BTH, attention_mask=mask_BT.long(), **extra)
    return output.last_hidden_state[:, 0]


def pack(
    special_SH: Tensor, parts: Sequence[Part], *, in_place: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(x_BTH, mask_BT, segment_BT) of the sequence, with padding at the end or `in_place`. C and
    all SEP have segment 0."""
    num_rows = len(parts[0].x_BNH)
    c, sep = (
        Part(special.expand(num_rows, -1, -1), parts[0].mask_BN.new_ones(num_rows, len(special)), 0)
        for special in special_SH.to(parts[0].x_BNH.dtype).tensor_split([1])
    )
    pieces = [c, sep]
    for part in parts:
        pieces += [part, sep]
    x_BTH = torch.cat([piece.x_BNH for piece in pieces], dim=1)
    mask_BT = torch.cat([piece.mask_BN for piece in pieces], dim=1)
    segment_BT = torch.cat([piece.mask_BN.long() * piece.segment for piece in pieces], dim=1)
    if in_place:
        return x_BTH, mask_BT, segment_BT
    # Real positions sort before padded ones and, as the sort is stable, keep their order.
    order_BT = (~mask_BT).byte().argsort(dim=1, stable=True)
    x_BTH = x_BTH.gather(1, order_BT[:, :, None].expand_as(x_BTH))
    return x_BTH, mask_BT.gather(1, order_BT), segment_BT.gather(1, order_BT)


ELEMENTWISE = "elementwise-attention"
"""Attention weights per dimension, softmax_p(W cls_p + b), as in the code behind the PARADE-Attn
numbers of Boytsov et al. 2022."""

SEQUENCE_2022 = "sequence-2022"
"""The pretrained aggregator's input in FlexNeuART's branch pypi2021, without SEP: [cls_1 .. cls_n,
C] in one segment, scored at the first chunk instead of C; with the query [C, q_1 .. q_m, cls_1 ..
cls_n], scored at C."""


class Parade(Ranker):
    """Base class of the variants of PARADE."""

    paper = "Li et al. 2020"
    citation = "PARADE: Passage Representation Aggregation for Document Reranking. arXiv:2008.09093"
    family = "PARADE"
    options: ClassVar[tuple[str, ...]] = ("pool", "quirks")
    QUIRKS: ClassVar[tuple[str, ...]] = (UNMASKED,)


class ParadeAvg(Parade):
    """score = head(mean of the chunk vectors)."""

    label = "PARADE-Avg"
    rates = ("backbone", "head")

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B of the mean vectors."""
        return self.score(poolings.masked_mean(cls_BPH, mask_BP))


class ParadeMax(Parade):
    """score = head(element-wise maximum of the chunk vectors) (Li et al. 2020)."""

    label = "PARADE-Max"
    rates = ("backbone", "head")

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B of the maxima."""
        return self.score(poolings.masked_max(cls_BPH, mask_BP))


class ParadeAttn(Parade):
    """score = head(sum_p w_p cls_p) with w = softmax(C . cls_p) and a learned vector C (Li et al.
    2020; later code's weights per dimension are a quirk)."""

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
        """score_B of the attention-weighted sum."""
        if isinstance(self.attention, nn.Linear):
            weight = poolings.masked_softmax(self.attention(cls_BPH), mask_BP)
        else:
            weight = poolings.masked_softmax(cls_BPH @ self.attention, mask_BP)[:, :, None]
        return self.score((weight * cls_BPH).sum(1))


class AvgCls(ParadeAvg):
    """score = head(mean of the chunk vectors) over disjoint chunks of equal length (Boytsov et al.
    2022)."""

    label = "AvgP [CLS]"
    paper = "Boytsov et al. 2022"
    family = "passage scores"
    pair_encoder = EqualChunks
    overlapping_chunks = False
    options = ("pool",)
    QUIRKS = ()


class ParadeCnn(Parade):
    """score = head(x), where x is the root of a binary tree over the chunk vectors with levels
    x <- relu(W [x_2i; x_2i+1] + b), a convolution of width and stride 2 (Li et al. 2020).

    The paper has 16 chunks and a filter for each of 4 levels. Here the number of chunks varies, so
    all levels share one filter: levels that only the longest documents reach would hardly be
    trained. The last vector of an odd level is passed up unchanged; a document of one chunk is
    scored by that chunk's vector.
    """

    label = "PARADE-CNN"
    options = ("pool",)
    QUIRKS = ()

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        # The convolution as a linear layer: the same products on every device.
        self.pair = nn.Linear(2 * hidden, hidden)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B after merging pairs down to one vector per document."""
        while cls_BPH.shape[1] > 1:
            if cls_BPH.shape[1] % 2:
                cls_BPH = nn.functional.pad(cls_BPH, (0, 0, 0, 1))
                mask_BP = nn.functional.pad(mask_BP, (0, 1))
            both_BQK = torch.cat([cls_BPH[:, 0::2], cls_BPH[:, 1::2]], dim=-1)
            paired_BQ1 = mask_BP[:, 1::2, None]
            # Per document, and not per batch: a vector without a partner goes up as it is, however
            # long the others are.
            cls_BPH = torch.where(paired_BQ1, self.pair(both_BQK).relu(), cls_BPH[:, 0::2])
            mask_BP = mask_BP[:, 0::2]
        return self.score(cls_BPH[:, 0])


class ParadeTransformer(Parade):
    """score = head(output at C) of a random transformer over [C, SEP, cls_1 .. cls_n, SEP] (Li et
    al. 2020).

    This is RAND-L2 of Boytsov et al. 2025 as intended: 2 layers, 4 heads (their code has the
    backbone's number), C and SEP initialised as the embeddings of [CLS] and [SEP], embedded
    positions and segments (0, 0, 1 .. 1, 0), padding masked. The last SEP follows a document's own
    last chunk. C is at position 0.
    """

    label = "PARADE-Transformer"
    one_chunk_is_firstp = False
    NUM_LAYERS = 2
    NUM_HEADS = 4
    max_chunks = RANDOM_POSITIONS - 3  # without C and two SEP

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        self.aggregator = random_body(hidden, self.NUM_LAYERS, self.NUM_HEADS, settings.dropout)
        # The aggregator has no word embeddings: its C and SEP begin where the backbone's are.
        words = encoder.get_input_embeddings().weight  # type: ignore[operator]
        special_2H = words[[backbone.cls_id, backbone.sep_id]]
        self.special_2H = nn.Parameter(special_2H.detach().clone())

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the aggregator's output at C."""
        part = Part(cls_BPH, mask_BP, segment=1)
        return self.score(read_first(self.aggregator, self.special_2H, [part]))


class ParadeTransformerL3(ParadeTransformer):
    """PARADE-Transformer with 3 layers: RAND-L3 of Boytsov et al. 2022 as intended.

    Not reproduced: their code attended across the documents of a batch and scored the output of the
    first chunk.
    """

    label = "PARADE-Transformer-L3"
    paper = "Boytsov et al. 2022"
    NUM_LAYERS = 3


class SecondEncoder(Parade):
    """Base class of variants with further encoders besides the backbone."""

    paper = "Boytsov et al. 2022"
    one_chunk_is_firstp = False

    def body(self, setting: str, settings: Model) -> nn.Module:
        """The encoder that a setting of `Model` names; by default two random layers of the
        backbone's width."""
        name = getattr(settings, setting)
        if name:
            backbone = vector_reader(f"model.{setting}", name)
            return without_words(load_encoder(backbone, settings.dropout))
        return random_body(self.head.in_features, 2, 4, settings.dropout)

    def head_over(self, body: nn.Module) -> nn.Linear:
        """A head over a body's output, with Xavier weights."""
        head = nn.Linear(output_size(body), 1)
        nn.init.xavier_uniform_(head.weight)
        return head

    @classmethod
    def refuse_longer(cls, config: TrialConfig, setting: str, places: int, what: str) -> None:
        """Raises `BadInput` if sequences of `places` exceed the positions of a setting's
        encoder."""
        name = getattr(config.model, setting)
        limit = RANDOM_POSITIONS
        if name:
            limit = vector_reader(f"model.{setting}", name).max_input_tokens
        if places > limit:
            raise BadInput(
                f"model.{setting}={name or '(two random layers)'} has {limit} positions, but {what}"
                f" may need {places}; lower chunking.max_chunks or chunking.window, or raise "
                "chunking.stride"
            )


class ParadePretrained(SecondEncoder):
    """score = head(output at C) of a pretrained encoder (`model.aggregator`) over [C, SEP, cls_1 ..
    cls_n, SEP] (Boytsov et al. 2022).

    A linear map adapts chunk vectors of another size; C and SEP are drawn from N(0, 1) / sqrt(H).
    The papers' aggregators are cross-encoder/ms-marco-MiniLM-L-{2,4,6}-v2.
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
        """Rejects inputs that do not fit the aggregator's positions."""
        super().check(config, backbone)
        chunking = config.chunking
        places = 1 if SEQUENCE_2022 in config.model.quirks else cls.OTHER_PLACES
        places += len(document_spans("", chunking.max_document_tokens, chunking))
        what = "the chunks of a document"
        if cls.reads_tokens:
            places, what = places + chunking.max_query_tokens, f"the query and {what}"
        cls.refuse_longer(config, "aggregator", places, what)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the aggregator's output at C."""
        part = Part(self.projection(cls_BPH), mask_BP, segment=1)
        if not self.as_in_2022:
            return self.score(read_first(self.aggregator, self.special_2H, [part]))
        nothing_0H, c_1H = self.special_2H.tensor_split([0])
        c = Part(c_1H.expand(len(cls_BPH), 1, -1), mask_BP[:, :1], segment=0)
        return self.score(read_first(self.aggregator, nothing_0H, [part._replace(segment=0), c]))


class ParadeWithQuery(ParadePretrained):
    """score = head(output at C) of a pretrained encoder over [C, SEP, q_1 .. q_m, SEP, cls_1 ..
    cls_n, SEP] (Boytsov et al. 2022).

    q are the backbone's outputs at the query tokens of the first chunk; they share the chunk
    vectors' linear map and have segment 0. With the quirk `unmasked-chunks`, m is max_query_tokens
    and positions after the query are masked.
    """

    label = "PARADE-Transformer-query"
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
        first_B = on(hidden_CLH.device, torch.tensor(firsts))
        length_B = inputs.query_length_C[first_B]
        longest = max(inputs.sizes[row].num_query for row in firsts)
        query_BQH = hidden_CLH[first_B, 1 : 1 + longest]
        mask_BQ = torch.arange(longest, device=hidden_CLH.device) < length_B[:, None]
        mask_BQ &= inputs.attention_mask_CL[first_B, 1 : 1 + longest].bool()
        # The aggregator is small, and scores of close documents differ in digits that 16 bits do
        # not have.
        with torch.autocast(cls_BPH.device.type, enabled=False):
            parts = [
                Part(self.projection(at_least_fp32(query_BQH)), mask_BQ, segment=0),
                Part(self.projection(at_least_fp32(cls_BPH)), mask_BP, segment=1),
            ]
            return self.score(
                read_first(self.aggregator, self.special_2H, parts, in_place=self.in_place)
            )


class LateInteraction(SecondEncoder):
    """An interaction encoder (`model.interaction`) over [C, SEP, query, SEP, chunk, SEP] gives a
    vector per chunk; an aggregator (`model.aggregator`) over [C, SEP, vectors, SEP] gives the
    score.

    Query and chunk are the backbone's outputs over their rows, including [CLS] and both [SEP], as
    in FlexNeuART. A linear map adapts sizes that differ, at both encoders. The whole interaction
    input has segment 0. The paper uses MiniLM-L-2 for the interaction and MiniLM-L-6 for the
    aggregator.
    """

    label = "PARADE-LateInteraction"
    paper = "Boytsov et al. 2025"
    citation = (
        "Positional Bias in Long-Document Ranking: Impact, Assessment, and Mitigation. IJCNLP-"
        "AACL 2025, arXiv:2207.01262v4"
    )
    pair_encoder = ApartPairs
    reads_tokens = True
    options = ("aggregator", "interaction", "quirks")

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.in_place = UNMASKED in settings.quirks
        self.interaction = self.body("interaction", settings)
        self.aggregator = self.body("aggregator", settings)
        self.token_projection = projection(self.head.in_features, input_size(self.interaction))
        self.interaction_special_2H = random_special(self.interaction)
        self.chunk_projection = projection(
            output_size(self.interaction), input_size(self.aggregator)
        )
        self.special_2H = random_special(self.aggregator)
        self.head = self.head_over(self.aggregator)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects inputs that do not fit the positions of either encoder."""
        super().check(config, backbone)
        chunking = config.chunking
        places = 4 + 2 * NUM_SPECIAL + chunking.max_query_tokens + chunking.window
        cls.refuse_longer(config, "interaction", places, "query and chunk")
        places = 3 + len(document_spans("", chunking.max_document_tokens, chunking))
        cls.refuse_longer(config, "aggregator", places, "the chunks of a document")

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of documents, each a query row followed by chunk rows."""
        x_CLH = self.token_projection(self.hidden(batch.inputs))
        mask_CL = batch.inputs.attention_mask_CL.bool()
        firsts = first_rows(batch.counts)
        # The query's row is repeated for each of the document's chunks.
        query_of = [row for row, n in zip(firsts, batch.counts, strict=True) for _ in range(n - 1)]
        chunks = sorted(set(range(len(x_CLH))) - set(firsts))
        parts = []
        for rows in (query_of, chunks):
            row_C = on(x_CLH.device, torch.tensor(rows))
            counts = tuple(len(batch.inputs.sizes[row]) for row in rows)
            width = max(counts)
            parts.append(Part(x_CLH[row_C, :width], mask_CL[row_C, :width], 0, counts))
        x_CH = read_first(
            self.interaction, self.interaction_special_2H, parts, in_place=self.in_place
        )
        return self.aggregate(*pad_chunks(x_CH, [n - 1 for n in batch.counts]))

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the interaction's vectors, in fp32."""
        with torch.autocast(x_BPH.device.type, enabled=False):
            part = Part(self.chunk_projection(at_least_fp32(x_BPH)), mask_BP, segment=1)
            return self.score(read_first(self.aggregator, self.special_2H, [part]))
