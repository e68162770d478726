"""The tokens that fit, from made-up measurements; and gradients under checkpointing."""

import pytest
import torch

from rank_core.chunking.batches import PairEncoder
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import Chunking, TrialConfig
from rank_core.training import micro_batch
from rank_core.training.micro_batch import (
    Peak,
    _group_tokens,
    _tokens_on_gpu,
    checkpoint,
    tokens_that_fit,
)


@pytest.mark.parametrize(
    ("small", "large", "free", "tokens"),
    [
        # 100 bytes a token and 1000 whatever the size: 60% of 1,000,000 holds 5990 tokens.
        (Peak(10, 2000), Peak(50, 6000), 1_000_000, 4096),
        (Peak(10, 1000), Peak(20, 2000), 10_000, 32),  # 60 tokens
        (Peak(10, 1000), Peak(20, 2000), 1_365_333, 4096),  # 8191.998 tokens
        (Peak(10, 1000), Peak(20, 2000), 1_365_334, 8192),  # 8192.004 tokens
        (Peak(10, 1000), Peak(20, 2000), 4_200_000, 24_576),  # 25,200 tokens: three steps of 8192
        (Peak(10, 1000), Peak(20, 2000), 50, 1),  # not even one token
        (Peak(10, 1000), Peak(20, 2000), -50, 1),
    ],
)
def test_tokens_that_fit_follow_from_two_peaks(small, large, free, tokens):
    assert tokens_that_fit(small, large, free) == tokens


@pytest.fixture
def parts(backbone):
    config = TrialConfig().override(
        {"model.backbone": str(backbone.folder), "model.dropout": 0.0, "model.name": "sump"}
    )
    documents = {f"d{i}": torch.arange(5, 5 + 40).numpy().astype("int32") for i in range(3)}
    pairs = PairEncoder(documents, Chunking(window=20, stride=10), False, backbone)
    return build_model(config, backbone, init_seed=1), pairs


@pytest.fixture
def made_up_gpu(monkeypatch):
    """`made_up_gpu(total)`: the calls that ask a GPU for its memory."""

    def build(total):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "made up")
        monkeypatch.setattr(micro_batch, "gpu_memory", lambda device: (total, total))

    return build


def test_a_gpu_is_measured_for_its_memory_and_no_failure_is_cached(parts, made_up_gpu, monkeypatch):
    def peak(model, pairs, autocast, chunks):
        return Peak(chunks, 100 * chunks)

    def full(*args):
        raise torch.OutOfMemoryError("CUDA out of memory (made up)")

    tokens = []
    for total, measured in ((40_000_000, full), (40_000_000, peak), (80_000_000, peak)):
        made_up_gpu(total)
        monkeypatch.setattr(micro_batch, "_peak", measured)
        tokens.append(_tokens_on_gpu(*parts, None, checkpointing=False))
    assert tokens[0] == 1 < tokens[1] < tokens[2]


@pytest.mark.parametrize(
    ("chunking", "first_only", "tokens"),
    [
        (Chunking(window=150, stride=75, max_document_tokens=1431), False, 2 * 19 * 185),
        (Chunking(window=150, stride=100, max_document_tokens=1431), False, 2 * 14 * 185),
        (Chunking(window=150, stride=75, max_chunks=4), False, 2 * 4 * 185),
        (Chunking(window=150, stride=150, max_document_tokens=90), False, 2 * 185),
        (Chunking(window=477, stride=477), True, 2 * 512),
    ],
)
def test_a_group_is_as_large_as_its_longest_documents(backbone, chunking, first_only, tokens):
    assert _group_tokens(PairEncoder({}, chunking, first_only, backbone), 2) == tokens


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
