"""Reranking: batches, empty lists, what is counted, and the order of ties."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from rank_core.chunking.batches import PairEncoder, tokenize_queries
from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models.build import build_model
from rank_core.ranking import rerank as rerank_module
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import ordered, rerank
from rank_core.settings.config import Chunking, Model, TrialConfig

CHUNKING = Chunking(window=40, stride=20, max_document_tokens=90, max_query_tokens=8)


@pytest.fixture(scope="module")
def inputs(collection_folder, backbone_folder):
    return load_inputs(str(collection_folder), str(backbone_folder))


@pytest.fixture(scope="module")
def queries(inputs):
    texts = inputs.collection.splits["dev"].queries
    tokenizer = load_tokenizer(inputs.backbone.folder)
    tokens = tokenize_queries(tokenizer, list(texts.values()), CHUNKING.max_query_tokens)
    return dict(zip(texts, tokens, strict=True))


def ranker(name, inputs):
    config = TrialConfig(model=Model(name, backbone=str(inputs.backbone.folder)))
    return build_model(config, inputs.backbone, init_seed=3)


def run_of(model, inputs, queries, **changes):
    first = type(model).first_chunk_only
    settings = {
        "queries": queries,
        "candidates": inputs.collection.splits["dev"].candidates,
        "depth": 5,
        "batch_tokens": 400,
    }
    pairs = PairEncoder(inputs.tokens, CHUNKING, first, inputs.backbone)
    return rerank(model, pairs, **settings | changes)


@pytest.mark.parametrize("name", ["maxp", "parade-transformer"])
def test_the_batch_budget_does_not_change_scores(name, inputs, queries, monkeypatch):
    model, queries = ranker(name, inputs), dict(list(queries.items())[:4])
    expected = run_of(model, inputs, queries)
    for batch_tokens, chunks_at_once in ((1, 4096), (10**6, 4096), (90, 17)):
        monkeypatch.setattr(rerank_module, "CHUNKS_AT_ONCE", chunks_at_once)
        run = run_of(model, inputs, queries, batch_tokens=batch_tokens)
        for query_id, scores in expected.items():
            assert run[query_id] == pytest.approx(scores, abs=1e-5)
            assert list(run[query_id].values()) == sorted(run[query_id].values(), reverse=True)


def test_a_query_without_candidates_keeps_an_empty_list(inputs, queries):
    model, [first, second, *_] = ranker("maxp", inputs), queries
    some = {first: {"d01": 1.0}, second: {}}
    run = run_of(model, inputs, queries, candidates=some)
    assert list(run) == list(queries)
    assert {query_id for query_id, ranked in run.items() if ranked} == {first}
    assert run_of(model, inputs, queries, candidates={}) == {q: {} for q in queries}
    assert run_of(model, inputs, {}) == {}


def test_scoring_switches_dropout_off_and_counts_what_was_read(inputs, queries):
    model, work = ranker("maxp", inputs).train(), Work()
    first = run_of(model, inputs, queries, work=work)
    assert run_of(model.train(), inputs, queries) == first
    pairs = PairEncoder(inputs.tokens, CHUNKING, False, inputs.backbone)
    real = sum(
        len(chunk)
        for query_id, ranked in first.items()
        for doc_id in ranked
        for chunk in pairs.chunks(queries[query_id], doc_id)
    )
    assert work.tokens == real <= work.padded_tokens < 1.2 * real


def test_ties_are_broken_by_doc_id_with_strictly_falling_scores():
    below = float(np.nextafter(np.float32(1), np.float32(0)))
    result = ordered({"c": 1.0, "a": 1.0, "low": -2.0, "b": 1.0, "next": below, "top": 3.0})
    assert list(result) == ["top", "a", "b", "c", "next", "low"]
    values = list(result.values())
    assert values[1] == 1.0 and values[-1] == -2.0
    assert all(a > b for a, b in pairwise(values))
    assert values == np.asarray(values, dtype=np.float32).tolist()
    assert values[1:5] == pytest.approx([1.0] * 4, abs=1e-6)


def test_scores_that_differ_only_beyond_float32_are_ties():
    assert list(ordered({"b": 1.0 + 1e-12, "a": 1.0})) == ["a", "b"]
    zeros = list(ordered({"b": 0.0, "a": -0.0, "c": 0.0}).items())
    assert [doc_id for doc_id, _ in zeros] == ["a", "b", "c"]
    assert zeros[0][1] > zeros[1][1] > zeros[2][1]


def test_ties_are_counted(inputs, queries):
    model = ranker("maxp", inputs)
    apart, tied = Work(), Work()
    run_of(model, inputs, queries, work=apart)
    torch.nn.init.zeros_(model.head.weight)
    run = run_of(model, inputs, queries, work=tied)
    assert apart.ties == 0
    assert tied.ties == sum(len(scores) - 1 for scores in run.values() if scores) > 0
