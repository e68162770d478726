"""The share of documents and of relevant text that is in no chunk."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rank_core.chunking.chunks import Span, document_spans
from rank_core.chunking.inputs import Inputs
from rank_core.data.spans import FILE, relevant_spans, spans_file
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.settings.config import Chunking, TrialConfig
from sweeps.commands.doctor.finding import Finding
from sweeps.plan.trial_cost import chunk_statistics

MUCH = 0.05
"""Share of relevant text in no chunk above which a finding is a warning."""


class Passage(NamedTuple):
    """The relevant text of one document for one query."""

    query_id: str
    doc_id: str
    tokens: Span


class Unseen(NamedTuple):
    """Shares over relevant passages."""

    text: float  # of their tokens in no chunk
    whole: float  # of the passages without a token in a chunk
    cut: float  # of the passages that no single chunk contains whole
    start: float  # mean token at which they start


def coverage(config: TrialConfig, inputs: Inputs) -> Iterator[Finding]:
    """For the configuration's window, stride, limits and model."""
    model, chunking = model_class(config.model.name), config.chunking
    if issubclass(model, ListRanker):
        return
    statistics = chunk_statistics(config, inputs)
    longer = float((inputs.tokens.lengths() > chunking.max_document_tokens).mean())
    name = (
        f"{config.model.name}, window {chunking.window}, stride {chunking.stride}, "
        f"max_document_tokens {chunking.max_document_tokens}"
    )
    yield Finding(
        "ok" if statistics.coverage == 1 else "note",
        f"{name}: {statistics.chunks_per_document:.1f} chunks per document (most "
        f"{statistics.max_chunks}), {1 - statistics.coverage:.1%} of all tokens are never seen",
        f"{longer:.1%} of documents are longer than max_document_tokens" if longer else "",
        "raise chunking.max_document_tokens to read more of them" if longer else "",
    )
    path = spans_file(config.collection, inputs.collection)
    if path is None:
        yield Finding("note", f"no {FILE}: whether windows miss relevant text is not known")
        return
    passages = relevant_passages(path, inputs)
    if passages:
        yield _relevant_finding(name, unseen(passages, inputs, chunking, model.first_chunk_only))


def unseen(
    passages: Sequence[Passage], inputs: Inputs, chunking: Chunking, first_only: bool
) -> Unseen:
    """Shares of the passages that are in no chunk of their documents."""
    tokens = lost = gone = cut = 0
    for _, doc_id, passage in passages:
        chunks = document_spans(doc_id, len(inputs.tokens[doc_id]), chunking)
        chunks = chunks[:1] if first_only else chunks
        length = passage.end - passage.start
        seen = seen_tokens(passage, chunks)
        tokens, lost = tokens + length, lost + length - seen
        gone += seen == 0
        cut += not any(
            chunk.start <= passage.start and passage.end <= chunk.end for chunk in chunks
        )
    count = len(passages)
    start = sum(relevant.tokens.start for relevant in passages) / count
    return Unseen(lost / max(1, tokens), gone / count, cut / count, start)


def seen_tokens(passage: Span, chunks: Sequence[Span]) -> int:
    """Tokens of the passage that are in at least one of the chunks, which are in order."""
    seen, end = 0, passage.start
    for chunk in chunks:
        seen += max(0, min(chunk.end, passage.end) - max(chunk.start, end))
        end = max(end, chunk.end)
    return seen


def _relevant_finding(name: str, shares: Unseen) -> Finding:
    result = (
        f"{shares.text:.1%} of relevant text is never seen; {shares.whole:.1%} of relevant "
        f"passages not at all, {shares.cut:.1%} whole in no chunk (they start at token "
        f"{shares.start:,.0f} on average)"
    )
    if shares.text == 0:
        return Finding("ok", result)
    return Finding(
        "warning" if shares.text > MUCH else "note",
        result,
        "no model learns from text that it does not read",
        "raise chunking.max_document_tokens or max_chunks, or use a model that reads all chunks",
    )


def relevant_passages(path: Path, inputs: Inputs) -> list[Passage]:
    """The spans of relevant documents in tokens of the backbone; a span may be empty."""
    documents = inputs.collection.documents
    tokenizer = load_tokenizer(inputs.backbone.folder)
    passages = []
    for query_id, doc_id, start, end in relevant_spans(path, inputs.collection):
        # A text at a time: the offsets of all would be larger than the collection.
        offsets = tokenizer(
            documents[doc_id],
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            verbose=False,
        )["offset_mapping"]
        inside = [i for i, (first, last) in enumerate(offsets) if first < end and last > start]
        span = Span(inside[0], inside[-1] + 1) if inside else Span(0, 0)
        passages.append(Passage(query_id, doc_id, span))
    return passages
