"""Scores of chunks by the mean vectors of an encoder's last layer."""

from collections.abc import Sequence

import torch

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_encoder, load_tokenizer
from sweeps.positions.rsv import ChunkScorer

TEXTS_AT_ONCE = 32


def cosine_scorer(backbone: Backbone) -> ChunkScorer:
    """The cosine of the query's vector and each chunk's: means over a text's tokens, special ones
    included; a longer text than the encoder reads is cut."""
    encoder = load_encoder(backbone, dropout=0.0).eval()
    tokenizer = load_tokenizer(backbone.folder)

    @torch.inference_mode()
    def vectors(texts: list[str]) -> torch.Tensor:
        inputs = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=backbone.max_input_tokens,
            return_tensors="pt",
        )
        mask_NL = inputs["attention_mask"]
        hidden_NLH = encoder(input_ids=inputs["input_ids"], attention_mask=mask_NL)[0].double()
        mask_NL1 = mask_NL.unsqueeze(-1)
        mean_NH = (hidden_NLH * mask_NL1).sum(1) / mask_NL1.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean_NH, dim=1)

    def score(query: str, chunks: Sequence[str]) -> Sequence[float]:
        query_H = vectors([query])[0]
        parts = [
            vectors(list(chunks[start : start + TEXTS_AT_ONCE])) @ query_H
            for start in range(0, len(chunks), TEXTS_AT_ONCE)
        ]
        scores: list[float] = torch.cat(parts).tolist()
        return scores

    return score
