"""The batching of the papers' trainer, in our own few lines: every query is padded to its limit,
every document to the longest a document may be, and all rows go to an encoder as transformers loads
it. Padding is masked, so the scores mean the same; only the work differs."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModel

from rank_core.chunking.chunks import chunk_spans
from rank_core.chunking.encoder_input import SelectedRows
from rank_core.encoders.backbone_types import Backbone, type_of
from rank_core.models.ranker import Ranker, pad_chunks
from rank_core.settings.config import Chunking

Tokens = NDArray[np.int32]


def untouched(model: Ranker, backbone: Backbone) -> Ranker:
    """The same ranker over an encoder that nobody has tuned."""
    other = copy.deepcopy(model)
    config, kind = AutoConfig.from_pretrained(backbone.folder), type_of(backbone.kind)
    for name in kind.dropouts:
        setattr(config, name, model.dropout.p)
    extra = {"add_pooling_layer": False} if kind.pooler else {}
    encoder = AutoModel.from_pretrained(backbone.folder, config=config, **extra)
    encoder.load_state_dict(model.encoder.state_dict())
    other.encoder = encoder.to(model.device)
    return other.train(model.training)


def padded_rows(
    query: Tokens, document: Tokens, chunking: Chunking, backbone: Backbone
) -> tuple[SelectedRows, Tensor]:
    """(all rows of one document padded to its limit, which of them have text)."""
    limit = chunking.max_document_tokens
    spans = chunk_spans(limit, chunking.window, chunking.stride)
    text = np.full(limit, backbone.pad_id, dtype=np.int64)
    length = min(len(document), limit)
    text[:length] = document[:length]
    size = chunking.max_query_tokens + chunking.window + 3
    ids = np.full((len(spans), size), backbone.pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    start = chunking.max_query_tokens + 2
    for row, span in enumerate(spans):
        real = max(0, min(span.end, length) - span.start)
        ids[row, 0] = backbone.cls_id
        ids[row, 1 : 1 + len(query)] = query
        ids[row, start - 1] = backbone.sep_id
        ids[row, start : start + span.end - span.start] = text[span.start : span.end]
        ids[row, start + chunking.window] = backbone.sep_id
        mask[row, : 1 + len(query)] = 1
        mask[row, start - 1 : start + real] = 1
        mask[row, start + chunking.window] = 1
    types = np.zeros_like(ids)
    types[:, start:] = 1
    inputs = SelectedRows(
        torch.from_numpy(ids),
        torch.from_numpy(mask),
        torch.from_numpy(types) if backbone.num_segments > 1 else None,
        torch.full((len(spans),), len(query)),
    )
    return inputs, torch.tensor([span.start < max(1, length) for span in spans])


def padded_scores(
    model: Ranker,
    query: Tokens,
    documents: Sequence[Tokens],
    chunking: Chunking,
    backbone: Backbone,
) -> Tensor:
    """score_B of a query's documents, one padded document after the other."""
    scores = []
    for document in documents:
        inputs, real_C = padded_rows(query, document, chunking, backbone)
        cls_CH = model.encode(inputs.to(model.device))
        cls_BPH, mask_BP = pad_chunks(cls_CH[real_C.to(model.device)], [int(real_C.sum())])
        scores.append(model.aggregate(cls_BPH, mask_BP))
    return torch.cat(scores)
