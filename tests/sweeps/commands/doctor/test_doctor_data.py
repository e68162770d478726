"""What the doctor says of data: hand-made collections whose numbers follow from a glance."""

from rank_core.chunking.inputs import load_inputs
from rank_core.records import Collection, Split
from rank_core.settings.config import Evaluation
from sweeps.commands.doctor.examination import coverage, found_share, recall, shared_queries


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


def test_text_behind_the_limit_is_a_note_and_all_read_is_fine(small_trial, backbone):
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    cut = small_trial.override({"chunking.max_document_tokens": 6})
    whole = small_trial.override({"chunking.max_document_tokens": 10_000})
    assert [coverage(one, inputs).level for one in (cut, whole)] == ["note", "ok"]
