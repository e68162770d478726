"""The answer of a sweep over chunk sizes, by hand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from rank_core.stats.best import best_set
from rank_core.stats.matrix import score_matrix
from sweeps.commands.schema import schema_text
from sweeps.report import chunk_sizes
from sweeps.report.results import json_text
from sweeps.store.sweep_file import FIRST_STAGE, Cell
from sweeps.systems.chunk_sizes import IndexFacts
from sweeps.systems.clusters import Clusters

QUERIES = 40
NOISE = np.random.default_rng(1).normal(0, 0.02, (6, QUERIES))
LABELS = {"cut": "cut at 512", "usual": "256/50%", "large": "512/0%", "small": "128/0%"}


def facts(window, overlap, vectors, *, limit=512, **settings):
    ends = {"chunking.snap": False, "chunking.title": False} | settings
    own = {"chunking.window": window or 150, "chunking.overlap": overlap, **ends}
    ignored = () if window else ("chunking.window", "chunking.overlap")
    figures = {
        "largest_window": limit,
        "vectors_per_document": vectors / 10,
        "bytes": 4 * 8 * vectors,
        "tokens": 100 * vectors,
        "embedded_tokens": 60 * vectors,
        "characters": 5 * (window or limit),
        "dimensions": 8,
        "similarity": "cosine",
        "query_prompt": "",
        "document_prompt": "",
        "ms_per_query": 1.0,
        "ms_per_query_p95": 2.0,
    }
    return IndexFacts({**own, "ignored": ignored}, figures)


INDEXES = {
    "cut": facts(None, 0.0, 10),
    "usual": facts(256, 0.5, 80),
    "large": facts(512, 0.0, 20),
    "small": facts(128, 0.0, 70),
}


def values(means, split="test"):
    base = np.linspace(0.3, 0.6, QUERIES)
    rows = [
        {"cell": cell, "seed": 1, "split": split, "query_id": f"q{n}", "measure": "nDCG@10"}
        | {"value": value}
        for cell, mean, noise in zip(means, means.values(), NOISE, strict=False)
        for n, value in enumerate(base + mean + noise)
    ]
    return pd.DataFrame(rows)


def analysis_of(test, dev, indexes=INDEXES, mixed=()):
    """An analysis of deterministic cells, whose values differ by constants and a little noise."""
    matrix = score_matrix(values(test), measure="nDCG@10", cells=[*test])
    labels = LABELS | {FIRST_STAGE: "BM25"} | {name: f"{LABELS[of]} +BM25" for name, of in mixed}
    sweep = SimpleNamespace(
        indexes=indexes,
        baseline="cut",
        primary="nDCG@10",
        correction="max-t",
        deterministic=(*test, "unfinished"),
        interpolated=tuple(SimpleNamespace(name=name, of=of) for name, of in mixed),
        about=SimpleNamespace(
            alpha=0.05,
            search={},
            fixed={},
            backbone={"name": "a/model", "content_hash": "c", "tokenizer_hash": "t"},
            collection={"name": "woods", "content_hash": "w"},
        ),
        label=labels.__getitem__,
        digits=3,
        split="test",
        first_stage_name="BM25",
        count_text=lambda number, clusters=None: f"test, {number} queries",
        cells=[Cell(cell) for cell in indexes],
        dev_scores=values(dev, "dev"),
        scores=values(test),
    )
    best = best_set(matrix, deterministic=list(test))
    matrices = {"nDCG@10": matrix}
    return SimpleNamespace(
        sweep=sweep, matrices=matrices, matrix=matrices.__getitem__, best_set=best
    )


TEST = {"cut": -0.2, "usual": 0.0, "large": 0.1, "small": 0.1}


def test_dev_chooses_and_the_sentence_has_the_gains_over_the_usual_sizes():
    analysis = analysis_of(TEST, dev={**TEST, "small": 0.2})
    answer = chunk_sizes.answer(analysis)
    assert answer.startswith("Cut documents into chunks of 128 tokens without an overlap: nDCG@10 ")
    assert "(test, 40 queries)" in answer and "p corrected over these 3" in answer
    assert "over documents cut at the model's limit of 512" in answer
    assert "over chunks of 512/0%" in answer and "over chunks of 256/50%" in answer
    assert "in common use" not in answer  # none is left out
    means = analysis.matrices["nDCG@10"].scores
    gain = (means["small"] - means["usual"]).mean()
    assert f"{gain:+.3f}".replace("+0.", "+.") in answer


def test_the_cheapest_index_has_the_fewest_bytes_of_those_like_the_best():
    analysis = analysis_of(TEST, dev={**TEST, "small": 0.2})
    assert {*analysis.best_set.members} == {"large", "small"}
    found = chunk_sizes.chosen_size(analysis)
    assert found.cell == "small" and found.cheapest == "large"
    answer = chunk_sizes.answer(analysis)
    size = "(2.0 vectors per document, 640 bytes in fp32)"
    if analysis.best_set.best == "large":
        assert f"Every cheaper index can be told from the best on test, 512/0% {size}." in answer
    else:
        assert f"the best on test, 128/0%, is that of 512/0% {size}." in answer


def test_a_fusion_costs_its_index_and_more_than_the_index_alone():
    test = {**TEST, "small": -0.1, "large+": 0.1, FIRST_STAGE: 0.1}
    analysis = analysis_of(test, dev=TEST, mixed=[("large+", "large")])
    assert {*analysis.best_set.members} == {"large", "large+", FIRST_STAGE}
    assert chunk_sizes.chosen_size(analysis).cheapest == "large"
    assert "BM25 alone cannot be told from the best either" in chunk_sizes.answer(analysis)


def test_the_best_on_dev_may_be_told_from_the_best_on_test():
    analysis = analysis_of(TEST, dev={**TEST, "usual": 0.3})
    answer = chunk_sizes.answer(analysis)
    assert answer.startswith("Cut documents into chunks of 256 tokens that overlap by 128 (50%)")
    assert answer.endswith("256/50%, the best on dev, can be told from the best.")


@pytest.mark.parametrize(
    ("limit", "indexes", "said"),
    [
        (254, {"small"}, "512/0% and 256/50% are above the model's limit of 254 tokens."),
        (300, {"small", "usual"}, "512/0% is above the model's limit of 300 tokens."),
        (
            300,
            {"small"},
            "512/0% is above the model's limit of 300 tokens; 256/50% was not tested.",
        ),
        (512, {"small"}, "512/0% and 256/50% were not tested."),
    ],
)
def test_usual_sizes_that_are_missing_are_named_with_the_reason(limit, indexes, said):
    sizes = {"small": (128, 0.0), "usual": (256, 0.5)}
    own = {name: facts(*sizes[name], 70, limit=limit) for name in sorted(indexes)}
    own["cut"] = facts(None, 0.0, 10, limit=limit)
    test = {cell: TEST[cell] for cell in own}
    answer = chunk_sizes.answer(analysis_of(test, dev=test, indexes=own))
    assert f"Of the sizes in common use {said}" in answer


def test_without_a_finished_index_there_is_no_answer():
    analysis = analysis_of({"cut": 0.0, "small": 0.1}, dev={"cut": 0.0, "small": 0.1}, indexes={})
    assert chunk_sizes.answer(analysis) == "" and chunk_sizes.chunking(analysis) == {}
    assert chunk_sizes.sections(analysis) == [] and chunk_sizes.results(analysis) == {}


def test_chunking_json_has_tokens_and_characters():
    stated = chunk_sizes.chunking(analysis_of(TEST, dev={**TEST, "usual": 0.3}))
    assert (stated["chunk_tokens"], stated["overlap_tokens"]) == (256, 128)
    assert (stated["chunk_characters"], stated["overlap_characters"]) == (1280, 640)
    assert stated["model"] == {"name": "model", "content_hash": "c", "tokenizer_hash": "t"}
    assert set(stated["measured"]["over"]) == {"cut at 512", "512/0%"}
    schema = Draft202012Validator(json.loads(schema_text("chunking")))
    schema.validate(json.loads(json_text(stated)))
    assert not schema.is_valid(stated | {"chunk_tokens": "256"})
    assert not schema.is_valid(stated | {"chunk_size": 256})


def test_snapped_chunks_and_titles_are_said():
    own = INDEXES | {
        "small": facts(128, 0.25, 70, **{"chunking.snap": True, "chunking.title": True})
    }
    answer = chunk_sizes.answer(analysis_of(TEST, dev={**TEST, "small": 0.3}, indexes=own))
    assert answer.startswith(
        "Cut documents into chunks of 128 tokens that overlap by 32 (25%), ended at sentences, "
        "each with the title before it: "
    )


def test_bytes_are_short():
    sizes = {999: "999 bytes", 1_000: "1.0 kB", 3_389_952: "3.4 MB", 2_500_000_000: "2.5 GB"}
    assert {number: chunk_sizes.bytes_text(number) for number in sizes} == sizes


@pytest.mark.parametrize(("clusters", "alike"), [(None, False), (4, True)])
def test_evidence_is_told_apart_over_clusters_of_queries(clusters, alike):
    """Queries of one document gain and lose together."""
    gain = np.repeat([0.35, 0.2, -0.15, 0.0], QUERIES // 4) + NOISE[0]
    shares = {"cut": np.full(QUERIES, 0.1), "small": 0.4 + gain, "large": 0.4 + NOISE[1]}
    indexes = {
        cell: replace(INDEXES[cell], evidence={1024: {f"q{n}": x for n, x in enumerate(own)}})
        for cell, own in shares.items()
    }
    analysis = analysis_of({"cut": -0.2, "small": 0.1, "large": 0.1}, {}, indexes)
    of = {f"q{n}": f"c{n // (QUERIES // 4)}" for n in range(QUERIES)}
    analysis.sweep.clusters = Clusters("a file", {"woods": of}) if clusters else None
    analysis.sweep.collections = {"woods": ["nDCG@10"]}
    shown = chunk_sizes.evidence_table(analysis)
    marks = {row.cells[0].text: row.cells[1] for row in shown.rows}
    assert marks["128/0%"].letters == ("=",) and marks["cut at 512"].letters == ()
    assert bool(marks["512/0%"].letters) == alike
    assert marks["128/0%"].text == f"{shares['small'].mean():.3f}"
    assert f"({QUERIES} queries of test)" in shown.caption


def test_the_precision_of_vectors_is_said_where_several_were_compared():
    own = INDEXES | {
        "usual": facts(256, 0.5, 80, **{"training.precision": "int8"}),
        "small": facts(128, 0.0, 70, **{"training.precision": "bf16"}),
    }
    analysis = analysis_of(TEST, dev={**TEST, "usual": 0.3}, indexes=own)
    words = "Cut documents into chunks of 256 tokens that overlap by 128 (50%), computed in int8: "
    assert chunk_sizes.answer(analysis).startswith(words)
    assert chunk_sizes.chunking(analysis)["measured"]["precision"] == "int8"
    alike = analysis_of(TEST, dev={**TEST, "usual": 0.3})
    assert "computed in" not in chunk_sizes.answer(alike)
    assert chunk_sizes.chunking(alike)["measured"]["precision"] == "fp32"
