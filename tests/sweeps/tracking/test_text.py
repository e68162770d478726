import re

import pytest

from rank_core.errors import BadInput
from sweeps.tracking.names import metric_name, run_name
from sweeps.tracking.uri import check_tracking_uri

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


def test_a_run_is_named_by_its_cell_and_seed_in_twenty_characters():
    assert run_name("TopTwoP 96/48", 2) == "TopTwoP 96/48 #2"
    assert run_name("PARADE-Transformer 477/477", 1234) == "PARADE…477/477 #1234"


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
        ("", "a folder is not a tracking store"),
        ("mlruns", "a folder is not a tracking store"),
        ("./mlruns", "a folder is not a tracking store"),
        ("/abs/mlruns", "a folder is not a tracking store"),
        ("None", "a folder is not a tracking store"),
        ("file:./mlruns", "file stores"),
        ("file:///abs/mlruns", "file stores"),
        ("sqlite://mlflow.db", "three slashes"),
        ("sqlite:mlflow.db", "three slashes"),
        ("sqlite:///", "no file"),
        ("sqlite:///folder/", "no file"),
        ("sqlite:///:memory:", "memory"),
        ("http://", "needs a host"),
        ("http:///path", "needs a host"),
        ("http://host:port", "not a URL"),
        ("http://host:99999", "not a URL"),
        ("http://a b", "needs a host"),
        ("postgresql://db", "a host and a database"),
        ("postgresql:///mlflow", "a host and a database"),
        ("mysql://db/mlflow", "unknown kind 'mysql'"),
        ("databricks", "a folder is not a tracking store"),
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
