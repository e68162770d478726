"""Systems without weights of ours: they rank the candidates of a query from texts and first-stage
scores, and are neither trained nor cut into chunks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from rank_core.cache import cache_root
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3
from rank_core.llm.chat import ChatClient, ChatModel
from rank_core.llm.ledger import AnswerCache, Ledger
from rank_core.llm.rankgpt import ListRanking, rerank_with_llm
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


RM3 = Bm25Settings(rm3=Rm3())


class Bm25Rm3(ListRanker):
    """The candidates by the expanded query, with the settings of Anserini: 10 terms of the 10 best
    documents of the whole collection, half of the weight to the query's own.

    It indexes the collection in memory; for one of millions of documents, a run of Lucene's RM3
    (`rank_core.first_stage.lucene`) as the candidates is the way.
    """

    label = "BM25+RM3"
    paper = "Abdul-Jaleel et al. 2004"

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """A candidate without any term of the expanded query has score 0."""
        index = Bm25Index(documents)
        for query_id, text in queries.items():
            [ranked] = index.run({query_id: text}, RM3, depth=max(1, len(documents))).values()
            yield (
                query_id,
                {doc_id: ranked.get(doc_id, 0.0) for doc_id in self.best(candidates, query_id)},
            )


class RankGPT(ListRanker):
    """The candidates in the order that a chat model gives them; calls, tokens and cost are in the
    trial's `llm-ledger.jsonl`."""

    label = "RankGPT"
    paper = "Sun et al. 2023"
    family = "list-wise"

    def __init__(self, config: TrialConfig, workdir: Path) -> None:
        super().__init__(config, workdir)
        chat = config.chat
        self.client = ChatClient(
            ChatModel(
                chat.protocol,
                chat.base_url,
                chat.model,
                key_variable=chat.key_variable,
                requests_per_minute=chat.requests_per_minute,
                input_price=chat.input_price,
                output_price=chat.output_price,
            ),
            cache=AnswerCache(cache_root() / "llm-answers"),
        )

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """Scores are ranks counted from the end of the list."""
        chat = self.config.chat
        self.workdir.mkdir(parents=True, exist_ok=True)
        return rerank_with_llm(
            queries,
            documents,
            candidates,
            chat=self.client,
            depth=self.config.evaluation.depth,
            settings=ListRanking(chat.window, chat.step, chat.max_words),
            ledger=Ledger(self.workdir / "llm-ledger.jsonl"),
        )
