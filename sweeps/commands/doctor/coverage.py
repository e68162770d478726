"""What the chosen windows never show to the encoder: of the documents, and of the relevant text."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rank_core.chunking.chunks import Span, document_spans
from rank_core.chunking.inputs import Inputs
from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.settings.config import Chunking, TrialConfig
from sweeps.commands.doctor.finding import Finding
from sweeps.commands.doctor.spans import FILE, Passage, relevant_passages, spans_file
from sweeps.plan.trial_cost import chunk_statistics

MUCH = 0.05
"""Share of relevant text that may stay unseen before it is a warning."""


class Unseen(NamedTuple):
    """Shares over relevant passages."""

    text: float  # of their tokens, that no chunk holds
    whole: float  # of the passages, of which no chunk holds a token
    cut: float  # of the passages, that no single chunk holds from end to end
    start: float  # mean token at which they start


def coverage(config: TrialConfig, inputs: Inputs) -> Iterator[Finding]:
    """For the configuration's window, stride, limits and model."""
    model, chunking = model_class(config.model.name), config.chunking
    if issubclass(model, ListRanker):
        return
    statistics = chunk_statistics(config, inputs)
    longer = float((inputs.tokens.lengths() > chunking.max_document_tokens).mean())
    name = setting_text(config)
    yield Finding(
        "ok" if statistics.coverage == 1 else "note",
        f"{name}: {statistics.chunks_per_document:.1f} chunks per document (most "
        f"{statistics.max_chunks}), {1 - statistics.coverage:.1%} of all tokens are never seen",
        f"{longer:.1%} of documents are longer than max_document_tokens" if longer else "",
    )
    path = spans_file(config.collection, inputs.collection)
    if path is None:
        yield Finding(
            "note",
            f"no {FILE}: where in a document the relevant text stands is not known",
            "whether the windows miss it cannot be told",
        )
        return
    passages = relevant_passages(path, inputs)
    if passages:
        yield _relevant(name, unseen(passages, inputs, chunking, model.first_chunk_only))


def unseen(
    passages: Sequence[Passage], inputs: Inputs, chunking: Chunking, first_only: bool
) -> Unseen:
    """Shares of the passages that the chunks of their documents leave out."""
    tokens = lost = gone = cut = 0
    for _, doc_id, passage in passages:
        chunks = document_spans(doc_id, len(inputs.tokens[doc_id]), chunking)
        chunks = chunks[:1] if first_only else chunks
        length = passage.end - passage.start
        seen = seen_tokens(passage, chunks)
        tokens, lost = tokens + length, lost + length - seen
        gone += seen == 0
        cut += not any(one.start <= passage.start and passage.end <= one.end for one in chunks)
    count = len(passages)
    start = sum(one.tokens.start for one in passages) / count
    return Unseen(lost / max(1, tokens), gone / count, cut / count, start)


def seen_tokens(passage: Span, chunks: Sequence[Span]) -> int:
    """Tokens of the passage that are in at least one of the chunks, which are in order."""
    seen, end = 0, passage.start
    for one in chunks:
        seen += max(0, min(one.end, passage.end) - max(one.start, end))
        end = max(end, one.end)
    return seen


def setting_text(config: TrialConfig) -> str:
    """The settings that decide what is read."""
    one = config.chunking
    limit = f", max_chunks {one.max_chunks} ({one.overflow})" if one.max_chunks else ""
    return (
        f"{config.model.name}, window {one.window}, stride {one.stride}, max_document_tokens "
        f"{one.max_document_tokens}{limit}"
    )


def _relevant(name: str, found: Unseen) -> Finding:
    what = (
        f"{found.text:.1%} of relevant text is never seen; {found.whole:.1%} of relevant passages "
        f"not at all, {found.cut:.1%} whole in no chunk (they start at token {found.start:,.0f} on "
        "average)"
    )
    if found.text == 0:
        return Finding("ok", what)
    return Finding(
        "warning" if found.text > MUCH else "note",
        what,
        "no model learns or finds what it does not read",
        "raise chunking.max_document_tokens or max_chunks, or take a model that reads on",
    )
