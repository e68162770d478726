"""Equal scores of third-party runs: one rule, and trec_eval's own where it is asked for."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import pytrec_eval

import ranksweep
from rank_core.data.trec import read_qrels, read_run, write_lines
from sweeps.__main__ import main
from sweeps.report.caption import notes
from sweeps.report.comparison import RunComparison, compare_runs
from sweeps.store.test_options import TestOptions
from sweeps.systems.runs import TIES

MEASURES = {
    "nDCG@5": "ndcg_cut_5",
    "nDCG@10": "ndcg_cut_10",
    "nDCG@20": "ndcg_cut_20",
    "nDCG": "ndcg",
    "AP": "map",
    "AP@10": "map_cut_10",
    "P@5": "P_5",
    "P@10": "P_10",
    "R@10": "recall_10",
    "R@100": "recall_100",
    "RR": "recip_rank",
    "Rprec": "Rprec",
    "Bpref": "bpref",
    "Success@5": "success_5",
    "IPrec@0.2": "iprec_at_recall_0.20",
    "infAP": "infAP",
}
QUERIES, DEPTH = 20, 60
STEPS = {"few": 320, "many": 130}
"""{run: distinct scores to draw from}."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Judgments, and runs in which 15 to 40% of the documents are tied, some by single precision
    alone; the ranks say nothing."""
    rng = np.random.default_rng(0)
    names = [f"d{number}" for number in range(200)]
    judged = [
        f"{query} 0 {doc_id} {rng.integers(0, 4)}"
        for query in range(QUERIES)
        for doc_id in rng.choice(names, 50, replace=False)
    ]
    write_lines(tmp_path / "qrels", judged)
    found = {"qrels": tmp_path / "qrels"}
    for name, steps in STEPS.items():
        lines = []
        for query in range(QUERIES):
            scores = rng.integers(0, steps, DEPTH) + 10.0 + 1e-8 * rng.random(DEPTH)
            for doc_id, score in zip(rng.choice(names, DEPTH, replace=False), scores, strict=True):
                lines.append(f"{query} Q0 {doc_id} {rng.integers(1, 9)} {float(score)!r} x")
        write_lines(tmp_path / name, lines)
        found[name] = tmp_path / name
    return found


def compared(files: dict[str, Path], ties: str) -> RunComparison:
    systems = {name: (files[name],) for name in STEPS}
    return compare_runs(
        systems, files["qrels"], measures=list(MEASURES), tests=TestOptions(ties=ties)
    )


def test_all_values_are_those_of_trec_eval(files):
    found = compared(files, "trec_eval")
    tool = pytrec_eval.RelevanceEvaluator(read_qrels(files["qrels"]), set(MEASURES.values()))
    values = found.sweep.scores.groupby("cell")
    compared_values = 0
    for name in STEPS:
        run = read_run(files[name])
        ties = found.sweep.trials.set_index("cell")["ties"][name]
        assert 0 < ties < 0.4 * QUERIES * DEPTH
        expected = tool.evaluate(run)
        for row in values.get_group(name).itertuples():
            theirs = expected[row.query_id][MEASURES[row.measure]]
            assert row.value == pytest.approx(theirs, abs=1e-12), (name, row)
            compared_values += 1
    assert compared_values == len(STEPS) * QUERIES * len(MEASURES)


def by_command(*words: str) -> Callable[..., pd.DataFrame]:
    def values(files: dict[str, Path], names: list[str]) -> pd.DataFrame:
        out = files["qrels"].parent / "values.csv"
        command = [*words, "--qrels", str(files["qrels"]), "--measures", *names]
        assert main([*command, "--per-query", str(out)]) == 0
        return pd.read_csv(out, dtype={"query_id": str})

    return values


def by_compare(files: dict[str, Path], names: list[str]) -> pd.DataFrame:
    words = ["compare", str(files["few"]), str(files["many"]), "--qrels", str(files["qrels"])]
    out = files["qrels"].parent / "compared"
    assert main([*words, "--measures", *names, "--out", str(out)]) == 0
    found = pd.read_parquet(out / "per_query.parquet")
    return found[found["system"] == "few"]


def rows_of(file: Path) -> list[tuple[str, str, float]]:
    return [(q, d, s) for q, own in read_run(file).items() for d, s in own.items()]


DOORS = {
    "measure": lambda files, names: by_command("measure", str(files["few"]))(files, names),
    "compare": by_compare,
    "a file in Python": lambda files, names: (
        ranksweep.measure(files["few"], files["qrels"], names).per_query
    ),
    "a dictionary": lambda files, names: (
        ranksweep.measure(read_run(files["few"]), read_qrels(files["qrels"]), names).per_query
    ),
    "a frame": lambda files, names: (
        ranksweep.measure(
            pd.DataFrame(rows_of(files["few"]), columns=["qid", "docno", "score"]),
            files["qrels"],
            names,
        ).per_query
    ),
    "compare in Python": lambda files, names: compare_runs(
        {name: (read_run_frame(files[name]),) for name in STEPS}, files["qrels"], measures=names
    ).sweep.scores.query("cell == 'few'"),
}


def read_run_frame(file: Path) -> pd.DataFrame:
    return pd.DataFrame(rows_of(file), columns=["query_id", "doc_id", "score"])


@pytest.mark.parametrize("door", DOORS)
def test_the_values_of_every_door_are_those_of_trec_eval(files, door):
    tool = pytrec_eval.RelevanceEvaluator(read_qrels(files["qrels"]), set(MEASURES.values()))
    expected = tool.evaluate(read_run(files["few"]))
    found = DOORS[door](files, [*MEASURES])
    assert len(found) == QUERIES * len(MEASURES)
    for row in found.itertuples():
        theirs = expected[row.query_id][MEASURES[row.measure]]
        assert row.value == pytest.approx(theirs, abs=1e-12), row


@pytest.mark.parametrize("rule", TIES)
@pytest.mark.parametrize("command", ["measure", "compare"])
def test_where_the_rules_differ_in_a_shown_digit_both_means_are_said(
    tmp_path, command, rule, capsys
):
    write_lines(tmp_path / "qrels", [f"{query} 0 z 1" for query in range(QUERIES)])
    lines = [f"{query} Q0 {doc_id} 1 2 x" for query in range(QUERIES) for doc_id in "az"]
    write_lines(tmp_path / "tied.run", lines)
    write_lines(tmp_path / "other.run", [f"{query} Q0 z 1 2 x" for query in range(QUERIES)])
    digits, of = (4, "") if command == "measure" else (3, " of tied")
    words = [command, str(tmp_path / "tied.run")]
    words += [str(tmp_path / "other.run")] * (command == "compare")
    words += ["--qrels", str(tmp_path / "qrels"), "--measures", "RR"]
    assert main([*words, *(["--ties", rule] if rule != "trec_eval" else [])]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"{QUERIES} documents tie with another; {TIES[rule]}." in out
    used, other = (1, 0.5) if rule == "trec_eval" else (0.5, 1)
    named = next(one for one in TIES if one != rule)
    assert f"With --ties {named}: RR {other:.{digits}f}{of}, not {used:.{digits}f}." in out


def test_a_run_without_ties_has_no_word_on_them(files, capsys):
    for name in STEPS:
        run = read_run(files[name])
        rows = [(q, d, -rank) for q, own in run.items() for rank, d in enumerate(own)]
        write_lines(files[name], [f"{q} Q0 {d} {-rank + 1} {rank}.0 x" for q, d, rank in rows])
    for words in (
        ["measure", str(files["few"])],
        ["compare", str(files["few"]), str(files["many"])],
    ):
        assert main([*words, "--qrels", str(files["qrels"])]) == 0
        assert " tie" not in capsys.readouterr().out


def test_the_rule_changes_values_and_is_named(files):
    ours, theirs = compared(files, "doc_id"), compared(files, "trec_eval")
    assert (ours.sweep.scores["value"] != theirs.sweep.scores["value"]).any()
    for found, rule in ((ours, "doc_id"), (theirs, "trec_eval")):
        assert f"Ties: {TIES[rule]} ({found.tied:,} tied scores)." in notes(found.analysis)
