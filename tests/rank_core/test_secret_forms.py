"""A secret of the environment has no form in which it passes: names x forms x what surrounds it."""

import base64
import html
import json
import re
import time
from urllib.parse import quote, quote_plus

import pytest

from rank_core.errors import BadInput
from rank_core.secrets import REDACTED, holds_a_secret, is_secret_name, redact, redact_text

VALUES = {
    "plain": "hunter2-hunter2",
    "quotes": "hun'ter\"2\\back/slash+plus",
    "odd": "päss wörd&<hunter>%2 \t2",
    "lines": "-----BEGIN KEY-----\nhunter2hunter2\n-----END KEY-----\n",
}
NAMES = (
    "HF_TOKEN AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_ACCESS_KEY_ID DB_PASSWORD DB_PASSWD "
    "DB_PWD GITHUB_PAT AZURE_DEVOPS_EXT_PAT BOT_TOKENS API_TOKENS api_tokens SESSION_COOKIE "
    "COOKIES SERVICE_CREDENTIAL SERVICE_CREDENTIALS SSH_PASSPHRASE OPENAI_API_KEY API_KEYS "
    "client_secret CLIENT_SECRETS NPM_AUTH TLS_PRIVATE_KEY SLACK_WEBHOOK SLACK_WEBHOOK_URL"
).split()


def b64(text, before=""):
    return base64.b64encode((before + text).encode()).decode()


FORMS = {
    "as it is": str,
    "repr": repr,
    "repr of an error": lambda text: repr(OSError(f"refused: {text}")),
    "repr of bytes": lambda text: repr(text.encode()),
    "repr of repr": lambda text: repr(repr(text)),
    "JSON": json.dumps,
    "JSON in letters": lambda text: json.dumps({"a": text}, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps([text])),
    "percent": lambda text: quote(text, safe=""),
    "path of an address": quote,
    "form of an address": quote_plus,
    "small percent": lambda text: re.sub("%..", lambda hit: hit[0].lower(), quote(text, safe="")),
    "base64": b64,
    "base64 of a web address": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "user and password in base64": lambda text: b64(text, "me:"),
    "the same at another place": lambda text: b64(text, "user:"),
    "and the third": lambda text: b64(text, "you:"),
    "HTML": html.escape,
    "HTML of a template": lambda text: (
        html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    ),
}


def parts(text):
    """The runs of eight characters of a text, at their places."""
    return {text[at : at + 8] for at in range(len(text) - 7)}


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_of_a_usual_name_holds_a_secret(monkeypatch, name):
    monkeypatch.setenv(name, "hunter2-hunter2")
    assert is_secret_name(name)
    assert redact_text("got hunter2-hunter2 twice") == f"got {REDACTED} twice"
    assert redact({name: "x"}) == {name: REDACTED}
    for text in (f"{name}=x y", f'{{"{name}": "x"}}', json.dumps(json.dumps({name: "x"}))):
        assert REDACTED in redact_text(text) and "x" not in redact_text(text), text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", VALUES)
def test_no_form_of_a_secret_passes(monkeypatch, kind, form):
    monkeypatch.setenv("SERVICE_PASSWD", VALUES[kind])
    written = FORMS[form](VALUES[kind])
    shown = redact_text(f"before {written} after")
    assert shown.startswith("before ") and shown.endswith(" after") and REDACTED in shown
    # `refused: ` and `me:` are no secret; a sign or two of base64 may stay at its end.
    assert not parts(shown) & parts(written) - parts(repr(OSError("refused: ")))
    assert str(BadInput(f"got {written}")).count(REDACTED) >= 1
    assert redact({"a": [{"b": written}]})["a"][0]["b"] == redact_text(written)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer hunter2",
        "authorization: Basic aHVudGVyMg==hunter2",
        '{"Authorization": "Bearer hunter2", "a": 1}',
        "{'authorization': 'token hunter2'}",
        "Proxy-Authorization: Digest username=me, response=hunter2",
        "Cookie: theme=dark; session=hunter2",
        "Set-Cookie: session=hunter2; Path=/",
        "401 for the header Bearer hunter2hunter2hunter2",
        "https://account.blob.core.windows.net/c/f?sv=2022&sig=hunter2%2F&se=1",
        "https://bucket.s3.amazonaws.com/f?X-Amz-Credential=AKIAhunter2&X-Amz-Signature=hunter2",
        "https://storage.googleapis.com/b/f?X-Goog-Signature=hunter2",
        "https://host/api?code=hunter2&x=1",
        "https://hooks.slack.com/services/T0/B0/hunter2",
        "https://discord.com/api/webhooks/1/hunter2",
        "https://team.webhook.office.com/webhookb2/hunter2",
        "https://api.telegram.org/bot1:hunter2/sendMessage",
        "postgresql://me:p@hunter2@db/x",
        "Driver=x;UID=me;PWD=hunter2;Server=y",
        '{"password": "a\\"hunter2"}',
        '{"body": "{\\"password\\": \\"a, hunter2\\"}"}',
        "--db-passwd hunter2",
        "SLACK_WEBHOOK_URL=hunter2",
    ],
)
def test_what_a_header_or_an_address_carries_is_replaced(text):
    shown = redact_text(f"before {text}\nafter")
    assert "hunter2" not in shown and REDACTED in shown
    assert shown.startswith("before ") and shown.endswith("\nafter")
    assert redact_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "chunking.max_query_tokens=abc must be a whole number",
        "chunking.max_document_tokens=512,1024",
        "PWD=/home/me OLDPWD=/tmp cwd: pwd=~/x",
        "the path of a file; its pattern=*.txt",
        "a basic model, a bearer of news, the cookie jar",
        "https://host/x?sigma=3&keyword=a",
        "design=4 author: me; compat: 3",
        "signature of the call: rank(query, texts)",
    ],
)
def test_words_that_only_resemble_secrets_stay(text):
    assert redact_text(text) == text


def test_places_and_numbers_of_tokens_are_no_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setenv("OLDPWD", "/no/longer/there")
    monkeypatch.setenv("MAX_TOKENS", "100000000")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    text = f"100000000 in {tmp_path} and /no/longer/there"
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "http://" * 5000,
        "cookie" * 6000,
        "TOKEN_" * 6000,
        "A_" * 20000,
        "eyJaaaaaaaaaa." * 3000,
        "a.token=" * 5000,
        "--" * 9000,
        "a-" * 20000 + "@ http://",
    ],
)
def test_a_long_hostile_text_takes_no_time(text):
    began = time.process_time()  # of this process: others may hold the processor
    redact_text(text)
    assert time.process_time() - began < 2


SUFFIXED = (
    "HF_TOKEN_READ AWS_SECRET_ACCESS_KEY_PROD TOKEN_1 API_TOKEN_V2 SECRET_KEY_BASE "
    "CLIENT_SECRET_ID DB_PASS MYSQL_PASS SMTP_PASS DB_PW APP_JWT PASSWORD_SALT BEARER "
    "DOCKER_AUTH_CONFIG AZURE_STORAGE_KEY_1 GITHUB_PAT_READ PGPASSWORD_FILE_PASS"
).split()


@pytest.mark.parametrize("name", SUFFIXED)
def test_the_word_counts_anywhere_between_separators(monkeypatch, name):
    monkeypatch.setenv(name, "hunter2-hunter2")
    assert is_secret_name(name) and holds_a_secret(name, "hunter2-hunter2")
    assert redact_text("got hunter2-hunter2 twice") == f"got {REDACTED} twice"
    assert redact({name: "x"}) == {name: REDACTED}
    monkeypatch.delenv(name)
    assert redact_text(f"with {name}=hunter2-hunter2") == f"with {name}={REDACTED}"


@pytest.mark.parametrize(
    "name",
    "PATH PWD OLDPWD XAUTHORITY TOKENIZERS_PARALLELISM KEYBOARD COMPASS AUTHOR BYPASS".split(),
)
def test_other_variables_hold_none(name):
    assert not is_secret_name(name)


def issued(*parts):
    """A token in an issuer's form, put together here so that no scanner takes it for one."""
    return "".join(parts)


TOKENS = [
    issued("hf", "_", "aB3" * 11),
    issued("ghp", "_", "aB3" * 12),
    issued("github", "_pat_", "aB3" * 12),
    issued("glpat", "-", "aB3" * 7),
    issued("sk", "-proj-", "aB3" * 12),
    issued("AKIA", "ABCDEFGH23456789"),
    issued("xoxb", "-1234-", "aB3" * 7),
    issued("AIza", "aB3_-" * 7),
    issued("npm", "_", "aB3" * 12),
    issued("eyJ", "aB3" * 6, ".eyJ", "aB3" * 6, ".", "aB3" * 6),
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["got {} twice", '{{"x": "{}"}}', "https://host/{}/y", "x={}"])
def test_a_token_is_known_by_its_issuers_form(token, around):
    assert redact_text(around.format(token)) == around.format(REDACTED)


def test_a_private_key_is_known_by_its_frame():
    key = issued(
        "-----BEGIN RSA PRIVATE", " KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
    )
    assert "MIIE" not in redact_text(key) and "IBAAKC" not in redact_text(json.dumps(key))


@pytest.mark.parametrize(
    "value",
    [
        "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=hunter2-hunter2==;Suffix=x",
        json.dumps({"type": "service_account", "private_key": "hunter2-hunter2"}),
        json.dumps({"auths": {"registry": {"auth": "hunter2-hunter2"}}}),
        "https://hunter2-hunter2@errors.example.org/1",
        "postgresql://me:hunter2-hunter2@db/x",
    ],
)
def test_a_secret_within_a_variable_is_seen_alone(monkeypatch, value):
    monkeypatch.setenv("STORE", value)
    assert "hunter2-hunter2" not in redact_text("refused: hunter2-hunter2==")
    assert holds_a_secret("STORE", value)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        (".cache/huggingface/token", "hunter2-hunter2\n"),
        (".cache/huggingface/stored_tokens", "[me]\nhf_token = hunter2-hunter2\n"),
        (".aws/credentials", "[default]\naws_secret_access_key = hunter2-hunter2\n"),
        (".docker/config.json", '{"auths": {"registry": {"auth": "hunter2-hunter2"}}}'),
        (".netrc", "machine host login me password hunter2-hunter2\n"),
        (".mlflow/credentials", "[mlflow]\nmlflow_tracking_password = hunter2-hunter2\n"),
    ],
)
def test_the_values_of_login_files_are_secrets(monkeypatch, tmp_path, place, content):
    for name in ("HF_HOME", "XDG_CACHE_HOME", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    file.chmod(0o600)
    assert redact_text("refused: hunter2-hunter2 (401)") == f"refused: {REDACTED} (401)"


@pytest.mark.parametrize("text", ['{"pwd": "hunter2"}', '{"pass": "hunter2"}', "pass=hunter2"])
def test_short_names_of_a_password_count(text):
    assert "hunter2" not in redact_text(text)
