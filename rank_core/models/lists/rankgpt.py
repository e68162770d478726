"""RankGPT: a language model orders a window of documents that slides over the list (Sun et al.
2023).

The model, its server and what is shown of a document are the settings `chat.*`; answers are cached
by request, so that a killed trial pays for nothing twice.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rank_core.cache import cache_root
from rank_core.llm import ChatModel
from rank_core.llm.chat import ChatClient
from rank_core.llm.ledger import AnswerCache, Ledger
from rank_core.llm.rankgpt import ListRanking, rerank_with_llm
from rank_core.models.lists.list_ranker import ListRanker, Ranking
from rank_core.records import Run
from rank_core.settings.config import TrialConfig


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
