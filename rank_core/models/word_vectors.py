"""Rankers over word vectors, without a pretrained encoder: TK, contextualised word vectors compared
by kernels (Hofstätter, Zlabinger & Hanbury 2020); TKL, TK for long documents, scored by their most
relevant regions (Hofstätter, Zamani, Mitra, Craswell & Hanbury 2020); Co-PACRR, n-gram matches,
their cascade over the document, and the context of each (Hui, Yates, Berberich & de Melo 2018);
DeepRank, which reads a document only around exact matches of query terms (Pang et al. 2017).

The papers start from GloVe; these start from the backbone's word embeddings, trained at the
backbone's learning rate, with word pieces as tokens. The rows of [CLS], [SEP] and padding are
trained but unused. A document is one row of any length: the backbone's positions are no limit.
"""

from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, linear, pad, scaled_dot_product_attention

from rank_core.chunking.batches import ChunkBatch
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.flat_rows import on
from rank_core.models.cedr import (
    MAX_QUERY,
    GaussianKernels,
    NgramFilters,
    Terms,
    at_fixed_length,
    cosines,
    pair_mask,
    strongest,
    take,
    terms_of,
)
from rank_core.models.poolings import at_least_fp32
from rank_core.models.ranker import Ranker
from rank_core.models.readers import WholeDocuments
from rank_core.settings.config import Model


class WordVectorRanker(Ranker):
    """Base class of these rankers; `encoder` is the word embedding alone."""

    family = "word vectors"
    pair_encoder = WholeDocuments
    limited_window = False
    one_chunk_is_firstp = False
    takes_flat_rows = False
    no_adapters = "has no encoder"
    first_chunk_only = True

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        # Ranker's would keep the unused encoder.
        nn.Module.__init__(self)
        table: Tensor = encoder.get_input_embeddings().weight  # type: ignore[operator]
        self.encoder = nn.Embedding.from_pretrained(table.detach().clone(), freeze=False)
        self.dropout = nn.Dropout(settings.dropout)

    @property
    def size(self) -> int:
        """The size of a word vector."""
        return self.encoder.embedding_dim  # type: ignore[return-value]

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B from the word vectors of query and document."""
        ids_CL, terms = batch.inputs.input_ids_CL, terms_of(batch)
        query_ids_BQ, text_ids_BD = take(ids_CL, terms.query_BQ), take(ids_CL, terms.text_BD)
        return self.match(query_ids_BQ, text_ids_BD, terms)

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B of query and document ids; ids at padding are arbitrary."""
        raise TypeError(f"{type(self).__name__} must define `match`")


def shares(logit: Tensor, mask: Tensor) -> Tensor:
    """Shares of the query tokens, (B, Q) or (B, Q, 1), that sum to 1."""
    # Finite, so that a query without tokens gets no NaN; its shares are unused.
    return torch.softmax(logit.masked_fill(~mask, -1e9), dim=1).masked_fill(~mask, 0.0)


TEXT_START = 500
"""Position of a document's first token; queries start at 0, so positions are not shared."""


class Contextualiser(nn.Module):
    """a x + (1 - a) transformer(x + positions), with a = 0.5 initially; shared by query and text.

    2 layers of inner size 300. The number of heads is the largest up to 10 that divides the vector
    size (10 for the paper's 300, 8 for 768).
    """

    NUM_LAYERS = 2
    MAX_HEADS = 10
    INNER_SIZE = 300

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = max(h for h in range(1, self.MAX_HEADS + 1) if size % h == 0)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, self.num_heads, self.INNER_SIZE, dropout)
            for _ in range(self.NUM_LAYERS)
        )
        self.mixing = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x_BTH: Tensor, mask_BT: Tensor, start: int) -> Tensor:
        """y_BTH in fp32 or wider; `start` is the first position. Padding is not attended to."""
        # A row without tokens attends to its padding, because a softmax over nothing is NaN; its
        # output is masked.
        seen_BT = mask_BT | ~mask_BT.any(1, keepdim=True)
        positions_TH = sinusoids(start, x_BTH.shape[1], x_BTH.shape[2], x_BTH.device)
        y_BTH = x_BTH + positions_TH.to(x_BTH.dtype)
        for layer in self.layers:
            y_BTH = layer_output(layer, y_BTH, seen_BT)  # type: ignore[arg-type]
        return self.mixing * at_least_fp32(x_BTH) + (1 - self.mixing) * at_least_fp32(y_BTH)


def layer_output(layer: nn.TransformerEncoderLayer, x_BTH: Tensor, seen_BT: Tensor) -> Tensor:
    """out_BTH of a transformer layer in which all tokens attend to those of `seen_BT`.

    In evaluation torch's own forward pass materialises the attention weights; the fused kernel
    takes a quarter of the time for 1,200 tokens on a CPU.
    """
    attention = layer.self_attn
    qkv = linear(x_BTH, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = qkv.unflatten(2, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    # Dropout only on the layer's outputs, none on attention weights.
    mixed_BNTE = scaled_dot_product_attention(query, key, value, seen_BT[:, None, None])
    mixed_BTH = attention.out_proj(mixed_BNTE.transpose(1, 2).flatten(2))
    x_BTH = layer.norm1(x_BTH + layer.dropout1(mixed_BTH))
    inner_BTI = layer.dropout(torch.relu(layer.linear1(x_BTH)))
    return layer.norm2(x_BTH + layer.dropout2(layer.linear2(inner_BTI)))


def sinusoids(start: int, length: int, size: int, device: torch.device) -> Tensor:
    """position_TH = [sin(t w_i), cos(t w_i)] for t from `start` on, with wavelengths from 2 pi to
    20,000 pi in geometric progression (Vaswani et al. 2017); an odd last dimension is 0."""
    num_waves = size // 2
    step = log(10_000) / max(1, num_waves - 1)
    frequency_W = torch.exp(-step * torch.arange(num_waves, device=device))
    angle_TW = torch.arange(start, start + length, device=device)[:, None] * frequency_W
    waves_TH = torch.cat([angle_TW.sin(), angle_TW.cos()], dim=1)
    return nn.functional.pad(waves_TH, (0, size % 2))


MU = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
SIGMA = 0.1


class KernelScorer(WordVectorRanker):
    """Contextualiser, fixed kernels and a linear layer over the kernels.

    Positions have a root mean square of 0.7, the transformer's output 1, but BERT's word vectors
    0.05 (GloVe's 0.4). They are scaled up by the factor that makes the initial table as large as
    the positions.
    """

    scale: Tensor

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        table: Tensor = self.encoder.weight  # type: ignore[assignment]
        size = table.detach().square().mean().sqrt()
        self.register_buffer("scale", sqrt(0.5) / size)
        self.context = Contextualiser(self.size, settings.dropout)
        self.kernels = GaussianKernels(MU, [SIGMA] * len(MU), trainable=False)
        self.head = nn.Linear(len(MU), 1, bias=False)
        nn.init.uniform_(self.head.weight, -0.014, 0.014)

    def in_size(self, ids_BT: Tensor) -> Tensor:
        """x_BTH: word vectors, scaled to the size of positions."""
        return self.encoder(ids_BT) * self.scale


class TK(KernelScorer):
    """score = w . sum over query tokens of log max(1e-10, soft count of each kernel).

    Omitted are the paper's second, length-normalised sum, as in the authors' later code, and that
    code's learned factor per kernel (kernel_alpha_scaler, 1 initially). Dropout acts inside the
    transformer; the authors use none.
    """

    label = "TK"
    paper = "Hofstätter et al. 2020a"
    citation = (
        "Interpretable & Time-Budget-Constrained Contextualization for Re-Ranking. ECAI 2020, "
        "arXiv:2002.01854"
    )

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B from kernel-pooled similarities of contextual vectors."""
        query_BQH = self.context(self.in_size(query_ids_BQ), terms.query_mask_BQ, 0)
        text_BDH = self.context(self.in_size(text_ids_BD), terms.text_mask_BD, TEXT_START)
        with torch.autocast(query_BQH.device.type, enabled=False):
            count_BQK = self.kernels(cosines(query_BQH, text_BDH), terms.text_mask_BD)
            # K-NRM's logarithm of soft counts: the first matches of a query token matter most.
            log_BQK = torch.log(at_least_fp32(count_BQK).clamp_min(1e-10))
            sum_BK = log_BQK.masked_fill(~terms.query_mask_BQ[:, :, None], 0.0).sum(1)
            return self.head(sum_BK).squeeze(1)


PIECE = 40  # tokens that attend to each other,
OVERLAP = 5  # and to so many on either side
WINDOW = 30  # tokens over which activations are summed
STEP = 2  # tokens between the starts of consecutive windows
NUM_PEAKS = 3
NEIGHBOURS = (0, -1, 1, -2, 2)  # windows around a peak that count, as offsets


class Windows(NamedTuple):
    """Sums over a document's sliding windows."""

    count_BQWK: Tensor
    length_BW: Tensor  # real tokens of each
    mask_BW: Tensor


class TKL(KernelScorer):
    """score = the weighted sum over the 3 best non-overlapping windows and 2 neighbours on either
    side of each; weights are learned.

    A window's score is w . sum over query tokens of s1 count^(1 / s2) - s3, where s1, s2, s3 are
    linear in the token's importance (a learned function of its vector) and the window's length.
    Unlike here, the published code normalises these two numbers together, which keeps only a sign;
    learns positions, those of the query and those within a piece; counts another window twice in
    place of a missing peak or neighbour, which counts 0 here; scores windows beyond the end of the
    text, often as peaks; and drops the last 1 to 4 tokens of texts that exceed a whole number of
    pieces by so many.
    """

    label = "TKL"
    paper = "Hofstätter et al. 2020b"
    citation = (
        "Local Self-Attention over Long Text for Efficient Document Retrieval. SIGIR 2020, "
        "arXiv:2005.04908"
    )

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.token_importance = nn.Linear(self.size, 1, bias=False)
        self.saturation = nn.Linear(2, 3)  # s1, s2, s3 = 100: count^0.01 behaves like a logarithm
        nn.init.uniform_(self.saturation.weight, -0.014, 0.014)
        nn.init.constant_(self.saturation.bias, 100.0)
        self.peak_weights = nn.Parameter(torch.ones(len(NEIGHBOURS), NUM_PEAKS))

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B, the sum over the peaks."""
        query_BQH = self.context(self.in_size(query_ids_BQ), terms.query_mask_BQ, 0)
        text_BDH = self.in_pieces(self.in_size(text_ids_BD), terms.text_mask_BD)
        with torch.autocast(query_BQH.device.type, enabled=False):
            near_BQDK = self.kernels.activations(cosines(query_BQH, text_BDH))
            windows = slide(near_BQDK, terms.text_mask_BD)
            score_BW = self.window_scores(query_BQH, terms.query_mask_BQ, windows)
            place_BNP, real_BNP = peaks(score_BW, windows.mask_BW)
            peak_BNP = score_BW.gather(1, place_BNP.flatten(1)).view(place_BNP.shape)
            return (self.peak_weights * peak_BNP.masked_fill(~real_BNP, 0.0)).sum((1, 2))

    def in_pieces(self, text_BDH: Tensor, mask_BD: Tensor) -> Tensor:
        """text_BDH contextualised piece by piece, with the same positions in every piece."""
        num_docs, length, _ = text_BDH.shape
        after = OVERLAP - length % -PIECE  # to the end of the last piece, and its overlap
        padded_BDH = pad(text_BDH, (0, 0, OVERLAP, after))
        padded_BD = pad(mask_BD, (OVERLAP, after))
        whole = PIECE + 2 * OVERLAP
        piece_NTH = padded_BDH.unfold(1, whole, PIECE).transpose(2, 3).flatten(0, 1)
        mask_NT = padded_BD.unfold(1, whole, PIECE).flatten(0, 1)
        context_NTH = self.context(piece_NTH, mask_NT, TEXT_START)[:, OVERLAP:-OVERLAP]
        return context_NTH.reshape(num_docs, -1, text_BDH.shape[2])[:, :length]

    def window_scores(self, query_BQH: Tensor, mask_BQ: Tensor, windows: Windows) -> Tensor:
        """score_BW."""
        importance_BQW = self.token_importance(query_BQH).expand(-1, -1, windows.length_BW.shape[1])
        length_BQW = windows.length_BW[:, None].expand_as(importance_BQW)
        s_BQW3 = self.saturation(torch.stack([importance_BQW, length_BQW], dim=3))
        s1, s2, s3 = s_BQW3[..., None, :].unbind(-1)
        value_BQWK = s1 * windows.count_BQWK.clamp_min(1e-10) ** (1 / s2) - s3
        sum_BWK = value_BQWK.masked_fill(~mask_BQ[:, :, None, None], 0.0).sum(1)
        return self.head(sum_BWK).squeeze(2)


def slide(near_BQDK: Tensor, mask_BD: Tensor) -> Windows:
    """Sums over windows starting every STEP tokens, up to the first that reaches the end."""
    num_docs, num_query, length, num_kernels = near_BQDK.shape
    length_B = mask_BD.sum(1)
    count_B = ((length_B - WINDOW).clamp_min(0) + STEP - 1).div(STEP, rounding_mode="floor") + 1
    num_windows = -(-max(0, length - WINDOW) // STEP) + 1
    after = (num_windows - 1) * STEP + WINDOW - length
    near = near_BQDK.masked_fill(~mask_BD[:, None, :, None], 0.0)
    rows = near.transpose(2, 3).reshape(num_docs, num_query * num_kernels, length)
    # A mean over windows times their size: torch has a kernel for it, and none for sums.
    sums = avg_pool1d(pad(rows, (0, after)), WINDOW, STEP) * WINDOW
    count_BQWK = sums.view(num_docs, num_query, num_kernels, num_windows).transpose(2, 3)
    window_W = torch.arange(num_windows, device=mask_BD.device)
    length_BW = (length_B[:, None] - window_W * STEP).clamp(0, WINDOW)
    return Windows(count_BQWK, length_BW.to(near.dtype), window_W < count_B[:, None])


def peaks(score_BW: Tensor, mask_BW: Tensor) -> tuple[Tensor, Tensor]:
    """(place_BNP, real_BNP): the best windows without overlap, each with its NEIGHBOURS; short
    documents have fewer."""
    window_W = torch.arange(score_BW.shape[1], device=score_BW.device)
    left_BW = score_BW.detach().masked_fill(~mask_BW, float("-inf"))
    places, reals = [], []
    for _ in range(NUM_PEAKS):
        best_B1 = left_BW.argmax(1, keepdim=True)
        reals.append(left_BW.gather(1, best_B1) > float("-inf"))
        places.append(best_B1)
        # Windows that share a token with a peak are no peaks of their own.
        left_BW = left_BW.masked_fill((window_W - best_B1).abs() * STEP < WINDOW, float("-inf"))
    place_B1P, real_B1P = torch.stack(places, dim=2), torch.stack(reals, dim=2)
    beside_N = on(score_BW.device, torch.tensor(NEIGHBOURS))
    place_BNP = place_B1P + beside_N[None, :, None]
    last_B11 = mask_BW.sum(1)[:, None, None] - 1
    real_BNP = real_B1P & (place_BNP >= 0) & (place_BNP <= last_B11)
    return place_BNP.clamp(0, score_BW.shape[1] - 1), real_BNP


NGRAMS = (2, 3)  # in addition to single tokens, whose similarity is used directly
NUM_FILTERS = 32
NUM_MATCHES = 2
CASCADE = (0.25, 0.5, 0.75, 1.0)  # prefixes of the document, each with its own matches
CONTEXT = 4  # tokens on either side of a match that are compared with the whole query


class CoPacrr(WordVectorRanker):
    """A network over each query token's strongest matches, the similarity of their contexts to the
    query, and the token's weight.

    Three deviations: the cascade uses fractions of each document's length, where the published code
    uses fixed positions; token weights are a softmax over a learned function of the word vector,
    there over idf values; as there, query tokens are shuffled in training, but only with dropout,
    so that `model.dropout=0` makes steps repeatable.
    """

    label = "Co-PACRR"
    in_fp32 = True
    max_query = MAX_QUERY
    paper = "Hui et al. 2018"
    citation = (
        "Co-PACRR: A Context-Aware Neural IR Model for Ad-hoc Retrieval. WSDM 2018, "
        "arXiv:1706.10192"
    )

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.filters = nn.ModuleList(NgramFilters(1, NUM_FILTERS, n) for n in NGRAMS)
        self.token_weight = nn.Linear(self.size, 1, bias=False)
        num_matches = (1 + len(NGRAMS)) * len(CASCADE) * NUM_MATCHES
        self.hidden_layers = nn.Sequential(
            nn.Linear(MAX_QUERY * (2 * num_matches + 1), 100),
            nn.ReLU(),
            nn.Linear(100, 10),
            nn.ReLU(),
        )
        self.head = nn.Linear(10, 1, bias=False)

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B of the network over the features of all query tokens."""
        query_BQH, text_BDH = self.encoder(query_ids_BQ), self.encoder(text_ids_BD)
        with torch.autocast(query_BQH.device.type, enabled=False):
            x_BQF = at_fixed_length(self.features(query_BQH, text_BDH, terms))
            if self.training and self.dropout.p > 0:
                x_BQF = x_BQF[:, torch.randperm(MAX_QUERY, device=x_BQF.device)]
            return self.score(self.hidden_layers(x_BQF.flatten(1)))

    def features(self, query_BQH: Tensor, text_BDH: Tensor, terms: Terms) -> Tensor:
        """x_BQF: per n-gram size and prefix, the strengths of the matches and the similarities of
        their contexts; then the token's weight."""
        mask_BQD = pair_mask(terms)
        cos_BQD = cosines(query_BQH, text_BDH).masked_fill(~mask_BQD, 0.0)
        around_BD = surroundings(query_BQH, text_BDH, terms)
        around_BQD = around_BD[:, None].expand_as(cos_BQD)
        length_B1 = terms.text_mask_BD.sum(1, keepdim=True)
        place_D = torch.arange(cos_BQD.shape[2], device=cos_BQD.device)
        parts = []
        for strength_BQD in (cos_BQD, *(filters(cos_BQD[:, None]) for filters in self.filters)):
            for share in CASCADE:
                seen_BD = place_D < (length_B1 * share).ceil()
                matches = strongest(strength_BQD, mask_BQD & seen_BD[:, None], NUM_MATCHES)
                near_BQk = around_BQD.gather(2, matches.place_BQk).masked_fill(
                    ~matches.real_BQk, 0.0
                )
                parts += [matches.strength_BQk, near_BQk]
        weight_BQ1 = shares(self.token_weight(query_BQH), terms.query_mask_BQ[:, :, None])
        return torch.cat([*parts, weight_BQ1], dim=2)


def surroundings(query_BQH: Tensor, text_BDH: Tensor, terms: Terms) -> Tensor:
    """cos_BD of the mean query vector and the mean vector of the tokens around each position."""
    text_mask_BD1, query_mask_BQ1 = terms.text_mask_BD[:, :, None], terms.query_mask_BQ[:, :, None]
    sum_BDH = around(text_BDH.masked_fill(~text_mask_BD1, 0.0))
    count_BD1 = around(text_mask_BD1.to(text_BDH.dtype)).clamp_min(1)
    # The sum instead of the mean: cosines do not depend on the length of a vector.
    query_B1H = query_BQH.masked_fill(~query_mask_BQ1, 0.0).sum(1, keepdim=True)
    return cosines(query_B1H, sum_BDH / count_BD1).squeeze(1)


def around(x_BDH: Tensor) -> Tensor:
    """At each position, the sum over the positions at most CONTEXT away."""
    total_BDH = pad(x_BDH, (0, 0, CONTEXT, CONTEXT)).unfold(1, 2 * CONTEXT + 1, 1)
    return total_BDH.sum(3)


SIDE = 15  # tokens read on either side of a match
MAX_MATCHES = 20  # per query token, the first ones
NUM_MAPS = 4
NUM_STATES = 3


class Places(NamedTuple):
    """The N contexts read in a batch."""

    document_N: Tensor
    token_N: Tensor  # of the query
    match_N: Tensor  # 0 for the token's first match
    center_N: Tensor  # in the document


class DeepRank(WordVectorRanker):
    """score = sum over query tokens of gate * (v . state + b).

    A context is an image of query tokens x 31 positions with three channels: a learned number per
    query and per document vector, and their cosine. A 3 x 3 convolution and the maximum of each map
    give its relevance, which together with 1 / (1 + position) is a step of a GRU over the token's
    matches, in document order. Gates are a softmax over a learned number per query vector. Terms
    are word pieces here; a token without matches has state 0.
    """

    label = "DeepRank"
    # It reads only contexts of matching tokens, which are found on the device.
    waits = ({},)
    in_fp32 = True
    paper = "Pang et al. 2017"
    citation = (
        "DeepRank: A New Deep Architecture for Relevance Ranking in Information Retrieval. CIKM "
        "2017, arXiv:1710.05649"
    )

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.reduce_query = nn.Linear(self.size, 1, bias=False)
        self.reduce_text = nn.Linear(self.size, 1, bias=False)
        self.maps = nn.Conv2d(3, NUM_MAPS, 3, padding=1)
        self.reader_of_matches = nn.GRU(NUM_MAPS + 1, NUM_STATES, batch_first=True)
        self.gate = nn.Linear(self.size, 1, bias=False)
        self.head = nn.Linear(NUM_STATES, 1)

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B: reads the contexts and sums over the query tokens."""
        query_BQH, text_BDH = self.encoder(query_ids_BQ), self.encoder(text_ids_BD)
        same_BQD = query_ids_BQ[:, :, None] == text_ids_BD[:, None, :]
        same_BQD &= terms.query_mask_BQ[:, :, None] & terms.text_mask_BD[:, None]
        with torch.autocast(query_BQH.device.type, enabled=False):
            places = first_matches(same_BQD)
            relevance_NR = self.relevance(query_BQH, text_BDH, terms, places)
            state_BQS = self.states(relevance_NR, places, same_BQD)
            gate_BQ = shares(self.gate(query_BQH).squeeze(2), terms.query_mask_BQ)
            return (gate_BQ * self.score(state_BQS)).sum(1)

    def relevance(
        self, query_BQH: Tensor, text_BDH: Tensor, terms: Terms, places: Places
    ) -> Tensor:
        """relevance_NR: the maximum of each map over a context, and the context's position."""
        length = text_BDH.shape[1]
        offset_W = torch.arange(-SIDE, SIDE + 1, device=places.center_N.device)
        place_NW = places.center_N[:, None] + offset_W
        inside_NW = (place_NW >= 0) & (place_NW < length)
        place_NW = place_NW.clamp(0, length - 1)
        document_N1 = places.document_N[:, None]
        inside_NW &= terms.text_mask_BD[document_N1, place_NW]
        real_NQW = terms.query_mask_BQ[places.document_N][:, :, None] & inside_NW[:, None]

        # Computed per document and then gathered, because contexts overlap and vectors are long.
        cos_BDQ = cosines(query_BQH, text_BDH).transpose(1, 2)
        cos_NQW = cos_BDQ[document_N1, place_NW].transpose(1, 2)
        text_NQW = self.reduce_text(text_BDH)[document_N1, place_NW].transpose(1, 2)
        query_NQW = self.reduce_query(query_BQH)[places.document_N]
        channels = (query_NQW.expand_as(cos_NQW), text_NQW.expand_as(cos_NQW), cos_NQW)
        x_N3QW = torch.stack(channels, dim=1).masked_fill(~real_NQW[:, None], 0.0)
        map_NMQW = torch.relu(self.maps(x_N3QW)).masked_fill(~real_NQW[:, None], 0.0)
        where_N1 = 1 / (1 + places.center_N[:, None].to(map_NMQW.dtype))
        return torch.cat([map_NMQW.amax((2, 3)), where_N1], dim=1)

    def states(self, relevance_NR: Tensor, places: Places, same_BQD: Tensor) -> Tensor:
        """state_BQS of the GRU after each query token's last match; 0 without matches."""
        num_docs, num_query, _ = same_BQD.shape
        steps_BQMR = relevance_NR.new_zeros(
            num_docs, num_query, MAX_MATCHES, relevance_NR.shape[1]
        ).index_put((places.document_N, places.token_N, places.match_N), relevance_NR)
        # All tokens of all documents are one batch of sequences of the same length.
        after_TMS, _ = self.reader_of_matches(steps_BQMR.flatten(0, 1))
        # Steps after a token's last match do not affect the state before them.
        count_T = same_BQD.sum(2).clamp_max(MAX_MATCHES).flatten()
        row_T = torch.arange(len(count_T), device=count_T.device)
        state_TS = after_TMS[row_T, (count_T - 1).clamp_min(0)]
        return state_TS.masked_fill(count_T[:, None] == 0, 0.0).view(num_docs, num_query, -1)


def first_matches(same_BQD: Tensor) -> Places:
    """The first MAX_MATCHES positions with the same word piece, for each query token."""
    order_BQD = same_BQD.cumsum(2) - 1
    document_N, token_N, center_N = (same_BQD & (order_BQD < MAX_MATCHES)).nonzero(as_tuple=True)
    return Places(document_N, token_N, order_BQD[document_N, token_N, center_N], center_N)
