"""The answer of a sweep over chunk sizes, by hand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from rank_core.retrieval.stored import vector_bytes
from rank_core.stats.matrix import score_matrix
from sweeps.commands.schema import schema_text
from sweeps.findings.scores import ScoreViews
from sweeps.report import chunk_sizes
from sweeps.report.results import json_text
from sweeps.store.sweep_file import FIRST_STAGE, Cell
from sweeps.store.test_options import TestOptions
from sweeps.systems.chunk_sizes import IndexFacts, index_facts
from sweeps.systems.clusters import Clusters

QUERIES = 40
NOISE = np.random.default_rng(1).normal(0, 0.02, (7, QUERIES))
LABELS = {"cut": "cut at 512", "usual": "256/50%", "large": "512/0%", "small": "128/0%"}
LABELS |= {"small int8": "128/0%, as int8", "small 4": "128/0%, dims 4"}
LABELS |= {"usual int8": "256/50%, as int8"}


def facts(window, overlap, vectors, *, limit=512, dimensions=8, stored="fp32", **settings):
    ends = {"chunking.snap": False, "chunking.title": False} | settings
    ends |= {"model.truncate_dim": dimensions % 8, "model.stored": stored}
    own = {"chunking.window": window or 150, "chunking.overlap": overlap, **ends}
    ignored = () if window else ("chunking.window", "chunking.overlap")
    figures = {
        "largest_window": limit,
        "vectors_per_document": vectors / 10,
        "bytes": vectors * vector_bytes(stored, dimensions),
        "tokens": 100 * vectors,
        "embedded_tokens": 60 * vectors,
        "characters": 5 * (window or limit),
        "dimensions": dimensions,
        "stored": stored,
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
        deterministic=(*test, "unfinished"),
        interpolated=tuple(SimpleNamespace(name=name, of=of) for name, of in mixed),
        tests=TestOptions(),
        about=SimpleNamespace(
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
    scores = ScoreViews({"nDCG@10": matrix}, {"nDCG@10": matrix})
    chosen = max(dev, key=dev.__getitem__, default="")
    choice = SimpleNamespace(cell=chosen, system=chosen, is_mixed=False, split="dev")
    return SimpleNamespace(sweep=sweep, cell_scores=scores, choice=choice)


TEST = {"cut": -0.2, "usual": 0.0, "large": 0.1, "small": 0.1}


def test_the_choice_is_beside_the_cut_document_and_the_usual_sizes():
    analysis = analysis_of(TEST, dev={**TEST, "small": 0.2})
    gains = chunk_sizes.sizes_beside(analysis, "small")
    assert [gain.baseline for gain in gains] == ["cut", "large", "usual"]
    means = analysis.cell_scores.plain["nDCG@10"].scores
    assert gains[-1].delta == pytest.approx((means["small"] - means["usual"]).mean())
    assert chunk_sizes.left_out(analysis) == ""


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
    answer = chunk_sizes.left_out(analysis_of(test, dev=test, indexes=own))
    assert answer == f"Of the sizes in common use {said}"


def test_without_a_finished_index_there_is_no_answer():
    analysis = analysis_of({"cut": 0.0, "small": 0.1}, dev={"cut": 0.0, "small": 0.1}, indexes={})
    assert chunk_sizes.chunking(analysis) == {}
    assert chunk_sizes.tables(analysis) == [] and chunk_sizes.results(analysis) == {}


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


def test_vectors_in_fewer_bytes_are_compared_with_the_same_in_full():
    own = INDEXES | {
        "small int8": facts(128, 0.0, 70, stored="int8"),
        "small 4": facts(128, 0.0, 70, dimensions=4),
        "usual int8": facts(256, 0.5, 80, stored="int8"),
    }
    test = TEST | {"small int8": 0.095, "small 4": -0.1, "usual int8": 0.0}
    analysis = analysis_of(test, dev={**test, "small int8": 0.5}, indexes=own)
    lost = {loss.system: loss for loss in chunk_sizes.losses(analysis)}
    assert {name: loss.baseline for name, loss in lost.items()} == {
        "small int8": "small",
        "small 4": "small",
        "usual int8": "usual",
    }
    means = analysis.cell_scores.plain["nDCG@10"].scores
    assert lost["small 4"].delta == pytest.approx((means["small 4"] - means["small"]).mean())
    assert lost["small 4"].p_both_adjusted < 0.001 < lost["small int8"].p_both_adjusted
    beside = [gain.baseline for gain in chunk_sizes.sizes_beside(analysis, "small int8")]
    assert beside == ["cut", "usual int8", "small"], "stored alike, and the same chunks in full"
    shown, costs = chunk_sizes.tables(analysis)
    rows = {row.cells[0].text: [cell.text for cell in row.cells[1:3]] for row in shown.rows}
    assert rows["128/0%, as int8"] == ["560 B", "25%"]
    assert rows["128/0%, dims 4"] == ["1.1 KiB", "50%"]
    cells = {row.cells[0].text: [cell.text for cell in row.cells[2:5]] for row in costs.rows}
    assert cells["128/0%, as int8"] == ["8", "int8", "560 B"]
    assert [row["cell"] for row in chunk_sizes.results(analysis)["stored"]] == [*lost]
    stated = chunk_sizes.chunking(analysis)
    assert (stated["dimensions"], stated["stored"]) == (8, "int8")
    assert stated["measured"]["bytes"] == 560
    assert set(stated["measured"]["over"]) == {"cut at 512", "256/50%, as int8", "128/0%"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"chunking.window": 64, "chunking.overlap": 0.5}, (64, 0.5)), ({}, (None, 0.0))],
)
def test_settings_of_chunks_that_no_cell_varies_are_those_of_the_cell(config, expected):
    """A sweep of its own over stored precisions; documents that are cut read no window."""
    cell = Cell("one", settings={"model.stored": "int8"}, config=config, retrieves=True)
    records = SimpleNamespace(
        result=lambda name: SimpleNamespace(files=()),
        read=lambda name, file: b'{"dimensions": 8, "stored": "int8"}',
    )
    state = SimpleNamespace(cell="one", name="one-seed1", status=SimpleNamespace(used=True))
    found = index_facts(records, [cell], [state])["one"]
    assert (found.window, found.overlap) == expected and found.is_plain
    assert found.form == (8, "int8") and "model.stored" not in found.of_its_chunks


def test_vectors_in_one_form_lose_nothing():
    analysis = analysis_of(TEST, dev=TEST)
    assert chunk_sizes.losses(analysis) == [] and "stored" not in chunk_sizes.results(analysis)
    assert [shown.title for shown in chunk_sizes.tables(analysis)] == ["What an index costs"]


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
    assert chunk_sizes.chunking(analysis)["measured"]["precision"] == "int8"
    alike = analysis_of(TEST, dev={**TEST, "usual": 0.3})
    assert chunk_sizes.chunking(alike)["measured"]["precision"] == "fp32"
