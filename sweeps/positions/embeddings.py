"""Texts as mean vectors of an encoder's last layer, for scores of chunks by position."""

from collections.abc import Sequence

import numpy as np
import torch

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_encoder, load_tokenizer
from sweeps.positions.rsv import Embed

TEXTS_AT_ONCE = 32


def mean_pooled(backbone: Backbone) -> Embed:
    """A function from N texts to N vectors: the mean over each text's tokens, special ones
    included; a longer text than the encoder reads is cut."""
    encoder = load_encoder(backbone, dropout=0.0).eval()
    tokenizer = load_tokenizer(backbone.folder)

    def embed(texts: Sequence[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            inputs = tokenizer(
                list(texts[start : start + TEXTS_AT_ONCE]),
                padding=True,
                truncation=True,
                max_length=backbone.max_input_tokens,
                return_tensors="pt",
            )
            with torch.inference_mode():
                mask_NL = inputs["attention_mask"]
                output = encoder(input_ids=inputs["input_ids"], attention_mask=mask_NL)
                hidden_NLH = output.last_hidden_state.float()
            mask_NL1 = mask_NL.unsqueeze(-1)
            mean_NH = (hidden_NLH * mask_NL1).sum(1) / mask_NL1.sum(1).clamp(min=1)
            parts.append(mean_NH.numpy())
        return np.concatenate(parts)

    return embed
