"""Secrets are told from ordinary words: passwords of URLs, and names."""

import pytest

from rank_core.errors import BadInput
from rank_core.secrets import REDACTED, redact, redact_text


@pytest.mark.parametrize(
    "name", "token hf_token accessToken client.secret DB_PASSWORD api_key api-key apiKey".split()
)
def test_a_secret_is_known_by_the_end_of_its_name(name):
    assert redact({name: "hunter2"}) == {name: REDACTED}
    assert redact({"outer": [{name: 123456}]}) == {"outer": [{name: REDACTED}]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunking.max_document_tokens", 1431),
        ("model.tokenizer_name", "bert-base-uncased"),
        ("key_blocks", 3),
        ("rank.trial_key", "maxp-seed1"),
    ],
)
def test_settings_of_a_ranker_are_no_secrets(name, value):
    assert redact({name: value}) == {name: value}


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@db:5432/mlflow",
        "postgresql://me:hun/hunter2@db/mlflow",
        "https://hunter2@host/path",
        "ftp:/me:hunter2@host/path",
        "redis://:hunter2@host/0",
        "python -m sweeps --hf-token hunter2",
        "HF_TOKEN=hunter2 python x.py",
        '{"password": "hunter2", "seed": 1}',
        "AccountName=a;AccountKey=hunter2/+==;EndpointSuffix=b",
    ],
)
def test_a_secret_in_a_text_is_replaced(text):
    shown = redact_text(f"before {text}\nafter")
    assert "hunter2" not in shown and REDACTED in shown
    assert shown.startswith("before ") and shown.endswith("\nafter")


@pytest.mark.parametrize(
    "text",
    [
        "https://host:5000/x?window=512&stride=256",
        "git@github.com:me/repo.git",
        "git+https://github.com/me/package@v1",
        "postgresql://mlflow@db:5432/mlflow",
        "models:/reranker@champion",
        "counts tokens of a chunk: 512",
        "chunking.max_document_tokens=512",
        "trial_key=abc key=3 monkey=4 keys: 12",
        "no password was given",
    ],
)
def test_texts_without_secrets_stay_as_they_are(text):
    assert redact_text(text) == text


def test_values_of_secret_variables_are_replaced_wherever_they_stand(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalr/hunter2")
    monkeypatch.setenv("SHORT_TOKEN", "on")
    monkeypatch.setenv("ANY_NAME", "http://me:hunter2-of-an-address@host/x")
    text = f"wJalr/hunter2 turned on in {tmp_path}; hunter2-of-an-address is wrong"
    assert redact_text(text) == f"{REDACTED} turned on in {tmp_path}; {REDACTED} is wrong"


def test_the_mean_of_a_measure_of_any_name_is_no_secret():
    assert redact({"first_stage": {"mine:score_of_key": 0.5, "mine:per_token": 0.25}}) == {
        "first_stage": {"mine:score_of_key": 0.5, "mine:per_token": 0.25}
    }


def test_the_message_of_bad_input_has_no_secret_even_of_a_word_that_is_cut():
    error = BadInput(f"got https://me:{'hunter2' * 50}@host/{'x' * 400}")
    assert "hunter2" not in str(error) and f"https://{REDACTED}@host/" in str(error)
