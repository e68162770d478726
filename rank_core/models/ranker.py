"""The frame of every ranker: one encoder over chunks, then an aggregation over a document's chunks.

Shapes: B documents, P chunks of the longest document, C all real chunks, L tokens, H hidden size.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from rank_core.backbones import Backbone
from rank_core.batches import ChunkBatch
from rank_core.config import Model


class Ranker(nn.Module):
    """Scores documents from the [CLS] vectors of their chunks, as a subclass aggregates them."""

    label: ClassVar[str]  # its name in tables
    first_chunk_only: ClassVar[bool] = False
    one_chunk_is_firstp: ClassVar[bool] = True  # on one-chunk documents it is FirstP's function
    max_chunks: ClassVar[int | None] = None  # of one document; None: no limit

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(encoder.config.hidden_size, 1)  # type: ignore[union-attr,arg-type]
        nn.init.xavier_uniform_(self.head.weight)

    def encode(self, input_ids_CL: Tensor, mask_CL: Tensor, types_CL: Tensor | None) -> Tensor:
        """cls_CH: the last layer's first vector of each chunk."""
        extra = {} if types_CL is None else {"token_type_ids": types_CL}
        output = self.encoder(input_ids=input_ids_CL, attention_mask=mask_CL, **extra)
        cls_CH: Tensor = output.last_hidden_state[:, 0]
        return cls_CH

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the chunk vectors; rows of `cls_BPH` where `mask_BP` is false are zeros."""
        raise TypeError(f"{type(self).__name__} does not say how it aggregates")

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents."""
        cls_CH = self.encode(batch.input_ids_CL, batch.attention_mask_CL, batch.token_type_ids_CL)
        cls_BPH, mask_BP = pad_chunks(cls_CH, batch.doc_C, batch.num_docs)
        return self.aggregate(cls_BPH, mask_BP)

    def score(self, cls_H: Tensor) -> Tensor:
        """The head: dropout, then a linear layer to one score. The last axis disappears."""
        score: Tensor = self.head(self.dropout(cls_H)).squeeze(-1)
        return score

    def learning_rate_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every trainable parameter under `backbone`, `head` or `aggregator`, exactly once."""
        groups: dict[str, list[nn.Parameter]] = {"backbone": [], "head": [], "aggregator": []}
        roles = {"encoder": "backbone", "head": "head"}
        for name, parameter in self.trainable():
            groups[roles.get(name.partition(".")[0], "aggregator")].append(parameter)
        return groups

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that training changes."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)


def pad_chunks(x_CH: Tensor, doc_C: Tensor, num_docs: int) -> tuple[Tensor, Tensor]:
    """(x_BPH, mask_BP): chunk vectors regrouped by document; `doc_C` ascends.

    Each chunk is written to its own place, so the result is deterministic on every device.
    """
    count_B = torch.bincount(doc_C, minlength=num_docs)
    first_B = count_B.cumsum(0) - count_B
    place_C = torch.arange(len(doc_C), device=doc_C.device) - first_B[doc_C]
    longest = int(count_B.max())
    x_BPH = x_CH.new_zeros(num_docs, longest, x_CH.shape[-1])
    x_BPH[doc_C, place_C] = x_CH
    mask_BP = torch.arange(longest, device=doc_C.device) < count_B[:, None]
    return x_BPH, mask_BP
