"""The service of docs/export.md under load: its answers are those of single calls."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker

uvicorn = pytest.importorskip("uvicorn", reason="MLflow brings an ASGI server")

CLIENTS, REQUESTS = 8, 200
PAGE = Path(__file__).parents[3] / "docs" / "export.md"
WORDS = "amber birch cedar heron meadow slate thorn river stone".split()


def asked(i):
    """The request of a number; all differ."""
    documents = [
        " ".join(WORDS[(i + j * k) % len(WORDS)] for k in range(5 + 17 * j)) for j in range(1, 6)
    ]
    return {"query": f"{WORDS[i % len(WORDS)]} {WORDS[i // len(WORDS) % len(WORDS)]}"} | {
        "documents": documents[: 1 + i % 5]
    }


@pytest.fixture(scope="module")
def service(small_trial, tmp_path_factory):
    """(the port of the served page, the model that it serves)."""
    place = tmp_path_factory.mktemp("service")
    write_model(place / "model", small_trial, None)
    [block] = re.findall(r"^```python\n(import asyncio.*?)^```", PAGE.read_text(), re.M | re.S)
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        exec(compile(block, PAGE.name, "exec"), names)
    config = uvicorn.Config(names["app"], host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1], Reranker.load(place / "model")
    server.should_exit = True
    thread.join()


def answers(port, bodies):
    """(status, answer) of each body, one after the other over one connection."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    found = []
    for body in bodies:
        connection.request("POST", "/", body)
        response = connection.getresponse()
        found.append((response.status, json.loads(response.read())))
    connection.close()
    return found


def test_answers_under_load_are_those_of_single_calls(service):
    port, alone = service
    bodies = [json.dumps(asked(i)) for i in range(REQUESTS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        parts = clients.map(lambda n: answers(port, bodies[n::CLIENTS]), range(CLIENTS))
        found = dict(enumerate(parts))
    for i in range(REQUESTS):
        expected = [one._asdict() for one in alone.rank(**asked(i))]
        assert found[i % CLIENTS][i // CLIENTS] == (200, expected)


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", "[]", "3", "{}", '{"query": "a"}', '{"query": 1, "documents": ["a"]}'),
        *(100_000 * "[", '{"query": ' + 5000 * "9" + "}", '"' + 11_000_000 * "a" + '"'),
    ],
    ids=range(10),
)
def test_what_cannot_be_ranked_is_answered_with_the_reason(body, service):
    [(status, answer)] = answers(service[0], [body])
    assert status == 400 and answer["error"].startswith('a request is {"query"')
    [(status, _)] = answers(service[0], [json.dumps(asked(1))])
    assert status == 200
