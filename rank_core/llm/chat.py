"""A client for chat models over HTTP: requests are cached, paced and retried. It does not stream,
call tools or send requests side by side."""

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
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rank_core.errors import BadInput
from rank_core.llm import PROTOCOLS, ChatModel, Message, message_text
from rank_core.llm.ledger import Answer, AnswerCache

FIRST_WAIT = 1.0  # seconds before the first retry, doubled for each further one
LONGEST_BACK_OFF = 60.0  # seconds
LONGEST_RETRY_AFTER = 900.0  # seconds; a server that asks for more is not waited for
SHORTEST_SECRET = 8  # characters

__all__ = ["ChatClient", "ChatModel", "Message", "NoAnswer"]

_log = logging.getLogger(__name__)


class NoAnswer(RuntimeError):
    """The server stayed unavailable through every retry; asking later may succeed."""


class _Reply(NamedTuple):
    """What came back: an HTTP status, or 0 and the reason why nothing did."""

    status: int
    text: str
    retry_after: float = 0.0  # seconds


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host, and turn the POST into a GET."""

    def redirect_request(self, *_: Any) -> None:
        """Refuses: the redirect comes back as an ordinary answer."""


class ChatClient:
    """Sends chats at temperature 0 and returns answers: cached, paced and retried.

    The key is read from the environment for every request and kept nowhere.
    """

    def __init__(
        self,
        config: ChatModel,
        *,
        cache: AnswerCache | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config, self.cache, self._clock, self._sleep = config, cache, clock, sleep
        self._protocol = PROTOCOLS[config.protocol]
        base = config.base_url.rstrip("/")
        self._url = base + ("" if urlsplit(base).path else "/v1") + self._protocol.path
        # Its own generator: waiting must not shift anyone's random stream.
        self._jitter = random.Random()
        self._next_start = -math.inf
        self._opener = urllib.request.build_opener(_NoRedirect)
        _key(config.key_variable)  # a missing key is told before anything is launched

    def ask(self, messages: Sequence[Message]) -> Answer:
        """The model's answer to a chat.

        `BadInput` where the server refuses the request, `NoAnswer` where it stays unavailable.
        """
        body = self._protocol.body(self.config, messages)
        request = json.dumps([self.config.protocol, self._url, body], sort_keys=True)
        digest = hashlib.sha256(request.encode()).hexdigest()
        kept = self.cache.get(digest) if self.cache else None
        if kept is not None:
            return replace(kept, cost=self.config.cost(kept.input_tokens, kept.output_tokens))
        start = self._clock()
        reply, retries = self._exchange(json.dumps(body).encode())
        answer = self._read(reply.text)
        answer = replace(answer, retries=retries, seconds=self._clock() - start)
        if self.cache:
            self.cache.put(digest, answer)
        return answer

    def _exchange(self, body: bytes) -> tuple[_Reply, int]:
        """The server's successful reply and the number of requests that failed before it."""
        for attempt in range(self.config.max_retries + 1):
            self._pace()
            reply = self._send(body)
            if reply.status == 200:
                return reply, attempt
            failure = self._failure(reply)
            if not _passing(reply):
                raise BadInput(f"the chat server must accept the request, got {failure}")
            if reply.retry_after > LONGEST_RETRY_AFTER:
                raise NoAnswer(f"{failure}; asked to wait {reply.retry_after:.0f} s")
            if attempt == self.config.max_retries:
                break
            back_off = min(FIRST_WAIT * 2.0**attempt, LONGEST_BACK_OFF)
            back_off *= self._jitter.uniform(0.5, 1.0)
            # Never earlier than the server asks for, and not all clients at once.
            wait = max(reply.retry_after * self._jitter.uniform(1.0, 1.1), back_off)
            _log.warning("waiting %.1f s for retry %d: %s", wait, attempt + 1, failure)
            self._sleep(wait)
        raise NoAnswer(f"{failure}; tried {self.config.max_retries + 1} times")

    def _pace(self) -> None:
        """Waits until the next request may start; retries count as requests."""
        if self.config.requests_per_minute:
            wait = self._next_start - self._clock()
            if wait > 0:
                self._sleep(wait)
            self._next_start = self._clock() + 60.0 / self.config.requests_per_minute

    def _send(self, body: bytes) -> _Reply:
        """One request. Its own errors end here, because they may hold the request with its key."""
        request = urllib.request.Request(self._url, data=body, method="POST")
        for name, value in (self._protocol.headers | {"Content-Type": "application/json"}).items():
            request.add_header(name, value)
        if key := _key(self.config.key_variable):
            # Not kept if some proxy redirects after all.
            header, prefix = self._protocol.key_header, self._protocol.key_prefix
            request.add_unredirected_header(header, prefix + key)
        try:
            with self._opener.open(request, timeout=self.config.timeout) as response:
                text = self._redact(response.read())
                status = 0 if _cut_off(text) else response.status
                return _Reply(status, text or "(an empty reply)")
        except urllib.error.HTTPError as error:
            with error:
                wait = _seconds(error.headers.get("Retry-After"))
                try:
                    return _Reply(error.code, self._redact(error.read()), wait)
                except (OSError, HTTPException):
                    return _Reply(error.code, "(its message was cut off)", wait)
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            return _Reply(0, self._redact(f"{type(error).__name__}: {error}".encode()))

    def _redact(self, text: bytes) -> str:
        """The text without the key, which some servers repeat."""
        shown = text.decode("utf-8", errors="replace")
        key = _key(self.config.key_variable)
        # A shorter one is no secret (local servers take any word), and could be part of an answer.
        if len(key) >= SHORTEST_SECRET:
            shown = shown.replace(key, "[key]").replace(json.dumps(key)[1:-1], "[key]")
        return shown

    def _failure(self, reply: _Reply) -> str:
        """Where, what and in whose words."""
        what = f"status {reply.status}" if reply.status else "no reply"
        hint = ""
        if reply.status in (401, 403):
            variable = self.config.key_variable
            hint = f" (the key is read from {variable})" if variable else " (no key_variable set)"
        return f"{what} from {self._url}{hint}: {_server_message(reply.text)}"

    def _read(self, text: str) -> Answer:
        try:
            parsed = json.loads(text)
            content = message_text(self._protocol.content(parsed))
            usage = parsed.get("usage") or {}
            counts = [usage.get(name) for name in self._protocol.token_counts]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise BadInput(
                f"the server must speak the {self.config.protocol} protocol, got from "
                f"{self._url}: {_server_message(text)}"
            ) from None
        tokens = [count if isinstance(count, int) else 0 for count in counts]
        return Answer(
            text=content,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            metered=all(isinstance(count, int) for count in counts),
            cost=self.config.cost(tokens[0], tokens[1]),
        )


def _key(variable: str) -> str:
    """The key, or an empty text where no variable is set up."""
    if not variable:
        return ""
    # A file's last line break often comes along.
    key = os.environ.get(variable, "").strip()
    # Any other character would make http.client quote the whole header in its error.
    if not re.fullmatch(r"[!-~]+", key):
        found = "other characters" if key else "nothing"
        raise BadInput(
            f"the environment variable {variable} must hold the key, printable and without "
            f"spaces, got {found}"
        )
    return key


def _passing(reply: _Reply) -> bool:
    """Whether the same request may succeed later."""
    if reply.status == 429 and "insufficient_quota" in reply.text:
        return False  # no credit left: waiting brings none
    return reply.status in (0, 408, 425, 429) or reply.status >= 500


def _cut_off(text: str) -> bool:
    """Whether a reply without a stated length lost its end with the connection."""
    try:
        json.loads(text)
    except ValueError:
        return text.lstrip()[:1] in ("", "{")
    return False


def _seconds(retry_after: str | None) -> float:
    """The wait a Retry-After header asks for, a number or a date; 0 where it says neither."""
    text = (retry_after or "").strip()
    if re.fullmatch(r"\d+(\.\d*)?", text, re.ASCII):
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def _server_message(text: str) -> str:
    """The message inside a server's error, or the start of whatever it sent."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    for name in ("error", "message", "detail"):
        if isinstance(parsed, dict) and parsed.get(name):
            parsed = parsed[name]
    shown = parsed if isinstance(parsed, str) else json.dumps(parsed)
    # Some servers repeat the key with its middle starred out.
    shown = re.sub(r"\bsk-[\w*.-]+", "[key]", " ".join(shown.split()))
    return shown[:300] or "(empty)"
