"""Equal scores of third-party runs: one rule, and trec_eval's own where it is asked for."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from rank_core.data.trec import read_qrels, write_lines
from rank_core.errors import BadInput
from sweeps.commands.compare.runs import TIES, RunComparison, compare_runs

MEASURES = {
    "nDCG@10": "ndcg_cut_10",
    "AP": "map",
    "P@10": "P_10",
    "R@100": "recall_100",
    "RR": "recip_rank",
}
QUERIES, DEPTH = 20, 60


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Judgments, and runs in which 15 to 40 % of the scores are tied, some by single precision
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
    for name, steps in (("few", 260), ("many", 100)):
        lines = []
        for query in range(QUERIES):
            scores = rng.integers(0, steps, DEPTH) + 10.0 + 1e-8 * rng.random(DEPTH)
            for doc_id, score in zip(rng.choice(names, DEPTH, replace=False), scores, strict=True):
                lines.append(f"{query} Q0 {doc_id} {rng.integers(1, 9)} {float(score)!r} x")
        write_lines(tmp_path / name, lines)
        found[name] = tmp_path / name
    return found


def compared(files: dict[str, Path], ties: str) -> RunComparison:
    systems = {name: (files[name],) for name in ("few", "many")}
    return compare_runs(systems, files["qrels"], measures=list(MEASURES), ties=ties)


def test_all_values_are_those_of_trec_eval(files):
    found = compared(files, "trec_eval")
    qrels = read_qrels(files["qrels"])
    tool = pytrec_eval.RelevanceEvaluator(qrels, set(MEASURES.values()))
    for name in ("few", "many"):
        run: dict[str, dict[str, float]] = {}
        for line in files[name].read_text().splitlines():
            query_id, _, doc_id, _, score, _ = line.split()
            run.setdefault(query_id, {})[doc_id] = float(score)
        share = found.measured.ties[name, 1] / (QUERIES * DEPTH)
        assert 0.08 < share < 0.45
        expected = tool.evaluate(run)
        table = found.sweep.scores[found.sweep.scores["cell"] == name]
        for row in table.itertuples():
            assert row.value == pytest.approx(
                expected[row.query_id][MEASURES[row.measure]], abs=1e-12
            ), (name, row.query_id, row.measure)


def test_the_rule_changes_values_and_is_named(files):
    ours, theirs = compared(files, "doc_id"), compared(files, "trec_eval")
    assert (ours.sweep.scores["value"] != theirs.sweep.scores["value"]).any()
    for found, rule in ((ours, "doc_id"), (theirs, "trec_eval")):
        assert TIES[rule] in found.analysis.caption
        assert f"({found.tied:,} tied scores)" in found.analysis.caption


def test_the_rank_of_a_file_decides_nothing(tmp_path, files):
    before = compared(files, "doc_id").sweep.scores
    for name in ("few", "many"):
        fields = [line.split() for line in files[name].read_text().splitlines()]
        write_lines(files[name], [" ".join([*one[:3], "1", *one[4:]]) for one in fields])
    after = compared(files, "doc_id").sweep.scores
    assert before["value"].tolist() == after["value"].tolist()


def test_an_unknown_rule_is_refused(files):
    with pytest.raises(BadInput, match="doc_id, trec_eval"):
        compared(files, "rank")
