"""The chat client: two protocols, retries, a cache, and a key that only requests have."""

import logging
import pickle
import traceback

import pytest

from rank_core.errors import BadInput
from rank_core.llm.chat import AnswerCache, Ledger, Message, NoAnswer
from rank_core.llm.rankgpt import rank_list, ranking_chat
from rank_core.settings.config import Chat
from tests.rank_core.llm.server import (
    PLANTED_KEY,
    PROTOCOLS,
    STALL,
    VARIABLE,
    Fault,
    chat_server,
    client,
)

CHAT = ranking_chat("query", ["worth 1", "worth 3", "worth 2"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_protocols_give_text_tokens_and_cost(server, clock, key, protocol):
    server.key = key
    prices = {"input_price": 1000.0, "output_price": 1_000_000.0}
    answer = client(server, clock, protocol, key_variable=VARIABLE, **prices).ask(CHAT)
    assert answer.text == "[2] > [3] > [1]"
    assert answer.input_tokens > 20 and answer.output_tokens == 7
    assert answer.cost == pytest.approx(answer.input_tokens / 1000 + 7)
    assert (answer.metered, answer.cached, answer.retries) == (True, False, 0)
    assert clock.sleeps == []
    server.metered = False
    answer = client(server, clock, protocol, key_variable=VARIABLE, **prices).ask(CHAT)
    assert (answer.metered, answer.input_tokens, answer.cost) == (False, 0, 0.0)


def test_a_busy_server_is_retried_after_its_retry_after_time(server, clock):
    server.faults += [Fault(429, headers={"Retry-After": text}) for text in ("7", "-5", "soon")]
    answer = client(server, clock).ask(CHAT)
    assert (answer.text, answer.retries) == ("[2] > [3] > [1]", 3)
    wait, *others = clock.sleeps
    assert 7 <= wait <= 8 and answer.seconds == sum(clock.sleeps)
    assert max(others) <= 4, "what is no time is no order to wait"


PASSING = {
    "dropped": Fault(),
    "cut off": Fault(200, '{"choices": [', stated_length=500),
    "server error": Fault(500, "<html>"),
    "silent": STALL,
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_passing_failure_is_retried(server, clock, fault):
    server.faults.append(fault)
    answer = client(server, clock, timeout=0.5).ask(CHAT)
    assert (answer.text, answer.retries) == ("[2] > [3] > [1]", 1)


REFUSED = {
    "bad request": (Fault(400, '{"error": {"message": "too long"}}'), "status 400.*too long"),
    "no credit": (Fault(429, '{"error": {"code": "insufficient_quota"}}'), "insufficient_quota"),
    "a web page": (Fault(200, "<html>Welcome</html>"), "openai.*Welcome"),
    "an error as 200": (Fault(200, '{"error": {"message": "no model"}}'), "no model"),
    "no choice": (Fault(200, '{"choices": []}'), "openai"),
}


@pytest.mark.parametrize(("fault", "message"), REFUSED.values(), ids=REFUSED)
def test_a_rejected_request_is_reported_once_with_the_servers_message(
    server, clock, fault, message
):
    server.faults.append(fault)
    with pytest.raises(BadInput, match=message):
        client(server, clock).ask(CHAT)
    assert len(server.bodies) == 1


def test_requests_are_rate_limited(server, clock):
    server.faults.append(Fault(500))
    chat = client(server, clock, requests_per_minute=6)
    for i in range(3):
        chat.ask([*CHAT[:-1], Message("user", f"again {i}")])
    # Four requests with the retried one: three gaps of ten seconds, the back-off is part of one.
    assert clock.now == pytest.approx(30)


def test_an_answer_is_cached_for_the_same_request_only_whatever_the_key(
    server, clock, key, tmp_path, monkeypatch
):
    cache = AnswerCache(tmp_path)
    server.faults.append(Fault(400))
    with pytest.raises(BadInput):
        client(server, clock, cache=cache).ask(CHAT)
    first = client(server, clock, cache=cache, input_price=1e6, key_variable=VARIABLE).ask(CHAT)
    monkeypatch.setenv(VARIABLE, "another-key-altogether")
    again = client(server, clock, cache=cache, input_price=2e6, key_variable=VARIABLE).ask(CHAT)
    assert (again.text, again.cached, again.seconds) == (first.text, True, 0)
    assert again.cost == 2 * first.cost > 0
    client(server, clock, "anthropic", cache=cache).ask(CHAT)
    client(server, clock, cache=cache).ask(CHAT[1:])
    assert len(server.bodies) == 4
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        path.write_text('{"text": "cut')
    assert not client(server, clock, cache=cache).ask(CHAT).cached and len(server.bodies) == 5


def test_two_models_or_two_servers_never_share_an_answer(server, clock, tmp_path):
    cache = AnswerCache(tmp_path)
    with chat_server() as second:
        second.rank = lambda query, passages: "[1] > [2] > [3]"
        first = client(server, clock, cache=cache).ask(CHAT)
        # Another model, another server, and the same again.
        assert not client(server, clock, cache=cache, model="large").ask(CHAT).cached
        other = client(second, clock, cache=cache).ask(CHAT)
        assert (other.text, other.cached) == ("[1] > [2] > [3]", False)
        assert (len(server.bodies), len(second.bodies)) == (2, 1)
        again = client(server, clock, cache=cache).ask(CHAT)
        assert (again.text, again.cached) == (first.text, True)
        assert [body["model"] for body in server.bodies] == ["small", "large"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/v1"),  # of a server alone, the usual version
        ("/", "/v1"),
        ("/v1", "/v1"),
        ("/v1/", "/v1"),
        ("/v2", "/v2"),
        ("/api/v3", "/api/v3"),  # of a server whose own path is given, that one
        ("/openai/deployments/small", "/openai/deployments/small"),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_goes_to_the_path_that_is_given_and_else_to_v1(
    server, clock, protocol, path, asked
):
    try:
        client(server, clock, protocol, base_url=server.url + path).ask(CHAT)
    except BadInput as error:
        assert "status 404" in str(error) and asked != "/v1"
    expected = {"openai": "/chat/completions", "anthropic": "/messages"}[protocol]
    assert server.paths == [asked + expected]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"protocol": "openia"}, "openai"),
        ({"base_url": "http://user:Zebra@localhost"}, "base_url"),
        ({"base_url": "http://localhost/v1?key=Zebra"}, "base_url"),
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"model": ""}, "model"),
        ({"requests_per_minute": float("nan")}, "requests_per_minute"),
        ({"input_price": -1.0}, "input_price"),
        *(({"key_variable": name}, "key_variable") for name in (PLANTED_KEY, "hf_Zebra", "MY KEY")),
    ],
)
def test_settings_that_break_a_rule_are_refused_and_a_secret_is_not_shown(change, field):
    settings = {"protocol": "openai", "base_url": "http://localhost:8000", "model": "small"}
    with pytest.raises(BadInput, match=field) as error:
        Chat(**(settings | change))
    assert "Zebra" not in str(error.value)


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
    assert rank_list("q", ["a", "b"], chat=chat, ledger=ledger) == [1, 0]
    assert planted(str(server.headers[-1]))  # it was sent
    assert "waiting" in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    shown = [repr(chat), repr(chat.config), str(vars(chat)), repr(ledger), caplog.text]
    assert not any(planted(text) for text in [*shown, *(p.read_text() for p in files)])
    assert not planted(str(server.bodies))
    assert not planted(pickle.dumps(chat.config).decode("latin-1"))


@pytest.mark.parametrize(
    "fault",
    [None, Fault(400, PLANTED_KEY), Fault(200, PLANTED_KEY), Fault(500, PLANTED_KEY), Fault()],
)
def test_no_error_or_its_chain_shows_the_key(server, clock, key, fault):
    server.key = "the-right-one"
    server.faults.extend([fault] if fault else [])
    chat = client(server, clock, key_variable=VARIABLE, max_retries=0)
    with pytest.raises((BadInput, NoAnswer)) as error:
        chat.ask(CHAT)
    assert not planted("".join(traceback.format_exception(error.value)))
    assert not planted(repr(error.value.__context__))
    if fault is None:
        assert "status 401" in str(error.value) and VARIABLE in str(error.value)


@pytest.mark.parametrize("value", [None, "", " \n", f"{PLANTED_KEY}\nx", f"{PLANTED_KEY} é"])
def test_an_invalid_key_is_refused_with_its_variable(server, clock, monkeypatch, value):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(BadInput, match=VARIABLE) as error:
        client(server, clock, key_variable=VARIABLE)
    assert not planted(str(error.value)) and server.bodies == []
