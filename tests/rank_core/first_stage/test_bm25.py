"""BM25: parity with the formula written out, ties, depth, and independence of the process."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.first_stage import bm25_run

ROOT = Path(__file__).parents[3]


def written_out_bm25(documents, query, k1, b):
    """Lucene's BM25 (since version 8, without the constant factor k1 + 1), term by term."""
    words = {doc_id: text.split() for doc_id, text in documents.items()}
    mean_length = sum(map(len, words.values())) / len(words)
    scores = {}
    for doc_id, of_document in words.items():
        norm = k1 * (1 - b + b * len(of_document) / mean_length)
        total = 0.0
        for term in query.split():
            frequency = of_document.count(term)
            num_with = sum(term in other for other in words.values())
            idf = math.log(1 + (len(words) - num_with + 0.5) / (num_with + 0.5))
            total += idf * frequency / (frequency + norm)
        if total > 0:
            scores[doc_id] = total
    return scores


def random_collection(rng, num_documents):
    # Words that neither the stop list nor the stemmer touches.
    words = [f"{first}{second}x" for first in "bcdfg" for second in "klmnp"]
    return {
        f"d{number:03d}": " ".join(rng.choice(words, int(rng.integers(1, 30))))
        for number in range(num_documents)
    }


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (2.0, 0.0)])
def test_scores_are_those_of_the_formula(k1, b):
    rng = np.random.default_rng(3)
    documents = random_collection(rng, 40)
    queries = {
        f"q{number}": " ".join(rng.choice(["bkx", "clx", "dmx", "zzx"], 3)) for number in range(9)
    }
    run = bm25_run(documents, queries, k1=k1, b=b)
    for query_id, text in queries.items():
        assert run[query_id] == pytest.approx(written_out_bm25(documents, text, k1, b), rel=1e-5)


def test_a_smaller_depth_is_a_prefix_of_a_larger_one():
    rng = np.random.default_rng(4)
    documents = random_collection(rng, 60)
    queries = {"q": "bkx clx dmx"}
    everything = list(bm25_run(documents, queries, depth=100)["q"].items())
    assert 20 < len(everything) < 60
    for depth in range(1, 20):
        assert list(bm25_run(documents, queries, depth=depth)["q"].items()) == everything[:depth]


def test_equal_scores_are_ordered_by_doc_id_even_at_the_depth_limit():
    documents = {doc_id: "same words here" for doc_id in ("e", "b", "d", "a", "c")}
    documents["z"] = "same same words"
    run = bm25_run(documents, {"q": "same"}, depth=4)
    assert list(run["q"]) == ["z", "a", "b", "c"]


def test_only_documents_that_share_a_term_are_retrieved():
    documents = {"a": "reading files quickly", "b": "writing sockets", "c": ""}
    queries = {"hit": "Read a FILE!", "stop words": "the and of", "unknown": "zebra", "blank": " "}
    run = bm25_run(documents, queries)
    assert {query_id: list(ranked) for query_id, ranked in run.items()} == {
        "hit": ["a"],
        "stop words": [],
        "unknown": [],
        "blank": [],
    }


@pytest.mark.parametrize("documents", [{}, {"a": ""}, {"a": "the", "b": "?!"}])
def test_documents_without_any_term_give_empty_rankings(documents):
    assert bm25_run(documents, {"q": "the cat"}) == {"q": {}}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the parser's tokens", "parser"),
        ("the parser\u2019s tokens", "parser"),
        ("it doesn't matter", "doesn't"),
        ("C and R", "c"),  # Lucene keeps single characters
        ("relational databases", "relate"),  # Porter: both become `relat`
        ("Größe", "größe"),
    ],
)
def test_the_analysis_matches_words_as_lucene_does(text, query):
    assert list(bm25_run({"a": text, "b": "other"}, {"q": query})["q"]) == ["a"]


def test_a_query_word_given_twice_counts_twice():
    documents = {"a": "apple pear", "b": "plum"}
    once, twice = (
        bm25_run(documents, {"q": query})["q"]["a"] for query in ("apple", "apple apple")
    )
    assert twice == pytest.approx(2 * once)


def test_a_depth_below_one_is_refused():
    with pytest.raises(BadInput, match="depth >= 1 must hold, got depth=0"):
        bm25_run({"a": "text"}, {"q": "text"}, depth=0)


def test_the_run_does_not_depend_on_the_hash_seed_of_the_process():
    documents = random_collection(np.random.default_rng(6), 80)
    queries = {"q": "bkx clx dmx fnx gpx"}
    script = (
        "import json, sys; from rank_core.first_stage import bm25_run; "
        "print(json.dumps(list(bm25_run(*json.load(sys.stdin))['q'].items())))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps([documents, queries]),
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    here = bm25_run(documents, queries)["q"]
    assert [list(item) for item in here.items()] == json.loads(outputs[0])
