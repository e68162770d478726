"""Equal scores of third-party runs: one rule, and trec_eval's own where it is asked for."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from rank_core.data.trec import read_qrels, read_run, write_lines
from sweeps.report.caption import notes
from sweeps.report.comparison import RunComparison, compare_runs
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
    return compare_runs(systems, files["qrels"], measures=list(MEASURES), ties=ties)


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


def test_the_rule_changes_values_and_is_named(files):
    ours, theirs = compared(files, "doc_id"), compared(files, "trec_eval")
    assert (ours.sweep.scores["value"] != theirs.sweep.scores["value"]).any()
    for found, rule in ((ours, "doc_id"), (theirs, "trec_eval")):
        assert f"Ties: {TIES[rule]} ({found.tied:,} tied scores)." in notes(found.analysis)
