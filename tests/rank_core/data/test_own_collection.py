import dataclasses
import re
import sys
from types import SimpleNamespace

import pytest

from docs.examples.own_collection import notes
from rank_core.data.load import load_collection, load_own
from rank_core.errors import BadInput
from rank_core.own_code import source_hash
from rank_core.records import Collection, Split

NOTES = "docs.examples.own_collection:notes"


def test_a_function_s_collection_is_ranked_and_named_by_its_contents():
    loaded = load_collection(NOTES)
    assert loaded.name == "notes" and re.fullmatch(r"[0-9a-f]{16}", loaded.content_hash)
    assert loaded.documents == notes().documents and loaded.first_stage == "BM25"
    test = loaded.splits["test"]
    assert set(test.candidates) == set(test.queries) == set(notes().splits["test"].queries)
    ranked = list(test.candidates["ruby-river"].values())
    assert ranked == sorted(ranked, reverse=True) and len(ranked) > 5
    assert load_own(NOTES) is loaded  # made once in a process


def made(**changes):
    """A small collection with something changed."""
    splits = {
        name: Split({f"{name}1": "amber"}, {f"{name}1": {"d1": 1}}, {f"{name}1": {"d1": 1.0}})
        for name in ("train", "dev", "test")
    }
    return dataclasses.replace(
        Collection("small", "", {"d1": "amber", "d2": "birch"}, splits), **changes
    )


def with_dev(**changes):
    splits = made().splits
    return made(splits=splits | {"dev": dataclasses.replace(splits["dev"], **changes)})


@pytest.fixture
def given(monkeypatch):
    """Loads what a function would return, from a module that has this file."""

    def load(result):
        module = SimpleNamespace(
            make=(lambda: result), __spec__=sys.modules[__name__].__spec__, not_a_function=3
        )
        monkeypatch.setitem(sys.modules, "given_module", module)
        load_own.cache_clear()
        source_hash.cache_clear()
        return load_collection("given_module:make")

    return load


def test_a_given_hash_is_used_and_unjudged_queries_are_dropped(given):
    assert given(made(content_hash="mine")).content_hash == "mine"
    splits = made().splits
    more = dataclasses.replace(splits["dev"], queries={"dev1": "amber", "dev2": "birch"})
    assert set(given(made(splits=splits | {"dev": more})).splits["dev"].queries) == {"dev1"}
    one, other = given(made()), given(with_dev(queries={"dev1": "birch"}))
    assert one.content_hash != other.content_hash


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ({}, "Collection"),
        (made(splits={}), "splits"),
        (made(documents={"d1": "amber", 2: "birch"}), r"documents .*2: 'birch'"),
        (with_dev(queries={7: "amber"}, qrels={7: {"d1": 1}}, candidates={}), "dev: queries .*7"),
        (with_dev(qrels={"dev1": {"d9": 1}}), "dev: qrels .*'d9'"),
        (with_dev(qrels={"dev1": {"d1": "1"}}), "dev: qrels .*'1'"),
        (with_dev(qrels={"dev1": {"d1": 0}}), "dev .*relevan"),
        (with_dev(qrels={"dev1": {"d1": True}}), "dev: qrels .*'d1'.*true"),
        (with_dev(qrels={"dev1": {"d1": 10**9}}), "dev: qrels .*'d1'.*1,000,000,000"),
        (with_dev(candidates={"dev1": {"d1": float("nan")}}), "dev: candidates .*'d1'.*nan"),
        (made(documents={"d 1": "amber"}), "documents.*'d 1'"),
        (with_dev(candidates={"dev1": {"d9": 1.0}}), "dev: candidates .*'d9'"),
        (with_dev(candidates={"dev1": {"d1": None}}), "dev: candidates .*None"),
        (
            with_dev(queries={"train1": "a"}, qrels={"train1": {"d1": 1}}, candidates={}),
            "'train1'",
        ),
    ],
)
def test_an_invalid_collection_is_refused_by_the_name_of_what_is_wrong(given, result, named):
    with pytest.raises(BadInput, match=f"collection given_module:make.*{named}"):
        given(result)


def test_what_is_no_function_or_transform_is_refused(given):
    given(made())
    with pytest.raises(BadInput, match="must be a function, got 3"):
        load_collection("given_module:not_a_function")
    with pytest.raises(BadInput, match=r"transform given_module:make must be a frozen dataclass"):
        load_collection("given_module:make|given_module:make")
