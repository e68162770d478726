"""Longformer with global attention on the tokens up to a row's first [SEP]."""

from typing import Any

import torch
from torch import Tensor
from transformers import LongformerConfig, LongformerModel


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
        return (torch.cumsum(is_sep, 1) - is_sep == 0).long()
