"""`chunk_scores.parquet`: what each chunk of the final runs of a trial scored by itself.

A model that pools such scores can be aggregated otherwise without its weights; see `derived`.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rank_core import distributed
from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.chunks import Span, coarser_ends
from rank_core.files import atomic_write
from rank_core.ranking.rerank import KeptScores

if TYPE_CHECKING:
    import pyarrow as pa

    from rank_core.ranking.scorer import Scorer

CHUNK_SCORES = "chunk_scores.parquet"
END = -1
"""The chunk index of what the trial did not read: see `CoarserEnds`."""


class CoarserEnds(PairEncoder):
    """Reads the end of a document as coarser strides would cut it: a chunk or two, mostly short."""

    def spans_of(self, doc_id: str, num_tokens: int) -> tuple[Span, ...]:
        """Those spans of `coarser_ends`; none for a model that reads the first chunk only."""
        return () if self.first_chunk_only else coarser_ends(num_tokens, self.chunking)


def write_chunk_scores(workdir: Path, scorer: "Scorer", read: Mapping[str, KeptScores]) -> None:
    """The file, whole or not at all, in `workdir`: of each split what its run `read`, and after it
    the ends that coarser strides need, which the scorer's model reads now.

    A row is a chunk beside a query: split, query_id, doc_id, chunk (0 is the first, `END`), start
    and end (tokens of the document), document_tokens (of all of it), score (fp32, a logit).
    """
    pairs = scorer.pairs
    ends = CoarserEnds(**{one.name: getattr(pairs, one.name) for one in fields(pairs)})
    further = {split: scorer.chunk_scores(split, ends) for split in read}
    if distributed.world()[0] != 0:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for split, kept in read.items():
        tables += [_table(split, pairs, kept), _table(split, ends, further[split], END)]
    table = pa.concat_tables(tables).unify_dictionaries()
    workdir.mkdir(parents=True, exist_ok=True)
    names = [name for name in table.column_names if name != "score"]
    with atomic_write(workdir / CHUNK_SCORES) as unfinished:
        pq.write_table(table, unfinished, compression="zstd", use_dictionary=names)


def _table(
    split: str, pairs: PairEncoder, kept: KeptScores, index: int | None = None
) -> "pa.Table":
    """The rows of a split, in the order of queries and candidates."""
    import pyarrow as pa

    documents: dict[str, tuple[int, int, NDArray[np.int32]]] = {}  # number, tokens, spans_P2
    pairs_N = []  # (query, document, chunks, tokens)
    spans, scores = [np.zeros((0, 2), np.int32)], [np.zeros(0, np.float32)]
    for query, of_query in enumerate(kept.values()):
        for doc_id, score_P in of_query.items():
            if doc_id not in documents:
                num_tokens = len(pairs.tokens[doc_id])
                span_P2 = np.array(pairs.spans_of(doc_id, num_tokens), np.int32).reshape(-1, 2)
                documents[doc_id] = len(documents), num_tokens, span_P2
            document, num_tokens, span_P2 = documents[doc_id]
            assert len(score_P) == len(span_P2)
            pairs_N.append((query, document, len(score_P), num_tokens))
            spans.append(span_P2)
            scores.append(score_P)
    pair_N4 = np.array(pairs_N, np.int32).reshape(-1, 4)
    query_C, document_C, _, tokens_C = np.repeat(pair_N4, pair_N4[:, 2], axis=0).T
    counts = pair_N4[:, 2]
    chunk_C = np.arange(len(query_C)) - np.repeat(np.cumsum(counts) - counts, counts)
    if index is not None:
        chunk_C = np.full(len(query_C), index)
    start_C, end_C = np.concatenate(spans).T
    return pa.table(
        {
            "split": _coded(np.zeros(len(query_C), np.int32), [split]),
            "query_id": _coded(query_C, list(kept)),
            "doc_id": _coded(document_C, list(documents)),
            "chunk": pa.array(chunk_C, pa.int32()),
            "start": pa.array(start_C, pa.int32()),
            "end": pa.array(end_C, pa.int32()),
            "document_tokens": pa.array(tokens_C, pa.int32()),
            "score": pa.array(np.concatenate(scores), pa.float32()),
        }
    )


def _coded(code_C: NDArray[np.int32], texts: list[str]) -> "pa.DictionaryArray":
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(
        pa.array(np.ascontiguousarray(code_C), pa.int32()), pa.array(texts, pa.string())
    )
