"""The removal of secrets from everything that is stored or printed: what URLs and headers carry,
values whose name is that of a secret (`token`, `*_PASSWD`, `*_PAT`, ...), and the secrets in this
process's environment as they are, and as repr, JSON, HTML, a URL and base64 write them."""

import base64
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote

REDACTED = "[redacted]"
_SHORTEST = 8  # characters of a secret in the environment
# The key of a trial is none; `keys` and `max_document_tokens` do not end so.
_SECRET = (
    r"(?:token|secrets?|passwords?|passwd|passphrase|passcode|cookies?|credentials?|webhook(?:_?url)?"
    r"|(?:auth|access|api|bearer|refresh|session)[_-]?tokens|(?-i:[A-Z0-9]_TOKENS)"
    r"|(?:api|access|account|secret|private)[_-]?keys?|access[_-]?key[_-]?id|(?<!trial)[_-]key"
    r"|[_-](?:pwd|pat|auth|signature))"
)
_NAME = re.compile(rf"{_SECRET}$", re.IGNORECASE)
_OF_ENVIRONMENT = re.compile(rf"(?:{_SECRET}|_tokens)$", re.IGNORECASE)
# A value in quotes, also in those of a JSON text within another text, or up to a separator.
_VALUE = (
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?P<q>\\+["'])(?:(?!(?P=q)).)*(?P=q)|[^\s,;&]+)"""
)
_ASSIGNMENT = re.compile(
    rf"""((?:{_SECRET}\\*["']?\s*[=:]|\bpwd\s*=(?!\s*["']?[/~.])|(?<![\w-])--[\w-]*{_SECRET}\s)\s*)"""
    rf"""(?!\s|\[redacted\]){_VALUE}""",
    re.IGNORECASE,
)
# The rest of a line or of a quoted text: several words belong to the value.
_HEADER = re.compile(
    r"""(\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\\*["']?\s*[=:]\s*\\*["']?)"""
    r"""(?:(?:bearer|basic|token|apikey|negotiate)\s+[^\s"'\\,;]+|[^"'\\\r\n]+)""",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(\b(?:bearer|basic)\s+)(?=[\w.~+/=-]*\d|[\w.~+/=-]{20})[\w.~+/=-]{8,}", re.IGNORECASE
)
_PARAMETER = re.compile(  # of an address
    r"([?&](?:amp;)?(?:[\w-]*signature|sig|[\w-]*credential|key|code|auth|pass|pwd)=)[^\s&\"'<>#]+",
    re.IGNORECASE,
)
_HOOK = re.compile(  # an address that anyone who knows it may write to
    r"(https?://(?:hooks?\.[^\s/]+/|[^\s/]+\.webhook\.[^\s/]+/|[^\s/?]+/(?:[^\s/?]+/)*?webhooks?/"
    r"|api\.telegram\.org/bot))[^\s\"'<>\\]+",
    re.IGNORECASE,
)
# With a colon the password may hold an unescaped slash; without, `host/package@tag` is harmless.
# The lone name before a database's host is its user; before others perhaps a token.
_ADDRESS = re.compile(  # one slash: an address as `Path` has it, or `models:/name@alias`
    r"([a-z][a-z0-9+.-]{0,30}:/+)"
    r"(?:(?<=//)(?<!sql://)(?<!psycopg://)[^\s/@:]{1,4000}"
    r"|[^\s/@:]{0,4000}:[^\s@]{1,4000}(?:@[^\s/@:]{1,4000}(?=@))*)"
    r"@(?=[^\s@/])",
    re.IGNORECASE,
)
_PASSWORD = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s@]+(?:@[^\s/@:]+(?=@))*)@[^\s@/]", re.IGNORECASE
)
# Beside each pattern words, in small letters, without which a text has nothing of it: to look for
# them takes a hundredth of the time.
_PATTERNS = (
    (("authorization", "cookie"), _HEADER),
    (("bearer", "basic"), _BEARER),
    (("sig", "credential", "key=", "code=", "auth=", "pass=", "pwd="), _PARAMETER),
    (("hook", "telegram"), _HOOK),
    (
        (
            *("token", "secret", "passw", "passphrase", "passcode", "cookie", "credential"),
            *("webhook", "key", "pwd", "_pat", "-pat", "auth", "signature"),
        ),
        _ASSIGNMENT,
    ),
)


def is_secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return bool(_OF_ENVIRONMENT.search(name))


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
        return _without_in_text(secrets, value)
    if isinstance(value, Mapping):
        return {
            name: REDACTED
            if _NAME.search(str(name)) and not isinstance(item, float)
            else _without(secrets, item)
            for name, item in value.items()
        }
    return [_without(secrets, item) for item in value] if isinstance(value, list | tuple) else value


def _without_in_text(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    if ":/" in text and "@" in text:
        text = _ADDRESS.sub(rf"\1{REDACTED}@", text)
    small = text.lower()
    for words, pattern in _PATTERNS:
        if any(word in small for word in words):
            text = pattern.sub(rf"\1{REDACTED}", text)
    return text


def _secrets() -> list[str]:
    """Of this process's environment; to read it takes longer than to search a text for them."""
    return _secrets_of(tuple(os.environ.items()))


@lru_cache(maxsize=1)
def _secrets_of(environment: tuple[tuple[str, str], ...]) -> list[str]:
    """Secrets and passwords within URLs in every form, the longest first so that no part remains;
    short ones would match ordinary words; paths are not secrets, and a number of tokens is none."""
    values = {
        value
        for name, value in environment
        if is_secret_name(name) and not (name.lower().endswith("tokens") and value.isdecimal())
    }
    for _, value in environment:
        for secret in _PASSWORD.findall(value):
            values |= {secret, unquote(secret)}
    long = [value for value in values if len(value) >= _SHORTEST and not os.path.exists(value)]
    return sorted({form for value in long for form in _forms(value)}, key=len, reverse=True)


def _forms(secret: str) -> Iterator[str]:
    """The secret as the usual writers of text show it, also one within another."""
    texts = {secret}
    for _ in range(2):  # such as the repr of an error that quotes JSON
        texts |= {form for text in texts for form in _quoted(text)}
    yield from texts
    for text in {secret, secret.strip()}:
        yield from _in_an_address(text)
        yield from _in_base64(text.encode(errors="surrogateescape"))
    yield from {html.escape(secret), html.escape(secret).replace("&#x27;", "&#39;")}
    yield html.escape(secret).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


def _quoted(text: str) -> Iterator[str]:
    yield repr(text)[1:-1]
    yield repr("'" + text)[2:-1]  # in a text whose own quotes make repr use the others
    yield repr("'\"" + text)[4:-1]
    yield repr(text.encode(errors="surrogateescape"))[2:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _in_an_address(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogateescape")
    for safe in ("", "/", "/:@!$&'()*+,;=~"):
        for form in (quote(data, safe=safe), quote_plus(data, safe=safe)):
            yield form
            yield re.sub("%..", lambda found: found[0].lower(), form)


def _in_base64(data: bytes) -> Iterator[str]:
    """The secret alone, and what a longer text that holds it, such as `user:password`, shows of it
    at each of the three places that it may begin."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        # Base64 writes three bytes as four characters: what is before the secret shifts it to one
        # of three places, and shares characters with its ends.
        for before, skipped in ((0, 0), (1, 2), (2, 3)):
            text = encode(bytes(before) + data).decode()
            yield text[skipped : (before + len(data)) * 8 // 6]
