"""What the doctor says of data: hand-made collections whose numbers follow from a glance."""

import gzip
import json

import pytest

from rank_core.chunking.chunks import Span, document_spans
from rank_core.chunking.inputs import load_inputs
from rank_core.records import Collection, Split
from rank_core.settings.config import Evaluation, TrialConfig
from sweeps.commands.doctor.examination import (
    Passage,
    coverage,
    found_share,
    recall,
    relevant_passages,
    seen_tokens,
    shared_queries,
    spans_file,
    unseen,
)


def split(queries=None, qrels=None, candidates=None):
    queries = queries or {"q": "x"}
    run = {q: {d: float(-i) for i, d in enumerate(ds)} for q, ds in (candidates or {}).items()}
    return Split(queries, qrels or {}, run)


def collection(**splits):
    return Collection("made", "0" * 16, {"a": "Some  text", "b": "some text", "c": "else"}, splits)


TWO = split(
    {"q1": "x", "q2": "y"},
    {"q1": {"a": 1, "b": 1}, "q2": {"c": 2, "a": 0}},
    {"q1": ["c", "a"], "q2": ["a", "b"]},
)


def test_recall_is_a_mean_over_queries_within_the_depth():
    assert found_share(TWO, 2) == (1 / 2 + 0) / 2
    assert found_share(TWO, 1) == 0


def test_a_candidate_list_without_any_relevant_document_is_an_error():
    lost = split(qrels={"q": {"a": 1}}, candidates={"q": ["b"]})
    found = recall("test", lost, Evaluation())
    assert found.level == "error" and "first-stage" in found.remedy


def test_queries_of_two_splits_with_one_text_are_a_warning():
    both = collection(
        train=split({"t": "What  is\tRayleigh scattering?"}),
        test=split({"e": "what is rayleigh scattering?", "f": "other"}),
    )
    [found] = shared_queries(both)
    assert found.level == "warning"
    assert "test: 1 of 2 queries with the text of a train query, such as e" in found.text


def test_seen_tokens_count_overlapping_chunks_once():
    passage = Span(10, 30)
    assert seen_tokens(passage, [Span(0, 12), Span(8, 20), Span(25, 40)]) == 15
    assert seen_tokens(passage, [Span(0, 10), Span(30, 40)]) == 0
    assert seen_tokens(passage, [Span(0, 100), Span(5, 50)]) == 20


@pytest.fixture
def inputs_with_spans(small_trial, collection_folder, tmp_path):
    """The small collection with the spans of two relevant documents: words 5-8 and the last 3."""
    import shutil

    folder = tmp_path / "woods"
    shutil.copytree(collection_folder, folder)
    inputs = load_inputs(str(folder), small_trial.model.backbone)
    test = inputs.collection.splits["test"]
    rows = []
    for query_id, (first, count) in zip(test.queries, ((5, 4), (-3, 3)), strict=False):
        doc_id = next(d for d, grade in test.qrels[query_id].items() if grade > 0)
        words = inputs.collection.documents[doc_id].split()
        first %= len(words)
        text = " ".join(words[:first])
        start = len(text) + (first > 0)
        end = start + len(" ".join(words[first : first + count]))
        rows.append(
            {"query_id": query_id, "doc_id": doc_id, "word_start": first, "num_words": count}
        )
        rows.append({"qid": query_id, "doc_id": doc_id, "start": start, "end": end, "grade": 1})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "spans.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return inputs, folder


def test_spans_in_words_and_in_characters_give_the_same_tokens(inputs_with_spans):
    inputs, folder = inputs_with_spans
    path = spans_file(str(folder), inputs.collection)
    passages = relevant_passages(path, inputs)
    assert passages[0] == passages[1] and passages[2] == passages[3]
    assert passages[0].tokens.start >= 5 and len(passages) == 4
    last = passages[2]
    assert last.tokens.end == len(inputs.tokens[last.doc_id])


def test_relevant_text_behind_the_limit_is_a_warning(inputs_with_spans, small_trial):
    inputs, folder = inputs_with_spans
    config = small_trial.override({"collection": str(folder), "chunking.max_document_tokens": 6})
    [of_all, of_relevant] = coverage(config, inputs)
    assert of_all.level == "note" and of_relevant.level == "warning"
    whole = config.override({"chunking.max_document_tokens": 10_000})
    assert [one.level for one in coverage(whole, inputs)] == ["ok", "ok"]


def test_unseen_shares_follow_from_the_chunks(inputs_with_spans, small_trial):
    inputs, _ = inputs_with_spans
    doc_id = max(inputs.tokens, key=lambda one: len(inputs.tokens[one]))
    chunking = TrialConfig().override({"chunking.window": 10, "chunking.stride": 10}).chunking
    short = {"chunking.window": 10, "chunking.stride": 10, "chunking.max_document_tokens": 120}
    cut = small_trial.override(short).chunking
    assert document_spans(doc_id, 30, chunking)[0] == (0, 10)
    passages = [Passage("q", doc_id, Span(8, 12)), Passage("r", doc_id, Span(118, 124))]
    found = unseen(passages, inputs, cut, False)
    assert found == (4 / 10, 0.0, 1.0, 63.0)
    assert unseen(passages, inputs, cut, True) == (8 / 10, 1 / 2, 1.0, 63.0)
