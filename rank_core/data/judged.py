"""What judgments can tell of a run: how deep they reach, and which queries they say nothing of."""

from collections.abc import Iterable, Mapping

from rank_core.records import Qrels

SEEN = "Every judgment is among"
LEAST = 20
"""Judgments from which on their depth tells where they come from."""


def judged_depth(qrels: Qrels, run: Mapping[str, Iterable[str]]) -> int:
    """The N for which every judgment of a ranked query is of one of its first N documents, and most
    lists are twice as long; else 0. Such judgments are of what this run showed, as clicks are:
    documents behind them count as not relevant, whatever they are."""
    deepest, judgments, longer, queries = 0, 0, 0, 0
    lengths = list[int]()
    for query_id, judged in qrels.items():
        if not (ranked := run.get(query_id)):
            continue
        rank_of = {doc_id: rank for rank, doc_id in enumerate(ranked, start=1)}
        if judged.keys() - rank_of.keys():
            return 0
        queries += 1
        judgments += len(judged)
        deepest = max([deepest, *(rank_of[doc_id] for doc_id in judged)])
        lengths.append(len(rank_of))
    longer = sum(length >= 2 * deepest for length in lengths)
    return deepest if judgments >= LEAST and 2 * longer > queries else 0


def depth_note(depth: int, run: str) -> str:
    """The note on judgments of the first documents of a run alone."""
    return (
        f"{SEEN} the first {depth} documents of {run}: relevant documents behind "
        "them cannot be seen, so recall, and what another system puts on top, count as nothing"
    )


def num_without_relevant(qrels: Qrels) -> int:
    """The number of judged queries without a relevant document, which count 0 for every system."""
    return sum(not any(grade > 0 for grade in judged.values()) for judged in qrels.values())


def without_relevant_note(number: int, of: int) -> str:
    """The note on them."""
    verbs = ("has", "counts") if number == 1 else ("have", "count")
    return (
        f"{number:,} of {of:,} judged queries {verbs[0]} no relevant document and {verbs[1]} 0 for "
        "every system"
    )
