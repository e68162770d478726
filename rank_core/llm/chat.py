"""A client for chat models over HTTP, and its protocols; a new one is an entry of `PROTOCOLS`.

Requests are cached, rate-limited and retried; each answer is a line in a cost ledger. Neither cache
nor ledger contains the API key. There is no streaming, tool calling or concurrency.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import random
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rank_core.errors import BadInput
from rank_core.files import write_json
from rank_core.parsing import parsed_json
from rank_core.settings.config import Chat

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """A chat model's text, with its tokens, cost and time."""

    text: str
    input_tokens: int = 0  # as counted by the server
    output_tokens: int = 0
    metered: bool = True  # False: the server gave no token counts
    cost: float = 0.0  # in the currency of the prices; for a cached answer, the cost saved
    cached: bool = False
    retries: int = 0  # failed requests before this answer
    seconds: float = 0.0  # including waits


@dataclass(frozen=True)
class Ledger:
    """A file with a line of JSON for each answer; a resumed trial appends to it."""

    path: Path

    def record(self, answer: Answer, *, repaired: bool, **labels: str | int) -> None:
        """Writes the line of an answer, with `labels` first (query_id, start, end...); `repaired`
        says that it was not in the form that was asked for."""
        numbers = asdict(answer)
        del numbers["text"]  # already in the cache
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(labels | {"repaired": repaired} | numbers) + "\n")

    def total(self) -> "LedgerTotal":
        """The sums of its lines."""
        with self.path.open(encoding="utf-8") as lines:
            answers = [parsed_json(line) for line in lines]
        paid = [answer for answer in answers if not answer["cached"]]
        return LedgerTotal(
            len(answers),
            len(paid),
            sum(answer["input_tokens"] + answer["output_tokens"] for answer in paid),
            sum(answer["cost"] for answer in paid),
        )


class LedgerTotal(NamedTuple):
    """The answers of a ledger, and the tokens and the cost of those that were asked for, in the
    currency of the prices."""

    answers: int
    asked: int
    tokens: int
    cost: float


KEPT: dict[str, Callable[[Any], Any]]
KEPT = {"text": str, "input_tokens": int, "output_tokens": int, "metered": bool}
"""{field of an answer that the cache has: its type}."""


@dataclass(frozen=True)
class AnswerCache:
    """Answers by the SHA-256 of their request, a file each. Files are written atomically, so that
    processes can share the folder."""

    folder: Path

    def get(self, digest: str) -> Answer | None:
        """The cached answer without its cost; None if it is missing or damaged."""
        path = self._path(digest)
        try:
            kept = parsed_json(path.read_text(encoding="utf-8"))
            return Answer(**{name: kind(kept[name]) for name, kind in KEPT.items()}, cached=True)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, digest: str, answer: Answer) -> None:
        """Writes an answer, replacing an earlier one."""
        path = self._path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {name: getattr(answer, name) for name in KEPT})

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"


class Message(NamedTuple):
    """A turn of a chat; the role is system (first turn only), user or assistant."""

    role: str
    content: str


def _anthropic_turns(messages: Sequence[Message]) -> dict[str, Any]:
    # System turns are separate from the messages here.
    system = "\n\n".join(m.content for m in messages if m.role == "system")
    chat = [message._asdict() for message in messages if message.role != "system"]
    return ({"system": system} if system else {}) | {"messages": chat}


class ChatProtocol(NamedTuple):
    """The request and reply formats of a family of servers."""

    path: str  # after the version
    turns: Callable[[Sequence[Message]], dict[str, Any]]  # of a chat, as in the request's body
    key_header: str
    key_prefix: str
    headers: dict[str, str]
    content: Callable[[Any], Any]  # the text, or its parts, of a reply
    token_counts: tuple[str, str]  # names of input and output tokens in `usage`


PROTOCOLS = {
    "openai": ChatProtocol(
        path="/chat/completions",
        turns=lambda messages: {"messages": [message._asdict() for message in messages]},
        key_header="Authorization",
        key_prefix="Bearer ",
        headers={},
        content=lambda answer: answer["choices"][0]["message"].get("content"),
        token_counts=("prompt_tokens", "completion_tokens"),
    ),
    "anthropic": ChatProtocol(
        path="/messages",
        turns=_anthropic_turns,
        key_header="x-api-key",
        key_prefix="",
        headers={"anthropic-version": "2023-06-01"},
        content=lambda answer: answer["content"],
        token_counts=("input_tokens", "output_tokens"),
    ),
}


def message_text(content: Any) -> str:
    """The text of a message given as text, None (a refusal) or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == "text")


MAX_OUTPUT_TOKENS = 1024
FIRST_WAIT = 1.0  # seconds before the first retry, doubled for each further one
LONGEST_BACK_OFF = 60.0  # seconds
LONGEST_RETRY_AFTER = 900.0  # seconds; longer waits are refused
SHORTEST_SECRET = 8  # characters


class NoAnswer(RuntimeError):
    """The server was unavailable through all retries; a later request may succeed."""


class _Reply(NamedTuple):
    """A reply: an HTTP status, or 0 and the reason for no reply."""

    status: int
    text: str
    retry_after: float = 0.0  # seconds


class ChatClient:
    """Sends chats at temperature 0 and returns answers: cached, rate-limited and retried. The API
    key is read from the environment for every request and never stored."""

    def __init__(
        self,
        config: Chat,
        *,
        cache: AnswerCache | None = None,
        timeout: float = 120.0,  # seconds without a byte from the server
        max_retries: int = 6,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config, self.cache, self._clock, self._sleep = config, cache, clock, sleep
        self._timeout, self._max_retries = timeout, max_retries
        self._protocol = PROTOCOLS[config.protocol]
        base = config.base_url.rstrip("/")
        self._url = base + ("" if urlsplit(base).path else "/v1") + self._protocol.path
        # A separate generator: waiting must not affect other random streams.
        self._jitter = random.Random()
        self._next_start = -math.inf
        _key(config.key_variable)  # raises for a missing key before any request

    def ask(self, messages: Sequence[Message]) -> Answer:
        """The model's answer to a chat, from the cache if possible. Raises `BadInput` if the server
        rejects the request and `NoAnswer` if it is unavailable."""
        body = {"model": self.config.model, "temperature": 0, "max_tokens": MAX_OUTPUT_TOKENS}
        body |= self._protocol.turns(messages)
        # Everything that decides the answer, the model's name in the body included; not the key,
        # nor prices and limits.
        request = json.dumps([self.config.protocol, self._url, body], sort_keys=True)
        digest = hashlib.sha256(request.encode()).hexdigest()
        # Temperature 0 does not make a server deterministic; the cache makes a trial repeatable.
        kept = self.cache.get(digest) if self.cache else None
        if kept is not None:
            return self._priced(kept)
        start = self._clock()
        reply, retries = self._exchange(json.dumps(body).encode())
        answer = self._read(reply.text)
        answer = replace(answer, retries=retries, seconds=self._clock() - start)
        if self.cache:
            self.cache.put(digest, answer)
        return answer

    def _exchange(self, body: bytes) -> tuple[_Reply, int]:
        """The server's successful reply, and the number of failed requests before it."""
        for attempt in range(self._max_retries + 1):
            self._pace()
            reply = self._send(body)
            if reply.status == 200:
                return reply, attempt
            failure = self._failure(reply)
            if not _is_transient(reply):
                raise BadInput(f"the chat server rejected the request: {failure}")
            if reply.retry_after > LONGEST_RETRY_AFTER:
                raise NoAnswer(f"{failure}; asked to wait {reply.retry_after:.0f} s")
            if attempt == self._max_retries:
                break
            back_off = min(FIRST_WAIT * 2.0**attempt, LONGEST_BACK_OFF)
            back_off *= self._jitter.uniform(0.5, 1.0)
            # Not before the server's time, and with jitter between clients.
            wait = max(reply.retry_after * self._jitter.uniform(1.0, 1.1), back_off)
            _log.warning("waiting %.1f s for retry %d: %s", wait, attempt + 1, failure)
            self._sleep(wait)
        raise NoAnswer(f"{failure}; tried {self._max_retries + 1} times")

    def _priced(self, answer: Answer) -> Answer:
        """The answer with its cost; prices are of a million tokens."""
        config, tokens = self.config, (answer.input_tokens, answer.output_tokens)
        cost = tokens[0] * config.input_price + tokens[1] * config.output_price
        return replace(answer, cost=cost / 1e6)

    def _pace(self) -> None:
        """Waits until the next request may start; retries count as requests."""
        if self.config.requests_per_minute:
            wait = self._next_start - self._clock()
            if wait > 0:
                self._sleep(wait)
            # From the start of a request: the time that an answer takes counts as a part of the
            # pause.
            self._next_start = self._clock() + 60.0 / self.config.requests_per_minute

    def _send(self, body: bytes) -> _Reply:
        """Sends a request. Its errors are converted here, because they may contain the key."""
        request = urllib.request.Request(self._url, data=body, method="POST")
        for name, value in (self._protocol.headers | {"Content-Type": "application/json"}).items():
            request.add_header(name, value)
        if key := _key(self.config.key_variable):
            # Unredirected: not sent on to another host.
            header, prefix = self._protocol.key_header, self._protocol.key_prefix
            request.add_unredirected_header(header, prefix + key)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                text = self._redact(response.read())
                return _Reply(response.status if text else 0, text or "(an empty reply)")
        except urllib.error.HTTPError as error:
            with error:
                text = (error.headers.get("Retry-After") or "").strip()
                wait = float(text) if re.fullmatch(r"\d+(\.\d*)?", text, re.ASCII) else 0.0
                content = b"(incomplete message)"
                with contextlib.suppress(OSError, HTTPException):
                    content = error.read()
                return _Reply(error.code, self._redact(content), wait)
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            return _Reply(0, self._redact(f"{type(error).__name__}: {error}".encode()))

    def _redact(self, text: bytes) -> str:
        """The text without the key, which some servers repeat."""
        shown = text.decode("utf-8", errors="replace")
        key = _key(self.config.key_variable)
        # Shorter ones are not secrets (local servers accept any word) and may be part of an answer.
        if len(key) >= SHORTEST_SECRET:
            shown = shown.replace(key, "[key]").replace(json.dumps(key)[1:-1], "[key]")
        return shown

    def _failure(self, reply: _Reply) -> str:
        """The failure on one line: status, URL and the server's message."""
        what = f"status {reply.status}" if reply.status else "no reply"
        hint = ""
        if reply.status in (401, 403):
            variable = self.config.key_variable
            hint = f" (the key is read from {variable})" if variable else " (no key_variable set)"
        return f"{what} from {self._url}{hint}: {_server_message(reply.text)}"

    def _read(self, text: str) -> Answer:
        try:
            parsed = parsed_json(text)
            content = message_text(self._protocol.content(parsed))
            usage = parsed.get("usage") or {}
            counts = [usage.get(name) for name in self._protocol.token_counts]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise BadInput(
                f"the reply of {self._url} does not follow the {self.config.protocol} protocol: "
                f"{_server_message(text)}"
            ) from None
        tokens = [count if isinstance(count, int) else 0 for count in counts]
        return self._priced(Answer(content, tokens[0], tokens[1], metered=tokens == counts))


def _key(variable: str) -> str:
    """The API key; empty without a variable. Raises `BadInput` for a missing or invalid key."""
    if not variable:
        return ""
    # Keys read from files often end in a line break.
    key = os.environ.get(variable, "").strip()
    # With other characters, http.client's error would quote the whole header.
    if not re.fullmatch(r"[!-~]+", key):
        content = "other characters" if key else "no value"
        raise BadInput(
            f"the environment variable {variable} must be an API key, printable and without "
            f"spaces, got {content}"
        )
    return key


def _is_transient(reply: _Reply) -> bool:
    """True if the same request may succeed later."""
    if reply.status == 429 and "insufficient_quota" in reply.text:
        return False  # no credit left
    return reply.status in (0, 408, 425, 429) or reply.status >= 500


def _server_message(text: str) -> str:
    """The message in a server's error, or the start of its reply."""
    try:
        parsed = parsed_json(text)
    except ValueError:
        parsed = text
    for name in ("error", "message", "detail"):
        if isinstance(parsed, dict) and parsed.get(name):
            parsed = parsed[name]
    shown = parsed if isinstance(parsed, str) else json.dumps(parsed)
    return " ".join(shown.split())[:300] or "(empty)"
