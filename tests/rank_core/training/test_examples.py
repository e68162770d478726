"""Training pairs: sampling, the parts of documents that are read, and independence of draws."""

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest

from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.inputs import load_inputs
from rank_core.chunking.token_store import open_token_store
from rank_core.data.trec import write_run
from rank_core.errors import BadInput
from rank_core.records import Collection, Split
from rank_core.settings.config import Chunking, Training, TrialConfig
from rank_core.training import examples
from rank_core.training.examples import (
    TrainingGroup,
    TrainingQueries,
    TrainingReader,
    training_groups,
    write_training_rows,
)
from rank_core.training.examples import training_queries as rows_of
from tests.rank_core.chunking.test_token_store import Lengths

SPLIT = Split(
    queries={q: q for q in ("both", "graded", "unjudged", "no-negative", "only-zero")},
    qrels={
        "both": {"a": 1, "b": 0, "far": 1},
        "graded": {"a": 2, "b": 1, "c": 0, "spam": -2},
        "no-negative": {"a": 1, "b": 1},
        "only-zero": {"a": 0},
    },
    candidates={
        "both": {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.5},
        "graded": {"b": 3.0, "spam": 2.0, "c": 1.5, "a": 1.0},
        "unjudged": {"a": 1.0},
        "no-negative": {"a": 2.0, "b": 1.0},
        "only-zero": {"a": 1.0, "b": 0.5},
    },
)
DOC_IDS = ("a", "b", "c", "d", "far", "spam", "y", "z")
TOKENS = {query_id: np.arange(3, dtype=np.int32) for query_id in SPLIT.queries}


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def training_queries(split, tokens, depth, training=None, doc_ids=DOC_IDS):
    """The rows of a split, written and opened again."""
    documents = dict.fromkeys(doc_ids, "")
    store = open_token_store(documents, content_hash=" ".join(doc_ids), tokenizer=Lengths())
    collection = Collection("made", "x", documents, {"train": split})
    with TemporaryDirectory() as folder:
        training = training or Training()
        depth = training.depth or depth
        write_training_rows(Path(folder), collection, store, depth, training, {})
        return list(TrainingQueries(Path(folder), store, tokens, 32))


def many(num_queries=30):
    """Queries with five relevant documents and ten others each, told apart by their tokens."""
    query_ids = [f"q{i}" for i in range(num_queries)]
    split = Split(
        queries={q: q for q in query_ids},
        qrels={q: {f"{q}+{i}": 1 for i in range(5)} for q in query_ids},
        candidates={q: {f"{q}-{i}": 10.0 - i for i in range(10)} for q in query_ids},
    )
    tokens = {q: np.asarray([i], dtype=np.int32) for i, q in enumerate(query_ids)}
    names = [
        name
        for of_query in (*split.qrels.values(), *split.candidates.values())
        for name in of_query
    ]
    return training_queries(split, tokens, depth=100, doc_ids=tuple(names))


def negatives_of(query):
    return tuple(map(tuple, query.negatives))


def drawn(queries, number, order_seed=1, negatives_seed=2):
    pairs = training_groups(queries, 1, order_seed=order_seed, negatives_seed=negatives_seed)
    return [(int(p.query[0]), p.positive, *p.negatives) for p in islice(pairs, number)]


def test_a_query_needs_a_relevant_document_and_a_candidate_that_is_not():
    usable = {q.query_id: q for q in training_queries(SPLIT, TOKENS, depth=100)}
    assert set(usable) == {"both", "graded"}
    assert tuple(usable["both"].positives) == ("a", "far"), "also when the first stage missed it"
    assert negatives_of(usable["both"]) == (("b", "c", "d"),), (
        "unjudged candidates are not relevant"
    )
    assert tuple(usable["graded"].positives) == ("a", "b")
    assert negatives_of(usable["graded"]) == (("spam", "c"),)
    assert usable["graded"].grades == [2, 1]


def test_an_epoch_is_every_query_once_in_an_order_of_its_own():
    rows = drawn(many(), 90)
    epochs = [[query for query, _, _ in rows[i : i + 30]] for i in (0, 30, 60)]
    assert all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_draw_does_not_depend_on_what_was_drawn_before():
    queries = many()
    whole = {(i // 30, row[0]): row for i, row in enumerate(drawn(queries, 90))}
    some = {(i // 10, row[0]): row for i, row in enumerate(drawn(queries[5:15], 30))}
    other_order = {
        (i // 30, row[0]): row for i, row in enumerate(drawn(queries, 90, order_seed=99))
    }
    assert some == {key: whole[key] for key in some}
    assert other_order == whole


def test_a_group_has_as_many_different_negatives_as_there_are():
    groups = training_groups(many(), 4, order_seed=1, negatives_seed=2)
    for group in islice(groups, 60):
        assert len(group.negatives) == len(set(group.negatives)) == 4
        assert group.documents == (group.positive, *group.negatives)
    few, _ = training_queries(SPLIT, TOKENS, depth=2)
    [group] = islice(training_groups([few], 3, order_seed=1, negatives_seed=2), 1)
    assert group.negatives == ("b", "b", "b")
    assert few.query_id == group.query_id == "both" and group.grade == 1 and group.teacher is None


def usable(**settings):
    queries = training_queries(SPLIT, TOKENS, 100, Training(**settings))
    return {query.query_id: query for query in queries}


def test_the_first_candidate_may_serve_as_the_relevant_document():
    by_rank = usable(labels="first-stage")
    assert set(by_rank) == {"both", "graded", "no-negative", "only-zero"}
    assert tuple(by_rank["graded"].positives) == ("b",) and by_rank["graded"].grades == [1]
    assert negatives_of(by_rank["graded"]) == (("spam", "c", "a"),), "judgments are not looked at"
    assert tuple(by_rank["only-zero"].positives) == ("a",), "nor that it was judged not relevant"


def test_top_candidates_may_be_excluded_from_the_negatives():
    below = usable(labels="first-stage", negatives_below=2)
    assert negatives_of(below["both"]) == (("c", "d"),) and tuple(below["both"].positives) == ("a",)
    assert set(below) == {"both", "graded"}, "two candidates leave nothing below rank 2"
    assert negatives_of(usable(negatives_below=1, depth=3)["both"]) == (("b", "c"),)


@pytest.fixture
def runs(tmp_path):
    """Candidate lists of two rankers; the second knows more of what is not relevant."""
    paths = (tmp_path / "one.run", tmp_path / "two.run.gz")
    write_run(paths[0], {"both": {"c": 2.0, "a": 1.0}, "graded": {"c": 1.0}}, "one")
    write_run(paths[1], {"both": {"z": 2.0, "y": 1.0}, "graded": {"a": 3.0}}, "two")
    return tuple(map(str, paths))


def test_every_epoch_may_have_candidates_of_its_own(runs):
    queries = usable(negatives_from=runs)
    assert set(queries) == {"both"}, "graded has no negative in the second list"
    assert negatives_of(queries["both"]) == (("c",), ("z", "y"))
    groups = training_groups(
        [queries["both"]] * 2, 2, order_seed=1, negatives_seed=2, epoch_groups=3
    )
    drawn = [set(group.negatives) for group in islice(groups, 8)]
    assert drawn == [{"c"}] * 3 + [{"y", "z"}] * 5, "the last list serves all later epochs"


@pytest.mark.parametrize("setting", ["teacher", "negatives_from"])
def test_files_of_settings_have_the_fields_of_the_collection(setting, tmp_path):
    """`--fields` names those of every file that a trial reads."""
    texts = [f'{{"key": "{name}", "body": "text of {name}"}}' for name in "abc"]
    (tmp_path / "docs.jsonl").write_text("\n".join(texts))
    for split in ("train", "dev", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "queries.tsv").write_text(f"{split}\twhich text is it in {split}?\n")
        (tmp_path / split / "qrels.trec").write_text(f"{split} 0 a 1\n{split} 0 b 0\n")
    (tmp_path / "ranked.csv").write_text("topic,key,score\ntrain,a,3\ntrain,c,2\n")
    inputs = load_inputs(f"{tmp_path}|fields(key=doc_id,topic=query_id,body=text)", "tiny-docs")
    file = str(tmp_path / "ranked.csv")
    more = {"training.loss": "margin-mse"} if setting == "teacher" else {}
    config = TrialConfig().override(
        {
            "collection": f"{tmp_path}|fields(key=doc_id,topic=query_id,body=text)",
            f"training.{setting}": file if setting == "teacher" else (file,),
        }
        | more
    )
    [query] = rows_of(inputs, config)
    assert (tuple(query.positives), negatives_of(query)) == (("a",), (("c",),))


def test_a_teacher_limits_the_documents_to_those_that_it_has_scored(tmp_path):
    path = tmp_path / "teacher.run"
    scores = {"both": {"a": 9.0, "c": 4.0, "d": 1.5}, "graded": {"a": 1.0}}
    write_run(path, scores, "teacher")
    [query] = usable(loss="margin-mse", teacher=str(path)).values()
    assert (query.query_id, *query.positives) == ("both", "a")
    assert negatives_of(query) == (("c", "d"),)
    [group] = islice(training_groups([query], 2, order_seed=1, negatives_seed=2), 1)
    assert group.teacher == tuple(scores["both"][doc_id] for doc_id in group.documents)
    for filters, left in (
        ({"negatives_share": 0.45}, "cd"),
        ({"negatives_share": 0.2}, "d"),
        ({"negatives_margin": 5.0}, "cd"),
        ({"negatives_margin": 5.1}, "d"),
        ({"negatives_margin": 2.0, "negatives_share": 0.2}, "d"),
    ):
        [query] = usable(teacher=str(path), **filters).values()
        assert negatives_of(query) == (tuple(left),), filters


DOCUMENTS = {name: np.arange(size, dtype=np.int32) for name, size in (("a", 100), ("b", 70))}
QUERY = np.arange(3, dtype=np.int32)
CHUNKING = Chunking(window=10, stride=10)  # a: 10 chunks, b: 7


def reader(backbone, seed=1, first_chunk_only=False, **settings):
    pairs = PairEncoder(DOCUMENTS, CHUNKING, first_chunk_only, backbone)
    return TrainingReader.of(pairs, Training(**settings), seed)


def group(passes=0, query_id="q", positive="a", negatives=("b",)):
    return TrainingGroup(query_id, QUERY, positive, 1, negatives, passes, None)


def starts(row):
    """First tokens of the chunks of each document, which here are their places."""
    return [[int(chunk.text[0]) for chunk in document] for document in row.documents]


def test_every_passage_may_be_a_row_of_its_own(backbone):
    rows = list(reader(backbone, unit="passage", passage_keep=1.0).rows(group()))
    # Passages 7, 8 and 9 of a have no partner in b.
    assert [starts(row) for row in rows] == [[[i], [i]] for i in range(0, 70, 10)]
    assert all(row.group == group() for row in rows)


@pytest.mark.parametrize("settings", [{}, {"unit": "passage", "passage_keep": 1.0}])
@pytest.mark.parametrize("first_chunk_only", [False, True])
def test_the_size_of_a_group_is_known_from_lengths(backbone, settings, first_chunk_only):
    own = reader(backbone, first_chunk_only=first_chunk_only, **settings)
    for one in (group(), group(positive="b", negatives=("a",))):
        assert own.num_tokens(one) == sum(row.tokens for row in own.rows(one))


def test_the_first_passage_is_always_kept_and_others_are_sampled(backbone):
    none = reader(backbone, unit="passage", passage_keep=0.0)
    assert [starts(row) for row in none.rows(group())] == [[[0], [0]]]
    some = reader(backbone, unit="passage", passage_keep=0.3)
    kept = [
        [starts(row)[0][0] for row in some.rows(group(passes, query_id))]
        for passes in range(40)
        for query_id in ("q", "r")
    ]
    assert all(places[0] == 0 and places == sorted(set(places)) for places in kept)
    share = sum(len(places) - 1 for places in kept) / (80 * 6)
    assert share == pytest.approx(0.3, abs=0.07)  # 3.3 standard errors
    assert {place for places in kept for place in places} == set(range(0, 70, 10))


@pytest.mark.parametrize("settings", [{"unit": "passage"}, {"chunk_dropout": 0.5}])
def test_a_draw_depends_on_seed_pass_query_and_document_alone(backbone, settings):
    def drawn(one, **names):
        return [starts(row) for row in one.rows(group(**names))]

    settings = settings | ({"passage_keep": 0.5} if "unit" in settings else {})
    one = reader(backbone, **settings)
    expected = drawn(one)
    list(one.rows(group(passes=3)))
    assert drawn(one) == expected == drawn(reader(backbone, **settings))
    others = [
        drawn(one, passes=1),
        drawn(one, query_id="r"),
        drawn(reader(backbone, 2, **settings)),
    ]
    assert all(other != expected for other in others)
    swapped = drawn(one, positive="b", negatives=("a",))
    if "unit" not in settings:
        assert swapped == [expected[0][::-1]], "each document has a draw of its own"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"depth": 1}, "none of the 5 training queries"),
        ({"negatives_from": ("away.run",)}, r"away\.run"),
        ({"loss": "margin-mse", "teacher": "away.run"}, r"away\.run"),
        ({"negatives_from": ("other.run",)}, "'elsewhere' of query 'both'"),
        ({"teacher": "teacher.run", "negatives_margin": 8.0}, "none of the 5"),
    ],
)
def test_lists_that_leave_no_pair_are_refused(settings, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "other.run", {"both": {"elsewhere": 1.0}}, "t")
    write_run(tmp_path / "teacher.run", {"both": {"a": 9.0, "c": 4.0}, "graded": {"a": 1.0}}, "t")
    with pytest.raises(BadInput, match=word):
        usable(**settings)


FILTERED = {"training.teacher": "teacher.run", "training.negatives_share": 0.9}
OTHER_ROWS = {
    "nothing": ({}, False),
    "the collection": ({"collection": "y"}, True),
    "the candidates": ({"training.depth": 7}, True),
    "those below": ({"training.negatives_below": 3}, True),
    "the labels": ({"training.labels": "first-stage"}, True),
    "the files of negatives": ({"training.negatives_from": ("teacher.run",)}, True),
    "the teacher": (FILTERED | {"training.teacher": "other.run"}, True),
    "the share": (FILTERED | {"training.negatives_share": 0.8}, True),
    "the margin": (FILTERED | {"training.negatives_margin": 0.1}, True),
    "the rate": ({"training.backbone_learning_rate": 0.5}, False),
}
"""{what differs: (its settings, whether the rows are others)}."""


@pytest.mark.parametrize("what", OTHER_ROWS)
def test_whatever_changes_the_rows_changes_the_key_of_the_cache(what, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("teacher.run", "other.run"):
        (tmp_path / name).write_text(f"q Q0 d 1 {len(name)} x\n")
    monkeypatch.setattr(examples, "cached_directory", lambda kind, key, build: Path(kind, key))

    def folder(settings):
        named = {"collection": "x", "training.loss": "margin-mse"} | settings
        inputs = SimpleNamespace(
            collection=SimpleNamespace(content_hash=named.pop("collection")), tokens=None
        )
        return examples._rows_folder(inputs, TrialConfig().override(named))

    settings, differs = OTHER_ROWS[what]
    usual = {name: FILTERED[name] for name in FILTERED if settings.keys() & FILTERED.keys()}
    assert (folder(usual) != folder(settings)) == differs
