"""Scores of the rows of a result frame, as PyTerrier passes it on."""

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.ranking.interpolation import FirstStageMix
from ranksweep.frames import row_scores

QUERIES = {"1": "amber", "2": "heron", "10": "amber birch"}
SHARED = {"d1": "amber birch", "d2": "cedar heron meadow", "d3": "slate thorn"}
SNIPPETS = {
    ("1", "d1"): "amber birch",
    ("1", "d2"): "cedar meadow",
    ("2", "d1"): "slate heron amber",  # of the same document
    ("2", "d3"): "heron",
    ("10", "d1"): "birch",
    ("10", "d2"): "cedar meadow",
}
ORDERS = [np.random.default_rng(seed).permutation(6) for seed in range(4)]


@pytest.fixture(scope="module", params=["model", "+BM25"])
def reranker(request, small_trial, backbone):
    mix = FirstStageMix(0.5, "reciprocal-rank", "BM25") if request.param == "+BM25" else None
    model = build_model(small_trial, backbone, init_seed=1).eval()
    return Reranker(ExportedModel(model, small_trial, backbone, first_stage=mix), "cpu", "")


def frame(texts):
    rows = [
        (qid, QUERIES[qid], docno, text, 9.0 - 2 * len(text), rank)
        for rank, ((qid, docno), text) in enumerate(texts.items())
    ]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])


def by_row(reranker, rows):
    pairs = zip(rows["qid"], rows["docno"], strict=True)
    return dict(zip(pairs, row_scores(reranker, rows), strict=True))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shared", [True, False], ids=["one text", "snippets"])
def test_a_row_is_scored_with_its_own_text_in_whatever_order_rows_come(reranker, shared, order):
    texts = {pair: SHARED[pair[1]] if shared else text for pair, text in SNIPPETS.items()}
    rows = frame(texts).iloc[order]
    found = by_row(reranker, rows)
    for qid, query in QUERIES.items():
        own = frame(texts).query("qid == @qid")
        documents = dict(zip(own["docno"], own["text"], strict=True))
        scores = dict(zip(own["docno"], own["score"], strict=True))
        ranked = reranker.rank(query, documents, first_stage=scores)
        assert {d: found[qid, d] for d in documents} == pytest.approx(dict(ranked), abs=1e-6)
    assert found == by_row(reranker, frame(texts))


def test_without_scores_all_documents_of_a_query_count_the_same(reranker):
    rows = frame(SNIPPETS)
    found = row_scores(reranker, rows.drop(columns=["score", "rank"]))
    assert found == row_scores(reranker, rows.assign(score=0, rank=0))


def test_ids_may_be_numbers_and_the_index_anything(reranker):
    rows = frame(SNIPPETS)
    numbers = rows.assign(qid=rows["qid"].astype(int)).set_index(pd.Index([7] * 6))
    assert row_scores(reranker, numbers) == row_scores(reranker, rows)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"query": ["amber"] * 3 + ["slate"] * 3}, "row 3: query '2' must have one text"),
        ({"docno": ["d1"] * 6}, "row 1: query '1' ranks document 'd1' twice"),
        ({"text": ["amber", None, *["slate"] * 4]}, "row 1: text must be a text"),
        ({"query": [3.5] * 6}, "row 0: query must be a text"),
        ({"score": [1.0, float("nan")] * 3}, "row 1: score must be a finite number"),
        ({"qid": [None] * 6}, "row 0: qid must be a string"),
        ({"rank": ["first"] * 6}, "row 0: rank must be a whole number"),
    ],
)
def test_a_frame_that_says_two_things_is_refused(reranker, changed, said):
    with pytest.raises(BadInput, match=said):
        row_scores(reranker, frame(SNIPPETS).assign(**changed))
