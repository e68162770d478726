"""Encoders with sparse attention, as in the papers: Longformer with global attention on the query,
and BigBird whose output for a row depends only on that row.

In transformers' BigBird, one short batch switches to full attention for good; the last, global
block is that of the padded batch; and random blocks are seeded in training, but all block 0 in
evaluation. Here each row is padded to its own number of blocks, short rows alone use full
attention, and evaluation uses the blocks of training.
"""

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import BigBirdConfig, BigBirdModel, LongformerConfig, LongformerModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from rank_core.encoders.flat_rows import on


class QueryGlobalLongformer(LongformerModel):
    """Longformer (Beltagy et al. 2020) with global attention on [CLS], the query's tokens and the
    first [SEP], as in Boytsov et al. 2022."""

    def __init__(self, config: LongformerConfig) -> None:
        super().__init__(config, add_pooling_layer=False)
        self.sep_id = config.sep_token_id  # replaced by the tokenizer's

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        **extra: Any,
    ) -> Any:
        """The encoder's output; `global_attention_mask` replaces the default."""
        if global_attention_mask is None:
            global_attention_mask = self.before_sep(input_ids)
            if attention_mask is not None:
                global_attention_mask = global_attention_mask * attention_mask
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            global_attention_mask=global_attention_mask,
            **extra,
        )

    def before_sep(self, input_ids: Tensor) -> Tensor:
        """mask_CL (0 or 1) of the tokens up to and including each row's first [SEP]."""
        is_sep = input_ids.eq(self.sep_id or 0).long()
        # The cumulative count without the token itself is 0 up to and including the first [SEP].
        return (torch.cumsum(is_sep, 1) - is_sep == 0).long()


class RowwiseBigBird(BigBirdModel):
    """BigBird (Zaheer et al. 2020), block-sparse for rows of more than 5 + 2r blocks, where r is
    the number of random blocks; for shorter rows the pattern would cover the whole row. Where its
    configuration says so (`original_full`), every row has full attention."""

    reads_lengths = True

    def __init__(self, config: BigBirdConfig) -> None:
        stated, config.attention_type = config.attention_type, "block_sparse"
        super().__init__(config, add_pooling_layer=False)
        config.attention_type = stated  # an exported one is read as this one
        self.pin()

    def pin(self) -> None:
        """Sets block-sparse attention in every layer, whatever it was."""
        self.set_attention_type("block_sparse")
        layers: Any = self.encoder.layer
        for layer in layers:
            attention = layer.attention.self
            if not isinstance(attention, _RowAttention):
                # Change the class of the same object: parameters and their names stay.
                attention.__class__ = _RowAttention
                attention.start(self.config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        lengths: Sequence[int] = (),
        **_: Any,
    ) -> BaseModelOutput:
        """The encoder's output for rows padded at the end, with zeros at padding. Rows with the
        same number of blocks are computed together. Without `lengths`, the tokens of each row, the
        host waits for the device's answer."""
        self.pin()
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        width, block = input_ids.shape[1], int(self.config.block_size)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if not lengths:
            lengths = attention_mask.sum(1).tolist()
        parts, order = [], []
        # The last block is global and random blocks are drawn for a length: rows of another length
        # would see other tokens than alone.
        for num_blocks, rows in self._groups(lengths):
            size, row_R = num_blocks * block, on(input_ids.device, torch.tensor(rows))
            mask = _fit(attention_mask[row_R], size, 0)
            layers = self._layers(
                _fit(input_ids[row_R], size, self.config.pad_token_id or 0),
                mask,
                _fit(token_type_ids[row_R], size, 0),
            )
            kept = layers if output_hidden_states else layers[-1:]
            real = mask[:, :, None].bool()
            vectors = [x.where(real, 0.0)[:, :width] for x in kept]
            parts.append([pad(x, (0, 0, 0, width - x.shape[1])) for x in vectors])
            order += rows
        back = on(input_ids.device, torch.tensor(order).argsort())
        states = tuple(torch.cat(layer)[back] for layer in zip(*parts, strict=True))
        return BaseModelOutput(
            last_hidden_state=states[-1], hidden_states=states if output_hidden_states else None
        )

    def _groups(self, lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
        """(number of blocks, rows). Rows with full attention share a group, because padding does
        not change them."""
        groups: dict[int, list[int]] = {}
        blocks = [max(1, -(-length // self.config.block_size)) for length in lengths]
        few = max(blocks) if _is_full(self.config) else 5 + 2 * self.config.num_random_blocks
        for row, num_blocks in enumerate(blocks):
            groups.setdefault(num_blocks if num_blocks > few else 0, []).append(row)
        return [(max(blocks[row] for row in rows), rows) for rows in groups.values()]

    def _layers(self, input_ids: Tensor, mask: Tensor, segments: Tensor) -> list[Tensor]:
        hidden = self.embeddings(input_ids=input_ids, token_type_ids=segments)
        # As floats: GPUs have no matrix product of integers.
        blocked, band_mask, from_mask, to_mask = self.create_masks_for_block_sparse_attn(
            mask.to(hidden.dtype), self.config.block_size
        )
        layers = [hidden]
        for layer in self.encoder.layer:
            hidden = layer(
                hidden,
                band_mask=band_mask,
                from_mask=from_mask,
                to_mask=to_mask,
                blocked_encoder_mask=blocked,
            )
            layers.append(hidden)
        return layers


class _RowAttention(BigBirdBlockSparseAttention):
    """Block-sparse attention with the same blocks in training and evaluation, and full attention
    for rows that the sparse pattern would cover."""

    heads: Iterator[int]  # of one call

    def start(self, config: BigBirdConfig) -> None:
        """Sets the state other than parameters."""
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.maps: dict[int, list[Any]] = {}  # {length: blocks of each head}
        self.full = _is_full(config)

    def forward(  # type: ignore[override]
        self, hidden: Tensor, *masks: Tensor, **_: Any
    ) -> tuple[Tensor, None]:
        """context_CLH; `masks` are the band, from and to masks and both blocked masks."""
        band, from_mask, to_mask, from_blocked, to_blocked = masks
        if self.full or hidden.shape[1] // self.block_size <= 5 + 2 * self.num_random_blocks:
            return self._full(hidden, to_mask), None
        # The parent uses `training` only to choose blocks, and then seeds numpy's global stream.
        call = copy.copy(self)  # what a call changes is its own: threads may score at once
        call.training, call.heads = False, itertools.count()
        context, _weights = super(_RowAttention, call).forward(
            hidden, band, from_mask, to_mask, from_blocked, to_blocked
        )
        return context, None

    def bigbird_block_sparse_attention(self, *parts: Any, **sizes: Any) -> tuple[Tensor, Tensor]:
        """The parent's in fp32; in lower precision it mixes types and raises."""
        wide = (x.float() if torch.is_tensor(x) and x.is_floating_point() else x for x in parts)
        with torch.autocast(parts[0].device.type, enabled=False):
            result: tuple[Tensor, Tensor] = super().bigbird_block_sparse_attention(*wide, **sizes)
        return result

    def _full(self, hidden: Tensor, to_mask: Tensor) -> Tensor:
        products = (self.query(hidden), self.key(hidden), self.value(hidden))
        heads = (x.unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2) for x in products)
        query, key, value = heads
        rate = self.dropout.p if self.training else 0.0
        context = scaled_dot_product_attention(query, key, value, to_mask.bool(), rate)
        return context.transpose(1, 2).flatten(2)

    def _bigbird_block_rand_mask_with_head(  # type: ignore[override]
        self, **sizes: Any
    ) -> list[Any]:
        """The parent's blocks of a length, for all heads."""
        draw = BigBirdBlockSparseAttention._bigbird_block_rand_mask_with_head
        return self._drawn(sizes["from_seq_length"], lambda call: draw(call, **sizes))

    def _bigbird_block_rand_mask(  # type: ignore[override]
        self, *sizes: int, last_idx: int
    ) -> Any:
        """The parent's blocks of the next head, for the lengths of the paper."""
        draw: Any = BigBirdBlockSparseAttention._bigbird_block_rand_mask

        def all_heads(call: Any) -> list[Any]:
            return [draw(call, *sizes, last_idx=last_idx) for _ in range(self.num_attention_heads)]

        return self._drawn(OF_THE_PAPER, all_heads)[next(self.heads)]

    def _drawn(self, length: int, draw: Callable[[Any], list[Any]]) -> list[Any]:
        """What `draw` gives in training, kept: drawing takes longer than the attention."""
        with _DRAWING:
            if length not in self.maps:
                call, numpy_state = copy.copy(self), np.random.get_state()
                call.training = True
                np.random.seed(self.seed)
                try:
                    self.maps[length] = draw(call)
                finally:
                    np.random.set_state(numpy_state)
            return self.maps[length]


def _is_full(config: BigBirdConfig) -> bool:
    return config.attention_type == "original_full"


OF_THE_PAPER = 0  # for 1024, 3072 and 4096 tokens, whose blocks are parts of the same
_DRAWING = threading.Lock()  # numpy's global stream is one for all threads


def _fit(rows: Tensor, size: int, value: int) -> Tensor:
    """rows_CL cut or padded to a length; only padding is cut."""
    return pad(rows[:, :size], (0, max(0, size - rows.shape[1])), value=value)
