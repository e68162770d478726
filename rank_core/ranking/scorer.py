"""Runs and measures of a trial's model over the splits of its collection."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core import distributed
from rank_core.chunking.batches import PairEncoder, batch_tokens_on
from rank_core.chunking.inputs import Inputs
from rank_core.errors import Diverged
from rank_core.evaluate import mean_values, per_query, untied
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import KeptScores, rerank
from rank_core.records import Collection, Run
from rank_core.seeding import derive
from rank_core.settings.config import Evaluation, TrialConfig

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


class Share(NamedTuple):
    """One worker's part of a run, with its chunk scores if they are kept."""

    run: Run
    kept: KeptScores | None


class Scorer:
    """Reranks and evaluates the splits of a trial; the queries are divided among the workers."""

    def __init__(
        self, config: TrialConfig, inputs: Inputs, model: Ranker, autocast: torch.dtype | None
    ) -> None:
        self.config, self.inputs, self.model, self.autocast = config, inputs, model, autocast
        self.batch_tokens = config.evaluation.batch_tokens or batch_tokens_on(model.device)
        self.work = Work()
        self.kept: dict[str, KeptScores] = {}  # {split: chunk scores of its last run}
        self.pairs = type(model).reader(config, inputs.backbone, inputs.tokens)

    def run(self, name: str, depth: int = 0) -> Run:
        """The model's run over a split's evaluated queries, to `depth` (0: evaluation.depth), the
        same on every worker."""
        return self.whole(name, self.share(name, depth))

    def share(self, name: str, depth: int = 0) -> Share:
        """This worker's part of a run. Raises `Diverged` on every worker if any score is not
        finite."""
        keeps = self.config.evaluation.keep_chunk_scores and name != "train"
        kept: KeptScores | None = {} if keeps else None
        candidates = self.inputs.collection.splits[name].candidates
        run = self._rerank(name, self.pairs, candidates, depth=depth, work=self.work, kept=kept)
        return Share(require_finite(run), kept)

    def _rerank(self, name: str, pairs: PairEncoder, candidates: Run, **options: Any) -> Run:
        return rerank(
            self.model,
            pairs,
            queries=self.own_queries(name),
            candidates=candidates,
            batch_tokens=self.batch_tokens,
            autocast=self.autocast,
            **options | {"depth": options.get("depth") or self.config.evaluation.depth},
        )

    def whole(self, name: str, share: Share) -> Run:
        """The run from all workers' shares, the same on every worker."""
        if share.kept is not None:
            self.kept[name] = self.gathered(name, share.kept)
        return self.gathered(name, share.run)

    def means(self, name: str, share: Share) -> dict[str, float]:
        """{measure: mean over the evaluated queries}, the same on every worker; each worker
        measures its own share."""
        import pandas as pd

        tables = distributed.gather(self.table(name, share.run))
        table = pd.concat([table for table in tables if len(table)])
        # A fixed order: the last bit of a sum depends on it.
        return mean_values(table.sort_values(["measure", "query_id"]))

    def chunk_scores(self, name: str, pairs: PairEncoder) -> KeptScores:
        """The scores of the chunks that `pairs` gives for a split's candidates, the same on every
        worker, without documents of no chunks. Not counted in `work`."""
        candidates, tokens = self.inputs.collection.splits[name].candidates, self.inputs.tokens
        read: Run = {}
        for query_id in self.own_queries(name):
            listed = list(candidates.get(query_id, {}).items())[: self.config.evaluation.depth]
            read[query_id] = {d: s for d, s in listed if pairs.spans_of(d, len(tokens[d]))}
        kept: KeptScores = {}
        self._rerank(name, pairs, read, kept=kept)
        return self.gathered(name, kept)

    def own_queries(self, name: str) -> dict[str, NDArray[np.int32]]:
        """{query_id: token ids} of this worker's share of a split's evaluated queries."""
        query_ids = evaluated_queries(self.inputs.collection, name, self.config.evaluation)
        rank, world_size = distributed.world()
        tokens, limit = self.inputs.query_tokens(name), self.config.chunking.max_query_tokens
        # Dealt like cards: neighbouring ids often share a topic and a length, and `gathered` can
        # tell the owner from the place alone.
        return {query_id: tokens[query_id][:limit] for query_id in query_ids[rank::world_size]}

    def gathered(self, name: str, values: dict[str, T]) -> dict[str, T]:
        """The values of all workers in one dictionary, in query order, on every worker."""
        query_ids = evaluated_queries(self.inputs.collection, name, self.config.evaluation)
        parts = distributed.gather(values)
        return {query_id: parts[i % len(parts)][query_id] for i, query_id in enumerate(query_ids)}

    def table(self, name: str, run: Run) -> "pd.DataFrame":
        """The frame `query_id, measure, value` of a run over a split's evaluated queries."""
        return per_query_table(self.inputs.collection, name, run, self.config.evaluation)


def evaluated_queries(collection: Collection, split: str, evaluation: Evaluation) -> list[str]:
    """The ids of a split's evaluated queries: all, or a sample that depends only on the ids, as the
    first ids may share a topic; of a fold its share, rounded up. Training has no limit."""
    limits = {"dev": evaluation.max_dev_queries, "test": evaluation.max_test_queries}
    limit = -(-limits.get(split, 0) // max(1, evaluation.folds))
    query_ids = sorted(collection.splits[split].queries)
    if 0 < limit < len(query_ids):
        # A hash of the id is its place in the draw: the sample of 100 contains that of 50, and new
        # queries disturb no others.
        query_ids.sort(key=lambda query_id: derive(0, "evaluated", query_id))
        return sorted(query_ids[:limit])
    return query_ids


def first_stage_means(
    collections: Iterable[Collection], split: str, evaluation: Evaluation
) -> dict[str, float]:
    """{measure: mean} of the candidate lists in their own order, over the evaluated queries of all
    `collections`: a single one, or its folds."""
    import pandas as pd

    tables = []
    for collection in collections:
        candidates = collection.splits[split].candidates
        query_ids = evaluated_queries(collection, split, evaluation)
        run = {query_id: untied(candidates.get(query_id, {})) for query_id in query_ids}
        tables.append(per_query_table(collection, split, run, evaluation))
    return mean_values(pd.concat(tables))


def require_finite(run: Run) -> Run:
    """The run, if all scores on all workers are finite. Otherwise raises `Diverged` on every
    worker, as one raising alone would leave the others waiting."""
    finite = all(math.isfinite(score) for docs in run.values() for score in docs.values())
    if not all(distributed.gather(finite)):
        raise Diverged("scores must be finite, got NaN or infinity: training diverged")
    return run


def per_query_table(
    collection: Collection, split: str, run: Run, evaluation: Evaluation
) -> "pd.DataFrame":
    """The frame `query_id, measure, value` of a run over its queries."""
    qrels = collection.splits[split].qrels
    return per_query({query_id: qrels[query_id] for query_id in run}, run, evaluation.measures)
