"""Secrets are told from ordinary words, by their names and by their forms."""

import re

import pytest

from rank_core.errors import BadInput
from sweeps.plan.secrets import FORMS, REDACTED, is_secret_name, redact, redact_text, refuse_secrets

HUNTER = "hunter2hunter2hunter2hunter2hunter2"  # 35 letters and digits
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{HUNTER}\n{HUNTER}=\n"

EXAMPLES = {
    "a private key in PEM, also a truncated one": [
        f"no key in {PEM}-----END RSA PRIVATE KEY-----",
        f"no key in {PEM}",
        f"-----BEGIN PRIVATE KEY-----\\n{HUNTER}\\n-----END PRIVATE KEY-----",
    ],
    "user and password of an address": [
        "postgresql://me:hunter2@db:5432/mlflow",
        "postgresql://me:hun/hunter2@db/mlflow",
        "https://hunter2@host/path",
        "postgresql+psycopg://me:hunter2@db/mlflow",
        "redis://:hunter2@host/0",
    ],
    "a signed address": [
        "see https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=hunter2 there",
        "https://a.blob.core.windows.net/c/x?sv=1&sig=hunter2",
    ],
    "a signature outside an address": ["sv=1&sig=hunter2hunter2%2Bx%3D&se=2", f"sig={HUNTER}="],
    "a webhook": [
        "POST https://hooks.slack.com/services/T01/B02/hunter2: 404",
        "https://discord.com/api/webhooks/123/hunter2",
        "https://acme.webhook.office.com/webhookb2/hunter2",
    ],
    "an Authorization header": [
        "Authorization: Bearer hunter2",
        "{'Authorization': 'Basic hunter2=='}",
        '{"authorization":"token hunter2"}',
        "curl -H Authorization:hunter2",
    ],
    "a bearer token": [f"401 for bearer {HUNTER}"],
    "a JSON web token": ["sent eyJhunter2hunter2.hunter2hunter2.hunter2"],
    "Hugging Face": ["token hf_hunter2hunter2hunter2hunter2"],
    "GitHub": ["ghp_hunter2hunter2hunter2", "github_pat_hunter2hunter2hunter2"],
    "GitLab": ["glpat-hunter2hunter2hunter2"],
    "OpenAI and its like": ["key sk-proj-hunter2hunter2hunter2"],
    "AWS": ["refused: AKIAHUNTER2HUNTER200 at 1:2"],
    "Slack": ["xoxb-1234567890-hunter2"],
    "Google": [f"?key is AIza{HUNTER}"],
    "npm": [f"npm_{HUNTER}2"],
    "Databricks": ["dapi0123456789abcdef0123456789abcdef"],
}
NAMED = [
    "python -m sweeps --hf-token hunter2",
    "HF_TOKEN=hunter2 python x.py",
    '{"password": "hunter2", "seed": 1}',
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2/+==;EndpointSuffix=b",
    "Server=db;Uid=me;Pwd=hunter2;",
    "MYSQL_PWD=hunter2 mysql",
    "DB_PASS=hunter2",
    "PASS=hunter2",
    "smtp_pass: hunter2",
    "{'pass': 'hunter2'}",
    "DATABASE_URL=postgres://me:hunter2@db/x",
    "SLACK_WEBHOOK=hunter2",
    "ENCRYPTION_KEY: hunter2",
    "SENTRY_DSN=hunter2",
]


@pytest.mark.parametrize(
    "name",
    "token hf_token accessToken secret client.secret password DB_PASSWORD credentials api_key "
    "api-key aws_access_key_id apiKey DB_PASS PASS MYSQL_PWD pwd AccountKey ENCRYPTION_KEY "
    "SLACK_WEBHOOK sentry_dsn AZURE_STORAGE_CONNECTION_STRING".split(),
)
def test_a_secret_is_known_by_its_name(name):
    assert redact({name: "hunter2"}) == {name: REDACTED}
    assert redact({"outer": {name: ["hunter2"]}}) == {"outer": {name: REDACTED}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunking.max_document_tokens", 1431),
        ("evaluation.batch_tokens", "8192"),
        ("tokenizer", "bert-base-uncased"),
        ("model.tokenizer_name", "x"),
        ("seed", 1),
        ("training.schedule", "linear"),
        ("key_blocks", 3),
        ("training.passage_keep", 0.5),
        ("pass", 2),
        ("pass_rate", 0.5),
        ("compass", "north"),
        ("PWD", "/home/me"),
        ("OLDPWD", "/home/me/gone"),
        ("DATABASE_URL", "sqlite:///mlflow.db"),
    ],
)
def test_settings_of_a_ranker_are_no_secrets(name, value):
    assert not is_secret_name(name, value)
    assert redact({name: value}) == {name: value}


def test_a_number_called_password_is_still_a_secret():
    assert redact({"password": 123456, "token": "123456"}) == {
        "password": REDACTED,
        "token": REDACTED,
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_replaced(form):
    pattern, instead = FORMS[form]
    for text in EXAMPLES[form]:
        assert re.sub(pattern, instead, text) != text
        shown = redact_text(f"before {text}\nafter")
        assert not re.search("hunter2|dapi", shown, re.IGNORECASE)
        assert shown.startswith("before ") and REDACTED in shown


@pytest.mark.parametrize("text", NAMED)
def test_a_secret_with_its_name_is_replaced(text):
    assert "hunter2" not in redact_text(text)
    assert REDACTED in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://host:5000/x?window=512&stride=256",
        "git@github.com:me/repo.git",
        "counts tokens of a chunk: 512",
        "chunking.max_document_tokens=512",
        "a@b and http://host/a",
        "git+https://github.com/me/package@v1",
        "/data/sk-learn-long-documents",
        "https://host/package@v1",
        "postgresql://mlflow@db:5432/mlflow",
        "the second pass: done, the first pass: 3.2 s, pass=2",
        "chunking.passages=5, pass_rate=0.5, bypass=1, pass the flag",
        "PWD=/home/me OLDPWD=~/work",
        "DATABASE_URL=sqlite:///mlflow.db",
        "a bearer of news, bearer tokens, Bearer authentication",
        "sig=0.05 (two-sided), sig=significance_of_the_test",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "https://docs.slack.dev/webhooks and https://host/webhooks.html",
        "npm_config_cache, AIza, dapi",
        "trial_key=abc key=3 monkey=4 keys: 12",
        "authorization failed",
        "no password was given",
    ],
)
def test_texts_without_secrets_stay_as_they_are(text):
    assert redact_text(text) == text


def test_values_of_secret_variables_are_replaced_wherever_they_stand(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalr/hunter2")
    monkeypatch.setenv("SERVICE_TOKEN_FILE", str(tmp_path))
    monkeypatch.setenv("SHORT_TOKEN", "on")
    monkeypatch.setenv("ANY_NAME", "http://me:hunter2-of-an-address@host/x")
    text = f"AccessDenied: wJalr/hunter2 turned on in {tmp_path}; hunter2-of-an-address is wrong"
    assert redact_text(text) == (
        f"AccessDenied: {REDACTED} turned on in {tmp_path}; {REDACTED} is wrong"
    )


def test_a_secret_in_a_setting_is_refused_without_showing_it():
    refuse_secrets({"collection": "woods", "chat.base_url": "http://127.0.0.1:8000/v1"})
    with pytest.raises(BadInput, match=r"chat.base_url=https://\[redacted\]@host") as refused:
        refuse_secrets({"chat.base_url": "https://me:hunter2@host/v1"})
    assert "hunter2" not in str(refused.value) and "environment" in str(refused.value)
