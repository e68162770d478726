"""Small collections with known judgments for the transforms."""

from collections.abc import Callable

import numpy as np
import pytest

from rank_core.records import Collection, Split

CollectionOf = Callable[..., Collection]


@pytest.fixture
def passages() -> Collection:
    """300 passages of 1 to 30 words, each word its own; 6 queries a split, 2 relevant each.

    The first passage of the first train query is relevant to the second one as well.
    """
    rng = np.random.default_rng(5)
    texts = {
        f"p{number:03d}": " ".join(f"w{number}x{place}" for place in range(rng.integers(1, 31)))
        for number in range(300)
    }
    splits = {}
    ids = iter(texts)
    for name in ("train", "dev", "test"):
        queries = {f"{name}-{number}": f"{name} question {number}" for number in range(6)}
        qrels = {query_id: {next(ids): 2, next(ids): 1, next(ids): 0} for query_id in queries}
        candidates = {query_id: dict.fromkeys(judged, 1.0) for query_id, judged in qrels.items()}
        splits[name] = Split(queries, qrels, candidates)
    splits["train"].qrels["train-1"]["p000"] = 2
    return Collection("passages", "0123456789abcdef", texts, splits)


@pytest.fixture
def judged() -> CollectionOf:
    """A collection whose train queries have these numbers of judgments, one in four relevant."""

    def build(counts: list[int]) -> Collection:
        qrels = {
            f"q{q}": {f"d{q}-{number}": int(number % 4 == 0) for number in range(count)}
            for q, count in enumerate(counts)
        }
        candidates = {
            query_id: {doc_id: -float(rank) for rank, doc_id in enumerate([*of_query, "other"])}
            for query_id, of_query in qrels.items()
        }
        train = Split({query_id: f"ask {query_id}" for query_id in qrels}, qrels, candidates)
        test = Split({"t": "ask"}, {"t": {"other": 1}}, {"t": {"other": 1.0}})
        doc_ids = ["other", *(doc_id for of_query in qrels.values() for doc_id in of_query)]
        documents = {doc_id: f"text of {doc_id}" for doc_id in doc_ids}
        return Collection("judged", "fedcba9876543210", documents, {"train": train, "test": test})

    return build
