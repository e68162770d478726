"""A simulated GPU with too little memory: the same numbers as with smaller batches from the
start."""

import pytest
import torch

from rank_core.chunking.inputs import load_inputs
from rank_core.errors import OutOfMemory
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import rerank
from rank_core.ranking.scorer import Scorer
from rank_core.training.examples import training_queries
from rank_core.training.micro_batch import is_checkpointing
from rank_core.training.train import Streams, initial_state, train

HOLDS = 1000  # encoder tokens; a row of the small collection has up to some 600
STREAMS = Streams(init=1, order=2, negatives=3, dropout=4)


@pytest.fixture
def parts(small_trial):
    """`parts(settings, holds)`: a model on a device that holds so many encoder tokens in training
    before a backward pass, or at once in scoring; 0: any number."""

    def build(settings, holds=0):
        config = small_trial.override({"model.dropout": 0.0, "training.num_epochs": 2} | settings)
        inputs = load_inputs(config.collection, config.model.backbone)
        model = build_model(config, inputs.backbone, init_seed=5)
        scorer = Scorer(config, inputs, model, None)
        model.failures = 0
        if holds:
            limit_memory(model, holds)
        return model, scorer, training_queries(inputs, config), config.training

    return build


def limit_memory(model, holds):
    """Makes the encoder fail like a GPU that keeps activations until the backward pass."""
    held = [0]
    encode = model.encoder.forward

    def forward(*args, **kwargs):
        size = kwargs["input_ids"].numel()
        if torch.is_grad_enabled() and not is_checkpointing(model):
            held[0] += size
        if max(size, held[0]) > holds:
            held[0] = 0
            model.failures += 1
            raise torch.AcceleratorError("CUDA error: out of memory (made up)")
        return encode(*args, **kwargs)

    model.encoder.forward = forward
    learns = next(p for p in model.head.parameters() if p.requires_grad)
    learns.register_hook(lambda gradient: held.__setitem__(0, 0))


def trained(model, scorer, queries, training):
    """(curve, work, weights, the budget in the end) of a training."""
    work, state = Work(), initial_state(model, training, None)
    kinds = {"streams": STREAMS, "autocast": None, "work": work, "state": state}
    records = list(train(model, scorer.pairs, queries, training, **kinds))
    curve = [(point.step, point.loss, point.gradient_norm) for r in records for point in r.curve]
    return curve, vars(work), dict(model.state_dict()), state.tokens


@pytest.mark.parametrize(
    "settings",
    [
        {"model.name": "sump"},
        {"model.name": "parade-transformer", "model.dropout": 0.1},
        pytest.param(
            {"model.name": "idcm", "model.stage": "document", "model.dropout": 0.1},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["sump", "with dropout", "idcm"],
)
def test_a_step_that_does_not_fit_is_repeated_with_a_smaller_budget(parts, settings, caplog):
    settings = settings | {"training.max_steps": 1, "training.batch_size": 8}
    small = parts(settings, holds=HOLDS)
    curve, work, weights, tokens = trained(*small)
    assert 1 <= small[0].failures <= 4 and tokens < HOLDS
    assert f"reducing passes to {tokens} tokens" in caplog.text
    expected = trained(*parts(settings | {"training.micro_batch_tokens": tokens}))
    assert (curve, work, tokens) == (expected[0], expected[1], expected[3])
    for name, weight in expected[2].items():
        assert torch.equal(weights[name], weight), name


def test_gradients_of_a_step_that_failed_halfway_are_dropped(parts):
    settings = {"model.name": "sump", "training.max_steps": 1, "training.batch_size": 8}
    whole = parts(settings | {"training.micro_batch_tokens": 2 * HOLDS})
    gradients, encode = [], whole[0].encoder.forward

    def forward(*args, **kwargs):
        have = any(parameter.grad is not None for parameter in whole[0].parameters())
        if have and not gradients:
            gradients.append("of the first micro-batch")
            raise torch.AcceleratorError("CUDA error: out of memory (made up)")
        return encode(*args, **kwargs)

    whole[0].encoder.forward = forward
    curve, work, weights, tokens = trained(*whole)
    assert gradients and tokens < 2 * HOLDS
    expected = trained(*parts(settings | {"training.micro_batch_tokens": tokens}))
    assert (curve, work) == expected[:2]
    assert all(torch.equal(weights[name], weight) for name, weight in expected[2].items())


def test_a_row_that_does_not_fit_enables_checkpointing(parts):
    small = parts({"model.name": "sump", "training.max_steps": 1}, holds=200)
    found = trained(*small)
    assert is_checkpointing(small[0])
    tokens = found[3]
    settings = {"model.name": "sump", "training.max_steps": 1}
    expected = trained(*parts(settings | {"training.micro_batch_tokens": tokens}))
    assert found[:2] == expected[:2]


def test_a_row_that_never_fits_ends_the_trial_with_a_remedy(parts):
    with pytest.raises(OutOfMemory, match=r"a single group \(2 documents, \d+ encoder tokens\)"):
        trained(*parts({"model.name": "sump"}, holds=30))


def reranked(model, scorer, batch_tokens=4096):
    work = Work()
    run = rerank(
        model,
        scorer.pairs,
        queries=scorer.own_queries("dev"),
        candidates=scorer.inputs.collection.splits["dev"].candidates,
        depth=100,
        batch_tokens=batch_tokens,
        work=work,
    )
    return run, vars(work)


@pytest.mark.parametrize("name", ["sump", "cedr-knrm"])  # by chunks, and whole documents
def test_scoring_batches_shrink_until_they_fit(parts, name):
    model, scorer, *_ = parts({"model.name": name}, holds=HOLDS)
    found, work = reranked(model, scorer)
    failures = model.failures
    assert 1 <= failures <= 3
    assert reranked(model, scorer)[0] == found
    assert model.failures == failures, "a batch that did not fit was tried again"
    expected, large_work = reranked(*parts({"model.name": name})[:2])
    assert {q: list(docs) for q, docs in found.items()} == {
        q: list(docs) for q, docs in expected.items()
    }
    for query_id, docs in expected.items():
        assert found[query_id] == pytest.approx(docs, abs=1e-5)
    assert work["tokens"] == large_work["tokens"]
    assert work["padded_tokens"] <= large_work["padded_tokens"]


def test_a_chunk_that_does_not_fit_ends_scoring_with_a_remedy(parts):
    model, scorer, *_ = parts({"model.name": "sump"}, holds=20)
    with pytest.raises(OutOfMemory, match=r"longest chunk while scoring \(5\d encoder"):
        reranked(model, scorer)
