import random
from itertools import pairwise

import pytest

from rank_core.errors import BadInput
from rank_core.llm.chat import ChatClient, ChatModel
from rank_core.llm.ledger import AnswerCache, Ledger
from rank_core.llm.rankgpt import (
    FIRSTP_WORDS,
    ListRanking,
    first_words,
    parse_permutation,
    rank_list,
    ranking_chat,
    rerank_with_llm,
    windows,
)
from tests.rank_core.llm.server import ChatServer


def client(server: ChatServer, **settings) -> ChatClient:
    cache = settings.pop("cache", None)
    return ChatClient(ChatModel("openai", server.url, "small", **settings), cache=cache)


def documents(count: int, seed: int = 0) -> list[str]:
    worth = list(range(count))
    random.Random(seed).shuffle(worth)
    return [f"worth {number} and more" for number in worth]


def test_a_hundred_documents_are_nine_windows_from_the_end_to_the_start():
    expected = [(start, start + 20) for start in range(80, -1, -10)]
    assert windows(100, ListRanking()) == expected
    assert len(expected) == 9


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, []),
        (2, [(0, 2)]),
        (15, [(0, 15)]),
        (20, [(0, 20)]),
        (21, [(1, 21), (0, 20)]),
        (25, [(5, 25), (0, 20)]),
        (30, [(10, 30), (0, 20)]),
        (31, [(11, 31), (1, 21), (0, 20)]),
    ],
)
def test_short_and_uneven_lists_are_read_to_their_start(count, expected):
    assert windows(count, ListRanking()) == expected


@pytest.mark.parametrize("step", [1, 3, 4])
def test_windows_cover_every_document_and_overlap(step):
    for count in range(2, 40):
        spans = windows(count, ListRanking(window=5, step=step))
        assert {i for start, end in spans for i in range(start, end)} == set(range(count))
        assert all(earlier[0] < later[1] for earlier, later in pairwise(spans))


@pytest.mark.parametrize(("window", "step"), [(20, 20), (20, 0), (10, 20), (1, 1)])
def test_windows_that_do_not_overlap_are_refused(window, step):
    with pytest.raises(BadInput, match="0 < step < window"):
        ListRanking(window=window, step=step)


def test_a_document_is_cut_after_its_first_whitespace_words():
    assert first_words(" a\n b\t\tc d ", 3) == "a b c"
    assert first_words(" a  b ", 3) == "a b"
    assert first_words("", 3) == ""
    assert FIRSTP_WORDS == ListRanking().max_words == 300


def test_each_passage_has_a_turn_of_its_own():
    chat = ranking_chat("which\nlantern?", ["first", "second"])
    assert [m.role for m in chat] == ["system"] + ["user", "assistant"] * 3 + ["user"]
    assert [m.content for m in chat if m.content.startswith("[")] == ["[1] first", "[2] second"]
    assert "which lantern?" in chat[1].content
    assert "which lantern?" in chat[-1].content


# n = 4; the order is given as 1-based numbers, to be read beside the answer.
MALFORMED = {
    "nothing": (None, "1234"),
    "empty": ("", "1234"),
    "spaces": (" \n ", "1234"),
    "refusal": ("I am sorry, but I cannot help with that.", "1234"),
    "prose without numbers": ("The second one is best by far.", "1234"),
    "prose with numbers": ("Passage 3 is best, then 2.", "3214"),
    "the same twice": ("[1] > [1]", "1234"),
    "repeated list": ("[4] > [3] > [2] > [1] > [4] > [3] > [2] > [1]", "4321"),
    "out of range": ("[5] > [4] > [99] > [1]", "4123"),
    "zero-based": ("[3] > [2] > [1] > [0]", "3214"),
    "decimals": ("2.0 > 1.0 > 4.0 > 3.0", "2143"),
    "huge number": ("[" + "9" * 5000 + "] > [2]", "2134"),
    "truncated": ("[4] > [2] > [", "4213"),
    "only some": ("[3] > [4]", "3412"),
    "superscripts": ("[²] > [4]", "4123"),
    "thinks but does not answer": ("<think>maybe [4] or [3]", "1234"),
    "ids of documents": ("[doc-204] > [doc-3]", "3124"),
}


@pytest.mark.parametrize(("answer", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_answer_is_repaired_to_a_permutation(answer, expected):
    found = parse_permutation(answer, 4)
    assert "".join(str(position + 1) for position in found.order) == expected
    assert found.repaired


WELL_FORMED = {
    "as asked": "[2] > [4] > [1] > [3]",
    "no brackets": "2 > 4 > 1 > 3",
    "JSON list": "[2, 4, 1, 3]",
    "lines": "2\n4\n1\n3\n",
    "negative": "-2 > -4 > -1 > -3",
    "leading zeros": "[02] > [04] > [01] > [03]",
    "Arabic digits": "[٢] > [٤] > [١] > [٣]",
    "full-width digits": "[２] > [４] > [１] > [３]",
    "after thinking": "<think>[1] > [3] or 99?</think>\n[2] > [4] > [1] > [3]",
}


@pytest.mark.parametrize("answer", WELL_FORMED.values(), ids=WELL_FORMED)
def test_an_answer_with_each_number_once_needs_no_repair(answer):
    assert parse_permutation(answer, 4) == ([1, 3, 0, 2], False)


def test_any_answer_gives_a_permutation():
    rng = random.Random(5)
    for count in range(1, 25):
        answer = "".join(rng.choices("0123456789[]>., -\n²٣x", k=rng.randrange(200)))
        assert sorted(parse_permutation(answer, count).order) == list(range(count))


def test_a_hundred_documents_take_nine_calls_and_the_best_ten_rise_to_the_top(server):
    texts, ledger = documents(100), Ledger()
    order = rank_list("query", texts, chat=client(server), ledger=ledger)
    # One pass carries ten documents, window less step, through every window.
    expected = [f"worth {number} and more" for number in range(99, 89, -1)]
    assert [texts[i] for i in order[:10]] == expected
    assert sorted(order) == list(range(100))
    assert len(server.bodies) == ledger.totals.calls == 9
    assert ledger.totals.repaired_answers == 0


def test_fifteen_documents_take_one_call_and_are_reordered(server):
    texts = documents(15)
    order = rank_list("query", texts, chat=client(server))
    assert [texts[i] for i in order] == [f"worth {i} and more" for i in range(14, -1, -1)]
    assert order != list(range(15))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("count", [0, 1])
def test_a_list_of_one_document_takes_no_request(server, count):
    assert rank_list("query", documents(count), chat=client(server)) == list(range(count))
    assert server.bodies == []


def test_the_model_reads_as_many_words_as_the_settings_say(server):
    server.rank = lambda query, passages: " > ".join(str(len(p.split())) for p in passages)
    texts = ["a b c d e", "a"]
    ledger = Ledger()
    rank_list("q", texts, chat=client(server), settings=ListRanking(max_words=2), ledger=ledger)
    turns = [message["content"] for message in server.bodies[0]["messages"]]
    assert "[1] a b" in turns
    assert "[2] a" in turns


def test_the_temperature_is_zero_and_the_query_is_asked(server):
    asked = []
    server.rank = lambda query, passages: asked.append(query) or "[1] > [2]"
    rank_list("where is the lantern", ["a", "b"], chat=client(server))
    assert server.bodies[0]["temperature"] == 0
    assert asked == ["where is the lantern"]


@pytest.mark.parametrize("content", [None, "", "No.", "[1] > [1]"])
def test_useless_answers_keep_the_first_stage_order_and_are_counted(server, content):
    server.rank = lambda query, passages: content
    ledger = Ledger()
    assert rank_list("q", documents(30), chat=client(server), ledger=ledger) == list(range(30))
    assert ledger.totals.repaired_answers == ledger.totals.calls == 2


def candidates(doc_ids: list[str]) -> dict[str, float]:
    return {doc_id: -float(rank) for rank, doc_id in enumerate(doc_ids)}


def test_a_run_has_strictly_falling_scores_and_only_the_candidates_within_depth(server):
    texts = dict(zip("abcdef", documents(6, seed=2), strict=True))
    queries = {"q1": "one", "q2": "two", "q3": "no candidates"}
    first_stage = {"q1": candidates(list("abcdef")), "q2": candidates(list("fb"))}
    run = dict(rerank_with_llm(queries, texts, first_stage, chat=client(server), depth=4))
    assert list(run) == ["q1", "q2", "q3"]
    assert set(run["q1"]) == set("abcd")
    assert list(run["q1"].values()) == [4.0, 3.0, 2.0, 1.0]
    worth = [int(texts[doc_id].split()[1]) for doc_id in run["q1"]]
    assert worth == sorted(worth, reverse=True)
    assert run["q3"] == {}


def test_each_query_comes_as_soon_as_it_is_ranked(server):
    texts = dict(zip("ab", documents(2), strict=True))
    first_stage = {query_id: candidates(["a", "b"]) for query_id in ("q1", "q2")}
    ranked = rerank_with_llm({"q1": "x", "q2": "y"}, texts, first_stage, chat=client(server))
    assert server.bodies == []
    assert next(ranked)[0] == "q1"
    assert len(server.bodies) == 1


def test_a_candidate_without_text_is_refused_before_the_first_request(server):
    first_stage = {"q1": candidates(["a", "b"]), "q2": candidates(["a", "lost"])}
    queries, texts = {"q1": "x", "q2": "y"}, {"a": "worth 1", "b": "worth 2"}
    with pytest.raises(BadInput, match=r"query q2 .*: lost"):
        rerank_with_llm(queries, texts, first_stage, chat=client(server))
    with pytest.raises(BadInput, match="depth >= 1"):
        rerank_with_llm(queries, texts, first_stage, chat=client(server), depth=0)
    assert server.bodies == []


def test_a_second_run_over_the_same_lists_takes_no_call(server, tmp_path):
    cache, texts = AnswerCache(tmp_path), documents(40)
    first, second = Ledger(), Ledger()
    order = rank_list("q", texts, chat=client(server, cache=cache), ledger=first)
    again = rank_list("q", texts, chat=client(server, cache=cache), ledger=second)
    assert again == order
    assert (first.totals.calls, first.totals.cached_calls) == (3, 0)
    assert (second.totals.calls, second.totals.cached_calls) == (0, 3)
    assert len(server.bodies) == 3


def test_the_ledger_says_which_query_and_window_an_answer_was_for(server, tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    rank_list("q", documents(25), chat=client(server), ledger=ledger, query_id="q7")
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert '"query_id": "q7", "start": 5, "end": 25, "repaired": false' in lines[0]
    assert '"start": 0, "end": 20' in lines[1]
