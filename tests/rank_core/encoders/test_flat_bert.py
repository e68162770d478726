"""BERT's layers over a flat row of tokens against `Ranker.encode` over padded rows: vectors and
gradients, weights that are never stale, and the function that a GPU compiles."""

import pytest
import torch
from torch.testing import assert_close

from rank_core.chunking.batches import Chunk
from rank_core.encoders import flat_bert
from rank_core.encoders.flat_bert import LAYERS_AT_ONCE, kept_weights, weights_of
from rank_core.encoders.flat_rows import rows_of_lengths
from rank_core.encoders.packed import flat_states
from rank_core.models.build import build_model
from rank_core.ranking.encode import How, Work, encode_chunks
from rank_core.settings.config import TrialConfig
from rank_core.testing.laws import tokens
from tests.rank_core.encoders.test_cpu_layers import whole_encoder

LENGTHS = (12, 4, 9, 12, 1)
WIDTH = max(LENGTHS)


def both_ways(encoder):
    """Hidden states of padded rows and of flat rows, zeros at padding."""
    mask_CL = (torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]).long()
    ids_CL = torch.randint(5, 50, mask_CL.shape, generator=torch.Generator().manual_seed(1))
    ids_CL = ids_CL.where(mask_CL == 1, encoder.config.pad_token_id)
    padded_CLH = encoder(input_ids=ids_CL, attention_mask=mask_CL).last_hidden_state
    [flat_CLH] = flat_states(encoder, ids_CL, rows_of_lengths(LENGTHS, WIDTH))
    return padded_CLH * mask_CL[:, :, None], flat_CLH


def weighted(x):
    """A number that depends on all of x; the sum of squares after a norm does not."""
    return (x * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))).sum()


def test_a_narrower_embedding_and_another_activation_are_the_encoders_own():
    encoder = whole_encoder("electra", 16, hidden_act="relu")
    encoder.embeddings_project = torch.nn.Linear(16, 16)
    assert_close(*both_ways(encoder), atol=1e-5, rtol=1e-5)


def ranker(backbone, dropout=0.0):
    """(model whose encoder reads flat rows, its chunks' reader, chunks of unequal length)."""
    settings = {"model.name": "maxp", "model.backbone": str(backbone.folder)}
    config = TrialConfig().override(settings | {"model.dropout": dropout})
    model = build_model(config, backbone, init_seed=1)
    model.encoder.reads_flat_rows = True
    chunks = [Chunk(tokens(5, 1), tokens(size, size)) for size in (20, 3, 20, 11)]
    return model, type(model).reader(config, backbone, {}), chunks


def scored(model, pairs, chunks, autocast=None):
    """x_CH in two batches."""
    with torch.inference_mode():
        return encode_chunks(model.eval(), pairs, chunks, How(50, autocast, Work()))


def test_weights_are_copied_once_for_all_batches_of_a_pass(backbone, monkeypatch):
    model, pairs, chunks = ranker(backbone)
    times = []
    monkeypatch.setattr(flat_bert, "weights_of", lambda *args: times.append(1) or weights_of(*args))
    x_CH = scored(model, pairs, chunks)
    assert len(times) == 1
    assert not hasattr(model.encoder, "weights")
    assert_close(x_CH, model.encode(pairs.layout(chunks)), atol=1e-5, rtol=1e-5)
    with torch.enable_grad():
        encode_chunks(model.train(), pairs, chunks, How(50, None, Work()))
    assert len(times) == 1 + 1 + 2  # a copy that gradients pass belongs to its batch


def test_cached_weights_are_used_only_for_their_purpose(backbone):
    model, pairs, chunks = ranker(backbone)
    inputs = pairs.layout(chunks)
    with torch.no_grad(), kept_weights(model.encoder, torch.bfloat16):
        with kept_weights(model.encoder, torch.bfloat16):
            kept = model.encoder.weights
        assert model.encoder.weights is kept
        exact_CH = model.eval().encode(inputs)  # products of 32 bits
        with torch.enable_grad():
            assert model.encode(inputs).requires_grad
    assert torch.equal(exact_CH, model.encode(inputs))


def test_weights_are_copied_again_after_an_optimizer_step(backbone):
    model, pairs, chunks = ranker(backbone)
    before_CH = scored(model, pairs, chunks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.train()
    weighted(encode_chunks(model, pairs, chunks, How(500, None, Work()))).backward()
    optimizer.step()
    now_CH = scored(model, pairs, chunks)
    assert (now_CH - before_CH).abs().max() > 0.1
    model.encoder.reads_flat_rows = False
    assert_close(now_CH, scored(model, pairs, chunks), atol=1e-5, rtol=1e-4)


def test_copies_of_several_layers_are_one_operation_each_way(backbone):
    encoder = whole_encoder("bert", 16)
    layers = encoder.encoder.layer
    assert len(layers) == LAYERS_AT_ONCE
    weights = weights_of(layers, torch.bfloat16)
    query = layers[1].attention.self.query.weight
    assert torch.equal(weights[1].qkv_weight[:16], query.to(torch.bfloat16))
    (weights[1].qkv_weight[16:32].float().sum() * 2).backward()
    assert torch.equal(layers[1].attention.self.key.weight.grad, torch.full((16, 16), 2.0))
    assert not query.grad.any()


def finish_arguments(num_tokens, hidden=16):
    encoder = whole_encoder("bert", hidden)
    [weights, *_] = weights_of(encoder.encoder.layer, torch.float32)
    constants = flat_bert._constants(encoder.encoder.layer[0])
    inputs = [torch.randn(num_tokens, hidden, requires_grad=True) for _ in range(2)]
    return *inputs, weights, constants


def compiled_finish():
    x_TH, _, weights, constants = finish_arguments(24)
    return flat_bert._compiled_or_not(x_TH, weights, constants)


@pytest.mark.slow
def test_what_follows_attention_is_one_graph_for_any_number_of_tokens(monkeypatch):
    from torch._dynamo.testing import AotEagerAndRecordGraphs

    graphs, compile_ = AotEagerAndRecordGraphs(), torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, options, **how: compile_(f, backend=graphs, **how)
    )
    monkeypatch.setattr(flat_bert, "TRIED_TOKENS", 32)
    compiled = compiled_finish()
    assert compiled is not flat_bert._finish
    for num_tokens in (24, 7, 100):
        arguments = finish_arguments(num_tokens)
        y_TH = compiled(*arguments)
        expected_TH = flat_bert._finish(*arguments)
        assert_close(y_TH, expected_TH)
        for one, other in zip(
            torch.autograd.grad(weighted(y_TH), arguments[:2]),
            torch.autograd.grad(weighted(expected_TH), arguments[:2]),
            strict=True,
        ):
            assert_close(one, other)
    assert len(graphs.graphs) == 1


def test_a_failing_compiler_is_reported_once_and_not_used(caplog, monkeypatch):
    def fails(*_):
        raise NotImplementedError("no compiler here\nand no second line")

    def is_full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
    for _ in range(2):
        assert compiled_finish() is flat_bert._finish
    assert caplog.text.count("NotImplementedError: no compiler here") == 1
    assert "second" not in caplog.text
    monkeypatch.setattr(torch, "compile", lambda *_, **__: is_full)
    with pytest.raises(torch.OutOfMemoryError):
        compiled_finish()
