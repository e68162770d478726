"""The numbers of one positional analysis: computed here, written and shown elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from rank_core.records import Collection
from sweeps.positions.judged_chunks import JudgedChunk, JudgedSummary, summarise
from sweeps.positions.positions import (
    Histogram,
    Passage,
    Position,
    length_edges,
    length_histogram,
    relative_histogram,
    relevant_positions,
)
from sweeps.positions.rsv import (
    Bm25Chunks,
    ChunkScore,
    ChunkScorer,
    CurvePoint,
    Pair,
    chunk_scores,
    rsv_curve,
    word_chunks,
)

ALL, RELEVANT = "all documents", "relevant documents"


@dataclass(frozen=True)
class Settings:
    """How an analysis cuts and counts. Lengths in words at white space."""

    window: int = 50  # of a chunk
    num_bins: int = 10  # of relative positions
    first: int = 512  # words of a first window, marked in plots and counted in the summary
    max_documents: int = 20_000  # whose lengths are counted; 0: all


@dataclass(frozen=True)
class Findings:
    """What was found; empty parts were not asked for or not known."""

    lengths: Mapping[str, Histogram]
    summary: Mapping[str, float | int | str]
    positions: Sequence[Position] = ()
    scores: Mapping[str, Sequence[ChunkScore]] = field(default_factory=dict)
    curves: Mapping[str, Sequence[CurvePoint]] = field(default_factory=dict)
    judged: Sequence[JudgedChunk] = ()
    judged_summary: JudgedSummary | None = None


def analyse(
    collection: Collection,
    pairs: Sequence[Pair],
    settings: Settings,
    *,
    passages: Sequence[Passage] = (),
    scorers: Mapping[str, ChunkScorer] | None = None,
    judged: Sequence[JudgedChunk] = (),
) -> Findings:
    """Lengths, positions of relevant passages and RSV by position; BM25 is always a scorer."""
    lengths = _lengths(collection, pairs, settings)
    by_pair = [(pair.query_id, pair.doc_id) for pair in pairs]
    positions = list(relevant_positions(passages, by_pair, collection.documents))
    chunks = (one.text for pair in pairs for one in word_chunks(pair.text, settings.window))
    everyone: dict[str, ChunkScorer] = {"BM25": Bm25Chunks(chunks), **(scorers or {})}
    scores = {
        name: list(chunk_scores(pairs, scorer, settings.window))
        for name, scorer in everyone.items()
    }
    scores = {name: found for name, found in scores.items() if found}
    summary = _length_summary(lengths, settings) | _position_summary(positions, settings)
    edges = length_edges([length for of_kind in lengths.values() for length in of_kind])
    return Findings(
        lengths={kind: length_histogram(found, edges) for kind, found in lengths.items()},
        summary=summary,
        positions=positions,
        scores=scores,
        curves={name: rsv_curve(found, settings.num_bins) for name, found in scores.items()},
        judged=judged,
        judged_summary=summarise(judged) if judged else None,
    )


def relative_of(findings: Findings, settings: Settings) -> Histogram:
    """Found passages by relative position."""
    return relative_histogram(findings.positions, settings.num_bins)


def _lengths(
    collection: Collection, pairs: Sequence[Pair], settings: Settings
) -> dict[str, list[int]]:
    total = len(collection.documents)
    step = max(1, -(-total // settings.max_documents)) if settings.max_documents else 1
    counted = islice(collection.documents, 0, None, step)
    relevant = {pair.doc_id: pair.text for pair in pairs}
    return {
        ALL: [len(collection.documents[doc_id].split()) for doc_id in counted],
        RELEVANT: [len(text.split()) for text in relevant.values()],
    }


def _length_summary(
    lengths: Mapping[str, Sequence[int]], settings: Settings
) -> dict[str, float | int | str]:
    summary: dict[str, float | int | str] = {}
    for kind, found in lengths.items():
        summary[f"{kind}: counted"] = len(found)
        summary[f"{kind}: median words"] = float(np.median(found))
        summary[f"{kind}: longest"] = int(max(found))
        share = float(np.mean([length > settings.first for length in found]))
        summary[f"{kind}: share longer than {settings.first} words"] = share
    return summary


def _position_summary(
    positions: Sequence[Position], settings: Settings
) -> dict[str, float | int | str]:
    if not positions:
        return {}
    found = [position for position in positions if position.found]
    summary: dict[str, float | int | str] = {
        "relevant passages: sought": len(positions),
        "relevant passages: found": len(found),
    }
    if found:
        starts = [position.word_start for position in found]
        inside = float(np.mean([start < settings.first for start in starts]))
        summary["relevant passages: median words before"] = float(np.median(starts))
        summary[f"relevant passages: share that starts in the first {settings.first}"] = inside
        relative = float(np.mean([position.relative for position in found]))
        summary["relevant passages: mean relative position (chance .5)"] = relative
    return summary
