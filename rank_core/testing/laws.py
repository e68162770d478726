"""Shared parts of the contract tests: a small backbone, random tokens, batches, assertions."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from rank_core.chunking.batches import Chunk, ChunkBatch, PairEncoder
from rank_core.encoders.backbone_types import Backbone
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import Chunking, Model, TrialConfig, parse_setting
from rank_core.testing.tokenizer import train_tokenizer

WORDS = (
    "amber birch cedar delta ember flint grove heron ivory jade kelp larch maple north otter "
    "pearl quartz raven slate thorn umber violet willow yarrow zephyr lantern harbour meadow"
).split()
CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60)
SHORT, LONG = 13, 55  # tokens: one chunk, and five, the last of them shorter
STILL = "self.key.bias"  # has no gradient: softmax is invariant to a constant added to all keys

Tokens = NDArray[np.int32]
Documents = Sequence[str | list[Chunk]]
"""Documents given by id or as lists of chunks."""


def tokens(seed: int, size: int, largest: int = 100) -> Tokens:
    """Random token ids."""
    return np.random.default_rng(seed).integers(5, largest, size).astype(np.int32)


QUERY = tokens(0, 6)
DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 1, SHORT, 20, 21, 34, LONG, 60, 90)}


def make_backbone(folder: Path) -> None:
    """Writes a two-layer BERT with random weights, large enough that every token affects scores."""
    tokenizer = train_tokenizer([" ".join(WORDS), "lanterns at the northern harbour"], 150)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=131,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def config_of(state: str, backbone: Backbone, chunking: Chunking = CHUNKING) -> TrialConfig:
    """The settings of a model over a backbone. A state is its name, then settings of its own:
    `idcm stage=student`."""
    name, *words = state.split()
    config = TrialConfig(model=Model(name, backbone=str(backbone.folder)), chunking=chunking)
    pairs = (f"model.{word}".split("=") for word in words)
    return config.override({setting: parse_setting(setting, text) for setting, text in pairs})


def chunks_of(*texts: Tokens) -> list[Chunk]:
    """A document of the given chunks."""
    return [Chunk(QUERY, text) for text in texts]


def batch_of(pairs: PairEncoder, documents: Documents, query: Tokens = QUERY) -> ChunkBatch:
    """A batch of documents given by id or as lists of chunks."""
    return pairs.collate([pairs.chunks(query, d) if isinstance(d, str) else d for d in documents])


def scores(
    model: Ranker, pairs: PairEncoder, documents: Documents, query: Tokens = QUERY
) -> Tensor:
    """score_B of documents given by id or as lists of chunks."""
    with torch.inference_mode():
        score_B: Tensor = model(batch_of(pairs, documents, query))
    return score_B


ROUNDING: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-6}
"""Of sums in another order; a score of 50 has a last bit of 4e-6."""


def assert_each_document_is_scored_alone(
    model: Ranker,
    pairs: PairEncoder,
    doc_ids: Sequence[str],
    query: Tokens = QUERY,
    spread: float = 0.05,
) -> Tensor:
    """Asserts that scores depend neither on the batch nor on its order. Returns score_B."""
    alone = torch.cat([scores(model, pairs, [doc_id], query) for doc_id in doc_ids])
    together = scores(model, pairs, doc_ids, query)
    assert together.isfinite().all()
    assert_close(together, alone, **ROUNDING)
    assert_close(scores(model, pairs, doc_ids[::-1], query), alone.flip(0), **ROUNDING)
    assert alone.std() > spread, "documents that score alike would hide a dependence"
    return together


def without_gradient(
    model: Ranker,
    score_B: Tensor,
    weights: Sequence[float] = (1.0, -0.3),
    still: Iterable[str] = (STILL,),
) -> set[str]:
    """The trainable parameters that get no gradient from the weighted scores."""
    (score_B * torch.tensor(weights)).sum().backward()
    without = {n for n, p in model.trainable() if p.grad is None or not p.grad.abs().sum() > 0}
    return {name for name in without if not name.endswith(tuple(still))}


def assert_the_fast_path_is_the_definition(
    plain: Ranker, fast: Ranker, pairs: PairEncoder, doc_ids: Iterable[str], batch_tokens: int
) -> None:
    """Asserts equal scores and gradients of two copies of a model in training mode without dropout:
    one is given whole documents, the other batches of chunks."""
    documents = [pairs.chunks(QUERY, doc_id) for doc_id in doc_ids]
    plain_B = plain(pairs.collate(documents))
    settings: Mapping[str, Any] = {"batch_tokens": batch_tokens, "autocast": None, "work": Work()}
    fast_B = score_documents(fast, pairs, documents, **settings)
    assert_close(fast_B, plain_B, **ROUNDING)
    for score_B in (plain_B, fast_B):
        (score_B * torch.linspace(-1, 1, len(documents))).sum().backward()
    learnt = dict(fast.trainable())
    for name, parameter in plain.trainable():
        if parameter.grad is not None:
            size = parameter.grad.abs().max().item()
            grad = learnt[name].grad
            assert_close(grad, parameter.grad, atol=1e-4 * max(1, size), rtol=1e-4)
