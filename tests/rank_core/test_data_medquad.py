"""The local reader and BM25 on real long documents, where they lie beside the checkout."""

import os
import time
from pathlib import Path

import pytest

from rank_core.data import load_collection
from rank_core.evaluate import mean_values, per_query
from rank_core.first_stage import bm25_run

SHARED = Path(
    os.environ.get("RANKSWEEP_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data"
)


def load(name):
    if not (SHARED / name).is_dir():
        pytest.skip(f"no collection {name} in {SHARED}; RANKSWEEP_SHARED_DATA may name its folder")
    return load_collection(str(SHARED / name))


@pytest.mark.parametrize(
    ("name", "num_documents", "num_queries", "ndcg"),
    [("medquad", 5486, [2000, 200, 400], 0.920), ("medquad-far", 2689, [600, 100, 200], 0.342)],
)
def test_real_collections_load_quickly_with_their_known_numbers(
    name, num_documents, num_queries, ndcg
):
    start = time.perf_counter()
    collection = load(name)
    assert time.perf_counter() - start < 20  # one second on an idle core
    assert len(collection.documents) == num_documents
    assert [len(split.queries) for split in collection.splits.values()] == num_queries
    test = collection.splits["test"]
    means = mean_values(per_query(test.qrels, test.candidates, ["nDCG@10"]))
    assert means["nDCG@10"] == pytest.approx(ndcg, abs=0.002)


def test_our_bm25_agrees_with_lucene_on_real_documents():
    collection = load("medquad-far")
    test = collection.splits["test"]
    run = bm25_run(collection.documents, test.queries)
    overlaps = [
        len({*list(run[query_id])[:10]} & {*list(lucene)[:10]}) / 10
        for query_id, lucene in test.candidates.items()
    ]
    assert sum(overlaps) / len(overlaps) > 0.97
    measures = ["nDCG@10", "R@100"]
    ours, theirs = (
        mean_values(per_query(test.qrels, candidates, measures))
        for candidates in (run, test.candidates)
    )
    assert ours == pytest.approx(theirs, abs=0.005)
