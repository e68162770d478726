"""API keys occur in requests and nowhere else."""

import logging
import pickle
import traceback

import pytest

from rank_core.errors import BadInput
from rank_core.llm.chat import ChatModel, NoAnswer
from rank_core.llm.ledger import AnswerCache, Ledger
from rank_core.llm.rankgpt import rank_list, ranking_chat
from tests.rank_core.llm.server import PLANTED_KEY, PROTOCOLS, VARIABLE, Fault, client

CHAT = ranking_chat("query", ["worth 1", "worth 3", "worth 2"])


def test_the_cache_does_not_depend_on_the_key(server, clock, key, tmp_path, monkeypatch):
    cache = AnswerCache(tmp_path)
    client(server, clock, cache=cache, key_variable=VARIABLE).ask(CHAT)
    monkeypatch.setenv(VARIABLE, "another-key-altogether")
    assert client(server, clock, cache=cache, key_variable=VARIABLE).ask(CHAT).cached


def planted(text: str) -> bool:
    """Whether any part of the key that a reader could use is in a text."""
    return any(part in text for part in (PLANTED_KEY, PLANTED_KEY.replace('"', '\\"'), "Zebra"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_key_is_nowhere_but_in_the_request(server, clock, key, protocol, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    server.key = key
    server.rank = lambda query, passages: f"Your key is {key}. [2] > [1]"
    # Whatever fails, the server repeats the key in its message.
    server.faults.extend([Fault(500, f'{{"error": "bad {key}"}}'), Fault(503, key), Fault()])
    chat = client(server, clock, protocol, AnswerCache(tmp_path / "c"), key_variable=VARIABLE)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    order = rank_list("q", ["a", "b"], chat=chat, ledger=ledger)
    assert order == [1, 0]
    assert planted(str(server.headers[-1]))  # it was sent
    assert ledger.totals.retries == 3
    assert "waiting" in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    shown = [repr(chat), repr(chat.config), str(vars(chat)), repr(ledger), caplog.text]
    assert not any(planted(text) for text in [*shown, *(p.read_text() for p in files)])
    assert not planted(str(server.bodies))
    assert not planted(pickle.dumps(chat.config).decode("latin-1"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "fault",
    [None, Fault(400, PLANTED_KEY), Fault(200, PLANTED_KEY), Fault(500, PLANTED_KEY), Fault()],
)
def test_no_error_or_its_chain_shows_the_key(server, clock, key, protocol, fault):
    server.key = "the-right-one"
    server.faults.extend([fault] if fault else [])
    chat = client(server, clock, protocol, key_variable=VARIABLE, max_retries=0)
    with pytest.raises((BadInput, NoAnswer)) as error:
        chat.ask(CHAT)
    assert not planted("".join(traceback.format_exception(error.value)))
    assert not planted(repr(error.value.__context__))
    if fault is None:
        assert f"status 401 from {server.url}" in str(error.value)
        assert VARIABLE in str(error.value)
        assert "Incorrect API key provided: [key]" in str(error.value)


def test_a_partly_masked_key_is_not_shown_either(server, clock):
    server.faults.append(Fault(401, '{"error": {"message": "wrong: sk-proj-ab***yz."}}'))
    with pytest.raises(BadInput, match=r"wrong: \[key\]"):
        client(server, clock).ask(CHAT)


def test_a_short_key_is_no_secret_and_does_not_change_answers(server, clock, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    assert client(server, clock, key_variable=VARIABLE).ask(CHAT).text == "[2] > [3] > [1]"


def test_a_line_break_after_the_key_does_no_harm(server, clock, key, monkeypatch):
    server.key = key
    monkeypatch.setenv(VARIABLE, f"{key}\r\n")
    assert client(server, clock, key_variable=VARIABLE).ask(CHAT).text


@pytest.mark.parametrize("value", [None, "", " \n", f"{PLANTED_KEY}\nx", f"{PLANTED_KEY} é"])
def test_an_invalid_key_is_refused_with_its_variable(server, clock, monkeypatch, value):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(BadInput, match=VARIABLE) as error:
        client(server, clock, key_variable=VARIABLE)
    assert not planted(str(error.value))
    assert server.bodies == []


@pytest.mark.parametrize("name", [PLANTED_KEY, "gsk_abcdefgh", "hf_Zebra", "MY KEY"])
def test_a_key_in_place_of_its_variables_name_is_refused_unseen(name):
    with pytest.raises(BadInput, match="never the key itself") as error:
        ChatModel("openai", "http://localhost:8000", "small", key_variable=name)
    assert name not in str(error.value)
