"""Names and addresses for MLflow."""

import re

import pytest

from rank_core.errors import BadInput
from sweeps.tracking.client import check_tracking_uri, shown_name
from sweeps.tracking.trial_run import experiment_id, metric_name, run_name

MEASURES = """
nDCG nDCG@10 nDCG@100 nDCG(dcg='exp-log2')@10 nDCG(dcg='log2')@10 nDCG(judged_only=True)@10
RR RR@10 RR(rel=2)@10 RR(rel=2) R@10 R@100 R(rel=2)@100 R(rel=2)@10 AP AP@100 AP(rel=2) AP(rel=2)@10
P@1 P@10 P(rel=2)@10 P(rel=2,judged_only=True)@10 Judged@20 Judged@10 Rprec Rprec(rel=2)
Success@5 Success(rel=2)@5 Bpref Bpref(rel=2) RBP(p=0.8) RBP(p=0.85) RBP(rel=1) ERR@10 Accuracy@10
alpha_nDCG@20 alpha_DCG@20 alpha_nDCG(alpha=0.3)@20 SetF(beta=0.5) SetF SetP SetR SetAP infAP
P_IA@10 AP_IA ERR_IA@10 IPrec@0.1 IPrec@0.2 NumQ NumRel NumRet NumRet(rel=1) INST(T=0.5,max_rel=1)
INST(T=1.0,max_rel=1) INSQ(T=1.0,max_rel=1) BPM(T=1.0,max_rel=4)@10 SDCG(max_rel=2)@10
Compat(p=0.95) NERR8(max_rel=2)@10 NERR9(max_rel=2)@10 StRecall@5 NRBP nNRBP nERR_IA@10
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
        ("MRR@10", "recip_rank_10"),
        ("R(rel=2)@100", "recall_100_rel2"),
        ("P(judged_only=True, rel=2)@10", metric_name("P(rel=2,judged_only=True)@10")),
    ],
)
def test_measures_have_the_names_of_trec_eval(measure, name):
    assert metric_name(measure) == name


def test_runs_and_experiments_are_named_for_the_widths_of_mlflows_columns():
    assert run_name("TopTwoP 96/48", 2) == "TopTwoP 96/48 #2"
    assert run_name("PARADE-Transformer 477/477", 1234) == "PARADE…477/477 #1234"
    full = experiment_id("", "window_stride/python-docs", "0a1b2c")
    assert (full, shown_name(full)) == (
        "window_stride-python-docs-0a1b2c",
        "window_stride-python-docs",
    )
    assert experiment_id("team/a", "ws/woods", "0a1b2c") == "team/a/ws-woods-0a1b2c"


@pytest.mark.parametrize(
    "uri",
    [
        "none",
        "sqlite:///mlflow.db",
        "sqlite:////abs/mlflow.db",
        "http://127.0.0.1:5000",
        "https://user:pw@mlflow.example.org/prefix",
        "postgresql://me:pw@db:5432/mlflow",
        "postgresql+psycopg://db/mlflow",
    ],
)
def test_tracking_uris_that_can_work_pass(uri):
    check_tracking_uri(uri)


REFUSED = """
mlruns ./mlruns /abs/mlruns None databricks file:./mlruns file:///abs/mlruns sqlite://mlflow.db
sqlite:mlflow.db sqlite:/// sqlite:///folder/ sqlite:///:memory: sqlite:///file:/x.db?uri=true http://
http:///path http://host:port postgresql://db postgresql:///mlflow localhost:5000
mysql://me:hunter2@db/mlflow postgresql+nosuchdriver://me:hunter2@db/mlflow
"""


@pytest.mark.parametrize("uri", ["", "http://a b", *REFUSED.split()])
def test_tracking_uris_that_cannot_work_are_refused_without_their_password(uri):
    with pytest.raises(BadInput) as caught:
        check_tracking_uri(uri)
    assert "hunter2" not in str(caught.value)
