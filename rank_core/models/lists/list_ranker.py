"""Systems without weights of ours: they rank a query's candidates from texts and first-stage
scores, and are neither trained nor cut into chunks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from rank_core.records import Run
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig

Ranking = tuple[str, dict[str, float]]
"""A query_id and {doc_id: score}."""


class ListRanker(ABC):
    """Ranks lists of candidates."""

    label: ClassVar[str]
    paper: ClassVar[str]
    family: ClassVar[str] = "baselines"
    deterministic: ClassVar[bool] = True  # every seed gives the same run
    options: ClassVar[tuple[str, ...]] = ()
    first_chunk_only: ClassVar[bool] = False
    max_chunks: ClassVar[int | None] = None

    def __init__(self, config: TrialConfig, workdir: Path) -> None:
        self.config, self.workdir = config, workdir

    @abstractmethod
    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """The first `evaluation.depth` candidates of each query with the system's scores."""

    def best(self, candidates: Run, query_id: str) -> dict[str, float]:
        """The candidates of a query that are reranked, with their first-stage scores."""
        return dict(list(candidates.get(query_id, {}).items())[: self.config.evaluation.depth])


class FirstStage(ListRanker):
    """The candidate list itself, in its own order."""

    label = "BM25"
    paper = "Robertson & Zaragoza 2009"

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """The first stage's scores."""
        return ((query_id, self.best(candidates, query_id)) for query_id in queries)


class RandomOrder(ListRanker):
    """The candidates in an order drawn from the seed: what a model that learnt nothing gives."""

    label = "random"
    paper = "Boytsov et al. 2022"
    deterministic = False

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """A permutation for each query; it depends on the seed and the query alone."""
        for query_id in queries:
            doc_ids = sorted(self.best(candidates, query_id))
            rng = generator(self.config.seed, "random order", query_id)
            scores = rng.permutation(len(doc_ids)).tolist()
            yield query_id, dict(zip(doc_ids, map(float, scores), strict=True))
