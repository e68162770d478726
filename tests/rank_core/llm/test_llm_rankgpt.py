"""RankGPT: windows, the reading of answers, whole lists, and a trial."""

import json
import random

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.llm.chat import ChatClient, Ledger
from rank_core.llm.rankgpt import (
    parse_permutation,
    rank_list,
    rerank_with_llm,
    windows,
)
from rank_core.settings.config import Chat
from rank_core.trial.trial import run_trial
from tests.rank_core.llm.server import PLANTED_KEY, ChatServer


def client(server: ChatServer, **settings) -> ChatClient:
    cache = settings.pop("cache", None)
    return ChatClient(Chat("openai", server.url, "small", "", **settings), cache=cache)


def documents(count: int, seed: int = 0) -> list[str]:
    worth = list(range(count))
    random.Random(seed).shuffle(worth)
    return [f"worth {number} and more" for number in worth]


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
        (100, [(start, start + 20) for start in range(80, -1, -10)]),
    ],
)
def test_short_and_uneven_lists_are_read_to_their_start(count, expected):
    assert windows(count, Chat()) == expected


# n = 4; the order is given as 1-based numbers, to be read beside the answer.
MALFORMED = {
    "nothing": (None, "1234"),
    "empty": ("", "1234"),
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
}


@pytest.mark.parametrize(("answer", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_answer_is_repaired_to_a_permutation(answer, expected):
    found = parse_permutation(answer, 4)
    assert "".join(str(position + 1) for position in found.order) == expected
    assert found.repaired


WELL_FORMED = {  # 2413
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
def test_a_permutation_is_read_in_any_spelling(answer):
    found = parse_permutation(answer, 4)
    assert found.order == [1, 3, 0, 2] and not found.repaired


def test_any_answer_gives_a_permutation():
    rng = random.Random(5)
    for count in range(1, 25):
        answer = "".join(rng.choices("0123456789[]>., -\n²٣x", k=rng.randrange(200)))
        assert sorted(parse_permutation(answer, count).order) == list(range(count))


def test_a_hundred_documents_take_nine_calls_and_the_best_ten_rise_to_the_top(server, tmp_path):
    texts, ledger = documents(100), Ledger(tmp_path / "ledger.jsonl")
    order = rank_list("query", texts, chat=client(server), ledger=ledger, query_id="q7")
    # One pass carries ten documents, window less step, through every window.
    expected = [f"worth {number} and more" for number in range(99, 89, -1)]
    assert [texts[i] for i in order[:10]] == expected
    assert sorted(order) == list(range(100))
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    server.rank = lambda query, passages: "No."
    useless = rank_list("query", texts[:30], chat=client(server), ledger=ledger)
    assert useless == list(range(30)) and ledger.path.read_text().count('"repaired": true') == 2
    del server.bodies[9:]
    assert len(server.bodies) == len(lines) == 9
    first = {"query_id": "q7", "start": 80, "end": 100, "repaired": False, "output_tokens": 7}
    assert lines[0].items() >= first.items()


def candidates(doc_ids: list[str]) -> dict[str, float]:
    return {doc_id: -float(rank) for rank, doc_id in enumerate(doc_ids)}


def test_a_run_has_strictly_falling_scores_and_only_the_candidates_within_depth(server):
    texts = dict(zip("abcdef", documents(6, seed=2), strict=True))
    queries = {"q1": "one", "q2": "two", "q3": "no candidates"}
    first_stage = {"q1": candidates(list("abcdef")), "q2": candidates(list("fb"))}
    run = dict(rerank_with_llm(queries, texts, first_stage, chat=client(server), depth=4))
    assert list(run) == ["q1", "q2", "q3"]
    assert len(server.bodies) == 2
    assert set(run["q1"]) == set("abcd")
    assert list(run["q1"].values()) == [4.0, 3.0, 2.0, 1.0]
    worth = [int(texts[doc_id].split()[1]) for doc_id in run["q1"]]
    assert worth == sorted(worth, reverse=True)
    assert run["q3"] == {}


def test_a_candidate_without_text_is_refused_before_the_first_request(server):
    first_stage = {"q1": candidates(["a", "b"]), "q2": candidates(["a", "lost"])}
    queries, texts = {"q1": "x", "q2": "y"}, {"a": "worth 1", "b": "worth 2"}
    with pytest.raises(BadInput, match=r"query q2 .*: lost"):
        rerank_with_llm(queries, texts, first_stage, chat=client(server))
    for window, step in ((20, 20), (20, 0), (1, 1)):
        with pytest.raises(BadInput, match="step"):
            Chat(window=window, step=step)
    assert server.bodies == []


@pytest.fixture
def trial(small_trial, server, monkeypatch, tmp_path):
    monkeypatch.setenv("CHAT_KEY", PLANTED_KEY)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    return small_trial.override(
        {
            "model.name": "rankgpt",
            "chat.base_url": server.url,
            "chat.key_variable": "CHAT_KEY",
            "evaluation.depth": 5,
        }
    )


def test_a_trial_asks_once_per_query_and_replays_for_nothing(trial, server, tmp_path):
    # The list turned round, whatever it holds.
    server.rank = lambda _, passages: " > ".join(f"[{i}]" for i in range(len(passages), 0, -1))
    for name in ("first", "again"):
        *_, result = run_trial(trial, tmp_path / name)
        assert len(server.bodies) == 16  # 8 queries of dev and of test, lists shorter than a window
        assert result.status == "done" and 0 < result.test["nDCG@10"] < 1
    runs = [read_run(tmp_path / name / "test.run.gz") for name in ("first", "again")]
    assert runs[0] == runs[1]
    collection = load_inputs(trial.collection, trial.model.backbone).collection
    candidates = collection.splits["test"].candidates
    assert {q: list(docs) for q, docs in runs[0].items()} == {
        q: list(docs)[:5][::-1] for q, docs in candidates.items()
    }
