"""RM3 by hand, and as an index in memory and a system of the zoo use it."""

import pytest

from rank_core.data.trec import read_run
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3
from rank_core.first_stage.rm3 import expanded, may_expand
from rank_core.trial.trial import run_trial


def test_two_documents_by_hand():
    # Shares: apple 1/2, pear 1/2 of the first; plum 3/4, apple 1/4 of the second (fig is its third
    # term, of which two count). Times scores 3 and 1: apple 1.75, pear 1.5, plum 0.75, of which the
    # two largest, over 3.25, are apple 7/13 and pear 6/13. Mixed with the query, one quarter of it:
    # apple 1/4 + 3/4 * 7/13 = 34/52, pear 3/4 * 6/13 = 18/52.
    documents = [{"apple": 2, "pear": 2}, {"plum": 3, "apple": 1, "fig": 1}]
    weights = expanded({"apple": 1}, documents, [3.0, 1.0], Rm3(fb_terms=2, original_weight=0.25))
    assert weights == pytest.approx({"apple": 34 / 52, "pear": 18 / 52})


@pytest.mark.parametrize(("weight", "kept"), [(0.5, 0.5), (1.0, 1.0), (0.0, 1.0)])
def test_a_query_without_expansion_keeps_its_terms_at_its_own_weight(weight, kept):
    for documents, scores in (([], []), ([{}], [2.0])):
        settings = Rm3(original_weight=weight)
        weights = expanded({"apple": 3, "fig": 1}, documents, scores, settings)
        assert weights == {"apple": 0.75 * kept, "fig": 0.25 * kept}


@pytest.mark.parametrize(
    ("term", "num_with", "allowed"),
    [
        ("pear", 2, True),
        ("pear", 3, False),  # more than a tenth of 20
        ("p", 1, False),
        ("a" * 20, 1, True),
        ("a" * 21, 1, False),
        ("p\u00e9ar", 1, False),
    ],
)
def test_terms_that_may_expand_a_query_are_plain_and_rare(term, num_with, allowed):
    assert may_expand(term, num_with, 20) is allowed


@pytest.fixture
def index():
    documents = {"a": "apple orchard", "b": "apple orchard orchard", "c": "orchard"}
    return Bm25Index(documents | {f"other{n}": f"word{n} filler" for n in range(40)})


def test_a_document_without_a_query_term_is_found_through_its_neighbours(index):
    plain, rm3 = index.run({"q": "apple"})["q"], Bm25Settings(rm3=Rm3(fb_docs=2))
    assert set(plain) == {"a", "b"}
    assert set(index.run({"q": "apple"}, rm3)["q"]) == {"a", "b", "c"}
    assert index.run({"q": "apple"})["q"] == plain


def test_the_whole_weight_on_the_query_is_the_ranking_of_plain_bm25(index):
    query = {"q": "apple orchard"}
    whole = index.run(query, Bm25Settings(rm3=Rm3(original_weight=1.0)))["q"]
    # Of two terms each weighs a half.
    plain = {doc_id: score / 2 for doc_id, score in index.run(query)["q"].items()}
    assert whole == pytest.approx(plain) and list(whole) == list(plain)


def test_as_a_system_it_reorders_the_candidates(small_trial, tmp_path):
    for name in ("bm25", "bm25-rm3"):
        *_, result = run_trial(small_trial.override({"model.name": name}), tmp_path / name)
        assert result.encoder_tokens == 0
    plain, rm3 = (read_run(tmp_path / name / "test.run.gz") for name in ("bm25", "bm25-rm3"))
    assert {q: set(docs) for q, docs in plain.items()} == {q: set(docs) for q, docs in rm3.items()}
    assert plain != rm3
