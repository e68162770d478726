"""What the plan says of chunks and time, against a count by hand and against a real trial."""

from dataclasses import replace

import numpy as np
import pytest

import sweeps.plan.trial_cost
from rank_core.chunking.chunks import chunk_spans, document_spans
from rank_core.chunking.inputs import load_inputs
from rank_core.chunking.token_store import open_token_store
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models import model_class
from rank_core.trial.trial import TrialResult, run_trial
from sweeps.plan.trial_cost import (
    FEWEST_INDEXED,
    chunk_statistics,
    index_of,
    index_sample,
    mean_query_tokens,
    planned_tokens,
    trial_cost,
)


@pytest.fixture
def inputs(small_trial):
    return load_inputs(small_trial.collection, small_trial.model.backbone)


def test_chunks_tokens_and_coverage_are_those_of_a_count_by_hand(small_trial, inputs):
    lengths = dict(zip(inputs.tokens, inputs.tokens.lengths().tolist(), strict=True))
    read = {doc_id: np.zeros(length, bool) for doc_id, length in lengths.items()}
    counts, tokens = [], 0
    for doc_id, length in lengths.items():
        spans = document_spans(doc_id, length, small_trial.chunking)
        counts.append(len(spans))
        for span in spans:
            read[doc_id][span.start : span.end] = True
            tokens += span.end - span.start
    found = chunk_statistics(small_trial, inputs)
    assert found.chunks_per_document == np.mean(counts)
    assert found.max_chunks == max(counts)
    assert found.coverage == np.concatenate(list(read.values())).mean()
    overhead = np.mean(counts) * (mean_query_tokens(inputs, 32) + 3)
    assert found.tokens_per_document == pytest.approx(tokens / len(lengths) + overhead)


def test_a_sample_of_the_documents_is_spread_over_all(small_trial, inputs, monkeypatch):
    keyb = small_trial.override({"model.name": "keyb", "chunking.stride": 40})
    every = chunk_statistics(keyb, inputs)
    assert list(inputs.tokens) == [f"d{number:02}" for number in range(20)]
    monkeypatch.setattr(sweeps.plan.trial_cost, "SAMPLE", 6)  # every fourth, which are five
    sample = ["d00", "d04", "d08", "d12", "d16"]
    assert chunk_statistics(keyb, inputs) != every
    texts = {doc_id: inputs.collection.documents[doc_id] for doc_id in sample}
    tokenizer = load_tokenizer(inputs.backbone.folder)
    few = replace(inputs, tokens=open_token_store(texts, content_hash="few", tokenizer=tokenizer))
    assert chunk_statistics(keyb, inputs) == chunk_statistics(keyb, few)


@pytest.fixture
def no_sample_kept():
    index_sample.cache_clear()
    yield
    index_sample.cache_clear()


@pytest.mark.parametrize("snap", [False, True])
def test_a_plan_cuts_few_documents_for_an_index(small_trial, monkeypatch, no_sample_kept, snap):
    """Whatever the collection, as ends of sentences take minutes; sizes are near those of all."""
    few = {"model.name": "dense", "model.backbone": "tiny-docs", "chunking.window": 24}
    dense = small_trial.override({**few, "chunking.overlap": 0.5, "chunking.snap": snap})
    inputs = load_inputs(dense.collection, "tiny-docs")
    every, whole = chunk_statistics(dense, inputs), index_of(dense, inputs)
    assert whole.whole and whole.scale == 1
    monkeypatch.setattr(sweeps.plan.trial_cost, "INDEXED_TOKENS", 1)
    index_sample.cache_clear()
    sample, found = index_of(dense, inputs), chunk_statistics(dense, inputs)
    assert sample.index.cuts.num_documents == FEWEST_INDEXED < sample.documents == 20
    assert found.tokens_per_document == pytest.approx(every.tokens_per_document, rel=0.15)
    assert found.chunks_per_document == pytest.approx(every.chunks_per_document, rel=0.15)
    assert found.max_chunks == pytest.approx(every.max_chunks, rel=0.5)
    assert sample.num_bytes == pytest.approx(whole.num_bytes, rel=0.15)
    # Cells that cut a sample alike need not cut all alike.
    other = dense.override({"chunking.overlap": 0.49})
    assert chunk_statistics(other, inputs).signature != found.signature


def test_only_configurations_that_cut_alike_share_a_signature(small_trial, inputs):
    signature = chunk_statistics(small_trial, inputs).signature
    for same in ({"training.margin": 2.0}, {"model.name": "sump"}):
        assert chunk_statistics(small_trial.override(same), inputs).signature == signature
    for other in ({"chunking.window": 41}, {"chunking.stride": 21}, {"chunking.max_chunks": 2}):
        assert chunk_statistics(small_trial.override(other), inputs).signature != signature


def test_a_model_that_cuts_in_its_own_way_is_counted_by_its_own_reader(small_trial, inputs):
    window = small_trial.chunking.window
    for name in ("avg-cls", "mores"):
        config = small_trial.override({"model.name": name, "chunking.stride": window})
        reader = model_class(name).reader(config, inputs.backbone, inputs.tokens)
        rows = [reader.chunks(np.arange(3, dtype=np.int32), doc_id) for doc_id in inputs.tokens]
        statistics = chunk_statistics(config, inputs)
        assert statistics.max_chunks == max(map(len, rows))
        assert statistics.chunks_per_document == pytest.approx(np.mean([*map(len, rows)]))
        for other in ({"chunking.max_document_tokens": 70}, {"model.name": "cedr-knrm"}):
            assert chunk_statistics(config.override(other), inputs).signature != (
                statistics.signature
            )


def test_padding_in_place_is_counted(small_trial, inputs):
    padded = small_trial.override({"model.quirks": ("unmasked-chunks",)})
    chunking, statistics = padded.chunking, chunk_statistics(padded, inputs)
    number = len(chunk_spans(chunking.max_document_tokens, chunking.window, chunking.stride))
    assert (statistics.chunks_per_document, statistics.max_chunks) == (number, number)
    row = chunking.max_query_tokens + 3 + chunking.window
    assert statistics.tokens_per_document == number * row
    assert statistics.signature != chunk_statistics(small_trial, inputs).signature


def test_the_estimate_is_close_to_what_a_trial_really_reads(
    small_trial, inputs, tmp_path, monkeypatch
):
    *_, result = run_trial(small_trial, tmp_path)
    assert isinstance(result, TrialResult)
    monkeypatch.setattr(sweeps.plan.trial_cost, "BACKWARD", 0.0)
    estimate = trial_cost(small_trial, inputs, chunk_statistics(small_trial, inputs))
    assert estimate == pytest.approx(result.encoder_tokens, rel=0.15)


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_the_planned_tokens_are_those_of_a_count_by_hand(small_trial, inputs, epochs):
    # Two steps of four groups and a validation an epoch, and the test; eight queries with six
    # candidates. Without training there is one validation.
    config = small_trial.override({"training.num_epochs": epochs})
    chunks = chunk_statistics(config, inputs)
    found, mean = planned_tokens(config, inputs, chunks), chunks.tokens_per_document
    trained = 8 * epochs * (1 + config.training.negatives) * mean
    assert found == pytest.approx((trained, (max(epochs, 1) + 1) * 8 * 6 * mean, 8 * 6 * mean))
    cost = trial_cost(config, inputs, chunks)  # forward and backward
    assert cost == pytest.approx(3 * found.trained + found.scored)
    birch = small_trial.override({"model.name": "birch", "evaluation.folds": 3})
    assert planned_tokens(birch, inputs, chunks).scored == pytest.approx(9 * 8 * 6 * mean)
