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
    for value in _secrets_of(tuple(os.environ.items())):
        text = text.replace(value, REDACTED)
    text = _ADDRESS.sub(rf"\1{REDACTED}@", text)
    return _ASSIGNMENT.sub(rf"\1{REDACTED}", text)


def redact(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `values` with secrets replaced by `[redacted]`, also inside lists and mappings. A
    float, such as the mean of a measure of any name, is none."""
    return {
        name: REDACTED
        if _NAME.search(str(name)) and not isinstance(value, float)
        else _without_secrets(value)
        for name, value in values.items()
    }


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return redact(value)
    return [_without_secrets(item) for item in value] if isinstance(value, list | tuple) else value


@lru_cache(maxsize=1)
def _secrets_of(environment: tuple[tuple[str, str], ...]) -> list[str]:
    """Secrets and passwords within URLs, the longest first so that no part remains; short ones
    would match ordinary words, and paths are no secrets."""
    values = {value for name, value in environment if _NAME.search(name)}
    values |= {secret for _, value in environment for secret in _PASSWORD.findall(value)}
    long = [value for value in values if len(value) >= _SHORTEST and not os.path.exists(value)]
    return sorted(long, key=len, reverse=True)
