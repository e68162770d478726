"""Expressions of transformed collections: their meaning, and errors."""

import dataclasses
import re

import pytest

from rank_core.data.transforms.expression import (
    TRANSFORMS,
    apply_transforms,
    base_of,
    make_transform,
    parse_collection_expression,
    transform_class,
)
from rank_core.data.transforms.transform import derived_hash, spelled
from rank_core.errors import BadInput
from rank_core.records import Collection

EXAMPLES = {name: {} for name in TRANSFORMS} | {
    "far-relevant": {"first_position": 20, "max_length": 90},
    "debias": {"parts": 3},
    "deep": {"rate": 0.5},
    "shallow": {"rate": 0.5},
    "first-stage": {"k1": 1.5},
}
every_transform = pytest.mark.parametrize("name", sorted(TRANSFORMS))
every_random_transform = pytest.mark.parametrize(
    "name", [name for name in sorted(TRANSFORMS) if hasattr(transform_class(name), "seed")]
)


@pytest.mark.parametrize(
    ("text", "base", "steps"),
    [
        ("python-docs", "python-docs", []),
        ("/data/a folder", "/data/a folder", []),
        ("python-docs|debias", "python-docs", [("debias", {})]),
        ("python-docs | debias( seed = 2 )", "python-docs", [("debias", {"seed": 2})]),
        (
            "ir:beir/nfcorpus|far-relevant(first_position=9)|deep(rate=.1,)",
            "ir:beir/nfcorpus",
            [
                ("far-relevant", {"first_position": 9}),
                ("deep", {"rate": 0.1}),
            ],
        ),
    ],
)
def test_an_expression_is_a_base_and_its_transforms_in_order(text, base, steps):
    assert parse_collection_expression(text) == (base, steps)
    assert base_of(text) == base


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x|debais", "unknown transform 'debais'; did you mean debias"),
        ("x|debias(part=2)", "unknown setting of debias 'part'; did you mean parts"),
        ("x|debias(parts=two)", "parts of debias must be a whole number, got 'two'"),
        ("x|debias(parts=2.5)", "parts of debias must be a whole number, got '2.5'"),
        ("x|deep(rate=half)", "rate of deep must be a number, got 'half'"),
        ("x|deep(rate=0.1,hide=maybe)", "hide of deep must be true or false, got 'maybe'"),
        ("x|deep", "deep needs rate: deep(rate=...)"),
        ("x|debias(seed=1", "must be BASE|NAME"),
        ("x|", "'' in 'x|'"),
        ("|debias", "has no BASE"),
        ("x|debias(seed)", "must be SETTING=VALUE, got 'seed'"),
        ("x|debias(seed=1,seed=2)", "seed is given twice"),
        ("x|debias(parts=1)", "parts >= 2 must hold for debias, got parts=1"),
        ("x|debias(splits=dev)", "unknown splits of debias 'dev'"),
        ("x|deep(rate=0)", "0 < rate <= 1 must hold for deep, got rate=0.0"),
        ("x|shallow(rate=1.5)", "0 < rate <= 1 must hold for shallow"),
        ("x|far-relevant(first_position=9,max_length=9)", "0 <= first_position < max_length"),
        ("x|far-relevant(max_queries=-1)", "max_queries >= 0 must hold"),
    ],
)
def test_a_wrong_expression_is_refused_before_anything_is_loaded(text, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        parse_collection_expression(text)


def test_every_transform_is_registered_under_its_own_name():
    assert {name: transform_class(name).name for name in TRANSFORMS} == {n: n for n in TRANSFORMS}
    assert set(EXAMPLES) == set(TRANSFORMS)  # no example of a name that is gone


@every_transform
def test_a_transforms_expression_can_be_parsed_again(name):
    transform = make_transform(name, EXAMPLES[name])
    _, [step] = parse_collection_expression(f"x|{spelled(transform)}")
    assert make_transform(*step) == transform
    assert ("seed=1" in spelled(transform)) == hasattr(transform, "seed")


@every_random_transform
def test_every_setting_the_version_and_the_source_change_the_content_hash(name, passages):
    transform = make_transform(name, EXAMPLES[name])
    hashes = [derived_hash(passages, transform), derived_hash(passages, transform, "bm25")]
    hashes.append(derived_hash(dataclasses.replace(passages, content_hash="other"), transform))
    for field in filter(lambda field: field.init, dataclasses.fields(transform)):
        value = getattr(transform, field.name)
        changed = {bool: not value, str: "all", float: 0.25}.get(type(value), value)
        changed = value + 3 if type(value) is int else changed
        hashes.append(
            derived_hash(passages, dataclasses.replace(transform, **{field.name: changed}))
        )
    changes = {"version": transform.version + 1, "__module__": type(transform).__module__}
    newer = type(name, (type(transform),), changes)
    hashes.append(derived_hash(passages, newer(**EXAMPLES[name])))
    assert len(set(hashes)) == len(hashes)
    assert all(len(digits) == 16 for digits in hashes)


@every_transform
def test_a_transform_leaves_its_source_alone_and_gives_the_same_again(name, passages):
    before = repr((dict(passages.documents), passages.splits))
    first, second = (apply_transforms(passages, [(name, EXAMPLES[name])]) for _ in range(2))
    assert repr((dict(passages.documents), passages.splits)) == before
    assert _content(first) == _content(second)
    assert first.content_hash == second.content_hash != passages.content_hash
    assert first.name.startswith(f"passages|{name}(")


def test_transforms_are_applied_from_left_to_right(passages):
    _, steps = parse_collection_expression("x|deep(rate=0.5)|debias")
    there = apply_transforms(passages, steps)
    back = apply_transforms(passages, steps[::-1])
    assert there.name == "passages|deep(rate=0.5,seed=1)|debias(seed=1)"
    assert there.content_hash != back.content_hash
    assert len(there.splits["train"].queries) == len(back.splits["train"].queries) < 6


def _content(collection: Collection) -> object:
    splits = {
        name: (dict(split.queries), split.qrels, {q: split.candidates[q] for q in split.queries})
        for name, split in collection.splits.items()
    }
    return {doc_id: collection.documents[doc_id] for doc_id in collection.documents}, splits
