"""Data: sizes, candidates, cut queries, queries that splits share, and what the windows leave
out."""

from collections.abc import Iterator, Mapping

import numpy as np

from rank_core.chunking.batches import tokenize_queries
from rank_core.chunking.inputs import Inputs
from rank_core.data.folds import FEW_QUERIES
from rank_core.encoders.backbones import load_tokenizer
from rank_core.records import Collection, Split
from rank_core.settings.config import Evaluation, TrialConfig
from sweeps.commands.doctor.coverage import coverage
from sweeps.commands.doctor.finding import Finding
from sweeps.plan.trial_cost import few_steps

LOW_RECALL = 0.7
_EARLIER = {"dev": ("train",), "test": ("train", "dev")}


def data(config: TrialConfig, inputs: Inputs) -> Iterator[Finding]:
    """The findings on a collection as a configuration reads it."""
    collection = inputs.collection
    yield _sizes(inputs)
    yield from _few_queries(collection)
    yield from _cut_queries(inputs, config.chunking.max_query_tokens)
    for name, split in collection.splits.items():
        yield _recall(name, split, config.evaluation)
    yield from shared_queries(collection)
    yield from coverage(config, inputs)
    few, remedy = few_steps(config, inputs) if "train" in collection.splits else ("", "")
    if few:
        yield Finding("warning", f"training: {few}", "next to nothing is learned", remedy)


def _sizes(inputs: Inputs) -> Finding:
    collection, lengths = inputs.collection, inputs.tokens.lengths()
    queries = ", ".join(f"{len(split.queries):,} {n}" for n, split in collection.splits.items())
    return Finding(
        "ok",
        f"{collection.name} {collection.content_hash}: {len(collection.documents):,} documents "
        f"(mean {lengths.mean():,.0f}, median {np.median(lengths):,.0f}, longest {lengths.max():,} "
        f"tokens of {inputs.backbone.name}); queries: {queries}",
    )


def _few_queries(collection: Collection) -> Iterator[Finding]:
    for name in ("dev", "test"):
        split = collection.splits.get(name)
        if split is not None and len(split.queries) < FEW_QUERIES:
            yield Finding(
                "warning",
                f"{len(split.queries)} {name} queries",
                "too few to detect real differences",
                "judge more queries, or test all of them with evaluation.folds=5",
            )


def _cut_queries(inputs: Inputs, limit: int) -> Iterator[Finding]:
    """Queries with more than `limit` tokens."""
    queries = [q for split in inputs.collection.splits.values() for q in split.queries.values()]
    tokens = tokenize_queries(load_tokenizer(inputs.backbone.folder), queries, limit + 1)
    if cut := sum(len(ids) > limit for ids in tokens):
        yield Finding(
            "warning" if cut > len(queries) / 20 else "note",
            f"{cut:,} of {len(queries):,} queries have more than {limit} tokens",
            "the model does not read their ends",
            "raise chunking.max_query_tokens",
        )


def _recall(name: str, split: Split, evaluation: Evaluation) -> Finding:
    recall = found_share(split, evaluation.depth)
    result = f"{name}: {recall:.1%} of relevant documents are among {evaluation.depth} candidates"
    if recall >= LOW_RECALL:
        return Finding("ok", result)
    return Finding(
        "error" if recall == 0 else "warning",
        result,
        "a reranker cannot find documents that the first stage missed",
        "a better first stage ('COLLECTION|first-stage(by=rm3,tune=R@100)', or its run as "
        "SPLIT/NAME.run), or a larger evaluation.depth",
    )


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


def shared_queries(collection: Collection) -> Iterator[Finding]:
    """The findings on dev queries that are in train, and test queries that are in either: texts
    that are equal except in case and white space. Such a query measures nothing."""
    for name, earlier in _EARLIER.items():
        for split in earlier:
            if name not in collection.splits or split not in collection.splits:
                continue
            ours = _plain(collection.splits[name].queries)
            theirs = set(_plain(collection.splits[split].queries).values())
            if same := [query_id for query_id, text in ours.items() if text in theirs]:
                yield Finding(
                    "warning",
                    f"{name}: {len(same):,} of {len(ours):,} queries with the text of a {split} "
                    f"query, such as {same[0]}",
                    "a model may have learned their answers",
                    f"remove them from {split}",
                )


def _plain(queries: Mapping[str, str]) -> dict[str, str]:
    return {query_id: " ".join(text.casefold().split()) for query_id, text in queries.items()}
