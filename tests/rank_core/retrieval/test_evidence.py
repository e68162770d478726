"""Evidence recall, by hand."""

from rank_core.retrieval.evidence import Place, Read, evidence_recall


def chunk(doc_id, start, end, tokens):
    return Read(Place(doc_id, start, end), tokens)


RELEVANT = {"q": [Place("d1", 100, 200)]}
RANKED = {
    "q": [
        chunk("d2", 0, 300, 60),  # another document covers nothing
        chunk("d1", 50, 150, 20),  # 50 of 100 characters
        chunk("d1", 140, 180, 20),  # 30 more: 10 are read twice
        chunk("d1", 180, 400, 40),  # the last 20
    ]
}


def test_the_best_chunks_that_fit_the_budget_are_read():
    recall = evidence_recall(RANKED, RELEVANT, budgets=(59, 60, 80, 99, 100, 140))
    assert {budget: values["q"] for budget, values in recall.items()} == {
        59: 0.0,
        60: 0.0,
        80: 0.5,
        99: 0.5,
        100: 0.8,
        140: 1.0,
    }


def test_a_chunk_that_does_not_fit_ends_the_reading():
    # The second would fit alone; a reader that gets chunks in their order never sees it.
    ranked = {"q": [chunk("d2", 0, 9, 50), chunk("d1", 100, 200, 5)]}
    assert evidence_recall(ranked, RELEVANT, budgets=(10,)) == {10: {"q": 0.0}}


def test_spans_of_several_documents_count_together_and_unknown_queries_not_at_all():
    relevant = {"q": [Place("d1", 0, 30), Place("d2", 0, 10)]}
    ranked = {"q": [chunk("d2", 0, 10, 1)], "other": [chunk("d2", 0, 10, 1)]}
    assert evidence_recall(ranked, relevant, budgets=(9,)) == {9: {"q": 0.25}}
