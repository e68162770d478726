"""The removal of secrets from everything that is stored or printed: passwords of URLs, and values
whose name ends in token, key, secret or password, also of this process's environment."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"
_SHORTEST = 8  # characters of a secret in the environment
# The key of a trial is none; `keys` and `max_document_tokens` do not end so.
_SECRET = r"(?:token|secret|password|(?:api|access|account)key|(?<!trial)[_-]key)"
_NAME = re.compile(rf"{_SECRET}$", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"""((?:\b[\w.-]*{_SECRET}["']?\s*[=:]|--[\w-]*{_SECRET}\s)\s*)("[^"]*"|'[^']*'|[^\s,;&]+)""",
    re.IGNORECASE,
)
# With a colon the password may hold an unescaped slash; without, `host/package@tag` is harmless.
# The lone name before a database's host is its user; before others perhaps a token.
_ADDRESS = re.compile(  # one slash: an address as `Path` has it, or `models:/name@alias`
    r"([a-z][a-z0-9+.-]*:/+)"
    r"(?:(?<=//)(?<!sql://)(?<!psycopg://)[^\s/@:]+|[^\s/@:]*:[^\s@]+)@(?=[^\s@/])",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s@]+)@[^\s@/]", re.IGNORECASE)


def redact_text(text: str) -> str:
    """The text without passwords of URLs, without assignments such as `--hf-token x`, and without
    the secrets in this process's environment."""
    return str(_without(_secrets(), text))


def redact(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `values` with secrets replaced by `[redacted]`, also inside lists and mappings. A
    float, such as the mean of a measure of any name, is none."""
    return dict(_without(_secrets(), values))


def _without(secrets: list[str], value: Any) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        value = _ADDRESS.sub(rf"\1{REDACTED}@", value)
        return _ASSIGNMENT.sub(rf"\1{REDACTED}", value)
    if isinstance(value, Mapping):
        return {
            name: REDACTED
            if _NAME.search(str(name)) and not isinstance(item, float)
            else _without(secrets, item)
            for name, item in value.items()
        }
    return [_without(secrets, item) for item in value] if isinstance(value, list | tuple) else value


def _secrets() -> list[str]:
    """Of this process's environment; to read it takes longer than to search a text for them."""
    return _secrets_of(tuple(os.environ.items()))


@lru_cache(maxsize=1)
def _secrets_of(environment: tuple[tuple[str, str], ...]) -> list[str]:
    """Secrets and passwords within URLs, the longest first so that no part remains; short ones
    would match ordinary words, and paths are no secrets."""
    values = {value for name, value in environment if _NAME.search(name)}
    values |= {secret for _, value in environment for secret in _PASSWORD.findall(value)}
    long = [value for value in values if len(value) >= _SHORTEST and not os.path.exists(value)]
    return sorted(long, key=len, reverse=True)
