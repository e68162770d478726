"""The first stage: its recall, the best possible reranking of it, and its run files."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rank_core.data.folder import SPLITS
from rank_core.data.trec import read_lines, read_run
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
        relevant = {d for d, grade in split.qrels.get(query_id, {}).items() if grade > 0}
        if relevant:
            first = list(split.candidates.get(query_id, ()))[:depth]
            shares.append(len(relevant.intersection(first)) / len(relevant))
    return sum(shares) / max(1, len(shares))


def first_and_best(split: Split, evaluation: Evaluation) -> tuple[float, float]:
    """The first measure of the candidates as they are ranked, and in the best order."""
    as_ranked: Run = {}
    best: Run = {}
    for query_id in split.queries:
        grades = split.qrels.get(query_id, {})
        first = list(split.candidates.get(query_id, ()))[: evaluation.depth]
        by_grade = sorted(first, key=lambda doc_id: -grades.get(doc_id, 0))
        # Ranks for scores: evaluation tools break ties in different ways.
        as_ranked[query_id] = {doc_id: float(-rank) for rank, doc_id in enumerate(first)}
        best[query_id] = {doc_id: float(-rank) for rank, doc_id in enumerate(by_grade)}
    if not any(best.values()):
        return 0.0, 0.0
    measure = evaluation.measures[0]
    ranked, reordered = (
        mean_values(per_query(split.qrels, run, [measure])) for run in (as_ranked, best)
    )
    return next(iter(ranked.values())), next(iter(reordered.values()))


def unjudged_share(split: Split, top: int) -> float:
    """The share of the first `top` candidates, over all queries, without a judgment."""
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
    result = (
        f"{name}: {recall:.1%} of relevant documents are among {evaluation.depth} candidates; "
        f"{evaluation.measures[0]} {first:.3f} as they are ranked, {best:.3f} at best"
    )
    if recall >= LOW_RECALL:
        return Finding("ok", result)
    return Finding(
        "error" if recall == 0 else "warning",
        result,
        "a reranker cannot find documents that the first stage missed",
        "a better first stage ('COLLECTION|first-stage(by=rm3,tune=R@100)', or its run as "
        "SPLIT/NAME.run), or a larger evaluation.depth",
    )


def _holes(name: str, split: Split) -> Iterator[Finding]:
    """Queries without a relevant document or without a candidate."""
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
            "exclude them",
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
            "complete the run, or exclude them",
        )


def _unjudged(name: str, split: Split) -> Finding:
    share = unjudged_share(split, TOP)
    result = f"{name}: {share:.1%} of the first {TOP} candidates are unjudged"
    if not share:
        return Finding("ok", result)
    return Finding(
        "note",
        result,
        "they count as not relevant, a bias against systems unlike those that were judged",
        "report nDCG(judged_only=True)@10 as well",
    )


class Ranks(NamedTuple):
    """Counts over the lines of a run."""

    lines: int
    tied: int  # scores equal to those of another document of the query
    against: int  # documents ranked above another with a higher score
    repeated: int  # ranks equal to those of another document of the query


def run_files(folder: Path) -> Iterator[Finding]:
    """A finding for every run whose ranks contradict its scores or break their ties."""
    for split in SPLITS:
        for path in sorted([*folder.glob(f"{split}/*.run"), *folder.glob(f"{split}/*.run.gz")]):
            name, ranks = f"{split}/{path.name}", count_ranks(path)
            if ranks.against:
                yield Finding(
                    "warning",
                    f"{name}: {ranks.against:,} of {ranks.lines:,} lines have a rank that "
                    "contradicts the scores",
                    "the order is that of the scores, as in every evaluation tool",
                    "check that a higher score is better there",
                )
            elif ranks.tied:
                order = "doc_id, for ranks repeat as well" if ranks.repeated else "the rank column"
                yield Finding(
                    "note",
                    f"{name}: {ranks.tied:,} of {ranks.lines:,} scores are tied",
                    f"their order here is that of {order}; trec_eval sorts by doc_id alone",
                )


def count_ranks(path: Path) -> Ranks:
    """Count ties and contradictions of a run, read again with its ranks."""
    ranks: dict[str, dict[str, int]] = {}
    for _, line in read_lines(path):
        query_id, _, doc_id, rank, *_ = line.split()
        ranks.setdefault(query_id, {})[doc_id] = int(rank)
    lines = tied = against = repeated = 0
    for query_id, scores in read_run(path).items():
        of_query = [ranks[query_id][doc_id] for doc_id in scores]
        lines += len(scores)
        tied += len(scores) - len(set(scores.values()))
        repeated += len(of_query) - len(set(of_query))
        highest = of_query[0]
        for place in of_query[1:]:
            against += place < highest
            highest = max(highest, place)
    return Ranks(lines, tied, against, repeated)
