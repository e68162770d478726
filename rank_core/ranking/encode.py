"""The fast path from chunks to scores: chunks of similar length share a batch, across documents and
queries. `Ranker.forward` over one padded batch is the definition; this equals it up to rounding."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rank_core.chunking.batches import Chunk, PairEncoder, batches_by_length
from rank_core.encoders.cls_only import packed_layers
from rank_core.encoders.copies import Copies, kept
from rank_core.encoders.flat_rows import on
from rank_core.encoders.packed import kept_weights
from rank_core.machine import ahead
from rank_core.models.poolings import at_least_fp32
from rank_core.models.ranker import Ranker, pad_chunks

BATCHES_AHEAD = 2
"""Batches that a thread has laid out for a GPU, which needs a few milliseconds for one."""

Document = Sequence[Chunk]
"""The chunks of one document, each with its query."""


@dataclass
class Work:
    """Counts of encoder tokens and of tied scores."""

    tokens: int = 0  # of chunks, with query and special tokens
    padded_tokens: int = 0  # the same with padding
    inputs: int = 0  # chunks
    learned: int = 0  # of the tokens, those of passes with a gradient
    ties: int = 0  # documents with the score of another document of the query

    def add(self, lengths: Sequence[int], *, padded: bool = True) -> None:
        """Adds one batch of inputs."""
        self.inputs += len(lengths)
        self.tokens += sum(lengths)
        self.learned += sum(lengths) * torch.is_grad_enabled()
        self.padded_tokens += len(lengths) * max(lengths) if padded else sum(lengths)

    def add_ties(self, scores: Collection[float]) -> None:
        """Adds the ties among one query's scores, as float32."""
        self.ties += len(scores) - len(set(np.asarray([*scores], np.float32).tolist()))

    @property
    def padding_share(self) -> float:
        """The fraction of padding among the encoder's tokens."""
        return 1 - self.tokens / max(1, self.padded_tokens)


class How(NamedTuple):
    """Encoder tokens of a batch, the type of matrix products, and the counts of what is read."""

    batch_tokens: int
    autocast: torch.dtype | None
    work: Work


def score_documents(
    model: Ranker,
    pairs: PairEncoder,
    documents: Sequence[Document],
    *,
    batch_tokens: int,
    autocast: torch.dtype | None,
    work: Work,
    kept: list[Tensor] | None = None,
) -> Tensor:
    """score_B (fp32 or wider, on the model's device), with a gradient if enabled. The scores of all
    chunks are appended to `kept`, in order, for models that pool chunk scores."""
    how = How(batch_tokens, autocast, work)
    if not model.by_chunks:
        return _score_whole(model, pairs, documents, how)
    # With dropout the two passes would see different masks, and the best chunk of one need not be
    # that of the other.
    if torch.is_grad_enabled() and model.chunks_that_learn and model.dropout.p == 0:
        documents = _with_gradient(model, pairs, documents, how)
    x_CH = encode_chunks(model, pairs, _flat(documents), how)
    # The head and the aggregator are cheap, and fp32 keeps close scores apart.
    x_BPH, mask_BP = pad_chunks(x_CH, [len(document) for document in documents])
    if kept is not None:
        kept.append(model.score(x_BPH)[mask_BP])
    return model.aggregate(x_BPH, mask_BP)


def encode_chunks(model: Ranker, pairs: PairEncoder, chunks: Sequence[Chunk], how: How) -> Tensor:
    """x_CH (fp32 or wider) of the chunks, in order."""
    lengths = [len(chunk) for chunk in chunks]
    flat = model.packs(how.autocast)
    batches = batches_by_length(lengths, how.batch_tokens, model.device, flat=flat)
    laid_out = ((rows, pairs.layout([chunks[i] for i in rows], model.device)) for rows in batches)
    parts, rows_of_parts = [], []
    # One context for all batches, because it caches rounded or packed weights.
    with in_precision(model, how.autocast):
        for rows, inputs in ahead(laid_out, model.device, number=BATCHES_AHEAD):
            how.work.add([lengths[i] for i in rows], padded=not flat)
            x_CH = model.encode(inputs.to(model.device))
            parts.append(at_least_fp32(x_CH))
            rows_of_parts += rows
    # The inverse of the permutation by length: back to the order of the chunks.
    order = torch.tensor(rows_of_parts).argsort()
    return torch.cat(parts)[on(model.device, order)]


def _with_gradient(
    model: Ranker, pairs: PairEncoder, documents: Sequence[Document], how: How
) -> list[Document]:
    """The best chunks of each document, as many as receive a gradient, in document order.

    A maximum passes its gradient to one chunk. The others need only a forward pass, and the best
    chunk is encoded a second time; two thirds of a training step are the backward pass.
    """
    num = model.chunks_that_learn
    long = [i for i, document in enumerate(documents) if len(document) > num]
    if not long:
        return list(documents)
    with torch.no_grad():
        chunks = _flat([documents[i] for i in long])
        score_C = model.score(encode_chunks(model, pairs, chunks, how))
    chosen = list(documents)
    for i, score_P in zip(
        long, score_C.cpu().split([len(documents[i]) for i in long]), strict=True
    ):
        # In document order, which aggregators with positions read.
        best = score_P.topk(num).indices.sort().values.tolist()
        chosen[i] = [documents[i][j] for j in best]
    return chosen


def _score_whole(
    model: Ranker, pairs: PairEncoder, documents: Sequence[Document], how: How
) -> Tensor:
    """score_B of a model that needs whole documents, in batches of similar chunk length."""
    batches = (
        (group, pairs.collate([documents[i] for i in group], model.device))
        for group in _groups(documents, how.batch_tokens)
    )
    parts, order = [], []
    with in_precision(model, how.autocast):
        for group, batch in ahead(batches, model.device, number=BATCHES_AHEAD):
            lengths = [len(chunk) for i in group for chunk in documents[i]]
            how.work.add(lengths, padded=not model.packs(how.autocast))
            score_B = model(batch.to(model.device))
            parts.append(at_least_fp32(score_B))
            order += group
    back = torch.tensor(order).argsort()
    return torch.cat(parts)[on(model.device, back)]


@contextlib.contextmanager
def in_precision(model: Ranker, autocast: torch.dtype | None) -> Iterator[None]:
    """Matrix products in type `autocast`, with weights packed or copied once."""
    products = torch.autocast(model.device.type, dtype=autocast, enabled=autocast is not None)
    with products, kept(weight_copies(model, autocast)):
        yield


def weight_copies(model: Ranker, autocast: torch.dtype | None) -> Copies:
    """The copies of a model's weights, as they are, that scoring with gradients disabled reads;
    without those that this thread keeps."""
    if model.compiled is not None:
        return {}
    flat = kept_weights(model.encoder, autocast) if model.packs(autocast) else {}
    return {**packed_layers(model, autocast), **flat}


def _groups(documents: Sequence[Document], batch_tokens: int) -> Iterator[list[int]]:
    """Groups of documents whose padded rows fit the budget, those with long chunks first."""
    longest = [max(len(chunk) for chunk in document) for document in documents]
    group: list[int] = []
    rows = width = 0
    # By the longest chunk first, because that is the width of all rows of a group.
    for i in sorted(range(len(documents)), key=lambda i: (-longest[i], -len(documents[i]), i)):
        wider = max(width, longest[i])
        if group and (rows + len(documents[i])) * wider > batch_tokens:
            yield group
            group, rows, wider = [], 0, longest[i]
        group.append(i)
        rows, width = rows + len(documents[i]), wider
    if group:
        yield group


def _flat(documents: Sequence[Document]) -> list[Chunk]:
    return [chunk for document in documents for chunk in document]
