"""The removal of secrets from everything that is stored or printed: what URLs and headers carry,
values whose name is that of a secret (`token`, `*_PASSWD`, `TOKEN_1`, ...), tokens in the form of
their issuers, and the secrets in this process's environment and its user's login files as they
are, and as repr, JSON, HTML, a URL and base64 write them."""

import base64
import configparser
import html
import json
import netrc
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
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
# Between the separators of a variable's name, whatever follows: HF_TOKEN_READ, SECRET_KEY_BASE.
_WORD = (
    "tokens?|secrets?|passwords?|passwd|passphrase|passcode|pass|pwd|pw|pat|jwt|salt|bearer|auth|cookies?"
    "|credentials?|webhook|(?:api|access|account|secret|private|signing|encryption)_?keys?"
)
_ANYWHERE = re.compile(rf"(?:^|[_.-])(?!(?<![_.-])pwd$)(?:{_WORD})(?=$|[_.-])", re.IGNORECASE)
_NUMBERED_KEY = re.compile(r"[_-]key(?:[_-]?v?\d+|[_-](?:prod|dev|test|live|old|new|id))?$", re.I)
_VARIABLE = re.compile("[A-Z][A-Z0-9_]*")
_NAME = re.compile(rf"{_SECRET}$", re.IGNORECASE)
# A value in quotes, also in those of a JSON text within another text, or up to a separator.
_VALUE = (
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?P<q>\\+["'])(?:(?!(?P=q)).)*(?P=q)|[^\s,;&]+)"""
)
_ASSIGNMENT = re.compile(
    rf"""((?:{_SECRET}\\*["']?\s*[=:]|\b(?:pwd|pass|pw)\s*=(?!\s*["']?[/~.])"""
    rf"""|["'](?:pwd|pass|pw|pat|jwt|salt)\\*["']\s*:"""
    rf"""|(?-i:\b(?!PWD\b)(?:[A-Z0-9]+_){{0,9}}(?:{_WORD.upper()})(?:_[A-Z0-9]+){{0,6}}+)\\*["']?\s*[=:]"""
    r"""|(?-i:\b[A-Z0-9_]{1,80}_KEY_[A-Z0-9]{1,9})\\*["']?\s*[=:]"""
    rf"""|(?<![\w-])--[\w-]*{_SECRET}\s)\s*)"""
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
_FORMS = (  # as their issuers write them; https://github.com/gitleaks/gitleaks has more
    r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gl[a-z]{2,5}-[\w-]{20,}",
    r"sk-(?=[\w-]*\d)[\w-]{20,}|[srp]k_(?:live|test)_[A-Za-z0-9]{10,}|gsk_[A-Za-z0-9]{20,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}",
    r"xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{50,}|dckr_pat_[\w-]{20,}",
    r"hvs\.[\w-]{20,}|dop_v1_[a-f0-9]{60,}|dapi[a-f0-9]{32}|nvapi-[\w-]{40,}|SG\.[\w-]{16,}\.[\w-]{16,}",
    r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*",
)
_ISSUED = re.compile(rf"(?<![A-Za-z0-9_-])()(?:{'|'.join(_FORMS)})")
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:(?!-----END)[^\0]){1,20000}", re.IGNORECASE
)
_KEY_OF_ADDRESS = re.compile(r"https?://([\w-]{12,})@")  # of a DSN
# Beside each pattern words, in small letters, without which a text has nothing of it: to look for
# them takes a hundredth of the time.
_PATTERNS = (
    (("authorization", "cookie"), _HEADER),
    (("bearer", "basic"), _BEARER),
    (("private key",), _PEM),
    (
        (
            *(
                "hf_",
                "api_org_",
                "gh",
                "github_",
                "gl",
                "sk-",
                "k_live_",
                "k_test_",
                "gsk_",
                "akia",
                "asia",
            ),
            *("abia", "acca", "aiza", "ya29", "gocspx", "xox", "xapp-", "npm_", "pypi-", "dckr_"),
            *("hvs.", "dop_v1", "dapi", "nvapi-", "sg.", "eyj"),
        ),
        _ISSUED,
    ),
    (("sig", "credential", "key=", "code=", "auth=", "pass=", "pwd="), _PARAMETER),
    (("hook", "telegram"), _HOOK),
    (
        (
            *("token", "secret", "passw", "passphrase", "passcode", "cookie", "credential"),
            *("webhook", "key", "pwd", "pass", "pw", "pat", "auth", "signature", "jwt", "salt"),
            "bearer",
        ),
        _ASSIGNMENT,
    ),
)


def is_secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return bool(_NAME.search(name) or _ANYWHERE.search(name) or _NUMBERED_KEY.search(name))


def holds_a_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment holds a secret, by its name or in its value."""
    if is_secret_name(name):
        return not (re.search("tokens?", name, re.IGNORECASE) and value.isdecimal())
    return redact_text(value) != value


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
            if _is_secret_key(str(name)) and not isinstance(item, float)
            else _without(secrets, item)
            for name, item in value.items()
        }
    return [_without(secrets, item) for item in value] if isinstance(value, list | tuple) else value


def _is_secret_key(name: str) -> bool:
    """Of a mapping: settings such as `max_tokens` are none; a variable's name is read as such."""
    if _VARIABLE.fullmatch(name) and is_secret_name(name):
        return not name.endswith("TOKENS") or "_TOKENS" in name
    return bool(_NAME.search(name))


def _without_in_text(secrets: list[str], text: str) -> str:
    for secret in secrets if len(text) >= _SHORTEST else ():
        text = text.replace(secret, REDACTED)
    if ":/" in text and "@" in text:
        text = _ADDRESS.sub(rf"\1{REDACTED}@", text)
    small = text.lower()
    for words, pattern in _PATTERNS:
        if any(word in small for word in words):
            text = pattern.sub(rf"\1{REDACTED}", text)
    return text


def _secrets() -> list[str]:
    """Of this process's environment and its user's login files; to read them takes longer than to
    search a text for them."""
    return _secrets_of(tuple(os.environ.items()))


_MOST_LOGIN = 1 << 16  # bytes
_LOGIN_FILES = (
    *("~/.aws/credentials", "~/.docker/config.json", "~/.kaggle/kaggle.json", "~/.pypirc"),
    *("~/.config/gcloud/application_default_credentials.json", "~/.mlflow/credentials"),
    *("~/.databrickscfg", "~/.config/huggingface/token"),
)


def _login_files() -> Iterator[Path]:
    """Those of the services that ranksweep's libraries log in to, as they find them."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    hub = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    given = ("HF_TOKEN_PATH", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS")
    names = [os.environ[name] for name in given if os.environ.get(name)]
    for name in (*names, f"{hub}/token", f"{hub}/stored_tokens", *_LOGIN_FILES):
        with suppress(OSError, ValueError, RuntimeError):
            path = Path(name).expanduser()
            if path.is_file() and path.stat().st_size <= _MOST_LOGIN:
                yield path


def _of_logins() -> Iterator[str]:
    """The secrets in login files. What cannot be read as its service writes it has none."""
    for path in _login_files():
        with suppress(OSError, ValueError, RecursionError):
            text = path.read_text(encoding="utf-8", errors="replace")
            if path.name == "token":
                yield text.strip()
            elif path.suffix == ".json" or text.lstrip().startswith("{"):
                yield from _within(json.loads(text))
            else:
                with suppress(configparser.Error):
                    sections = configparser.ConfigParser(interpolation=None)
                    sections.read_string(text)
                    yield from _within({name: dict(own) for name, own in sections.items()})
    with suppress(OSError, netrc.NetrcParseError, RuntimeError, ValueError):
        for _, _, password in netrc.netrc().hosts.values():
            yield password or ""


def _within(value: Any, secret: bool = False) -> Iterator[str]:
    """The secrets of nested mappings: texts whose name is that of a secret."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            short = str(name).lower() in ("auth", "key", "hf_token", "pass")
            yield from _within(item, short or is_secret_name(str(name)))
    elif isinstance(value, list):
        for item in value:
            yield from _within(item, secret)
    elif isinstance(value, str) and secret:
        yield value


def _in_value(value: str) -> Iterator[str]:
    """The secrets in a variable that holds more than one thing: a connection string, an address, a
    service account in JSON."""
    for secret in _PASSWORD.findall(value):
        yield from (secret, unquote(secret))
    if value.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            yield from _within(json.loads(value))
    for found in _ASSIGNMENT.finditer(value):
        yield found[0][len(found[1]) :].strip("\"'")
    if key := _KEY_OF_ADDRESS.match(value):
        yield key[1]


@lru_cache(maxsize=1)
def _secrets_of(environment: tuple[tuple[str, str], ...]) -> list[str]:
    """Secrets and passwords within URLs in every form, the longest first so that no part remains;
    short ones would match ordinary words; paths are not secrets, and a number of tokens is none."""
    values = {
        value
        for name, value in environment
        if is_secret_name(name) and not ("token" in name.lower() and value.isdecimal())
    }
    values |= {secret for _, value in environment for secret in _in_value(value)}
    values |= {*_of_logins()}
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
