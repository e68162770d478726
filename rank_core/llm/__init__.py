"""List-wise reranking by a chat model. Here: which model answers, and the protocols it may speak.
A new protocol is one line in `PROTOCOLS`."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rank_core.errors import BadInput, unknown


class Message(NamedTuple):
    """One turn of a chat: role is system (first turn only), user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class ChatModel:
    """Which chat model answers, where, and at what price. The key is not in here."""

    protocol: str  # an entry of PROTOCOLS
    base_url: str  # https://api.openai.com/v1, http://127.0.0.1:8000; no path means /v1
    model: str  # the name the server knows it by
    key_variable: str = ""  # environment variable that holds the key; empty: no key is sent
    timeout: float = 120.0  # seconds without a byte from the server
    max_retries: int = 6
    requests_per_minute: float = 0.0  # 0: no limit
    max_output_tokens: int = 1024  # 0: the server's own limit (openai only)
    input_price: float = 0.0  # per million tokens, any currency; 0: free
    output_price: float = 0.0  # per million tokens

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise unknown("protocol", self.protocol, PROTOCOLS)
        _check_url(self.base_url)
        if not self.model:
            raise BadInput("model must name the chat model, got an empty text")
        # What was found is not shown: it may be the key itself, put here by mistake.
        if not re.fullmatch(r"([A-Z_][A-Z0-9_]*)?", self.key_variable):
            raise BadInput(
                "key_variable must be the name of an environment variable in capitals, never the "
                "key itself (OPENAI_API_KEY), got something else"
            )
        least_output = 0 if self.protocol == "openai" else 1
        for name, least in (
            ("max_retries", 0),
            ("requests_per_minute", 0),
            ("max_output_tokens", least_output),
            ("input_price", 0),
            ("output_price", 0),
        ):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise BadInput(f"{name} >= {least} must hold and be finite, got {name}={value}")
        if not 0 < self.timeout < math.inf:
            raise BadInput(f"timeout > 0 must hold and be finite, got timeout={self.timeout}")

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """The price of an answer, in the currency of the prices."""
        return (input_tokens * self.input_price + output_tokens * self.output_price) / 1e6


def _check_url(url: str) -> None:
    if re.search(r"[@?#]", url):
        raise BadInput(
            "base_url must carry no user, password, query or fragment (a key belongs in the "
            "environment), got one of @ ? #"  # not shown: it may be a password
        )
    host = r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?"
    if not re.fullmatch(rf"https?://{host}(/[!-~]*)?", url, re.ASCII):
        raise BadInput(f"base_url must be http(s)://host[:port][/path], got {url!r}")


def _openai_body(config: ChatModel, messages: Sequence[Message]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": config.model, "temperature": 0}
    if config.max_output_tokens:
        body["max_tokens"] = config.max_output_tokens
    return body | {"messages": [message._asdict() for message in messages]}


def _anthropic_body(config: ChatModel, messages: Sequence[Message]) -> dict[str, Any]:
    # The system turn stands outside the chat here.
    body = {"model": config.model, "temperature": 0, "max_tokens": config.max_output_tokens}
    system = "\n\n".join(m.content for m in messages if m.role == "system")
    chat = [message._asdict() for message in messages if message.role != "system"]
    return body | ({"system": system} if system else {}) | {"messages": chat}


class Protocol(NamedTuple):
    """How one family of servers is spoken to."""

    path: str  # after the version
    body: Callable[[ChatModel, Sequence[Message]], dict[str, Any]]
    key_header: str
    key_prefix: str
    headers: dict[str, str]
    content: Callable[[Any], Any]  # the text, or its parts, in the server's answer
    token_counts: tuple[str, str]  # names of the input and output tokens under `usage`


PROTOCOLS = {
    "openai": Protocol(
        path="/chat/completions",
        body=_openai_body,
        key_header="Authorization",
        key_prefix="Bearer ",
        headers={},
        content=lambda answer: answer["choices"][0]["message"].get("content"),
        token_counts=("prompt_tokens", "completion_tokens"),
    ),
    "anthropic": Protocol(
        path="/messages",
        body=_anthropic_body,
        key_header="x-api-key",
        key_prefix="",
        headers={"anthropic-version": "2023-06-01"},
        content=lambda answer: answer["content"],
        token_counts=("input_tokens", "output_tokens"),
    ),
}


def message_text(content: Any) -> str:
    """The text of a message: a text, None (a refusal), or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == "text")
