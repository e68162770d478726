"""What a query costs: the time of one query after the other by the system of a trial, measured on
this machine in a process of its own."""

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from rank_core.children import in_new_process
from rank_core.chunking.inputs import load_inputs
from rank_core.errors import BadInput
from rank_core.machine import (
    begin_on_device,
    peak_memory,
    reset_peak_memory,
    settings_restored,
    trial_device,
    versions,
)
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import rerank
from rank_core.ranking.scorer import Scorer, evaluated_queries
from rank_core.settings.config import TrialConfig
from rank_core.trial.cross_validation import parts_of
from sweeps.forecast.forecast import scorer_of


@dataclass(frozen=True)
class Latency:
    """The queries of one system, in the order of their ids."""

    milliseconds: tuple[float, ...]  # of each query: the median of its repetitions
    documents: tuple[int, ...]  # that were ranked for it
    tokens: int  # of the encoder, for all queries
    peak_bytes: int  # of the process, or on its GPU
    device: str

    @property
    def ms_per_query(self) -> tuple[float, float]:
        """The median and the 95th percentile."""
        low, high = np.percentile(self.milliseconds, [50, 95])
        return float(low), float(high)

    @property
    def ms_per_document(self) -> float:
        """All queries together."""
        return sum(self.milliseconds) / sum(self.documents)

    @property
    def tokens_per_query(self) -> float:
        """The mean."""
        return self.tokens / len(self.milliseconds)


def measured(config: TrialConfig, *, queries: int, repeats: int, threads: int) -> Latency:
    """The latency of a configuration over the first `queries` test queries of its trial that have
    candidates. Documents are tokenised beforehand; weights are drawn, of which the time does not
    depend."""
    settings = config.settings()
    return in_new_process(partial(_measured, settings, queries, repeats, threads))


def _measured(settings: dict[str, Any], queries: int, repeats: int, threads: int) -> Latency:
    begin_on_device(1.0)
    with settings_restored(threads):
        config = TrialConfig().override(settings)
        inputs = parts_of(config, load_inputs(config.collection, config.model.backbone))[0]
        candidates = inputs.collection.splits["test"].candidates
        known = evaluated_queries(inputs.collection, "test", config.evaluation)
        asked = [query_id for query_id in known if candidates.get(query_id)][:queries]
        if not asked:
            raise BadInput(f"{config.collection}: no test query has candidates")
        scorer = scorer_of(config, inputs)
        _rank(scorer, asked[0], Work())  # memory and kernels
        reset_peak_memory()
        work, times = Work(), dict[str, list[float]]()
        for query_id in [query_id for _ in range(repeats) for query_id in asked]:
            start = time.perf_counter()
            _rank(scorer, query_id, work)
            times.setdefault(query_id, []).append(1000 * (time.perf_counter() - start))
    depth = config.evaluation.depth
    return Latency(
        milliseconds=tuple(median(times[query_id]) for query_id in asked),
        documents=tuple(min(depth, len(candidates[query_id])) for query_id in asked),
        tokens=work.tokens // repeats,
        peak_bytes=peak_memory(trial_device()),
        device=versions()["device"],
    )


def _rank(scorer: Scorer, query_id: str, work: Work) -> None:
    """Ranks the candidates of one query; scores come back from a GPU, so that it has ended."""
    limit = scorer.config.chunking.max_query_tokens
    rerank(
        scorer.model,
        scorer.pairs,
        queries={query_id: scorer.inputs.query_tokens("test")[query_id][:limit]},
        candidates=scorer.inputs.collection.splits["test"].candidates,
        depth=scorer.config.evaluation.depth,
        batch_tokens=scorer.batch_tokens,
        autocast=scorer.autocast,
        work=work,
    )
