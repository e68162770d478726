"""`ranksweep measure`: the measures of one run, by hand."""

import re

import pytest

from sweeps.__main__ import main

RUN = "q1 Q0 a 1 3.0 x\nq1 Q0 b 2 2.0 x\nq2 Q0 c 1 9.0 x\nq4 Q0 a 1 1.0 x\n"
QRELS = "q1 0 b 2\nq2 0 c 1\nq3 0 a 1\n"  # q3 is not ranked, q4 not judged
OWN = """
def place(grades, ranked):
    places = [place for place, doc in enumerate(ranked, 1) if grades.get(doc, 0) > 0]
    return 1 / places[0] if places else 0.0

def broken(grades, ranked):
    return 1 / 0
"""


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    texts = {"a.run": RUN, "q.qrels": QRELS, "other.qrels": "q1 0 z 1\n", "t2_measures.py": OWN}
    for name, text in (texts | {"v.csv": "query_id,measure,value\nq1,RR,1.0\n"}).items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_means_intervals_and_values_of_each_query(files, capsys):
    words = ["--qrels", "q.qrels", "--measures", "RR@10", "P@1", "--per-query", "v.csv"]
    assert main(["measure", "a.run", *words]) == 0
    out = capsys.readouterr().out
    assert "a.run: 3 judged queries" in out
    assert re.search(r"^RR@10 +0\.5000 +\[-0\.7421, 1\.7421\]$", out, re.M)  # .5, 1, 0: t 4.303
    assert re.search(r"^P@1 +0\.3333 ", out, re.M)
    assert "Judged queries without a result, counted as 0: 1." in out
    assert "Ranked queries without a judgment, excluded: 1." in out
    assert (files / "v.csv").read_text().splitlines()[:3] == [
        "query_id,measure,value", "q1,P@1,0.0", "q2,P@1,1.0"
    ]  # fmt: skip


def test_a_function_of_the_user_is_a_measure(capsys):
    words = ["--qrels", "q.qrels", "--measures", "RR", "t2_measures:place"]
    assert main(["measure", "a.run", *words]) == 0
    rows = dict(re.findall(r"^(\S+) +(\S+ +\[.*\])$", capsys.readouterr().out, re.M))
    assert rows["t2_measures:place"].split() == rows["RR"].split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.run", "--qrels", "q.qrels"], "none.run"),
        (["a.run", "--qrels", "q.qrels", "--measures", "NDGC@10"], "did you mean nDCG@10"),
        (["a.run", "--qrels", "q.qrels", "--measures", "t2_measures:plac"], "did you mean place"),
        (["a.run", "--qrels", "q.qrels", "--measures", "t2_measures:broken"], "py:7: ZeroDivision"),
        (["v.csv", "--qrels", "q.qrels"], "it has values of measures"),
        (["a.run", "--qrels", "other.qrels"], "no document of the run is judged"),
        (["a.run", "--qrels", "q.qrels", "--per-query", "v.parquet"], "must be a file .csv"),
    ],
)
def test_bad_input_is_named(words, message, capsys):
    assert main(["measure", *words]) == 2
    assert message in capsys.readouterr().err
