from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rank_core.errors import BadInput
from rank_core.llm.chat import LONGEST_RETRY_AFTER, ChatClient, ChatModel, Message, NoAnswer
from rank_core.llm.ledger import AnswerCache
from rank_core.llm.rankgpt import ranking_chat
from tests.rank_core.llm.server import PROTOCOLS, STALL, VARIABLE, Fault, chat_server, client

CHAT = ranking_chat("query", ["worth 1", "worth 3", "worth 2"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_protocols_give_text_tokens_and_cost(server, clock, key, protocol):
    server.key = key
    prices = {"input_price": 1000.0, "output_price": 1_000_000.0}
    answer = client(server, clock, protocol, key_variable=VARIABLE, **prices).ask(CHAT)
    assert answer.text == "[2] > [3] > [1]"
    assert answer.input_tokens > 20
    assert answer.output_tokens == 7
    assert answer.cost == pytest.approx(answer.input_tokens / 1000 + 7)
    assert (answer.metered, answer.cached, answer.retries) == (True, False, 0)


def test_the_system_turn_stands_where_the_protocol_wants_it(server, clock):
    for protocol in PROTOCOLS:
        client(server, clock, protocol).ask(CHAT)
    openai, anthropic = server.bodies
    assert openai["messages"][0] == {"role": "system", "content": CHAT[0].content}
    assert anthropic["system"] == CHAT[0].content
    assert openai["messages"][1:] == anthropic["messages"]
    assert openai["temperature"] == anthropic["temperature"] == 0
    assert openai["model"] == anthropic["model"] == "small"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_local_server_needs_no_key(server, clock, protocol):
    assert client(server, clock, protocol).ask(CHAT).text == "[2] > [3] > [1]"
    assert not {"Authorization", "X-api-key"} & server.headers[0].keys()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_version_may_be_part_of_the_url(server, clock, suffix):
    config = ChatModel("openai", server.url + suffix, "small")
    assert ChatClient(config, clock=clock, sleep=clock.sleep).ask(CHAT).text


def test_no_output_limit_is_sent_where_none_is_set(server, clock):
    client(server, clock, max_output_tokens=0).ask(CHAT)
    client(server, clock, max_output_tokens=50).ask(CHAT)
    assert [body.get("max_tokens") for body in server.bodies] == [None, 50]


def test_an_answer_without_token_counts_is_unmetered(server, clock):
    server.metered = False
    answer = client(server, clock, input_price=1.0).ask(CHAT)
    assert (answer.metered, answer.input_tokens, answer.cost) == (False, 0, 0.0)


def test_an_answer_in_parts_is_joined(server, clock):
    parts = [{"type": "thinking", "thinking": "9"}, {"type": "text", "text": "[1] > [2]"}]
    server.rank = lambda query, passages: parts
    assert client(server, clock).ask(CHAT).text == "[1] > [2]"


def test_a_busy_server_is_retried_after_its_retry_after_time(server, clock):
    server.faults.append(Fault(429, headers={"Retry-After": "7"}))
    answer = client(server, clock).ask(CHAT)
    assert (answer.text, answer.retries) == ("[2] > [3] > [1]", 1)
    [wait] = clock.sleeps
    assert 7 <= wait <= 8
    assert answer.seconds == wait


def test_a_retry_after_date_is_honoured(server, clock):
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    server.faults.append(Fault(503, headers={"Retry-After": at}))
    client(server, clock).ask(CHAT)
    assert 30 < clock.sleeps[0] < 45


@pytest.mark.parametrize("header", ["soon", "-5", "nan", ""])
def test_an_invalid_retry_after_falls_back_to_backoff(server, clock, header):
    server.faults.append(Fault(429, headers={"Retry-After": header}))
    client(server, clock).ask(CHAT)
    assert 0.5 <= clock.sleeps[0] <= 1


def test_a_retry_after_of_an_hour_is_refused(server, clock):
    server.faults.append(Fault(429, headers={"Retry-After": str(LONGEST_RETRY_AFTER + 1)}))
    with pytest.raises(NoAnswer, match="asked to wait 901 s"):
        client(server, clock).ask(CHAT)
    assert clock.sleeps == []


PASSING = {
    "dropped": Fault(),
    "cut off": Fault(200, '{"choices": [', stated_length=500),
    "cut off without a length": Fault(200, '{"choices": [', stated_length=0),
    "empty": Fault(200, ""),
    "timeout": Fault(408),
    "overloaded": Fault(529, '{"error": {"message": "Overloaded"}}'),
    "server error": Fault(500, "<html>"),
    "error that is cut off": Fault(502, "oh", stated_length=500),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_passing_failure_is_retried(server, clock, fault):
    server.faults.append(fault)
    answer = client(server, clock).ask(CHAT)
    assert (answer.text, answer.retries) == ("[2] > [3] > [1]", 1)


def test_a_silent_server_times_out_and_is_retried(server, clock):
    server.faults.append(STALL)
    assert client(server, clock, timeout=1.0).ask(CHAT).retries == 1


def test_backoff_doubles_with_jitter_until_the_last_try(server, clock):
    server.faults.extend([Fault(500, '{"error": "warming up"}')] * 9)
    with pytest.raises(NoAnswer, match=r"status 500 .*warming up; tried 4 times"):
        client(server, clock, max_retries=3).ask(CHAT)
    assert len(server.bodies) == 4
    assert len(clock.sleeps) == 3
    for wait, longest in zip(clock.sleeps, (1, 2, 4), strict=True):
        assert longest / 2 <= wait <= longest


def test_a_missing_server_is_named(clock):
    with chat_server() as stopped:
        pass
    with pytest.raises(NoAnswer, match=rf"no reply from {stopped.url}/v1"):
        client(stopped, clock, max_retries=1).ask(CHAT)


REFUSED = {
    "bad request": (Fault(400, '{"error": {"message": "too long"}}'), "status 400.*too long"),
    "plain detail": (Fault(422, '{"detail": "no such field"}'), "status 422.*no such field"),
    "redirect": (Fault(302, "", {"Location": "http://127.0.0.1:9/"}), "status 302"),
    "no credit": (Fault(429, '{"error": {"code": "insufficient_quota"}}'), "insufficient_quota"),
    "a web page": (Fault(200, "<html>Welcome</html>"), "the openai protocol.*Welcome"),
    "an error as 200": (Fault(200, '{"error": {"message": "no model"}}'), "no model"),
    "a number": (Fault(200, "3"), "the openai protocol"),
    "no choice": (Fault(200, '{"choices": []}'), "the openai protocol"),
}


@pytest.mark.parametrize(("fault", "message"), REFUSED.values(), ids=REFUSED)
def test_a_rejected_request_is_reported_once_with_the_servers_message(
    server, clock, fault, message
):
    server.faults.append(fault)
    with pytest.raises(BadInput, match=message):
        client(server, clock).ask(CHAT)
    assert len(server.bodies) == 1


def test_a_wrong_path_is_reported_with_the_url(server, clock):
    config = ChatModel("openai", server.url + "/api", "small")
    with pytest.raises(BadInput, match=r"status 404 from .*/api/chat/completions"):
        ChatClient(config, clock=clock, sleep=clock.sleep).ask(CHAT)


def test_requests_are_rate_limited(server, clock):
    server.faults.append(Fault(500))
    chat = client(server, clock, requests_per_minute=6)
    for i in range(3):
        chat.ask([*CHAT[:-1], Message("user", f"again {i}")])
    # Four requests with the retried one: three gaps of ten seconds, the back-off is part of one.
    assert clock.now == pytest.approx(30)


def test_without_a_rate_limit_there_is_no_waiting(server, clock):
    client(server, clock).ask(CHAT)
    assert clock.sleeps == []


def test_an_answer_is_cached_for_the_same_request_only(server, clock, tmp_path):
    cache = AnswerCache(tmp_path)
    first = client(server, clock, cache=cache, input_price=1e6).ask(CHAT)
    again = client(server, clock, cache=cache, input_price=2e6).ask(CHAT)
    assert (again.text, again.cached, again.seconds) == (first.text, True, 0)
    assert again.cost == 2 * first.cost > 0
    client(server, clock, cache=cache, max_output_tokens=9).ask(CHAT)
    client(server, clock, "anthropic", cache=cache).ask(CHAT)
    client(server, clock, cache=cache).ask(CHAT[1:])
    assert len(server.bodies) == 4


def test_a_failure_is_not_cached(server, clock, tmp_path):
    cache = AnswerCache(tmp_path)
    server.faults.extend([Fault(400), Fault(200, "<html>")])
    for _ in range(2):
        with pytest.raises(BadInput):
            client(server, clock, cache=cache).ask(CHAT)
    assert not client(server, clock, cache=cache).ask(CHAT).cached


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "openia"}, "did you mean openai"),
        ({"base_url": "http://user:Zebra@localhost"}, "no user, password, query"),
        ({"base_url": "http://localhost/v1?key=Zebra"}, "no user, password, query"),
        ({"base_url": "localhost:8000"}, "base_url must be http"),
        ({"base_url": "http://local host"}, "base_url must be http"),
        ({"base_url": ""}, "base_url must be http"),
        ({"model": ""}, "model must name"),
        ({"timeout": 0.0}, "timeout > 0"),
        ({"max_retries": -1}, "max_retries >= 0"),
        ({"requests_per_minute": float("nan")}, "requests_per_minute >= 0"),
        ({"input_price": -1.0}, "input_price >= 0"),
        ({"protocol": "anthropic", "max_output_tokens": 0}, "max_output_tokens >= 1"),
    ],
)
def test_settings_that_break_a_rule_are_refused(change, message):
    settings = {"protocol": "openai", "base_url": "http://localhost:8000", "model": "small"}
    with pytest.raises(BadInput, match=message) as error:
        ChatModel(**(settings | change))
    assert "Zebra" not in str(error.value)
