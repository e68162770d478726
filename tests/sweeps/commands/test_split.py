"""Judged queries divided by a hash: always alike, and written as a collection that loads."""

import gzip
import json
import os
import random

import pytest

from rank_core.data.folds import divided, query_share
from rank_core.data.load import load_collection
from rank_core.data.overlap import shared_groups
from rank_core.data.spans import relevant_spans, spans_file
from sweeps.__main__ import main

QUERIES = {f"q{n}": f"what is number {n}" for n in range(60)}
SHARES = {"train": 80.0, "dev": 10.0, "test": 10.0}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def files(tmp_path):
    """The words of a command over Pyserini's documents and BEIR's queries and judgments."""
    rows = [{"id": f"d{n}", "contents": f"number {n} is a number"} for n in range(60)]
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rows = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    judged = "".join(f"q{n}\td{n}\t1\nq{n}\td0\t0\n" for n in range(1, 60))
    (tmp_path / "all.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return ["--qrels", "all.tsv", "--queries", "queries.jsonl", "--docs", "docs.jsonl"]


def members(folder):
    splits = load_collection(str(folder)).splits
    return {name: list(splits[name].queries) for name in ("train", "dev", "test")}


def test_a_query_goes_where_its_hash_says_whatever_others_there_are():
    assert query_share("what is number 7") == query_share("What  is number 7\n")
    assert 0 <= query_share("x") < 1 and query_share("x") != query_share("x", "other")
    whole = divided(QUERIES, SHARES)
    assert sorted(one for ids in whole.values() for one in ids) == sorted(QUERIES)
    assert len(whole["train"]) > len(whole["dev"]) + len(whole["test"])
    some = {key: QUERIES[key] for key in reversed(list(QUERIES)[::2])}
    for name, ids in divided(some, SHARES).items():
        assert set(ids) <= set(whole[name])
    # Written down: a change of the hash would move the queries of everyone.
    assert round(query_share("what is number 7"), 6) == 0.318863


def test_a_split_is_a_collection_that_loads_and_the_same_again(files, tmp_path, capsys):
    assert main(["split", *files, "--to", "out/pets"]) == 0
    found = members("out/pets")
    judged = {key: text for key, text in QUERIES.items() if key != "q0"}
    assert found == divided(judged, SHARES)
    said = capsys.readouterr()
    assert f"train {len(found['train'])}, dev {len(found['dev'])}" in said.out
    assert "--shares" in said.err and "evaluation.folds" in said.err, "few queries"
    collection = load_collection("out/pets")
    assert collection.documents["d7"] == "number 7 is a number"
    assert main(["split", *files, "--to", "again"]) == 0
    for path in sorted((tmp_path / "out" / "pets").glob("*/*")):
        assert path.read_bytes() == (tmp_path / "again" / path.parent.name / path.name).read_bytes()
    assert main(["split", *files, "--to", "other", "--salt", "2"]) == 0
    assert members("other") != found


def test_given_test_judgments_stay_together(files, tmp_path):
    (tmp_path / "test.trec").write_text("q0 0 d0 1\n")
    words = ["--test", "test.trec", "--shares", "70,30", "--to", "out"]
    assert main(["split", *files, *words]) == 0
    found = members("out")
    assert found["test"] == ["q0"]
    assert len(found["train"]) + len(found["dev"]) == 59


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--shares", "1,1,0"], "--shares"),
        (["--shares", "99999,1,1"], "59 judged queries"),
        (["--test", "all.tsv"], "--test"),
        (["--fields", "id=docid"], "--fields"),
        (["--group", "colour"], "'colour' is neither"),
        (["--group", "colour.tsv"], "'colour.tsv' is neither"),
        (["--group", "some.tsv"], "no group of query"),
        (["--group", "two.tsv"], "two.tsv:2"),
        (["--group", "blank.jsonl"], "is empty"),
        (["--group", "one.jsonl"], "in 1 groups are too few"),
        (["--run", "other.run"], "ranks none of the queries"),
        (["--run", "empty.run"], "ranks none of the queries"),
        (["--docs", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--docs", "unnamed.jsonl"], "--fields"),
        (["--qrels", "more.tsv"], "x7"),
    ],
)
def test_bad_words_are_refused_and_leave_nothing(words, named, files, tmp_path, capsys):
    (tmp_path / "unnamed.jsonl").write_text(json.dumps({"id": "d0", "body": "number 0"}))
    (tmp_path / "more.tsv").write_text("q1\td1\t1\nx7\td1\t1\n")
    (tmp_path / "some.tsv").write_text("q1\ta\n")
    (tmp_path / "two.tsv").write_text("q1\ta\nq1\tb\n")
    (tmp_path / "blank.jsonl").write_text('{"qid": "q1", "group": " "}\n')
    one = "".join(json.dumps({"qid": name, "group": "a"}) + "\n" for name in QUERIES)
    (tmp_path / "one.jsonl").write_text(one)
    (tmp_path / "other.run").write_text("x1 Q0 d1 1 2.5 t\n")
    (tmp_path / "empty.run").write_text("")
    before = sorted(os.listdir(tmp_path))
    given = dict(zip(files[::2], files[1::2], strict=True)) | {words[0]: words[1]}
    line = [word for pair in given.items() for word in pair]
    assert main(["split", *line, *words[2:], "--to", "out"]) == 2
    assert named in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / "out").mkdir()
    assert main(["split", *files, "--to", "out"]) == 2
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("docs.jsonl", lambda text: text + '\n{"id": "d0", "contents": "twice"}', "docs.jsonl:61"),
        ("docs.jsonl", lambda text: text + '\n{"id": "d60"}', "docs.jsonl:61"),
        ("docs.jsonl", lambda text: text.replace('"d', '"x'), "unknown document 'd"),
    ],
)
def test_a_folder_that_would_not_load_is_refused_and_not_kept(
    file, change, named, files, tmp_path, capsys
):
    (tmp_path / file).write_text(change((tmp_path / file).read_text()))
    assert main(["split", *files, "--to", "out"]) == 2
    assert named in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_documents_that_are_missing_or_empty_are_counted(files, tmp_path, capsys):
    text = (tmp_path / "docs.jsonl").read_text()
    text = text.replace("number 0 is a number", "").replace('"d1"', '"gone"')
    (tmp_path / "docs.jsonl").write_text(text)
    assert main(["split", *files, "--to", "out"]) == 0
    said = capsys.readouterr().err
    assert "docs.jsonl: 1 of 60 documents are empty" in said and "such as d1, " in said
    assert sum(map(len, members("out").values())) == 59


def talks(home, seed):
    """The words of a split over random groupings: rooms of queries, meetings of documents, and
    queries with one or two relevant documents."""
    rng = random.Random(seed)
    docs = [
        {"uri": f"d{n}", "body": f"talk {n}", "head": f"title {n}", "meeting": rng.randrange(40)}
        for n in range(80)
    ]
    relevant = {
        f"q{n}": [f"d{d}" for d in rng.sample(range(80), rng.choice((1, 1, 1, 2)) - (n % 9 == 0))]
        for n in range(150)
    }
    queries = [
        {"id": q, "query": f"{q}: talk {' '.join(own).replace('d', '')}", "room": f"R {n * 7 % 25}"}
        for n, (q, own) in enumerate(relevant.items())
    ]
    for name, rows in (("docs", docs), ("queries", queries)):
        (home / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    judged = "".join(f"{q} 0 {d} 1\n" for q, docs in relevant.items() for d in docs)
    judged += "".join(f"{q} 0 d{rng.randrange(80)} 0\n" for q in relevant if not relevant[q])
    (home / "all.trec").write_text(judged)
    (home / "rooms.tsv").write_text("".join(f"{row['id']}\t{row['room']}\n" for row in queries))
    words = ["--qrels", "all.trec", "--queries", "queries.jsonl", "--docs", "docs.jsonl"]
    words += ["--fields", "uri=doc_id,body=text,head=title", "--shares", "40,30,30"]
    labels = {
        "room": {row["id"]: {row["room"]} for row in queries},
        "meeting": {q: {docs[int(d[1:])]["meeting"] for d in own} for q, own in relevant.items()},
        "doc_id": {q: set(own) for q, own in relevant.items()},
    }
    return words, labels | {"rooms.tsv": labels["room"]}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("group", ["room", "rooms.tsv", "meeting", "doc_id"])
def test_no_group_is_in_two_splits_and_the_collection_has_the_groups(group, seed, tmp_path, capsys):
    words, labels = talks(tmp_path, seed)
    code = main(["split", *words, "--group", group, "--to", "out"])
    said = capsys.readouterr()
    if code:  # chains of shared documents can put nearly all queries into one group
        assert group in ("meeting", "doc_id") and "or smaller groups" in said.err
        return
    splits = load_collection("out").splits
    assert sum(len(split.queries) for split in splits.values()) == 150
    assert shared_groups(splits) == [] and all(map(lambda split: split.groups, splits.values()))
    place = {q: name for name, split in splits.items() for q in split.queries}
    groups = {q: one for split in splits.values() for q, one in split.groups.items()}
    by_label = {}
    for query_id, own in labels[group].items():
        for label in own:
            by_label.setdefault(label, set()).add(query_id)
    for alike in by_label.values():
        assert len({place[q] for q in alike}) == len({groups[q] for q in alike}) == 1
    if group.startswith("room"):
        assert {q: {one} for q, one in groups.items()} == labels[group]
    if group == "doc_id":
        assert "0.0% of test's relevant documents" in said.out


def test_chains_of_documents_are_one_group_and_a_query_without_any_is_alone(tmp_path):
    words, _ = talks(tmp_path, 1)
    judged = {"q0": "d3", "q1": "d3 d1", "q2": "d1", "q3": "d2", "q4": "d2 d5"}
    lines = [f"{q} 0 {d} 1" for q, docs in judged.items() for d in docs.split()] + ["q5 0 d1 0"]
    lines += [f"q{n} 0 d{n} 1" for n in range(20, 40)]
    (tmp_path / "all.trec").write_text("\n".join(lines))
    assert main(["split", *words, "--group", "doc_id", "--to", "out"]) == 0
    splits = load_collection("out").splits
    groups = {q: group for split in splits.values() for q, group in split.groups.items()}
    assert [groups[f"q{n}"] for n in range(5)] == ["d1", "d1", "d1", "d2", "d2"]
    assert groups["q5"] == "query q5" and groups["q25"] == "d25"


def test_groups_that_test_has_are_left_out_of_the_other_splits(tmp_path, capsys):
    words, labels = talks(tmp_path, 3)
    room = labels["room"]["q1"]
    lines = (tmp_path / "all.trec").read_text().splitlines()
    test = [line for line in lines if line.split()[0] == "q1"]
    (tmp_path / "all.trec").write_text("\n".join(line for line in lines if line not in test))
    (tmp_path / "test.trec").write_text("\n".join(test))
    words[words.index("--shares") + 1] = "60,40"
    given = ["--test", "test.trec", "--group", "room", "--to", "out"]
    assert main(["split", *words, *given]) == 0
    splits, said = load_collection("out").splits, capsys.readouterr().err
    alike = [q for q, own in labels["room"].items() if own == room and q != "q1"]
    assert alike and f"{len(alike)} of 149 queries of --qrels are left out" in said
    assert list(splits["test"].queries) == ["q1"] and shared_groups(splits) == []
    assert sum(len(split.queries) for split in splits.values()) == 150 - len(alike)


@pytest.mark.parametrize("kind", [".jsonl", ".jsonl.gz"])
def test_names_of_fields_are_not_asked_again(kind, tmp_path, capsys):
    words, _ = talks(tmp_path, 1)
    if kind == ".jsonl.gz":
        content = (tmp_path / "docs.jsonl").read_bytes()
        (tmp_path / "docs.jsonl.gz").write_bytes(gzip.compress(content))
        words[words.index("docs.jsonl")] += ".gz"
    assert main(["split", *words, "--to", "out"]) == 0
    assert "--fields" not in capsys.readouterr().out
    documents = load_collection("out").documents
    assert dict(documents) == {f"d{n}": f"title {n}\ntalk {n}" for n in range(80)}
    assert main(["doctor", "--collection", "out", "--backbone", "tiny-docs"]) == 0


def test_what_training_has_seen_is_said_with_the_way_out(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    (tmp_path / "all.tsv").write_text("".join(f"q{n}\td{n % 3}\t1\n" for n in range(60)))
    assert main(["split", *files, "--to", "out"]) == 0
    said = capsys.readouterr()
    assert "100.0% of test's relevant documents (3 of 3) are relevant to training" in said.out
    assert "--group doc_id" in said.err and "--group FIELD" in said.err
    assert main(["doctor", "--collection", "out", "--backbone", "tiny-docs"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "3 of 3" in line]
    assert line.startswith("  warning") and "`ranksweep split --group doc_id`" in line
    (tmp_path / "all.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(60)))
    assert main(["split", *files, "--to", "apart"]) == 0
    assert "--group" not in capsys.readouterr().err


def test_a_split_that_the_run_does_not_rank_says_so(files, tmp_path, capsys):
    judged = {f"q{n}": QUERIES[f"q{n}"] for n in range(1, 60)}
    parts = divided(judged, SHARES)
    ranked = [*parts["train"][:-2], *parts["dev"]]
    (tmp_path / "a.run").write_text("".join(f"{q} Q0 d1 1 2.5 t\n" for q in ranked))
    assert main(["split", *files, "--run", "a.run", "--to", "out"]) == 0
    said = capsys.readouterr().err
    assert "ranks no query of test: BM25" in said
    assert f"does not rank 2 of {len(parts['train'])} train queries" in said
    splits = load_collection("out").splits
    assert all(list(splits["dev"].candidates[q]) == ["d1"] for q in parts["dev"])
    assert all(len(splits["test"].candidates[q]) > 1 for q in parts["test"])


def test_the_language_of_the_documents_is_kept(files, tmp_path):
    assert main(["split", *files, "--to", "plain"]) == 0
    (tmp_path / "ranksweep.json").write_text('{"language": "pt-BR"}')
    assert main(["split", *files, "--to", "declared"]) == 0
    languages = [load_collection(name).language for name in ("plain", "declared")]
    assert languages == ["", "pt"]


def test_candidates_that_the_documents_lack_are_counted_and_left_out(files, tmp_path, capsys):
    """An index is often newer than a dump; one of another collection is refused."""
    ranked = [(f"q{n}", d) for n in range(1, 60) for d in (f"d{n}", "new", "d0")]
    lines = "".join(f"{q} Q0 {d} {n} {100 - n % 3} t\n" for n, (q, d) in enumerate(ranked))
    (tmp_path / "es.run").write_text(lines)
    assert main(["split", *files, "--to", "mine", "--run", "es.run"]) == 0
    assert "59 of 177 candidates are left out" in capsys.readouterr().err
    collection = load_collection("mine")
    for split in collection.splits.values():
        for query_id in split.queries:
            assert set(split.candidates[query_id]) == {f"d{query_id[1:]}", "d0"}
    others = "".join(f"q{n} Q0 other{k} {k} {9 - k} t\n" for n in range(1, 60) for k in range(5))
    (tmp_path / "other.run").write_text(lines + others)
    assert main(["split", *files, "--to", "no", "--run", "other.run"]) == 2
    assert "--docs lacks most of its documents, such as" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("shares", "splits"), [("0,50,50", ["dev", "test"]), ("0,0,100", ["test"])]
)
def test_a_question_that_trains_nothing_needs_no_train_split(shares, splits, files, capsys):
    assert main(["split", *files, "--shares", shares, "--to", "out"]) == 0
    loaded = load_collection("out").splits
    assert [*loaded] == splits
    assert sum(len(split.queries) for split in loaded.values()) == 59
    said = capsys.readouterr()
    assert ": train" not in said.out and "training" not in said.out and "folds" not in said.err


@pytest.mark.parametrize("shares", ["0,0,0", "50,0,50", "50,50,0", "0,-1,2"])
def test_only_the_first_splits_can_be_left_out(shares, files, capsys):
    assert main(["split", *files, "--shares", shares, "--to", "out"]) == 2
    assert "nothing is trained" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["spans.jsonl", "spans.jsonl.gz"])
def test_spans_beside_the_documents_go_with_them(name, files, tmp_path):
    span = json.dumps({"query_id": "q7", "doc_id": "d7", "start": 0, "end": 6})
    (tmp_path / name).write_bytes(gzip.compress(span.encode()) if ".gz" in name else span.encode())
    assert main(["split", *files, "--shares", "0,0,100", "--to", "out"]) == 0
    collection = load_collection("out")
    path = spans_file("out", collection)
    assert path is not None and [*relevant_spans(path, collection)] == [("q7", "d7", 0, 6)]


def test_two_files_of_spans_are_refused(files, tmp_path, capsys):
    for name in ("spans.jsonl", "spans.jsonl.gz"):
        (tmp_path / name).write_bytes(b"")
    assert main(["split", *files, "--to", "out"]) == 2
    assert "one file of spans" in capsys.readouterr().err and not (tmp_path / "out").exists()
