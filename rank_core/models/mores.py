"""MORES+: a query that attends to every token of every chunk (Gao & Callan 2022).

Chunks are encoded without the query, and the query attends to their tokens directly rather than to
one vector per chunk. Blocks follow BART's decoder: self-attention first; those of MORES (Gao, Dai &
Callan 2020) attend to the document first.
"""

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from rank_core.chunking.batches import ChunkBatch
from rank_core.encoders.any_kind import text_config, vector_size
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.cls_only import SAME_LAYERS
from rank_core.models.poolings import at_least_fp32
from rank_core.models.ranker import Ranker, layer_states
from rank_core.models.readers import ApartPairs, first_rows
from rank_core.settings.config import Model


class Attention(nn.Module):
    """Multi-head attention from one sequence to another, with residual and LayerNorm."""

    def __init__(self, hidden: int, num_heads: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(hidden, hidden) for _ in range(4)
        )
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BQH: Tensor, other_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """out_BQH; positions where the mask is false are not attended to."""
        query, key, value = (
            x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x in (self.query(x_BQH), self.key(other_BTH), self.value(other_BTH))
        )
        seen_B11T = mask_BT[:, None, None, :]
        context_BhQd = scaled_dot_product_attention(query, key, value, attn_mask=seen_B11T)
        context_BQH = self.output(context_BhQd.transpose(1, 2).flatten(2))
        return self.norm(x_BQH + self.dropout(context_BQH))

    def copy(self, attention: Any) -> None:
        """Copies the weights of a BERT attention."""
        own = {name: getattr(attention.self, name) for name in ("query", "key", "value")}
        own |= {"output": attention.output.dense, "norm": attention.output.LayerNorm}
        for name, module in own.items():
            getattr(self, name).load_state_dict(module.state_dict())


class InteractionBlock(nn.Module):
    """Query self-attention, attention to the document, then a feed-forward layer."""

    def __init__(self, config: Any, dropout: float) -> None:
        super().__init__()
        hidden, eps = vector_size(config), getattr(config, "layer_norm_eps", 1e-12)
        inner = getattr(config, "intermediate_size", 4 * hidden)
        heads = text_config(config).num_attention_heads
        self.to_itself = Attention(hidden, heads, dropout, eps)
        self.to_document = Attention(hidden, heads, dropout, eps)
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        activation = getattr(config, "hidden_act", "gelu")
        self.activation = transformers.activations.ACT2FN[activation]
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.dropout = nn.Dropout(dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(
        self, query_BQH: Tensor, query_mask_BQ: Tensor, text_BTH: Tensor, text_mask_BT: Tensor
    ) -> Tensor:
        """out_BQH, the query after attending to the document."""
        x_BQH = self.to_itself(query_BQH, query_BQH, query_mask_BQ)
        x_BQH = self.to_document(x_BQH, text_BTH, text_mask_BT)
        return self.norm(x_BQH + self.dropout(self.outer(self.activation(self.inner(x_BQH)))))

    def copy(self, layer: Any) -> None:
        """Copies a BERT layer's weights; its attention is used for both attentions."""
        self.to_itself.copy(layer.attention)
        self.to_document.copy(layer.attention)
        self.inner.load_state_dict(layer.intermediate.dense.state_dict())
        self.outer.load_state_dict(layer.output.dense.state_dict())
        self.norm.load_state_dict(layer.output.LayerNorm.state_dict())


NUM_BLOCKS = 2


class Mores(Ranker):
    """score = head([CLS] of the query after the last interaction block).

    The encoder reads the chunks with all layers and the query with its lower ones: the interaction
    blocks replace the upper `NUM_BLOCKS` layers for the query (one layer if the encoder has fewer
    than four). Blocks see the tokens of all chunks as a set, without order.
    """

    label = "MORES+"
    paper = "Gao & Callan 2022"
    citation = "Long Document Re-ranking with Modular Re-ranker. SIGIR 2022, arXiv:2205.04275"
    family = "long context"
    pair_encoder = ApartPairs
    reads_tokens = True
    one_chunk_is_firstp = False

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        num_layers = int(encoder.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]
        number = max(1, min(NUM_BLOCKS, num_layers // 2))
        body: Any = encoder
        blocks = [InteractionBlock(body.config, settings.dropout) for _ in range(number)]
        if backbone.kind in SAME_LAYERS:
            for block, layer in zip(blocks, body.encoder.layer[-number:], strict=True):
                block.copy(layer)
        self.aggregator = nn.ModuleList(blocks)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of documents, each a query row followed by chunk rows."""
        states = layer_states(self.encoder, batch.inputs)
        # The query leaves the encoder before its upper layers, which the interaction blocks
        # replace.
        lower_CLH, last_CLH = states[-1 - len(self.aggregator)], states[-1]
        mask_CL, counts = batch.inputs.attention_mask_CL.bool(), list(batch.counts)
        mask_BQ, x_BQH = (
            torch.stack([rows[0] for rows in of_C.split(counts)]) for of_C in (mask_CL, lower_CLH)
        )
        sizes = batch.inputs.sizes
        longest = max(len(sizes[row]) for row in first_rows(batch.counts))
        mask_BQ, x_BQH = mask_BQ[:, :longest], x_BQH[:, :longest]
        text_BTH, text_mask_BT = of_chunks(last_CLH, counts), of_chunks(mask_CL, counts)
        # Some encoders give NaN at padding.
        text_BTH = text_BTH.masked_fill(~text_mask_BT[:, :, None], 0.0)
        for block in self.aggregator:
            x_BQH = block(x_BQH, mask_BQ, text_BTH, text_mask_BT)
        with torch.autocast(x_BQH.device.type, enabled=False):
            return self.score(at_least_fp32(x_BQH[:, 0]))


def of_chunks(x_CL: Tensor, counts: list[int]) -> Tensor:
    """x_BT: the values of each document's chunk rows, concatenated and padded with zeros. The first
    row, the query's, is skipped."""
    x_BPL = pad_sequence(x_CL.split(counts), batch_first=True)
    return x_BPL[:, 1:].flatten(1, 2)
