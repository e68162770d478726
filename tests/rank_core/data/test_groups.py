"""Groups of queries: every reader and transform keeps them, no part of a fold divides one, and what
splits share is counted."""

import dataclasses
import json
import pickle
import sys
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from rank_core.data.groups import read_clusters
from rank_core.data.load import load_collection, load_own
from rank_core.data.overlap import HIGH_SHARE, seen_in_training, shared_groups, shared_texts
from rank_core.errors import BadInput
from rank_core.own_code import source_hash
from rank_core.records import Collection, Split
from rank_core.trial.cross_validation import deal

pytestmark = pytest.mark.usefixtures("own_cache")
SPLITS = ("train", "dev", "test")
DOCUMENTS = {
    f"d{n:02}": " ".join(f"word{(n * k) % 17}" for k in range(1, 30 + n)) for n in range(40)
}
ROWS = [
    # (split, query_id, text, group, relevant document)
    (split, f"{split}{n}", f"word{n} word{n + s}", f"Meeting {s}/{n // 2} ü", f"d{8 * s + n:02}")
    for s, split in enumerate(SPLITS)
    for n in range(6)
]
EXPECTED = {query_id: group for _, query_id, _, group, _ in ROWS}


def put(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def ours(home, monkeypatch):
    put(home / "docs.jsonl", [{"doc_id": k, "text": text} for k, text in DOCUMENTS.items()])
    for split in SPLITS:
        own = [row for row in ROWS if row[0] == split]
        put(
            home / split / "queries.jsonl",
            [{"query_id": q, "text": text, "group": group} for _, q, text, group, _ in own],
        )
        (home / split / "qrels.trec").write_text("".join(f"{r[1]} 0 {r[4]} 1\n" for r in own))
    return str(home)


def renamed(home, monkeypatch):
    ours(home, monkeypatch)
    for path in home.glob("*/queries.jsonl"):
        path.write_text(path.read_text().replace('"group"', '"meeting"'))
    return f"{home}|fields(meeting=group)"


def beir(home, monkeypatch):
    put(home / "corpus.jsonl", [{"_id": k, "text": text} for k, text in DOCUMENTS.items()])
    put(
        home / "queries.jsonl",
        [{"_id": q, "text": text, "group": group} for _, q, text, group, _ in ROWS],
    )
    (home / "qrels").mkdir()
    for split in SPLITS:
        lines = (f"{row[1]}\t{row[4]}\t1\n" for row in ROWS if row[0] == split)
        (home / "qrels" / f"{split}.tsv").write_text("".join(lines))
    return str(home)


def pairs(home, monkeypatch):
    put(home / "docs.jsonl", [{"doc_id": k, "text": text} for k, text in DOCUMENTS.items()])
    for split in SPLITS:
        put(
            home / f"{split}.jsonl",
            [
                {"query_id": q, "query": text, "group": group,
                 "pos": [{"docid": doc, "text": DOCUMENTS[doc]}]}
                for own, q, text, group, doc in ROWS
                if own == split
            ],
        )  # fmt: skip
    return str(home)


def own(home, monkeypatch):
    splits = {name: {q: row for row in ROWS if row[0] == name for q in row[1:2]} for name in SPLITS}
    made = Collection(
        "own",
        "",
        DOCUMENTS,
        {
            name: Split(
                {q: row[2] for q, row in rows.items()},
                {q: {row[4]: 1} for q, row in rows.items()},
                {},
                {q: row[3] for q, row in rows.items()},
            )
            for name, rows in splits.items()
        },
    )
    module = SimpleNamespace(make=lambda: made, __spec__=sys.modules[__name__].__spec__)
    monkeypatch.setitem(sys.modules, "own_groups", module)
    load_own.cache_clear()
    source_hash.cache_clear()
    return "own_groups:make"


def groups_in(collection):
    """{query_id: group}; every query of a split must have one."""
    for split in collection.splits.values():
        assert {*split.groups} == {*split.queries}
    return {q: group for split in collection.splits.values() for q, group in split.groups.items()}


@pytest.mark.parametrize("layout", [ours, renamed, beir, pairs, own])
def test_every_reader_keeps_the_groups_of_queries(layout, tmp_path, monkeypatch):
    collection = load_collection(layout(tmp_path / "talks", monkeypatch))
    assert groups_in(collection) == EXPECTED
    if layout is not own:  # its documents are a dictionary
        again = pickle.loads(pickle.dumps(collection.splits["test"]))
        assert dict(again.groups) == dict(collection.splits["test"].groups)
    some = list(collection.splits["dev"].queries)[::2]
    assert collection.splits["dev"].subset(some).groups == {q: EXPECTED[q] for q in some}
    without = dataclasses.replace(collection.splits["dev"], groups={})
    assert without.subset(some).groups == {}


@pytest.mark.parametrize(
    "step",
    ["debias", "debias(splits=all)", "deep(rate=.5)", "shallow(rate=1)", "first-stage(k1=1.2)",
     "far-relevant(first_position=5,max_length=200)"],
)  # fmt: skip
def test_every_transform_keeps_the_groups_of_queries(step, tmp_path, monkeypatch):
    found = groups_in(load_collection(f"{ours(tmp_path / 'talks', monkeypatch)}|{step}"))
    assert found and found.items() <= EXPECTED.items()


def test_folds_divide_no_group(tmp_path, monkeypatch):
    collection = load_collection(ours(tmp_path / "talks", monkeypatch))
    folds = deal(collection, 3)
    assert all(groups_in(fold) == EXPECTED and not shared_groups(fold.splits) for fold in folds)
    tested = sorted(q for fold in folds for q in fold.splits["test"].queries)
    assert tested == sorted(EXPECTED), "every query is tested once"
    with pytest.raises(BadInput, match="exceeds the 9 groups of queries"):
        deal(collection, 10)


def test_queries_without_groups_have_none_and_the_same_contents_as_ever(collection_folder):
    assert all(
        not split.groups for split in load_collection(str(collection_folder)).splits.values()
    )


def change(home, **changes):
    path = home / "dev" / "queries.jsonl"
    first, *rest = map(json.loads, path.read_text().splitlines())
    put(path, [{k: v for k, v in (first | changes).items() if v != "gone"}, *rest])


@pytest.mark.parametrize(
    ("value", "named"),
    [("gone", "must have a group"), (None, "must have a group"), (" ", "is empty"),
     (["a"], "must be a string"), (1.5, "must be a string"), (True, "must be a string")],
)  # fmt: skip
def test_a_bad_group_is_refused_by_its_line(value, named, tmp_path, monkeypatch):
    home = tmp_path / "talks"
    ours(home, monkeypatch)
    change(home, group=value)
    with pytest.raises(BadInput, match=rf"dev/queries\.jsonl:1: .*{named}"):
        load_collection(str(home))


def test_whole_numbers_are_groups_and_two_groups_of_a_query_are_refused(tmp_path, monkeypatch):
    home = tmp_path / "talks"
    ours(home, monkeypatch)
    change(home, group=7)
    assert load_collection(str(home)).splits["dev"].groups["dev0"] == "7"
    pairs(tmp_path / "pairs", monkeypatch)
    path = tmp_path / "pairs" / "dev.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    path.write_text(path.read_text() + json.dumps(line | {"group": "another"}))
    with pytest.raises(BadInput, match=r"dev\.jsonl:7: query 'dev0' has two groups"):
        load_collection(str(tmp_path / "pairs"))


@pytest.mark.parametrize(
    ("groups", "named"),
    [({"dev0": "a"}, "no group"), ({q: "a" for q in EXPECTED}, "of its"),
     ({f"dev{n}": 3 for n in range(6)}, "a text"), ({f"dev{n}": "" for n in range(6)}, "a text")],
)  # fmt: skip
def test_bad_groups_of_a_function_are_refused(groups, named, tmp_path, monkeypatch):
    name = own(tmp_path, monkeypatch)
    made = sys.modules["own_groups"].make()
    splits = made.splits | {"dev": dataclasses.replace(made.splits["dev"], groups=groups)}
    changed = dataclasses.replace(made, splits=splits)
    monkeypatch.setattr(sys.modules["own_groups"], "make", lambda: changed)
    with pytest.raises(BadInput, match=named):
        load_collection(name)


@pytest.mark.parametrize("seed", range(20))
def test_the_share_that_training_has_seen_is_that_of_a_count(seed):
    rng = np.random.default_rng(seed)
    qrels = {
        split: {
            f"{split}{q}": {f"d{d}": int(rng.integers(0, 3)) for d in rng.choice(30, 4)}
            for q in range(10)
        }
        for split in ("train", "test")
    }
    relevant = defaultdict(set)
    for split, judged in qrels.items():
        for of_query in judged.values():
            relevant[split] |= {doc_id for doc_id, grade in of_query.items() if grade > 0}
    found = seen_in_training(qrels["train"], qrels["test"])
    both = relevant["train"] & relevant["test"]
    assert (found.seen, found.documents) == (len(both), len(relevant["test"]))
    assert found.is_high == (len(both) / len(relevant["test"]) > HIGH_SHARE)
    assert f"({len(both)} of {len(relevant['test'])})" in found.text


def test_what_is_shared_is_found_in_its_splits():
    texts = {"train": {"a": "Is  it?"}, "dev": {"b": "no"}, "test": {"c": "is it?", "d": "No"}}
    found = [("test", "train", ["c"]), ("test", "dev", ["d"])]
    assert list(shared_texts(texts)) == found
    one, two = Split({}, {}, {}, {"a": "x", "b": "y"}), Split({}, {}, {}, {"c": "y"})
    assert shared_groups({"train": one, "test": two}) == ["y"]
    # The copies that `debias` trains on are the same documents.
    assert seen_in_training({"t": {"d1~reordered": 1}}, {"e": {"d1": 1}}).seen == 1
    assert not seen_in_training({}, {}).is_high


def test_a_line_of_a_file_without_names_is_named_by_what_it_holds(tmp_path):
    (tmp_path / "of.txt").write_text("q1\tc1\nq2 c2\n")
    with pytest.raises(BadInput, match=r"of\.txt:2: a line must be `query_id TAB cluster`"):
        read_clusters(tmp_path / "of.txt")
