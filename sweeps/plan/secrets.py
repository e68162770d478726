"""Secrets out of everything that is stored: params, tags, messages."""

import os
import re
from collections.abc import Mapping
from typing import Any

from rank_core.errors import BadInput

REDACTED = "[redacted]"
_SHORTEST = 8  # characters of a secret in the environment

_SECRET = (
    r"(?:token(?!i[sz])|secret|passwor[dt]|passwd|credential"
    r"|api[_-]?key|access[_-]?key|private[_-]?key)"
)
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
# `max_document_tokens` is a size; `hf_token`, `accessToken` and `tokens: [..]` are secrets.
_ONLY_TOKEN = re.compile(r"tokens?(?!i[sz])", re.IGNORECASE)
_ENDS_IN_TOKEN = re.compile(r"token$", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", re.IGNORECASE)

# With a colon the password may hold an unescaped slash; without, `host/package@tag` is harmless.
# The lone name before a database's host is its user; before other hosts it may be a token.
_USERINFO = re.compile(
    r"([a-z][a-z0-9+.-]*://)(?:(?<!sql://)(?<!psycopg://)[^\s/@:]+|[^\s/@:]*:[^\s@]+)@(?=[^\s@/])",
    re.IGNORECASE,
)
_SIGNED_QUERY = re.compile(
    r"(https?|s3|gs|abfss?|wasbs?)(://[^\s?]+)\?\S*"
    r"(?:signature|[?&]sig=|[?&]se=|credential|token|secret|key)[^\s]*",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    rf"""((?:--|\b)[\w.-]*{_SECRET}[\w.-]*["']?(?:\s*[=:]\s*|\s+))("[^"]*"|'[^']*'|[^\s,;&]+)""",
    re.IGNORECASE,
)
_KNOWN_FORMS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    # A digit: `sk-learn-long-documents` is a folder.
    r"|sk-(?=[\w-]*\d)[\w-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})"
)


def is_secret_name(name: str, value: Any = "") -> bool:
    """Whether a setting called `name` holds a secret. Counts of tokens are no secrets."""
    if not _SECRET_NAME.search(name):
        return False
    if _SECRET_NAME.search(_ONLY_TOKEN.sub("", name)) or _ENDS_IN_TOKEN.search(name):
        return True
    return not (isinstance(value, (int, float)) or _NUMBER.fullmatch(str(value).strip()))


def redact_text(text: str) -> str:
    """`text` without passwords in URLs, signed queries, `--token x`, well-known forms of keys, and
    the values of secrets in this process's environment."""
    for value in _secrets_of_environment():
        text = text.replace(value, REDACTED)
    text = _USERINFO.sub(rf"\1{REDACTED}@", text)
    text = _SIGNED_QUERY.sub(rf"\1\2?{REDACTED}", text)
    text = _KNOWN_FORMS.sub(REDACTED, text)
    return _ASSIGNMENT.sub(_redact_assignment, text)


def refuse_secrets(settings: Mapping[str, str]) -> None:
    """Raises `BadInput` for a setting whose text holds a secret: settings are a trial's identity,
    and are kept, shown and sent to MLflow as they are."""
    for name, text in settings.items():
        if redact_text(text) != text:
            raise BadInput(
                f"settings must hold no secrets, got {name}={redact_text(text)}; credentials "
                "belong into environment variables or the files of the service's own tools"
            )


def _secrets_of_environment() -> list[str]:
    """Longest first, so that no part of one is left; short ones would redact ordinary words."""
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and is_secret_name(name, value) and not os.path.exists(value)
    }
    return sorted(values, key=len, reverse=True)


def _redact_assignment(match: re.Match[str]) -> str:
    name = re.split(r"[\s=:\"']", match[1].lstrip("-"), maxsplit=1)[0]
    # Without a sign between them, `token counts` is a sentence and `--token counts` an option.
    plain_words = "=" not in match[1] and ":" not in match[1] and not match[1].startswith("--")
    if plain_words or not is_secret_name(name, match[2]):
        return match[0]
    return match[1] + REDACTED


def redact(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `values` with secrets replaced by `[redacted]`, also inside lists and mappings."""
    return {
        name: REDACTED if is_secret_name(name, value) else _redact_value(value)
        for name, value in values.items()
    }


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return redact({str(name): item for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        return [_redact_value(item) for item in value]
    return value
