import re

import pytest

from rank_core.errors import BadInput
from sweeps.plan.secrets import (
    REDACTED,
    is_secret_name,
    redact,
    redact_text,
    refuse_secrets,
)
from sweeps.tracking.names import metric_name, run_name
from sweeps.tracking.uri import check_tracking_uri

MEASURES = """
nDCG nDCG@10 nDCG@100 nDCG(dcg='exp-log2')@10 nDCG(dcg='log2')@10 nDCG(judged_only=True)@10
RR RR@10 RR(rel=2)@10 RR(rel=2) R@10 R@100 R(rel=2)@100 R(rel=2)@10 AP AP@100 AP(rel=2) AP(rel=2)@10
P@1 P@10 P(rel=2)@10 P(rel=2,judged_only=True)@10 Judged@20 Judged@10 Rprec Rprec(rel=2)
Success@5 Success(rel=2)@5 Bpref Bpref(rel=2) RBP(p=0.8) RBP(p=0.85) RBP(rel=1) ERR@10 Accuracy@10
alpha_nDCG@20 alpha_DCG@20 alpha_nDCG(alpha=0.3)@20 SetF(beta=0.5) SetF SetP SetR SetAP infAP
P_IA@10 AP_IA ERR_IA@10 IPrec@0.1 IPrec@0.2 NumQ NumRel NumRet NumRet(rel=1) INST(T=0.5) INST(T=1.0)
INSQ(T=1.0) BPM(T=1,max_rel=4) SDCG@10 Compat(p=0.95) NERR8@10 NERR9@10 StRecall@5 NRBP nNRBP
nERR_IA@10
""".split()


def test_every_measure_has_a_legal_name_of_its_own():
    names = {measure: metric_name(measure) for measure in MEASURES}
    # Case must not be what tells two names apart: some databases compare without it.
    assert len({name.lower() for name in names.values()}) == len(MEASURES)
    assert [name for name in names.values() if not re.fullmatch(r"[\w\-./: ]+", name)] == []


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        ("nDCG@10", "ndcg_cut_10"),
        ("RR", "recip_rank"),
        ("RR@10", "recip_rank_10"),
        ("R(rel=2)@100", "recall_100_rel2"),
        ("AP(rel=2)", "map_rel2"),
        ("P(rel=2)@10", "p_10_rel2"),
        ("Judged@20", "judged_20"),
    ],
)
def test_measures_have_the_names_of_trec_eval(measure, name):
    assert metric_name(measure) == name


def test_spellings_of_one_measure_share_a_name():
    assert metric_name("MRR@10") == metric_name("RR@10")
    assert metric_name("P(judged_only=True, rel=2)@10") == metric_name(
        "P(rel=2,judged_only=True)@10"
    )


@pytest.mark.parametrize("measure", ["nDGC@10", "", "nDCG@", "nDCG(gain=)@10", "nDCG(foo=3)@10"])
def test_what_is_no_measure_is_refused(measure):
    with pytest.raises(BadInput, match="measure"):
        metric_name(measure)


def test_run_names_keep_the_seed_within_twenty_characters():
    assert run_name(["512/256", 3e-05], 97) == "512/256 3e-05 #97"
    long = run_name(["first-last-sampled", 3e-05, "parade-transformer"], 1234)
    assert len(long) == 20 and long.endswith("… #1234")
    assert run_name([], 3) == "#3"


@pytest.mark.parametrize(
    "name",
    "token hf_token accessToken secret client.secret password DB_PASSWORD credentials api_key "
    "api-key aws_access_key_id apiKey".split(),
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


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@db:5432/mlflow",
        "postgresql://me:hun/hunter2@db/mlflow",
        "https://hunter2@host/path",
        "postgresql+psycopg://me:hunter2@db/mlflow",
        "redis://:hunter2@host/0",
        "see https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=hunter2 there",
        "https://a.blob.core.windows.net/c/x?sv=1&sig=hunter2",
        "python -m sweeps --hf-token hunter2",
        "HF_TOKEN=hunter2 python x.py",
        '{"password": "hunter2", "seed": 1}',
        "token hf_hunter2hunter2hunter2hunter2",
        "key sk-proj-hunter2hunter2hunter2",
        "refused: AKIAHUNTER2HUNTER200 at 1:2",
    ],
)
def test_secrets_inside_texts_are_replaced(text):
    assert "hunter2" not in redact_text(text).lower()
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
    ],
)
def test_texts_without_secrets_stay_as_they_are(text):
    assert redact_text(text) == text


def test_values_of_secret_variables_are_replaced_wherever_they_stand(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalr/hunter2")
    monkeypatch.setenv("SERVICE_TOKEN_FILE", str(tmp_path))
    monkeypatch.setenv("SHORT_TOKEN", "on")
    text = f"AccessDenied: wJalr/hunter2 turned on in {tmp_path}"
    assert redact_text(text) == f"AccessDenied: {REDACTED} turned on in {tmp_path}"


def test_a_secret_in_a_setting_is_refused_without_showing_it():
    refuse_secrets({"collection": "woods", "chat.base_url": "http://127.0.0.1:8000/v1"})
    with pytest.raises(BadInput, match=r"chat.base_url=https://\[redacted\]@host") as refused:
        refuse_secrets({"chat.base_url": "https://me:hunter2@host/v1"})
    assert "hunter2" not in str(refused.value) and "environment" in str(refused.value)


@pytest.mark.parametrize(
    "uri",
    [
        "none",
        "sqlite:///mlflow.db",
        "sqlite:////abs/mlflow.db",
        "http://127.0.0.1:5000",
        "https://mlflow.example.org",
        "https://user:pw@mlflow.example.org/prefix",
        "postgresql://me:pw@db:5432/mlflow",
        "postgresql+psycopg://db/mlflow",
    ],
)
def test_tracking_uris_that_can_work_pass(uri):
    check_tracking_uri(uri)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "a folder is no tracking store"),
        ("mlruns", "a folder is no tracking store"),
        ("./mlruns", "a folder is no tracking store"),
        ("/abs/mlruns", "a folder is no tracking store"),
        ("None", "a folder is no tracking store"),
        ("file:./mlruns", "file stores"),
        ("file:///abs/mlruns", "file stores"),
        ("sqlite://mlflow.db", "three slashes"),
        ("sqlite:mlflow.db", "three slashes"),
        ("sqlite:///", "no file"),
        ("sqlite:///folder/", "no file"),
        ("sqlite:///:memory:", "memory"),
        ("http://", "needs a host"),
        ("http:///path", "needs a host"),
        ("http://host:port", "no URL"),
        ("http://host:99999", "no URL"),
        ("http://a b", "needs a host"),
        ("postgresql://db", "a host and a database"),
        ("postgresql:///mlflow", "a host and a database"),
        ("mysql://db/mlflow", "unknown kind 'mysql'"),
        ("databricks", "a folder is no tracking store"),
        ("localhost:5000", "unknown kind 'localhost'"),
    ],
)
def test_tracking_uris_that_cannot_work_are_refused_with_the_choices(uri, reason):
    with pytest.raises(BadInput, match=reason) as caught:
        check_tracking_uri(uri)
    assert "sqlite:///FILE" in str(caught.value)


def test_a_database_whose_driver_is_missing_is_refused_with_the_remedy():
    with pytest.raises(BadInput, match=r"package nosuchdriver.*pip install 'ranksweep\[tracking"):
        check_tracking_uri("postgresql+nosuchdriver://me:hunter2@db/mlflow")


def test_a_refused_uri_does_not_print_its_password():
    with pytest.raises(BadInput) as caught:
        check_tracking_uri("mysql://me:hunter2@db/mlflow")
    assert "hunter2" not in str(caught.value)
