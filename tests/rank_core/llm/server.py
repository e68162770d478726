"""A chat server on the loopback: two protocols, any order of passages, and faults on demand."""

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rank_core.llm.chat import ChatClient
from rank_core.settings.config import Chat

PLANTED_KEY = 'sk-planted-"Zebra"-0123456789'
ADDRESS = ("127.0.0.1", 0)
KEY_HEADERS = {"openai": ("Authorization", "Bearer "), "anthropic": ("x-api-key", "")}
PROTOCOLS = tuple(KEY_HEADERS)
VARIABLE = "LANTERN_API_KEY"
PATHS = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Notes the wait and lets it pass at once."""
        self.sleeps.append(seconds)
        self.now += seconds


@dataclass(frozen=True)
class Fault:
    """A fault in place of an answer. Status 0: the connection is closed."""

    status: int = 0
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    stated_length: int | None = None  # a longer one than the text cuts the reply off


STALL = Fault(status=-1)  # accepts the request without a reply


def by_number(query: str, passages: list[str]) -> str:
    """A perfect ranking of passages that hold their own relevance: "worth 17"."""
    worth = [int(re.search(r"worth (\d+)", passage)[1]) for passage in passages]
    order = sorted(range(len(passages)), key=lambda i: -worth[i])
    return " > ".join(f"[{i + 1}]" for i in order)


@dataclass
class ChatServer:
    """The server's behaviour, and its requests."""

    url: str = ""
    key: str = ""  # required of every request where it is not empty
    rank: Callable[[str, list[str]], Any] = by_number  # gives the content of the answer
    faults: deque[Fault] = field(default_factory=deque)  # one is used up by each request
    metered: bool = True
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    stop_stalling: threading.Event = field(default_factory=threading.Event)

    def refusal(self, protocol: str, headers: dict[str, str], body: dict[str, Any]) -> str:
        """The protocol error of a request; empty if there is none."""
        turns = [message["role"] for message in body["messages"]]
        chat = turns[1:] if protocol == "openai" and turns[0] == "system" else turns
        if any(turn != ("user", "assistant")[i % 2] for i, turn in enumerate(chat)):
            return f"turns must alternate, got {turns}"
        if protocol == "anthropic" and not body.get("max_tokens"):
            return "max_tokens is required"
        if protocol == "anthropic" and headers.get("Anthropic-version") != "2023-06-01":
            return "anthropic-version is required"
        return ""

    def answer(self, protocol: str, body: dict[str, Any]) -> dict[str, Any]:
        """A complete answer to a chat, in the protocol's format."""
        users = [m["content"] for m in body["messages"] if m["role"] == "user"]
        query = re.search(r"query: (.*)", users[0])
        numbered = [re.fullmatch(r"\[(\d+)\] (.*)", text, re.DOTALL) for text in users[1:-1]]
        assert [int(match[1]) for match in numbered] == [*range(1, len(numbered) + 1)]
        content = self.rank(query[1] if query else "", [match[2] for match in numbered])
        words = sum(len(text.split()) for text in users)
        names = ("prompt_tokens", "completion_tokens")
        if protocol == "anthropic":
            names = ("input_tokens", "output_tokens")
        usage = {"usage": dict(zip(names, (words, 7), strict=True))} if self.metered else {}
        if protocol == "anthropic":
            return {"content": [{"type": "text", "text": content}]} | usage
        return {"choices": [{"message": {"role": "assistant", "content": content}}]} | usage


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        chat: ChatServer = self.server.chat
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.capitalize(): value for name, value in self.headers.items()}
        chat.bodies.append(body)
        chat.headers.append(headers)
        chat.paths.append(self.path)
        if chat.faults:
            self._fail(chat.faults.popleft())
            return
        protocol = PATHS.get(self.path)
        if protocol is None:
            self._say(404, json.dumps({"error": {"message": f"no {self.path} here"}}))
            return
        name, prefix = KEY_HEADERS[protocol]
        sent = headers.get(name.capitalize(), "")
        if chat.key and sent != prefix + chat.key:
            # As some servers do: the wrong key comes back in the message.
            text = f"Incorrect API key provided: {sent.removeprefix(prefix)}"
            self._say(401, json.dumps({"error": {"message": text}}))
        elif reason := chat.refusal(protocol, headers, body):
            self._say(400, json.dumps({"error": {"message": reason}}))
        else:
            self._say(200, json.dumps(chat.answer(protocol, body)))

    def _fail(self, fault: Fault) -> None:
        if fault is STALL:
            self.server.chat.stop_stalling.wait(10)
        elif fault.status:
            self._say(fault.status, fault.text, fault.headers, fault.stated_length)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _say(
        self,
        status: int,
        text: str,
        headers: dict[str, str] | None = None,
        stated_length: int | None = None,
    ) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if stated_length != 0:  # 0: no length at all, the end of the connection ends the reply
            self.send_header("Content-Length", str(stated_length or len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Logs nothing: the tests read the requests."""


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A running server on a free port, stopped at the end."""
    with pytest.MonkeyPatch.context() as patch, ThreadingHTTPServer(ADDRESS, _Handler) as http:
        patch.setenv("no_proxy", "127.0.0.1")  # a machine behind a proxy must not ask it for us
        http.daemon_threads = True
        chat = http.chat = ChatServer(url=f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield chat
        finally:
            chat.stop_stalling.set()
            http.shutdown()
            thread.join()


def client(server: "ChatServer", clock: Clock, protocol="openai", cache=None, **settings):
    """A client of `server` that waits by `clock`."""
    waits = {name: settings.pop(name) for name in ("timeout", "max_retries") if name in settings}
    usual = {"base_url": server.url, "model": "small", "key_variable": ""}
    config = Chat(protocol, **usual | settings)
    return ChatClient(config, cache=cache, clock=clock, sleep=clock.sleep, **waits)
