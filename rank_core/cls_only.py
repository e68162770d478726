"""The last encoder layer for [CLS] alone: rankers read nothing else of its output.

Keys and values still cover every token, so the [CLS] vector is what the whole layer would give;
queries, the output projection and the feed-forward block run for one token instead of all. For a
6-layer encoder that is about a seventh of all arithmetic, in scoring and in training.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

SAME_LAYERS = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
"""Model types whose layers are BERT's: attention.self, attention.output, feed_forward_chunk."""


def only_cls(encoder: nn.Module) -> None:
    """Makes the encoder's last layer compute its first token only, where its type is known to us.

    `last_hidden_state` then has one token. Parameters and their names stay as they are.
    """
    config: Any = encoder.config
    plain_masks = config._attn_implementation in ("sdpa", "eager")
    if config.model_type not in SAME_LAYERS or not plain_masks or config.is_decoder:
        return
    layer: Any = encoder.encoder.layer[-1]  # type: ignore[union-attr,index]
    # Another class for the same object: its parameters, their names and copies of it stay right.
    layer.__class__ = type("ClsOnlyLayer", (_ClsOnly, type(layer)), {})


class _ClsOnly:
    """The forward pass of a BERT layer for its first token."""

    attention: Any
    feed_forward_chunk: Any
    training: bool

    def forward(self, hidden_CLH: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """cls_C1H of the layer's output."""
        attention = self.attention.self

        def heads(x: Tensor) -> Tensor:
            shape = (*x.shape[:2], attention.num_attention_heads, attention.attention_head_size)
            return x.view(shape).transpose(1, 2)

        cls_C1H = hidden_CLH[:, :1]
        context = scaled_dot_product_attention(
            heads(attention.query(cls_C1H)),
            heads(attention.key(hidden_CLH)),
            heads(attention.value(hidden_CLH)),
            attn_mask=None if mask is None else mask[:, :, :1],
            dropout_p=attention.dropout.p if self.training else 0.0,
            scale=attention.scaling,
        )
        output_C1H = self.attention.output(context.transpose(1, 2).flatten(2), cls_C1H)
        result: Tensor = self.feed_forward_chunk(output_C1H)
        return result
