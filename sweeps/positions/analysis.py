"""A positional analysis: its data from a collection, and its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from rank_core.data.load import load_collection
from rank_core.data.made.python_docs import NAME as PYTHON_DOCS
from rank_core.data.made.python_docs import training_passages
from rank_core.data.spans import relevant_spans, spans_file
from rank_core.data.transforms.expression import (
    apply_transforms,
    make_transform,
    parse_collection_expression,
)
from rank_core.data.transforms.far_relevant import FarRelevant
from rank_core.data.trec import read_lines
from rank_core.errors import BadInput, unknown
from rank_core.parsing import parsed_json
from rank_core.records import Collection
from rank_core.seeding import generator
from sweeps.positions.judged_chunks import JudgedChunk, JudgedSummary, summarise
from sweeps.positions.passages import Position, RelevantPassage, relevant_positions
from sweeps.positions.rsv import (
    Bm25Chunks,
    ChunkScorer,
    RelevantPair,
    RsvPoint,
    rsv_curve,
    word_chunks,
)

MOST_DOCUMENTS = 20_000  # whose lengths are counted


@dataclass(frozen=True)
class Settings:
    """The settings of an analysis. Lengths in words at white space."""

    window: int = 50  # of a chunk
    num_bins: int = 10  # of relative positions
    first: int = 512  # words of a first window, marked in figures and counted in the summary


@dataclass(frozen=True)
class PositionResult:
    """The results of an analysis; empty parts were not requested or are unknown."""

    collection: str
    content_hash: str
    split: str
    num_pairs: int
    settings: Settings
    summary: Mapping[str, float]
    positions: Sequence[Position] = ()
    curves: Mapping[str, Sequence[RsvPoint]] = field(default_factory=dict)
    judged: Sequence[JudgedChunk] = ()
    judged_summary: JudgedSummary | None = None
    facts: Mapping[str, str] = field(default_factory=dict)  # of the chat model

    @property
    def answer(self) -> str:
        """The first sentence of the page."""
        first = self.settings.first
        found = [position for position in self.positions if position.found]
        longer = self.summary[f"relevant documents: share longer than {first} words"]
        documents = f"{longer:.0%} of the relevant documents are longer than {first} words."
        if not found:
            return f"{documents} Relevant passages are not known."
        if not longer:
            relative = np.mean([position.relative for position in found])
            return (
                f"Relevant passages start {relative:.0%} of the way through their documents on "
                f"average; 50% is chance. No relevant document is longer than {first} words."
            )
        inside = np.mean([position.word_start < first for position in found])
        chance = np.mean([min(1.0, first / position.places) for position in found])
        return (
            f"{inside:.0%} of the relevant passages start in the first {first} words; if every "
            f"place in their documents were equally likely, it would be {chance:.0%}. {documents}"
        )


def analyse(
    collection: Collection,
    split: str,
    pairs: Sequence[RelevantPair],
    settings: Settings,
    *,
    passages: Sequence[RelevantPassage] = (),
    scorers: Mapping[str, ChunkScorer] | None = None,
    judged: Sequence[JudgedChunk] = (),
    facts: Mapping[str, str] | None = None,
) -> PositionResult:
    """Lengths, positions of relevant passages and RSV by position; BM25 is always a scorer."""
    by_pair = [(pair.query_id, pair.doc_id) for pair in pairs]
    positions = list(relevant_positions(passages, by_pair, collection.documents))
    chunks = (chunk.text for pair in pairs for chunk in word_chunks(pair.text, settings.window))
    bm25 = Bm25Chunks(chunks, collection.language)
    everyone: dict[str, ChunkScorer] = {"BM25": bm25, **(scorers or {})}
    curves = {
        name: rsv_curve(pairs, scorer, settings.window, settings.num_bins)
        for name, scorer in everyone.items()
    }
    summary = _length_summary(collection, pairs, settings) | _position_summary(positions, settings)
    grades = summarise(judged) if judged else None
    return PositionResult(
        collection=collection.name,
        content_hash=collection.content_hash,
        split=split,
        num_pairs=len(pairs),
        settings=settings,
        summary=summary | (grades.counts() if grades else {}),
        positions=positions,
        curves={name: curve for name, curve in curves.items() if curve},
        judged=judged,
        judged_summary=grades,
        facts=facts or {},
    )


def _length_summary(
    collection: Collection, pairs: Sequence[RelevantPair], settings: Settings
) -> dict[str, float]:
    first, step = settings.first, max(1, -(-len(collection.documents) // MOST_DOCUMENTS))
    relevant = {pair.doc_id: pair.text for pair in pairs}
    counted = (collection.documents[name] for name in islice(collection.documents, 0, None, step))
    summary: dict[str, float] = {}
    for kind, texts in (("all documents", counted), ("relevant documents", relevant.values())):
        words = np.array([len(text.split()) for text in texts])
        summary[f"{kind}: counted"] = len(words)
        summary[f"{kind}: median words"] = float(np.median(words))
        summary[f"{kind}: longest"] = int(words.max())
        summary[f"{kind}: share longer than {first} words"] = float(np.mean(words > first))
    return summary


def _position_summary(positions: Sequence[Position], settings: Settings) -> dict[str, float]:
    if not positions:
        return {}
    matched = [position for position in positions if position.found]
    summary: dict[str, float] = {"sought": len(positions), "found": len(matched)}
    if matched:
        starts = np.array([position.word_start for position in matched])
        inside, relative = starts < settings.first, [position.relative for position in matched]
        summary["median words before"] = float(np.median(starts))
        summary[f"share that starts in the first {settings.first}"] = float(np.mean(inside))
        summary["mean relative position (chance .5)"] = float(np.mean(relative))
    return {f"relevant passages: {name}": value for name, value in summary.items()}


def split_of(collection: Collection, name: str) -> str:
    """The split's name, or that of the collection's first split where none is given."""
    if not name:
        return next(iter(collection.splits))
    if name not in list(collection.splits):
        raise unknown(f"split of {collection.name}", name, collection.splits)
    return name


def relevant_pairs(
    collection: Collection, split: str, *, max_pairs: int, least_grade: int, seed: int
) -> list[RelevantPair]:
    """A sample of at most `max_pairs` (0: all) queries and relevant documents that have a text."""
    judged = collection.splits[split]
    judgments = [
        (query_id, doc_id)
        for query_id in judged.queries
        for doc_id, grade in judged.qrels.get(query_id, {}).items()
        if grade >= least_grade and doc_id in collection.documents
    ]
    if not judgments:
        raise BadInput(
            f"{split} of {collection.name} must judge a document of grade {least_grade} or more, "
            "found none with a text"
        )
    if 0 < max_pairs < len(judgments):
        order = generator(seed, "relevant-pairs", split).permutation(len(judgments))
        judgments = [judgments[number] for number in sorted(order[:max_pairs].tolist())]
    return [
        RelevantPair(query_id, judged.queries[query_id], doc_id, collection.documents[doc_id])
        for query_id, doc_id in judgments
    ]


def known_passages(text: str, collection: Collection, split: str) -> list[RelevantPassage]:
    """The relevant passages of a collection that was made from passages or has `spans.jsonl.gz`;
    none of others."""
    base, steps = parse_collection_expression(text)
    for number, (name, settings) in enumerate(steps):
        if name == FarRelevant.name:
            transform = make_transform(name, settings)
            assert isinstance(transform, FarRelevant)
            source = apply_transforms(load_collection(base), steps[:number])
            return [
                RelevantPassage(span["query_id"], source.documents[span["passage_id"]])
                for span in transform.spans(source)
            ]
    queries = collection.splits[split].queries
    if base == PYTHON_DOCS:
        bodies = dict(training_passages())
        return [
            RelevantPassage(q, bodies[doc_id]) for q, doc_id in queries.items() if doc_id in bodies
        ]
    path = None if steps else spans_file(base, collection)
    spans = relevant_spans(path, collection) if path else []
    texts = ((q, collection.documents[doc][start:end]) for q, doc, start, end in spans)
    return [RelevantPassage(q, text) for q, text in texts if q in queries and text]


def read_passages(path: Path) -> list[RelevantPassage]:
    """The passages of a file with one JSON object {query_id, text} on each line."""
    passages = []
    for number, line in read_lines(path):
        try:
            record = parsed_json(line)
            passages.append(RelevantPassage(str(record["query_id"]), str(record["text"])))
        except (ValueError, KeyError, TypeError):
            rule = "a line must be one JSON object with query_id and text"
            raise BadInput(f"{path}:{number}: {rule}, found {line[:80]!r}") from None
    return passages
