"""`chunk_scores.parquet`: the scores of all chunks in a trial's final runs, and the runs derived
from them under other aggregations.

A derived run equals that of the same weights under the other settings. It is not the run of a model
trained with those settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core import distributed
from rank_core.bounds import check_parquet
from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.chunks import Span, document_spans
from rank_core.errors import BadInput
from rank_core.files import atomic_write
from rank_core.models import model_class
from rank_core.models.kept_files import CHUNK_SCORES
from rank_core.models.passage_scores import AddedScores, ChunkScores, KMaxAvgP
from rank_core.models.poolings import masked_top_mean
from rank_core.ranking.rerank import KeptScores, ordered
from rank_core.ranking.scorer import Scorer
from rank_core.records import Run
from rank_core.settings.config import TrialConfig

if TYPE_CHECKING:
    import pyarrow as pa


def write_chunk_scores(workdir: Path, scorer: Scorer, read: Mapping[str, KeptScores]) -> None:
    """Writes the file to `workdir`: for each split, the scores that its run `read`.

    A row per query and chunk: split, query_id, doc_id, chunk (from 0), start and end (in tokens),
    document_tokens (of the whole document), score (fp32, a logit).
    """
    if distributed.world()[0] != 0:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [_table(split, scorer.pairs, kept) for split, kept in read.items()]
    table = pa.concat_tables(tables).unify_dictionaries()
    workdir.mkdir(parents=True, exist_ok=True)
    names = [name for name in table.column_names if name != "score"]
    with atomic_write(workdir / CHUNK_SCORES) as unfinished:
        pq.write_table(table, unfinished, compression="zstd", use_dictionary=names)


def _table(split: str, pairs: PairEncoder, kept: KeptScores) -> "pa.Table":
    """The rows of a split, ordered by query and candidate."""
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


@dataclass(frozen=True)
class KeptChunks:
    """The stored chunks of a split. N pairs of query and document, D documents, C chunks."""

    pairs: tuple[tuple[str, str], ...]  # (query_id, doc_id)
    first_N: NDArray[np.int64]  # index of each pair's first chunk; the others follow
    document_N: NDArray[np.int64]
    doc_ids: tuple[str, ...]
    tokens_D: NDArray[np.int32]  # length of each document
    places_D: tuple[Mapping[Span, int], ...]  # {span: position among its pair's chunks}
    score_C: Tensor  # fp32

    def scores(self, config: TrialConfig) -> tuple[Tensor, Tensor]:
        """(score_NP, mask_NP) of the chunks under `config`; raises `BadInput` for chunks that were
        not stored."""
        rows, missing = [], []
        most = 1 if _first_only(model_class(config.model.name)) else None
        documents = zip(self.doc_ids, self.tokens_D.tolist(), self.places_D, strict=True)
        for doc_id, num_tokens, places in documents:
            spans = document_spans(doc_id, num_tokens, config.chunking)[:most]
            missing += [(doc_id, span) for span in spans if span not in places]
            rows.append([places.get(span, 0) for span in spans])
        if missing:
            (doc_id, (start, end)), short = missing[0], len({doc_id for doc_id, _ in missing})
            raise BadInput(
                f"{config.model.name} needs chunk scores that the trial did not keep, for {short} "
                f"of {len(rows)} documents (such as tokens {start} to {end} of {doc_id})"
            )
        count_D = np.array([len(row) for row in rows])
        place_DP = np.zeros((len(rows), count_D.max(initial=1)), dtype=np.int64)
        for row, places_of in zip(place_DP, rows, strict=True):
            row[: len(places_of)] = places_of
        mask_NP = np.arange(place_DP.shape[1]) < count_D[self.document_N][:, None]
        index_NP = self.first_N[:, None] + place_DP[self.document_N]
        score_NP = self.score_C[torch.from_numpy(index_NP)]
        mask = torch.from_numpy(mask_NP)
        # Padding points at the first chunk; its score must not enter a sum.
        return score_NP.masked_fill(~mask, 0.0), mask


def read_chunks(folder: Path, split: str) -> KeptChunks:
    """The stored chunks of a split of the trial in `folder`; raises `BadInput` without any."""
    path = folder / CHUNK_SCORES
    if not path.is_file():
        raise BadInput(
            f"{path} is missing; a trial must keep its chunk scores to derive from it "
            "(evaluation.keep_chunk_scores=true)"
        )
    import pandas as pd
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        check_parquet(file, path, path.stat().st_size)
    table = pd.read_parquet(path, filters=[("split", "==", split)])
    query_C = table["query_id"].cat.codes.to_numpy().astype(np.int64)
    document_C = table["doc_id"].cat.codes.to_numpy().astype(np.int64)
    pair_C = query_C * len(table["doc_id"].cat.categories) + document_C
    first_N = np.flatnonzero(np.diff(pair_C, prepend=-1))
    heads = table.iloc[first_N]
    # A document's spans are the same for every query: they are looked up once for each document.
    document_N, doc_ids = pd.factorize(heads["doc_id"].astype(str))
    _, pair_D = np.unique(document_N, return_index=True)
    lasts = np.append(first_N[1:], len(table))
    bounds = table[["start", "end"]].to_numpy()
    return KeptChunks(
        pairs=tuple(zip(heads["query_id"].astype(str), heads["doc_id"].astype(str), strict=True)),
        first_N=first_N,
        document_N=document_N,
        doc_ids=tuple(map(str, doc_ids)),
        tokens_D=heads["document_tokens"].to_numpy()[pair_D],
        places_D=tuple(
            {Span(*span): place for place, span in enumerate(bounds[first:last].tolist())}
            for first, last in zip(first_N[pair_D], lasts[pair_D], strict=True)
        ),
        score_C=torch.from_numpy(table["score"].to_numpy(np.float32, copy=True)),
    )


def derived_config(trained: TrialConfig, settings: Mapping[str, object]) -> TrialConfig:
    """The trial's settings with another aggregation, or fewer chunks; a k by default is named."""
    named: dict[str, object] = {}
    if "model.name" in settings:
        kind = model_class(str(settings["model.name"]))
        named = {"model.k": 0, "model.chunk_scores": ""}
        if "chunk_scores" in kind.options:
            named["model.chunk_scores"] = trained.model.chunk_scores
        if _first_only(kind):  # the only stride that it accepts
            named["chunking.stride"] = trained.chunking.window
            named |= {"chunking.max_chunks": 0, "chunking.overflow": "first"}
    config = trained.override(named | dict(settings))
    kind = model_class(config.model.name)
    if "k" not in kind.options:
        return config
    return config.override({"model.k": config.model.k or kind.DEFAULT_K})


def derived_run(kept: KeptChunks, config: TrialConfig) -> Run:
    """The run of the stored pairs under `config`, equal to that of `rerank`."""
    with torch.inference_mode():
        score_NP, mask_NP = kept.scores(config)
        score_N = _pooled(config, score_NP, mask_NP)
    scores: dict[str, dict[str, float]] = {}
    for (query_id, doc_id), score in zip(kept.pairs, score_N.tolist(), strict=True):
        scores.setdefault(query_id, {})[doc_id] = score
    return {query_id: ordered(of_query) for query_id, of_query in scores.items()}


def _first_only(kind: type[object]) -> bool:
    return issubclass(kind, ChunkScores) and kind.first_chunk_only


def _pooled(config: TrialConfig, score_NP: Tensor, mask_NP: Tensor) -> Tensor:
    kind = model_class(config.model.name)
    assert issubclass(kind, ChunkScores)
    if kind is KMaxAvgP:
        return masked_top_mean(score_NP, mask_NP, config.model.k or KMaxAvgP.DEFAULT_K)
    if issubclass(kind, AddedScores) and config.model.chunk_scores:
        # Kept scores are logits; the aggregation adds probabilities.
        score_NP = torch.sigmoid(score_NP)
    return kind.pool_scores(score_NP, mask_NP)
