"""Systems without trained weights, which rank candidates by their texts and first-stage scores.
They are not trained, and their documents are not chunked."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rank_core.cache import cache_root
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3, TextAnalysis
from rank_core.llm.chat import AnswerCache, ChatClient, Ledger
from rank_core.llm.rankgpt import rerank_with_llm, windows
from rank_core.models.ranking_system import RankingSystem
from rank_core.records import Run
from rank_core.seeding import generator
from rank_core.settings.config import Chat, TrialConfig

if TYPE_CHECKING:  # the inputs bring transformers, which lists and help must not load
    from rank_core.chunking.inputs import Inputs
    from rank_core.encoders.backbone_types import Backbone

LEDGER = "llm-ledger.jsonl"
Ranking = tuple[str, dict[str, float]]
"""(query_id, {doc_id: score})."""


class ListRanker(RankingSystem, ABC):
    """Base class: ranks a query's candidates. `inputs` are the collection and the backbone,
    `language` is the collection's. `notes` has {file name: its content as JSON} of what else a
    trial keeps, `encoder_tokens` what an encoder has read."""

    language: str = ""
    inputs: "Inputs"
    encoder_tokens: int = 0
    family: ClassVar[str] = "baselines"
    trains: ClassVar[bool] = False
    deterministic: ClassVar[bool] = True

    def __init__(self, config: TrialConfig, workdir: Path) -> None:
        self.config, self.workdir = config, workdir
        self.notes: dict[str, Any] = {}

    @classmethod
    def check(cls, config: TrialConfig, backbone: "Backbone") -> None:
        """Raises `BadInput` for settings that it cannot run with."""

    @abstractmethod
    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """The first `evaluation.depth` candidates of each query with the system's scores."""

    def best(self, candidates: Run, query_id: str) -> dict[str, float]:
        """The candidates of a query to rerank, with their first-stage scores."""
        return dict(list(candidates.get(query_id, {}).items())[: self.config.evaluation.depth])


class FirstStageRun(ListRanker):
    """The candidates in their own order (BM25 in most collections)."""

    label = "BM25"
    not_interpolated = "is the first stage"
    paper = "Robertson & Zaragoza 2009"
    citation = (
        "The Probabilistic Relevance Framework: BM25 and Beyond. Foundations and Trends in "
        "Information Retrieval 3(4), 2009"
    )

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """The first stage's scores."""
        return ((query_id, self.best(candidates, query_id)) for query_id in queries)


class RandomOrder(ListRanker):
    """The candidates in random order: the chance level."""

    label = "random"
    not_interpolated = "is chance"
    paper = "Boytsov et al. 2022"
    deterministic = False

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """A permutation per query that depends only on the seed and the query."""
        for query_id in queries:
            # Sorted: the permutation must not depend on the order of the first stage.
            doc_ids = sorted(self.best(candidates, query_id))
            rng = generator(self.config.seed, "random order", query_id)
            scores = rng.permutation(len(doc_ids)).tolist()
            yield query_id, dict(zip(doc_ids, map(float, scores), strict=True))


RM3 = Bm25Settings(rm3=Rm3())


class Bm25Rm3(ListRanker):
    """The candidates ranked by BM25 with RM3 query expansion, with Anserini's settings: 10 terms
    from the 10 best documents of the whole collection, and half of the weight on the original
    query.

    The collection is indexed in memory. For millions of documents, use a run of Lucene's RM3
    (`rank_core.first_stage.lucene`) as the candidates.
    """

    label = "BM25+RM3"
    paper = "Abdul-Jaleel et al. 2004"
    citation = "UMass at TREC 2004: Novelty and HARD. TREC 2004"

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """The candidates' scores; 0 for those without any term of the expanded query."""
        index = Bm25Index(documents, TextAnalysis(self.language))
        for query_id, text in queries.items():
            # The whole collection is ranked: RM3's feedback comes from its best documents, and a
            # candidate may be anywhere.
            [ranked] = index.run({query_id: text}, RM3, depth=max(1, len(documents))).values()
            yield (
                query_id,
                {doc_id: ranked.get(doc_id, 0.0) for doc_id in self.best(candidates, query_id)},
            )


class RankGPT(ListRanker):
    """The candidates ordered list-wise by a chat model (sliding windows from the end of the list).
    Requests, tokens and costs are recorded in the trial's `llm-ledger.jsonl`."""

    label = "RankGPT"
    paper = "Sun et al. 2023"
    citation = (
        "Is ChatGPT Good at Search? Investigating Large Language Models as Re-Ranking Agents. "
        "EMNLP 2023, arXiv:2304.09542"
    )
    family = "list-wise"
    reads = tuple(f"chat.{field.name}" for field in dataclasses.fields(Chat))

    def __init__(self, config: TrialConfig, workdir: Path) -> None:
        super().__init__(config, workdir)
        self.client = ChatClient(config.chat, cache=AnswerCache(cache_root() / "llm-answers"))

    def num_requests(self, candidates: Run) -> int:
        """The requests for some ranked lists, none of them cached."""
        return sum(
            len(windows(len(self.best(candidates, query_id)), self.config.chat))
            for query_id in candidates
        )

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """Scores that count ranks from the end of the list."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        return rerank_with_llm(
            queries,
            documents,
            candidates,
            chat=self.client,
            depth=self.config.evaluation.depth,
            ledger=Ledger(self.workdir / LEDGER),
        )
