"""`ranksweep measure`: the measures of one run, by hand."""

import re
from errno import ENOSPC
from pathlib import Path

import pandas as pd
import pytest

from sweeps.__main__ import main
from sweeps.report.comparison import compare_runs

RUN = "q1 Q0 a 1 3.0 x\nq1 Q0 b 2 2.0 x\nq2 Q0 c 1 9.0 x\nq4 Q0 a 1 1.0 x\n"
QRELS = "q1 0 b 2\nq2 0 c 1\nq3 0 a 1\n"  # q3 is not ranked, q4 not judged
OWN = """
def place(grades, ranked):
    places = [place for place, doc in enumerate(ranked, 1) if grades.get(doc, 0) > 0]
    return 1 / places[0] if places else 0.0

def broken(grades, ranked):
    return 1 / 0

def words(grades, ranked):
    return "high"

def undefined(grades, ranked):
    return float("nan")
"""


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    texts = {
        "a.run": RUN,
        "q.qrels": QRELS,
        "other.qrels": "q1 0 z 1\n",
        "none.qrels": "q1 0 a 0\n",
        "r.csv": "qid,docno,score\nq1,b,1\n",
        "t2_measures.py": OWN,
    }
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
        (["a.run", "--qrels", "none.qrels"], "need a relevant document"),
        (["r.csv", "--qrels", "q.qrels", "--per-query", "r.csv"], "would replace r.csv"),
        (["a.run", "--qrels", "q.qrels", "--measures", "NDGC@10"], "did you mean nDCG@10"),
        (["a.run", "--qrels", "q.qrels", "--measures", "t2_measures:plac"], "did you mean place"),
        (["a.run", "--qrels", "q.qrels", "--measures", "t2_measures:broken"], "py:7: ZeroDivision"),
        *(
            (["a.run", "--qrels", "q.qrels", "--measures", f"t2_measures:{own}"], said)
            for own, said in (
                ("words", "t2_measures:words must return a finite number, got 'high' for the grad"),
                ("undefined", "must return a finite number, got nan for the grades {"),
            )
        ),
        (["v.csv", "--qrels", "q.qrels"], "it has per-query values"),
        (["a.run", "--qrels", "other.qrels"], "no document of the run is judged"),
        (["a.run", "--qrels", "q.qrels", "--per-query", "v.parquet"], "must be a file .csv"),
    ],
)
def test_bad_input_is_named(words, message, capsys):
    assert main(["measure", *words]) == 2
    assert message in capsys.readouterr().err


DOCUMENTS = "jfcagbeidh"


def lines_of(scores, ranks):
    """Six queries, each with ten documents of these scores and ranks."""
    rows = zip(DOCUMENTS, ranks, scores, strict=True)
    lines = [(doc_id, rank, score) for doc_id, rank, score in rows]
    return [f"q{q} Q0 {d} {rank} {score} x" for q in range(6) for d, rank, score in lines]


DOWN, UP, RANKS = [10.5 - i for i in range(10)], [0.5 + i for i in range(10)], [*range(1, 11)]
SHUFFLED = [5, 1, 9, 3, 7, 2, 8, 4, 10, 6]


@pytest.mark.parametrize(
    ("scores", "ranks", "says"),
    [
        (DOWN, RANKS, ""),
        (DOWN, [*range(10)], ""),
        (DOWN, [1] * 10, ""),  # a tool without ranks
        ([-x for x in UP], RANKS, ""),
        (DOWN, [2, 1, *RANKS[2:]], ""),  # rounding
        ([1.0] * 10, RANKS, "all scores of a query are equal"),
        (UP, RANKS, "contradict"),
        (UP, [*range(10)], "contradict"),
        (DOWN, SHUFFLED, "contradict"),
        ([0.0, 0.0, *UP[2:]], RANKS, "contradict"),
    ],
)
@pytest.mark.parametrize("command", ["measure", "compare", "frame"])
def test_scores_that_say_another_order_than_the_ranks_are_said(
    files, capsys, command, scores, ranks, says
):
    lines = lines_of(scores, ranks)
    (files / "own.run").write_text("\n".join(lines) + "\n")
    (files / "good.run").write_text("\n".join(lines_of(DOWN, RANKS)) + "\n")
    (files / "six.qrels").write_text("".join(f"q{q} 0 {DOCUMENTS[q]} 1\n" for q in range(6)))
    if command == "frame":
        columns = ["qid", "q0", "docno", "rank", "score", "name"]
        frame = pd.DataFrame([line.split() for line in lines], columns=columns)
        frame = frame.drop(columns=["q0", "name"]).astype({"rank": int, "score": float})
        systems = {"good": ["good.run"], "own": [frame]}
        out = " ".join(compare_runs(systems, "six.qrels").sweep.notes)
    else:
        words = ["own.run"] if command == "measure" else ["good.run", "own.run", "--verbose"]
        assert main([command, *words, "--qrels", "six.qrels"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert ("tie with another" in out) == (len({*scores}) < 10)
    assert ("contradict" in out or "scores of a query are equal" in out) == bool(says)
    assert says in out


def test_a_full_disk_is_named_by_the_file_whose_values_stay(capsys, monkeypatch):
    words = ["measure", "a.run", "--qrels", "q.qrels", "--per-query", "values.csv"]
    assert main(words) == 0
    before = Path("values.csv").read_bytes()

    def half(frame, path, **_):
        Path(path).write_text("query_id,measure,value\n")
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", half)
    assert main(words) == 2
    assert "error: values.csv: No space left on device" in capsys.readouterr().err
    assert Path("values.csv").read_bytes() == before
