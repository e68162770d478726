"""What the checks compute: models over a random encoder, made documents, a short training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import resolve_backbone
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import TrialConfig
from rank_core.testing.tokenizer import train_tokenizer
from rank_core.training.examples import TrainingQuery
from rank_core.training.train import Streams

MODELS = sorted(name for name in SYSTEMS if issubclass(model_class(name), Ranker))
STREAMS = Streams(init=1, order=2, negatives=3, dropout=4)
CUT = {"chunking.window": 20, "chunking.stride": 10, "chunking.max_document_tokens": 60}
VOCABULARY = 150
WORDS = " ".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200))
SMALL_BATCH = 400  # encoder tokens: the documents below are several batches


def tokens(seed: int, size: int) -> Any:
    """Made tokens of the encoder's vocabulary."""
    return np.random.default_rng(seed).integers(5, 100, size).astype(np.int32)


QUERY = tokens(0, 6)
TEXTS = {
    f"d{size}-{i}": tokens(97 * size + i, size) for size in (1, 13, 20, 34, 60) for i in (1, 2)
}


def random_bert(folder: Path, layers: int, hidden: int, heads: int, inner: int) -> Backbone:
    """A BERT with random weights in `folder`."""
    tokenizer = train_tokenizer([WORDS], VOCABULARY)
    torch.manual_seed(7)
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=inner,
        initializer_range=0.05 if hidden < 128 else 0.02,
    )
    model = BertModel(config, add_pooling_layer=False)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return resolve_backbone(str(folder))


@dataclass(frozen=True)
class Parts:
    """A model on its device, and the documents that it reads."""

    model: Ranker
    pairs: PairEncoder
    documents: list[list[Chunk]]
    config: TrialConfig

    def scores(
        self, autocast: torch.dtype | None = None, batch_tokens: int = SMALL_BATCH
    ) -> Tensor:
        """score_B by the fast path."""
        return score_documents(
            self.model,
            self.pairs,
            self.documents,
            batch_tokens=batch_tokens,
            autocast=autocast,
            work=Work(),
        )

    def scores_of_definition(self, autocast: torch.dtype | None = None) -> Tensor:
        """score_B of one padded batch."""
        inputs = self.pairs.collate(self.documents).to(self.model.device)
        enabled = autocast is not None
        chosen = self.read(flat=False)
        try:
            with torch.autocast(self.model.device.type, dtype=autocast, enabled=enabled):
                return self.model(inputs).float()
        finally:
            self.read(flat=chosen)

    def read(self, flat: bool | None) -> bool | None:
        """Makes all encoders read flat rows, padded ones, or as the product decides (None); returns
        what held before."""
        before: bool | None = getattr(self.model.encoder, "reads_flat_rows", None)
        for part in self.model.children():
            part.reads_flat_rows = flat  # type: ignore[assignment]
        return before


def parts(
    name: str,
    backbone: Backbone,
    device: torch.device,
    settings: dict[str, Any] | None = None,
    texts: dict[str, Any] | None = None,
) -> Parts:
    """A model without dropout, in evaluation."""
    texts = texts or TEXTS
    own = {"model.name": name, "model.backbone": str(backbone.folder), "model.dropout": 0.0}
    config = TrialConfig().override(own | CUT | (settings or {}))
    model = build_model(config, backbone, init_seed=1).to(device).eval()
    pairs = model_class(name).reader(config, backbone, texts)
    return Parts(model, pairs, [pairs.chunks(QUERY, doc_id) for doc_id in texts], config)


def queries(num: int = 8, texts: Sequence[str] = tuple(TEXTS)) -> list[TrainingQuery]:
    """Training queries: each has one of the documents, and three others that are not relevant."""
    positives = [texts[3 + i % (len(texts) - 3)] for i in range(num)]
    negatives = (tuple(texts[:3]),)
    return [
        TrainingQuery(f"q{i}", tokens(i, 6), (doc_id,), (1,), negatives)
        for i, doc_id in enumerate(positives)
    ]


def difference(scores: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest score where that is above 1."""
    scores, expected = scores.detach().cpu().double(), expected.detach().cpu().double()
    return float((scores - expected).abs().max() / max(1.0, float(expected.abs().max())))
