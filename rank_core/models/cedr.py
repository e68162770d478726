"""CEDR: an encoder's [CLS] vector together with a matching model's features of the similarities in
all hidden states (MacAvaney et al. 2019; over disjoint chunks as in Boytsov et al. 2022).

Query vectors come from a document's first chunk, text vectors from all chunks in order; the [CLS]
vector is the mean over chunks. Padding is masked exactly, unlike in published code: CEDR's gives
padded positions similarity 0, which two kernels count as a match, and takes a query token without
any similarity for padding; FlexNeuART's tests for -1 but pads with token 1, so that padding is
compared like text.

Neural Model 1: the likelihood that the document's tokens translate into the query's (IBM Model 1
over contextual vectors, after Boytsov & Kolter 2021). It is a reconstruction, because the published
text does not define the parametrisation. The score is sum_q log(epsilon + mean_d T(q | d)); T (the
sigmoid of a small network over [e_q; e_d; e_q * e_d]), its sizes and epsilon were chosen here.
There is no interpolation with a collection model, and [CLS] is not used; chunks are disjoint as in
CEDR. FlexNeuART, the authors' code, leaves the model out: it "may be subject to a third party
patent". Ask before you use it in a product.

Shapes: B documents, C rows of the encoder, L tokens of a row, Q query tokens, D tokens of a whole
document, H vector size.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from rank_core.chunking.batches import ChunkBatch
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.flat_rows import on
from rank_core.models.poolings import at_least_fp32, masked_mean, row_vectors
from rank_core.models.ranker import Ranker, layer_states, pad_chunks
from rank_core.models.readers import EqualChunks, first_rows
from rank_core.settings.config import Model


class Terms(NamedTuple):
    """Positions of the query (in a document's first row) and of the document (in all its rows).

    A position is row * L + column. Padding has position 0 and a false mask; Q and D are at least 1,
    so that no axis is empty.
    """

    query_BQ: Tensor
    query_mask_BQ: Tensor
    text_BD: Tensor
    text_mask_BD: Tensor


def terms_of(batch: ChunkBatch) -> Terms:
    """The positions of the tokens of a batch of documents."""
    sizes, width = batch.inputs.sizes, batch.inputs.width
    queries, texts = [], []
    for first, count in zip(first_rows(batch.counts), batch.counts, strict=True):
        queries.append(first * width + 1 + np.arange(sizes[first].num_query))
        # A document's rows are adjacent, so positions in order are its tokens in order.
        own = range(first, first + count)
        starts = [row * width + 2 + sizes[row].num_query for row in own]
        places = [at + np.arange(sizes[row].num_text) for at, row in zip(starts, own, strict=True)]
        texts.append(np.concatenate(places))
    device = batch.inputs.device
    return Terms(*_places(queries, device), *_places(texts, device))


def _places(places: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(place_BT, mask_BT) of lists of positions, on a device."""
    place_BT = np.zeros((len(places), max(1, *map(len, places))), dtype=np.int64)
    mask_BT = np.zeros(place_BT.shape, dtype=bool)
    for row, own in enumerate(places):
        place_BT[row, : len(own)] = own
        mask_BT[row, : len(own)] = True
    return on(device, torch.from_numpy(place_BT)), on(device, torch.from_numpy(mask_BT))


def take(x_CL: Tensor, place_BT: Tensor) -> Tensor:
    """x_BT (or x_BTH of an x_CLH): the values at positions of a batch."""
    return x_CL.flatten(0, 1)[place_BT]


def cosines(query_BQH: Tensor, text_BDH: Tensor) -> Tensor:
    """cos_BQD, in fp32 also under autocast. 1e-9 is added to each norm, as in CEDR: a zero vector
    has similarity 0."""
    with torch.autocast(query_BQH.device.type, enabled=False):
        query, text = (at_least_fp32(x) for x in (query_BQH, text_BDH))
        query = query / (query.norm(dim=-1, keepdim=True) + 1e-9)
        text = text / (text.norm(dim=-1, keepdim=True) + 1e-9)
        return query @ text.transpose(1, 2)


def pair_mask(terms: Terms) -> Tensor:
    """mask_BQD, true for a real query token and a real document token."""
    return terms.query_mask_BQ[:, :, None] & terms.text_mask_BD[:, None, :]


SMALLEST_VARIANCE = 1e-8
"""A trained width may shrink to 0, where the kernel has no derivative."""


class GaussianKernels(nn.Module):
    """exp(-(x - mu_k)^2 / (2 sigma_k^2)) for kernels k = 1..K (K-NRM, Xiong et al. 2017)."""

    mu_K: Tensor
    sigma_K: Tensor

    def __init__(self, mu: Sequence[float], sigma: Sequence[float], *, trainable: bool) -> None:
        super().__init__()
        for name, values in (("mu_K", mu), ("sigma_K", sigma)):
            if trainable:
                setattr(self, name, nn.Parameter(torch.tensor(values)))
            else:
                self.register_buffer(name, torch.tensor(values))

    def activations(self, similarity: Tensor) -> Tensor:
        """The kernels' activations for each similarity, on a new last axis K."""
        variance_K = self.sigma_K.square().clamp_min(SMALLEST_VARIANCE)
        return torch.exp(-(similarity[..., None] - self.mu_K).square() / (2 * variance_K))

    def forward(self, similarity_BQD: Tensor, text_mask_BD: Tensor) -> Tensor:
        """count_BQK: each query token's activations, summed over the document's tokens."""
        near_BQDK = self.activations(similarity_BQD)
        return near_BQDK.masked_fill(~text_mask_BD[:, None, :, None], 0.0).sum(2)


ROUNDING = 1e-6
"""Relative difference (absolute below 1) up to which two strengths are equal."""


class Matches(NamedTuple):
    """The k strongest matches of each query token in descending order; 0 if there are fewer."""

    strength_BQk: Tensor
    place_BQk: Tensor  # in the document; arbitrary where `real_BQk` is false
    real_BQk: Tensor


class NgramFilters(nn.Module):
    """An n x n convolution starting at each pair of tokens, then the maximum over filters."""

    def __init__(self, channels: int, filters: int, n: int) -> None:
        super().__init__()
        self.n = n
        self.filters = nn.Conv2d(channels, filters, n)

    def forward(self, similarity_BSQD: Tensor) -> Tensor:
        """strength_BQD >= 0 of matrices with S channels, which must be 0 at padding."""
        end = self.n - 1
        # Zero padding, as at padded tokens, so that scores do not depend on the amount of padding.
        strength_BFQD = self.filters(pad(similarity_BSQD, (0, end, 0, end)))
        return relu(strength_BFQD).amax(1)


def strongest(strength_BQD: Tensor, mask_BQD: Tensor, k: int) -> Matches:
    """The k largest strengths of each query token where the mask is true; among equals the earlier.

    A repeated word has the same similarity everywhere up to rounding, which depends on the batch
    and must not choose the position.
    """
    left_BQD = strength_BQD.detach().masked_fill(~mask_BQD, -torch.inf)
    places, reals = [], []
    for _ in range(k):
        largest_BQ1 = left_BQD.amax(2, keepdim=True)
        equal_BQD = left_BQD >= largest_BQ1 - ROUNDING * largest_BQ1.abs().clamp_min(1)
        # Of several maxima, `argmax` finds the first.
        places.append(equal_BQD.byte().argmax(2, keepdim=True))
        reals.append(largest_BQ1 > -torch.inf)
        # One place at a time: `topk` would break near-ties by the last bit.
        left_BQD.scatter_(2, places[-1], -torch.inf)
    place_BQk, real_BQk = torch.cat(places, 2), torch.cat(reals, 2)
    strength_BQk = strength_BQD.gather(2, place_BQk).masked_fill(~real_BQk, 0.0)
    return Matches(strength_BQk, place_BQk, real_BQk)


MAX_QUERY = 32
"""Maximum number of query tokens of layers with weights per token, the largest in the papers."""


def at_fixed_length(x_BQF: Tensor) -> Tensor:
    """x_BQF padded with zeros to MAX_QUERY query tokens."""
    return pad(x_BQF, (0, 0, 0, MAX_QUERY - x_BQF.shape[1]))


class TokenRanker(Ranker):
    """Base class of rankers over the tokens of disjoint chunks."""

    family = "CEDR"
    pair_encoder = EqualChunks
    overlapping_chunks = False
    reads_tokens = True
    one_chunk_is_firstp = False


class Cedr(TokenRanker):
    """Base class of the variants of CEDR: S similarity matrices, one per hidden state."""

    paper = "MacAvaney et al. 2019"
    citation = "CEDR: Contextualized Embeddings for Document Ranking. SIGIR 2019, arXiv:1904.07094"
    options = ("pool",)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        # Embeddings and layers.
        self.num_states = 1 + int(encoder.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B from [CLS] and the similarities."""
        inputs, terms = batch.inputs, terms_of(batch)
        states = layer_states(self.encoder, inputs)
        cls_CH = row_vectors(states[-1], inputs.attention_mask_CL, self.pooling)
        cls_BPH, mask_BP = pad_chunks(at_least_fp32(cls_CH), batch.counts)
        with torch.autocast(cls_CH.device.type, enabled=False):
            return self.combine(masked_mean(cls_BPH, mask_BP), similarities(states, terms), terms)

    def combine(self, cls_BH: Tensor, similarity: Iterator[Tensor], terms: Terms) -> Tensor:
        """score_B from the mean [CLS] and an iterator over the S matrices cos_BQD."""
        raise TypeError(f"{type(self).__name__} must define `combine`")


def similarities(states: tuple[Tensor, ...], terms: Terms) -> Iterator[Tensor]:
    """cos_BQD of each hidden state, 0 at padding."""
    absent_BQD = ~pair_mask(terms)
    for hidden_CLH in states:
        query_BQH, text_BDH = take(hidden_CLH, terms.query_BQ), take(hidden_CLH, terms.text_BD)
        yield cosines(query_BQH, text_BDH).masked_fill(absent_BQD, 0.0)


class CedrKnrm(Cedr):
    """A linear layer over [CLS] and, per state and kernel, the sum over query tokens of
    log(1e-6 + soft count) (CEDR-KNRM; kernels of Xiong et al. 2017)."""

    label = "CEDR-KNRM"
    MU = (-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    SIGMA = (*(0.1,) * 10, 0.001)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.kernels = GaussianKernels(self.MU, self.SIGMA, trainable=True)
        num_features = self.num_states * len(self.MU)
        # One linear layer in two parts, so that a backbone's ranking head can be the first.
        self.kernel_head = nn.Linear(num_features, 1, bias=False)
        # nn.Linear's initialisation for the inputs of both parts together.
        bound = 1 / sqrt(self.head.in_features + num_features)
        for weight in (self.head.weight, self.head.bias, self.kernel_head.weight):
            nn.init.uniform_(weight, -bound, bound)

    def combine(self, cls_BH: Tensor, similarity: Iterator[Tensor], terms: Terms) -> Tensor:
        """score_B, the sum of both parts."""
        features_BSK = torch.stack([self.features(cos_BQD, terms) for cos_BQD in similarity], 1)
        score_B1: Tensor = self.head(cls_BH) + self.kernel_head(features_BSK.flatten(1))
        return score_B1.squeeze(1)

    def features(self, cos_BQD: Tensor, terms: Terms) -> Tensor:
        """feature_BK of one hidden state."""
        # The logarithm is of a count and not of a mean: twice as many matches add the same,
        # whatever the length.
        log_BQK = torch.log(self.kernels(cos_BQD, terms.text_mask_BD) + 1e-6)
        return log_BQK.masked_fill(~terms.query_mask_BQ[:, :, None], 0.0).sum(1)


class CedrDrmm(Cedr):
    """The sum over query tokens of a small network over [CLS] and, per state, the logarithms of a
    histogram of similarities (CEDR-DRMM; DRMM of Guo et al. 2016).

    Counts have no gradient: the encoder learns through [CLS] only. The published code also adds the
    network's value for padded query tokens.
    """

    label = "CEDR-DRMM"
    NUM_BINS = 11
    NUM_HIDDEN = 5

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        num_features = self.num_states * self.NUM_BINS + self.head.in_features
        self.hidden_layer = nn.Linear(num_features, self.NUM_HIDDEN)
        self.head = nn.Linear(self.NUM_HIDDEN, 1)

    def combine(self, cls_BH: Tensor, similarity: Iterator[Tensor], terms: Terms) -> Tensor:
        """score_B, the sum of the network's values."""
        log_BQSN = torch.stack(
            [
                torch.log(histogram(cos_BQD.detach(), terms.text_mask_BD, self.NUM_BINS) + 1e-5)
                for cos_BQD in similarity
            ],
            dim=2,
        )
        cls_BQH = cls_BH[:, None].expand(-1, log_BQSN.shape[1], -1)
        x_BQF = torch.cat([log_BQSN.flatten(2), cls_BQH], dim=2)
        score_BQ = self.head(torch.relu(self.hidden_layer(x_BQF))).squeeze(2)
        return score_BQ.masked_fill(~terms.query_mask_BQ, 0.0).sum(1)


def histogram(cos_BQD: Tensor, text_mask_BD: Tensor, num_bins: int) -> Tensor:
    """count_BQN of similarities from -1 to 1; the last bin holds only 1 (up to 1e-6)."""
    # CEDR's bins: the constant lifts exact matches over the rounding of a cosine of 1.
    bin_BQD = ((cos_BQD + 1.000001) / 2 * (num_bins - 1)).long().clamp(0, num_bins - 1)
    one_BQD = text_mask_BD[:, None].expand_as(bin_BQD).to(cos_BQD.dtype)
    return cos_BQD.new_zeros(*cos_BQD.shape[:2], num_bins).scatter_add_(2, bin_BQD, one_BQD)


class CedrPacrr(Cedr):
    """A network over [CLS] and each query token's two strongest matches as the first token of 1-,
    2- and 3-grams, with a channel per state (CEDR-PACRR; PACRR of Hui et al. 2017)."""

    label = "CEDR-PACRR"
    max_query = MAX_QUERY
    NGRAMS = (1, 2, 3)
    NUM_FILTERS = 32
    NUM_MATCHES = 2
    NUM_HIDDEN = 32

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.filters = nn.ModuleList(
            NgramFilters(self.num_states, self.NUM_FILTERS, n) for n in self.NGRAMS
        )
        num_features = MAX_QUERY * len(self.NGRAMS) * self.NUM_MATCHES + self.head.in_features
        self.hidden_layers = nn.Sequential(
            nn.Linear(num_features, self.NUM_HIDDEN),
            nn.ReLU(),
            nn.Linear(self.NUM_HIDDEN, self.NUM_HIDDEN),
            nn.ReLU(),
        )
        self.head = nn.Linear(self.NUM_HIDDEN, 1)

    def combine(self, cls_BH: Tensor, similarity: Iterator[Tensor], terms: Terms) -> Tensor:
        """score_B of the network."""
        cos_BSQD = torch.stack(list(similarity), dim=1)
        mask_BQD = pair_mask(terms)
        strengths = [
            strongest(filters(cos_BSQD), mask_BQD, self.NUM_MATCHES).strength_BQk
            for filters in self.filters
        ]
        match_BQF = torch.cat(strengths, dim=2)
        x_BF = torch.cat([at_fixed_length(match_BQF).flatten(1), cls_BH], dim=1)
        return self.head(self.hidden_layers(x_BF)).squeeze(1)


EPSILON = 1e-4  # likelihood of a query token without any translation
NUM_HIDDEN = 32


class NeuralModel1(TokenRanker):
    """score = sum over query tokens of log(epsilon + mean over document tokens of T)."""

    label = "Neural Model 1"
    paper = "Boytsov & Kolter 2021 (reconstruction)"
    citation = (
        "Exploring Classic and Neural Lexical Translation Models for Information Retrieval. ECIR "
        "2021, arXiv:2102.06815"
    )

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        size = self.head.in_features
        # One layer over the concatenated vectors, split into parts that are computed once per query
        # token, per document token and per pair.
        self.of_query = nn.Linear(size, NUM_HIDDEN)
        self.of_text = nn.Linear(size, NUM_HIDDEN, bias=False)
        self.of_both = nn.Linear(size, NUM_HIDDEN, bias=False)
        self.head = nn.Linear(NUM_HIDDEN, 1)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B from the last layer's vectors of query and document tokens."""
        terms = terms_of(batch)
        hidden_CLH = at_least_fp32(self.hidden(batch.inputs))
        with torch.autocast(hidden_CLH.device.type, enabled=False):
            query_BQH, text_BDH = take(hidden_CLH, terms.query_BQ), take(hidden_CLH, terms.text_BD)
            return log_likelihood(self.translation(query_BQH, text_BDH), terms)

    def translation(self, query_BQH: Tensor, text_BDH: Tensor) -> Tensor:
        """T_BQD in (0, 1)."""
        # sum_h w_kh q_h d_h, without a tensor over all pairs and dimensions.
        weighted_BQKH = query_BQH[:, :, None] * self.of_both.weight
        both_BQKD = weighted_BQKH @ text_BDH.transpose(1, 2)[:, None]
        each_BQK1 = self.of_query(query_BQH)[:, :, :, None]
        each_B1KD = self.of_text(text_BDH).transpose(1, 2)[:, None]
        hidden_BQDK = torch.relu(both_BQKD + each_BQK1 + each_B1KD).transpose(2, 3)
        return torch.sigmoid(self.score(hidden_BQDK))


def log_likelihood(translation_BQD: Tensor, terms: Terms) -> Tensor:
    """score_B from translation probabilities. Padding is excluded; an empty document translates
    into nothing."""
    length_B = terms.text_mask_BD.sum(1).clamp_min(1)
    sum_BQ = translation_BQD.masked_fill(~terms.text_mask_BD[:, None], 0.0).sum(2)
    log_BQ = torch.log(EPSILON + sum_BQ / length_B[:, None])
    return log_BQ.masked_fill(~terms.query_mask_BQ, 0.0).sum(1)
