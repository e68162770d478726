"""RankGPT: a chat model orders windows of candidates, sliding from the end of the list to its start
(Sun et al., "Is ChatGPT Good at Search?", EMNLP 2023). The wording of the prompt is ours; the
structure of the chat, the windows and the parsing of answers are the paper's."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from rank_core.errors import BadInput
from rank_core.llm.chat import ChatClient, Ledger, Message
from rank_core.records import Run
from rank_core.settings.config import Chat


class Permutation(NamedTuple):
    """An order of n documents as 0-based positions, best first."""

    order: list[int]
    repaired: bool  # the answer was not a valid permutation


def windows(num_documents: int, settings: Chat) -> list[tuple[int, int]]:
    """(start, end) of each request, last window first; 100 documents give 9 windows of 20 with step
    10.

    The last request starts at the start of the list, so that every document is read. A list shorter
    than a window is one window; a single document needs none.
    """
    if num_documents < 2:
        return []
    steps = math.ceil(max(0, num_documents - settings.window) / settings.step)
    starts = [num_documents - settings.window - i * settings.step for i in range(steps + 1)]
    return [
        (max(0, start), min(num_documents, max(0, start) + settings.window)) for start in starts
    ]


def ranking_chat(query: str, passages: Sequence[str]) -> list[Message]:
    """The chat that asks for an order, with a user and an assistant turn per passage."""
    count = len(passages)
    # Line breaks in a query must not look like new instructions.
    query_line = " ".join(query.split())
    system = "You are a careful search engine. You order passages by how well they answer a query."
    turns = [
        f"You will get {count} passages one at a time, each with a number in brackets. "
        f"Afterwards, order them by their relevance to this query: {query_line}",
        "I am ready for the passages.",
    ]
    for number, passage in enumerate(passages, start=1):
        turns += [f"[{number}] {passage}", f"I have read passage [{number}]."]
    turns.append(
        f"The query is: {query_line}\n"
        f"Order all {count} passages above by their relevance to the query, the most relevant "
        "first. Name each passage once by its number, in the form [2] > [1], and write "
        "nothing but this order."
    )
    roles = cycle(["user", "assistant"])
    return [Message("system", system), *map(Message, roles, turns)]


def parse_permutation(answer: str | None, num_documents: int) -> Permutation:
    """The order given by an answer of any form.

    Each group of digits is a 1-based number; repeated and unknown ones are ignored, and missing
    documents follow in their order (Sun et al.). Reasoning between <think> marks is ignored.
    """
    text = (answer or "").rpartition("</think>")[2].partition("<think>")[0]
    # Longer ones are invalid, and int() rejects thousands of digits.
    named = [int(digits) - 1 if len(digits) <= 9 else -1 for digits in re.findall(r"\d+", text)]
    known = dict.fromkeys(position for position in named if 0 <= position < num_documents)
    order = list(dict.fromkeys([*known, *range(num_documents)]))
    return Permutation(order, repaired=named != order)


def rank_list(
    query: str,
    documents: Sequence[str],
    *,
    chat: ChatClient,
    ledger: Ledger | None = None,
    query_id: str = "",
) -> list[int]:
    """Positions in `documents`, the most relevant first; they are given in first-stage order."""
    order, most = list(range(len(documents))), chat.config.max_words
    # maxsplit leaves the rest of a long document unsplit.
    passages = [" ".join(document.split(maxsplit=most)[:most]) for document in documents]
    for start, end in windows(len(documents), chat.config):
        shown = order[start:end]
        answer = chat.ask(ranking_chat(query, [passages[i] for i in shown]))
        permutation = parse_permutation(answer.text, len(shown))
        order[start:end] = [shown[i] for i in permutation.order]
        if ledger is not None:
            ledger.record(
                answer, repaired=permutation.repaired, query_id=query_id, start=start, end=end
            )
    return order


def rerank_with_llm(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    candidates: Run,
    *,
    chat: ChatClient,
    depth: int = 100,
    ledger: Ledger | None = None,
) -> Iterator[tuple[str, dict[str, float]]]:
    """(query_id, {doc_id: score}) of each query as soon as it is ranked.

    The first `depth` candidates of a query are ranked; a query without candidates has an empty
    list. Scores are ranks, n for the first of n documents down to 1. Raises `BadInput`, before the
    first request, for candidates without a text.
    """
    chosen = {query_id: list(candidates.get(query_id, ()))[:depth] for query_id in queries}
    # Checked before the first request costs money.
    for query_id, doc_ids in chosen.items():
        if missing := [doc_id for doc_id in doc_ids if doc_id not in documents]:
            raise BadInput(
                f"{len(missing)} candidates of query {query_id} have no text: "
                f"{', '.join(missing[:5])}"
            )

    def ranked() -> Iterator[tuple[str, dict[str, float]]]:
        for query_id, doc_ids in chosen.items():
            texts = [documents[doc_id] for doc_id in doc_ids]
            order = rank_list(queries[query_id], texts, chat=chat, ledger=ledger, query_id=query_id)
            yield query_id, {doc_ids[i]: float(len(order) - rank) for rank, i in enumerate(order)}

    return ranked()
