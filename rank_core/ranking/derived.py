"""Runs of other aggregations and cuts, from the chunk scores that a finished trial has kept.

The law: such a run equals that of a trial with the other settings and the same weights. It says
nothing about a model trained with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.chunking.chunks import Span, document_spans
from rank_core.data import Run
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.models.passage_scores import AddedScores, ChunkScores, KMaxAvgP
from rank_core.models.poolings import masked_top_mean
from rank_core.ranking.chunk_scores import CHUNK_SCORES
from rank_core.ranking.rerank import ordered
from rank_core.settings.config import TrialConfig


@dataclass(frozen=True)
class KeptChunks:
    """The kept chunks of one split. N pairs of a query and a document, D documents, C chunks."""

    pairs: tuple[tuple[str, str], ...]  # (query_id, doc_id)
    first_N: NDArray[np.int64]  # the first chunk of each pair; its others follow
    document_N: NDArray[np.int64]
    doc_ids: tuple[str, ...]
    tokens_D: NDArray[np.int32]  # of each whole document
    places_D: tuple[Mapping[Span, int], ...]  # of each document's spans among a pair's chunks
    score_C: Tensor  # fp32

    def scores(self, config: TrialConfig) -> tuple[Tensor, Tensor]:
        """(score_NP, mask_NP) of the chunks that the settings read; refuses others than kept."""
        rows, missing = [], []
        documents = zip(self.doc_ids, self.tokens_D.tolist(), self.places_D, strict=True)
        for doc_id, num_tokens, places in documents:
            spans = _spans(doc_id, num_tokens, config)
            missing += [(doc_id, span) for span in spans if span not in places]
            rows.append([places.get(span, 0) for span in spans])
        if missing:
            (doc_id, (start, end)), short = missing[0], len({doc_id for doc_id, _ in missing})
            raise BadInput(
                "settings to derive must read kept chunks only; "
                f"chunking.stride={config.chunking.stride} and "
                f"chunking.max_chunks={config.chunking.max_chunks} read others in {short} of "
                f"{len(rows)} documents, such as tokens {start} to {end} of {doc_id}"
            )
        count_D = np.array([len(row) for row in rows])
        place_DP = np.zeros((len(rows), count_D.max(initial=1)), dtype=np.int64)
        for row, places_of in zip(place_DP, rows, strict=True):
            row[: len(places_of)] = places_of
        mask_NP = np.arange(place_DP.shape[1]) < count_D[self.document_N][:, None]
        index_NP = self.first_N[:, None] + place_DP[self.document_N]
        score_NP = self.score_C[torch.from_numpy(index_NP)]
        mask = torch.from_numpy(mask_NP)
        return score_NP.masked_fill(~mask, 0.0), mask


def read_chunks(folder: Path, split: str) -> KeptChunks:
    """What the trial in `folder` kept of a split."""
    path = folder / CHUNK_SCORES
    if not path.is_file():
        raise BadInput(
            "a trial to derive from must have kept its chunk scores "
            f"(evaluation.keep_chunk_scores=true); found no {path}"
        )
    table = pd.read_parquet(path, filters=[("split", "==", split)])
    query_C = table["query_id"].cat.codes.to_numpy().astype(np.int64)
    document_C = table["doc_id"].cat.codes.to_numpy().astype(np.int64)
    pair_C = pd.factorize(query_C * len(table["doc_id"].cat.categories) + document_C)[0]
    # Ends come after all that was read: a pair's chunks become neighbours, in their order.
    order = np.argsort(pair_C, kind="stable")
    table = table.iloc[order]
    first_N = np.flatnonzero(np.diff(pair_C[order], prepend=-1))
    heads = table.iloc[first_N]
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
    """The trial's settings with another aggregation, `max_chunks` or stride, which may be coarser
    only: a multiple of the trial's own, so that its chunks are among those kept."""
    named: dict[str, object] = {}
    if "model.name" in settings:
        kind = model_class(str(settings["model.name"]))
        named = {"model.k": 0, "model.chunk_scores": ""}
        if "chunk_scores" in kind.options:
            named["model.chunk_scores"] = trained.model.chunk_scores
        if _first_only(kind):  # the only stride that it does not ignore
            named["chunking.stride"] = trained.chunking.window
            named |= {"chunking.max_chunks": 0, "chunking.overflow": "first"}
    config = trained.override(named | dict(settings))
    own, stride = trained.chunking.stride, config.chunking.stride
    if stride % own and not _first_only(model_class(config.model.name)):
        raise BadInput(
            f"a derived stride must be a multiple of the trial's chunking.stride={own}, "
            f"got {stride}"
        )
    return config


def derived_run(kept: KeptChunks, config: TrialConfig) -> Run:
    """The run of the settings over the kept pairs, as `rerank` gives it."""
    with torch.inference_mode():
        score_NP, mask_NP = kept.scores(config)
        score_N = _pooled(config, score_NP, mask_NP)
    scores: dict[str, dict[str, float]] = {}
    for (query_id, doc_id), score in zip(kept.pairs, score_N.tolist(), strict=True):
        scores.setdefault(query_id, {})[doc_id] = score
    return {query_id: ordered(of_query) for query_id, of_query in scores.items()}


def _spans(doc_id: str, num_tokens: int, config: TrialConfig) -> tuple[Span, ...]:
    spans = document_spans(doc_id, num_tokens, config.chunking)
    return spans[:1] if _first_only(model_class(config.model.name)) else spans


def _first_only(kind: type[object]) -> bool:
    return issubclass(kind, ChunkScores) and kind.first_chunk_only


def _pooled(config: TrialConfig, score_NP: Tensor, mask_NP: Tensor) -> Tensor:
    kind = model_class(config.model.name)
    assert issubclass(kind, ChunkScores)
    if kind is KMaxAvgP:
        return masked_top_mean(score_NP, mask_NP, config.model.k or KMaxAvgP.DEFAULT_K)
    if issubclass(kind, AddedScores) and config.model.chunk_scores:
        score_NP = torch.sigmoid(score_NP)
    return kind.pool_scores(score_NP, mask_NP)
