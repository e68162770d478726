"""What the first stage gives a reranker: recall, the best that is possible, judged candidates."""

from collections.abc import Iterator

from rank_core.evaluate import mean_values, per_query
from rank_core.records import Collection, Run, Split
from rank_core.settings.config import Evaluation
from sweeps.commands.doctor.finding import Finding

LOW_RECALL = 0.7
TOP = 10


def candidates(collection: Collection, evaluation: Evaluation) -> Iterator[Finding]:
    """Findings on each split's candidate lists and judgments."""
    for name, split in collection.splits.items():
        yield _recall(name, split, evaluation)
        yield from _holes(name, split)
    for name, split in collection.splits.items():
        if name != "train":
            yield _unjudged(name, split)


def found_share(split: Split, depth: int) -> float:
    """Share of a query's relevant documents that are among its first `depth` candidates, averaged
    over the queries that have any."""
    shares = []
    for query_id in split.queries:
        wanted = {d for d, grade in split.qrels.get(query_id, {}).items() if grade > 0}
        if wanted:
            first = list(split.candidates.get(query_id, ()))[:depth]
            shares.append(len(wanted.intersection(first)) / len(wanted))
    return sum(shares) / max(1, len(shares))


def first_and_best(split: Split, evaluation: Evaluation) -> tuple[float, float]:
    """The first measure for the candidates as they are, and in the best order there is."""
    as_ranked: Run = {}
    best: Run = {}
    for query_id in split.queries:
        grades = split.qrels.get(query_id, {})
        first = list(split.candidates.get(query_id, ()))[: evaluation.depth]
        by_grade = sorted(first, key=lambda doc_id: -grades.get(doc_id, 0))
        # Ranks for scores: evaluation tools break ties each in their own way.
        as_ranked[query_id] = {doc_id: float(-rank) for rank, doc_id in enumerate(first)}
        best[query_id] = {doc_id: float(-rank) for rank, doc_id in enumerate(by_grade)}
    if not any(best.values()):
        return 0.0, 0.0
    measure = evaluation.measures[0]
    one, other = (mean_values(per_query(split.qrels, run, [measure])) for run in (as_ranked, best))
    return next(iter(one.values())), next(iter(other.values()))


def unjudged_share(split: Split, top: int) -> float:
    """Share of the first `top` candidates, over all queries, that nobody has judged."""
    ranked = [
        (query_id, doc_id)
        for query_id in split.queries
        for doc_id in list(split.candidates.get(query_id, ()))[:top]
    ]
    unjudged = sum(doc_id not in split.qrels.get(query_id, {}) for query_id, doc_id in ranked)
    return unjudged / max(1, len(ranked))


def _recall(name: str, split: Split, evaluation: Evaluation) -> Finding:
    recall = found_share(split, evaluation.depth)
    first, best = first_and_best(split, evaluation)
    what = (
        f"{name}: {recall:.1%} of relevant documents are among {evaluation.depth} candidates; "
        f"{evaluation.measures[0]} {first:.3f} as they are ranked, {best:.3f} at best"
    )
    if recall >= LOW_RECALL:
        return Finding("ok", what)
    return Finding(
        "error" if recall == 0 else "warning",
        what,
        "no reranker finds what the first stage has missed",
        "a better first stage ('COLLECTION|first-stage(by=rm3,tune=R@100)', or its run as "
        "SPLIT/NAME.run), or a larger evaluation.depth",
    )


def _holes(name: str, split: Split) -> Iterator[Finding]:
    """Queries that say nothing, or nothing good."""
    irrelevant = [
        query_id
        for query_id in split.queries
        if not any(grade > 0 for grade in split.qrels.get(query_id, {}).values())
    ]
    if irrelevant:
        yield Finding(
            "note" if name == "train" else "warning",
            f"{name}: {len(irrelevant):,} of {len(split.queries):,} queries without a relevant "
            f"document, such as {irrelevant[0]}",
            "no model learns from them" if name == "train" else "every system gets 0 for them",
            "leave them out",
        )
    bare = [query_id for query_id in split.queries if not split.candidates.get(query_id)]
    if bare:
        yield Finding(
            "note" if name == "train" else "warning",
            f"{name}: {len(bare):,} of {len(split.queries):,} queries without a candidate, such as "
            f"{bare[0]}",
            "training has no negatives for them"
            if name == "train"
            else "there is nothing to rerank, every system gets 0 for them",
            "complete the run, or leave them out",
        )


def _unjudged(name: str, split: Split) -> Finding:
    share = unjudged_share(split, TOP)
    what = f"{name}: {share:.1%} of the first {TOP} candidates are unjudged"
    if not share:
        return Finding("ok", what)
    return Finding(
        "note",
        what,
        "they count as not relevant, which punishes systems unlike the judged ones",
        "look at nDCG(judged_only=True)@10 as well",
    )
