"""What the tests of all models and those of one share: made tokens, batches, and laws."""

import numpy as np
import torch
from torch.testing import assert_close

from rank_core.ranking.encode import Work, score_documents

STILL = "self.key.bias"  # a softmax does not change when a constant is added to all keys


def tokens(seed, size, largest=100):
    return np.random.default_rng(seed).integers(5, largest, size).astype(np.int32)


QUERY = tokens(0, 6)


def batch_of(pairs, documents, query=QUERY):
    """A batch of documents given by id or as lists of chunks."""
    return pairs.collate([pairs.chunks(query, d) if isinstance(d, str) else d for d in documents])


def scores(model, pairs, documents, query=QUERY):
    """score_B of documents given by id or as lists of chunks."""
    with torch.inference_mode():
        return model(batch_of(pairs, documents, query))


def assert_each_document_is_scored_alone(model, pairs, doc_ids, query=QUERY, spread=0.05):
    """Neither the neighbours in a batch nor their order moves a score. Returns score_B."""
    alone = torch.cat([scores(model, pairs, [doc_id], query) for doc_id in doc_ids])
    together = scores(model, pairs, doc_ids, query)
    assert together.isfinite().all()
    assert_close(together, alone, atol=1e-5, rtol=0)
    assert_close(scores(model, pairs, doc_ids[::-1], query), alone.flip(0), atol=1e-5, rtol=0)
    assert alone.std() > spread, "documents that score alike would hide a dependence"
    return together


def without_gradient(model, score_B, weights=(1.0, -0.3), still=(STILL,)):
    """The trainable parameters that the gradient of the weighted scores does not reach."""
    (score_B * torch.tensor(weights)).sum().backward()
    without = {n for n, p in model.trainable() if p.grad is None or not p.grad.abs().sum() > 0}
    return {name for name in without if not name.endswith(tuple(still))}


def assert_the_fast_path_is_the_definition(plain, fast, pairs, doc_ids, batch_tokens):
    """Scores and gradients of two equal models in training without dropout, one fed with whole
    documents and one with batches of chunks."""
    documents = [pairs.chunks(QUERY, doc_id) for doc_id in doc_ids]
    plain_B = plain(pairs.collate(documents))
    settings = {"batch_tokens": batch_tokens, "autocast": None, "work": Work()}
    fast_B = score_documents(fast, pairs, documents, **settings)
    assert_close(fast_B, plain_B, atol=1e-5, rtol=0)
    for score_B in (plain_B, fast_B):
        (score_B * torch.linspace(-1, 1, len(documents))).sum().backward()
    learnt = dict(fast.trainable())
    for name, parameter in plain.trainable():
        if parameter.grad is not None:
            size = parameter.grad.abs().max().item()
            assert_close(learnt[name].grad, parameter.grad, atol=1e-4 * max(1, size), rtol=1e-4)
