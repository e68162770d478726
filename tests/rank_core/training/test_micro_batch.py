"""Gradients under activation checkpointing."""

import pytest
import torch

from rank_core.chunking.batches import PairEncoder
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import Chunking, TrialConfig
from rank_core.training.micro_batch import checkpoint


@pytest.fixture
def parts(backbone):
    config = TrialConfig().override(
        {"model.backbone": str(backbone.folder), "model.dropout": 0.0, "model.name": "sump"}
    )
    documents = {f"d{i}": torch.arange(5, 5 + 40).numpy().astype("int32") for i in range(3)}
    pairs = PairEncoder(documents, Chunking(window=20, stride=10), False, backbone)
    return build_model(config, backbone, init_seed=1), pairs


def test_checkpointing_changes_no_gradient(parts):
    model, pairs = parts
    query = torch.arange(5, 9).numpy().astype("int32")
    documents = [pairs.chunks(query, doc_id) for doc_id in pairs.tokens]

    def gradients():
        model.train()
        model.zero_grad()
        score_B = score_documents(
            model, pairs, documents, batch_tokens=100, autocast=None, work=Work()
        )
        score_B.sum().backward()
        return [parameter.grad.clone() for _, parameter in model.trainable()]

    plain = gradients()
    checkpoint(model)
    assert model.encoder.is_gradient_checkpointing
    again = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert any(gradient.abs().max() > 0 for gradient in plain)
