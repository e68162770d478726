"""The removal of secrets from everything that is stored: params, tags, messages."""

import os
import re
from collections.abc import Mapping
from typing import Any

from rank_core.errors import BadInput

REDACTED = "[redacted]"
_SHORTEST = 8  # characters of a secret in the environment

_SECRET = (
    r"(?:token(?!i[sz])|secret|passwor[dt]|passwd|passphrase|credential|webhook|connection[_-]?string"
    r"|(?:api|access|account|private|encryption|signing|master)[_-]?key"
    # Not `passages`, `bypass` or `pass_rate`.
    r"|(?<![a-z])pass(?!\w)|pwd(?!\w)|(?<![a-z])dsn(?!\w)|database[_-]?ur[il](?!\w))"
)
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
# `max_document_tokens` is a size; `hf_token`, `accessToken` and `tokens: [..]` are secrets.
_ONLY_TOKEN = re.compile(r"tokens?(?!i[sz])", re.IGNORECASE)
_ENDS_IN_TOKEN = re.compile(r"token$", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"""((?:--|\b)[\w.-]*{_SECRET}[\w.-]*["']?(?:\s*[=:]\s*|\s+))("[^"]*"|'[^']*'|[^\s,;&]+)""",
    re.IGNORECASE,
)

_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s@]+)@[^\s@/]", re.IGNORECASE)

FORMS: dict[str, tuple[str, str]] = {
    "a private key in PEM, also a truncated one": (
        r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----(?s:.*?)(?:-----END \1-----|\Z)",
        REDACTED,
    ),
    # With a colon the password may hold an unescaped slash; without, `host/package@tag` is
    # harmless. The lone name before a database's host is its user; before others perhaps a token.
    "user and password of an address": (
        r"(?i)([a-z][a-z0-9+.-]*://)"
        r"(?:(?<!sql://)(?<!psycopg://)[^\s/@:]+|[^\s/@:]*:[^\s@]+)@(?=[^\s@/])",
        rf"\1{REDACTED}@",
    ),
    "a signed address": (
        r"(?i)(https?|s3|gs|abfss?|wasbs?)(://[^\s?]+)\?\S*"
        r"(?:signature|[?&]sig=|[?&]se=|credential|token|secret|key)[^\s]*",
        rf"\1\2?{REDACTED}",
    ),
    "a signature outside an address": (r"\bsig=(?=[^\s&]*\d)[^\s&]{16,}", f"sig={REDACTED}"),
    "a webhook": (
        r"(?i)(https://(?:hooks\.slack\.com/[a-z]+|[^\s/]+(?:/[^\s/]+)*?/webhook\w*)/)[^\s\"']+",
        rf"\1{REDACTED}",
    ),
    "an Authorization header": (
        r"(?i)(\bauthorization[\"']?\s*[=:]\s*[\"']?)(?:(?:bearer|basic|token|digest)\s+)?[^\s\"',]+",
        rf"\1{REDACTED}",
    ),
    "a bearer token": (r"(?i)\b(bearer\s+)(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}", rf"\1{REDACTED}"),
    "a JSON web token": (r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", REDACTED),
    "Hugging Face": (r"\bhf_[A-Za-z0-9]{20,}", REDACTED),
    "GitHub": (r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})", REDACTED),
    "GitLab": (r"\bglpat-[\w-]{16,}", REDACTED),
    # A digit: `sk-learn-long-documents` is a folder.
    "OpenAI and its like": (r"\bsk-(?=[\w-]*\d)[\w-]{20,}", REDACTED),
    "AWS": (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}", REDACTED),
    "Slack": (r"\bxox[abprs]-[\w-]{10,}", REDACTED),
    "Google": (r"\bAIza[\w-]{35}", REDACTED),
    "npm": (r"\bnpm_[A-Za-z0-9]{36}", REDACTED),
    "Databricks": (r"\bdapi[0-9a-f]{32}", REDACTED),
}
"""{kind of secret: (pattern, replacement)}, applied in this order."""


def is_secret_name(name: str, value: Any = "") -> bool:
    """True if a setting called `name` holds a secret; false for counts of tokens, the working
    directory (`PWD`), `pass=3` and a database without a password."""
    match, text = _SECRET_NAME.search(name), str(value).strip("\"' ")
    if not match:
        return False
    kind = match[0].lower()
    if kind == "pwd" and text.startswith(("/", "~", ".")):
        return False
    if kind.startswith("database"):
        return "@" in text or "=" in text
    if name.lower() == "pass" and _NUMBER.fullmatch(text):
        return False
    if _SECRET_NAME.search(_ONLY_TOKEN.sub("", name)) or _ENDS_IN_TOKEN.search(name):
        return True
    return not _NUMBER.fullmatch(text)


def redact_text(text: str) -> str:
    """The text without what matches `FORMS`, without assignments such as `--token x`, and without
    the secrets in this process's environment."""
    for value in _secrets_of_environment():
        text = text.replace(value, REDACTED)
    for pattern, instead in FORMS.values():
        text = re.sub(pattern, instead, text)
    return _ASSIGNMENT.sub(_redact_assignment, text)


def refuse_secrets(settings: Mapping[str, str]) -> None:
    """Raises `BadInput` for a setting that holds a secret: settings identify a trial, and are
    stored, shown and sent to MLflow unchanged."""
    for name, text in settings.items():
        if redact_text(text) != text:
            raise BadInput(
                f"settings must hold no secrets, got {name}={redact_text(text)}; credentials "
                "belong in environment variables or the service's own credential files"
            )


def _secrets_of_environment() -> list[str]:
    """Secrets and passwords within URLs, the longest first so that no part remains; without short
    ones, which would match ordinary words."""
    values = {value for name, value in os.environ.items() if is_secret_name(name, value)}
    values |= set(_PASSWORD.findall("\n".join(os.environ.values())))
    long = [value for value in values if len(value) >= _SHORTEST and not os.path.exists(value)]
    return sorted(long, key=len, reverse=True)


def _redact_assignment(match: re.Match[str]) -> str:
    name = re.split(r"[\s=:\"']", match[1].lstrip("-"), maxsplit=1)[0]
    # Without a sign between them, `token counts` is a sentence and `--token counts` an option.
    plain_words = "=" not in match[1] and ":" not in match[1] and not match[1].startswith("--")
    plain_words |= re.fullmatch(r"pass\s*:\s*", match[1]) is not None  # `second pass: done`
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
