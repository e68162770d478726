"""A transformer layer over a query that also looks at a document (MORES, Gao et al. 2020)."""

from typing import Any

import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rank_core.encoders.cpu.cls_only import SAME_LAYERS


class Attention(nn.Module):
    """What every place of one sequence finds in another one, added to it and normalised."""

    def __init__(self, hidden: int, num_heads: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(hidden, hidden) for _ in range(4)
        )
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BQH: Tensor, other_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """out_BQH; what the mask leaves out is not seen."""
        query, key, value = (
            x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x in (self.query(x_BQH), self.key(other_BTH), self.value(other_BTH))
        )
        seen_B11T = mask_BT[:, None, None, :]
        found_BhQd = scaled_dot_product_attention(query, key, value, attn_mask=seen_B11T)
        found_BQH = self.output(found_BhQd.transpose(1, 2).flatten(2))
        out_BQH: Tensor = self.norm(x_BQH + self.dropout(found_BQH))
        return out_BQH

    def copy(self, attention: Any) -> None:
        """Takes over the weights of an attention of BERT's."""
        own = {name: getattr(attention.self, name) for name in ("query", "key", "value")}
        own |= {"output": attention.output.dense, "norm": attention.output.LayerNorm}
        for name, module in own.items():
            getattr(self, name).load_state_dict(module.state_dict())


class InteractionBlock(nn.Module):
    """Attention of the query to itself, then to the document, then a feed-forward layer."""

    def __init__(self, config: Any, dropout: float) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, getattr(config, "layer_norm_eps", 1e-12)
        inner = getattr(config, "intermediate_size", 4 * hidden)
        heads = config.num_attention_heads
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
        """out_BQH: the query as it stands after having looked at the document."""
        x_BQH = self.to_itself(query_BQH, query_BQH, query_mask_BQ)
        x_BQH = self.to_document(x_BQH, text_BTH, text_mask_BT)
        out_BQH: Tensor = self.norm(
            x_BQH + self.dropout(self.outer(self.activation(self.inner(x_BQH))))
        )
        return out_BQH

    def copy(self, layer: Any) -> None:
        """Takes over the weights of a layer of BERT's, those of its attention twice."""
        self.to_itself.copy(layer.attention)
        self.to_document.copy(layer.attention)
        self.inner.load_state_dict(layer.intermediate.dense.state_dict())
        self.outer.load_state_dict(layer.output.dense.state_dict())
        self.norm.load_state_dict(layer.output.LayerNorm.state_dict())


def interaction_blocks(encoder: nn.Module, kind: str, number: int, dropout: float) -> nn.ModuleList:
    """As many blocks of an encoder's sizes, as its last layers are where these are BERT's, with
    random weights elsewhere."""
    body: Any = encoder
    blocks = [InteractionBlock(body.config, dropout) for _ in range(number)]
    if kind in SAME_LAYERS:
        for block, layer in zip(blocks, body.encoder.layer[-number:], strict=True):
            block.copy(layer)
    return nn.ModuleList(blocks)
