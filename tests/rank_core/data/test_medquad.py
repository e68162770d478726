"""The local reader and BM25 on real long documents, if they are beside the checkout."""

import os
from pathlib import Path

import pytest

from rank_core.data.load import load_collection
from rank_core.data.trec import read_lines
from rank_core.evaluate import mean_values, per_query

SHARED = Path(
    os.environ.get("RANKSWEEP_SHARED_DATA") or Path(__file__).parents[4] / "shared" / "data"
)


def load(name):
    if not (SHARED / name).is_dir():
        pytest.skip(f"no collection {name} in {SHARED}; RANKSWEEP_SHARED_DATA may name its folder")
    return load_collection(str(SHARED / name))


def in_order(run):
    """The run with ranks for scores: evaluation tools break ties each in their own way."""
    return {
        query_id: {doc_id: float(-rank) for rank, doc_id in enumerate(ranked)}
        for query_id, ranked in run.items()
    }


@pytest.mark.parametrize(
    ("name", "num_documents", "num_queries", "ndcg"),
    [("medquad", 5486, [2000, 200, 400], 0.9203), ("medquad-far", 2689, [600, 100, 200], 0.3396)],
)
def test_real_collections_load_with_their_known_numbers(name, num_documents, num_queries, ndcg):
    collection = load(name)
    assert len(collection.documents) == num_documents
    assert [len(split.queries) for split in collection.splits.values()] == num_queries
    test = collection.splits["test"]
    means = mean_values(per_query(test.qrels, in_order(test.candidates), ["nDCG@10"]))
    assert means["nDCG@10"] == pytest.approx(ndcg, abs=0.00005)


def test_equal_scores_of_a_supplied_run_stand_in_the_order_of_its_ranks():
    candidates = load("medquad-far").splits["test"].candidates
    lines = read_lines(SHARED / "medquad-far" / "test" / "bm25.top100.run.gz")
    by_rank = sorted((q, int(rank), d) for q, _, d, rank, *_ in (line.split() for _, line in lines))
    assert [(q, d) for q, _, d in by_rank] == [
        (q, d) for q in sorted(candidates) for d in candidates[q]
    ]
    assert (
        sum(len(of_query) - len(set(of_query.values())) for of_query in candidates.values()) > 3000
    )
