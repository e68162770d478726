"""Differences without unjudged documents: on condensed lists, by the rule of the report."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rank_core.data.trec import read_qrels, read_run, write_run
from rank_core.evaluate import condensed
from rank_core.records import Qrels
from ranksweep import compare
from sweeps.findings.analysis import analyse
from sweeps.findings.unjudged import retested, rows, with_unjudged
from sweeps.report.build import write_report
from sweeps.report.comparison import RunComparison, compare_runs
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.sweeps.report.ranked_sweep import CELLS, SEEDS, write_ranked_sweep

pytestmark = pytest.mark.usefixtures("no_figures")
NUMBERS = ("condensed_delta", "condensed_p")


def judged(folder: Path, last: int) -> Qrels:
    """The sweep's judgments, and the first `last` of the other documents as irrelevant."""
    relevant = read_qrels(folder / "qrels/test.qrels")
    below = [f"d{at}" for at in range(last)]
    return {query: dict.fromkeys(below, 0) | own for query, own in relevant.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_ranked_sweep(tmp_path / "woods", strengths=(0.2, 2.0))


def compared(folder: Path, runs: Path, qrels: Qrels, measure: str = "nDCG@5") -> RunComparison:
    systems = {cell: [runs / f"{cell}-seed{s}/test.run.gz" for s in SEEDS] for cell, _, _ in CELLS}
    return compare_runs(systems, qrels, measures=[measure])


def test_condensed_lists_are_tested_as_runs_without_unjudged_documents_are(folder: Path) -> None:
    qrels = judged(folder, 6)
    for path in (folder / "trials").glob("*/test.run.gz"):
        short = folder / "condensed" / path.parent.name
        short.mkdir(parents=True)
        write_run(short / path.name, condensed(qrels, read_run(path)), "made")
    found = compared(folder, folder / "trials", qrels).analysis
    [pair], [theirs] = found.primary, compared(folder, folder / "condensed", qrels).analysis.primary
    assert found.unjudged is not None
    own = found.unjudged.of[pair]
    assert own.condensed_delta == pytest.approx(theirs.delta) and theirs.delta != pair.delta
    assert own.condensed_p == pytest.approx(theirs.p_both_adjusted)
    assert (own.letter, own.condensed_letter) == ("A", "A")
    assert [row.value for row in rows(found) if "do not hold" in row.name] == [0]
    lower = replace(own, letter="a", condensed_letter="a")
    weaker = replace(found, unjudged=replace(found.unjudged, of={pair: lower}))
    assert not any("do not hold" in row.name for row in rows(weaker)), "not significant with seeds"
    lost = replace(own, condensed_letter="")
    gone = replace(found, unjudged=replace(found.unjudged, of={pair: lost}))
    [row] = [row for row in rows(gone) if "do not hold" in row.name]
    assert row.value == 1 and row.names == (found.sweep.label(pair.system),)


def test_the_ceiling_of_judged_documents_by_hand(folder: Path) -> None:
    qrels = {query: dict([*own.items()][:1]) for query, own in judged(folder, 0).items()}
    found = compared(folder, folder / "trials", qrels).analysis
    assert found.unjudged is not None
    ceiling = found.unjudged.judged_at_most, found.unjudged.judged_per_query
    assert ceiling == pytest.approx((1 / 5, 1))
    assert [row.value for row in rows(found)] == pytest.approx([found.unjudged.judged, 1 / 5])


@pytest.mark.parametrize(("last", "ceiling"), [(0, 0.4), (2, 0.8)])
def test_judged_at_most_is_a_share_of_the_ranked_documents(
    folder: Path, last: int, ceiling: float
) -> None:
    """Two relevant documents of each query, others, and five that are looked at."""
    relevant = {query: dict.fromkeys(("d10", "d11"), 1) for query in judged(folder, 0)}
    qrels = {query: dict.fromkeys((f"d{at}" for at in range(last)), 0) | own
             for query, own in relevant.items()}  # fmt: skip
    found = compared(folder, folder / "trials", qrels).analysis
    assert found.unjudged is not None
    assert found.unjudged.judged_at_most == pytest.approx(ceiling)
    assert rows(found)[1].value == pytest.approx(ceiling)


def test_more_judged_documents_than_are_looked_at_are_a_ceiling_of_all(folder: Path) -> None:
    qrels = {query: {f"d{at}": at % 2 for at in range(8)} for query in judged(folder, 0)}
    found = compared(folder, folder / "trials", qrels).analysis
    assert found.unjudged is not None
    assert (found.unjudged.judged_per_query, found.unjudged.judged_at_most) == (8, 1)
    assert 0 < found.unjudged.judged < 1 and not any("can be" in row.name for row in rows(found))


def test_every_row_is_tested_in_the_family_of_the_report(folder: Path) -> None:
    analysis = with_unjudged(analyse(with_interpolated(load_sweep(folder), "all")))
    added = [*analysis.interpolated_comparisons, *analysis.first_stage_comparisons]
    pairs = [pair for pair in [*analysis.primary, *added] if pair.measure == "nDCG@10"]
    assert len(pairs) == 1 + 3 + 4
    matrix = analysis.row_scores.plain["nDCG@10"]
    again = retested(analysis, matrix, lambda pair: (pair.system, pair.baseline))
    for pair in pairs:
        assert again[pair][1].p_both_adjusted == pytest.approx(pair.p_both_adjusted, rel=1e-9)
    write_report(folder, interpolate="all")
    with (folder / "report/comparisons.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line in (line for line in lines if line["paired_runs"] != "True"):
        assert all(bool(line[name]) == (line["measure"] == "nDCG@10") for name in NUMBERS)
    both = [
        line for line in lines if {line["system"], line["baseline"]} == {FIRST_STAGE, CELLS[0][0]}
    ]
    assert len({line["condensed_p"] for line in both}) == 2, "that of the measure, and none"
    results = json.loads((folder / "report/results.json").read_text())
    assert [row["value"] for row in results["findings"] if row["question"] == "unjudged"] == [
        row.value for row in rows(analysis)
    ]
    assert results["unjudged"]["judged"] == analysis.unjudged.judged


def test_without_runs_or_judgments_nothing_is_said(folder: Path) -> None:
    (folder / "qrels/test.qrels").unlink()
    analysis = analyse(load_sweep(folder))
    assert with_unjudged(analysis) is analysis


def first_relevant(grades: dict[str, int], ranked: list[str]) -> float:
    return float(grades.get(ranked[0], 0) > 0)


def test_a_measure_of_the_user_is_tested_on_condensed_lists_alone(folder: Path) -> None:
    found = compared(folder, folder / "trials", judged(folder, 3), f"{__name__}:first_relevant")
    [own] = found.analysis.unjudged.of.values()
    assert own.condensed_delta != found.analysis.primary[0].delta


def test_lists_shorter_than_the_cutoff_are_judged_no_further() -> None:
    qrels = {f"q{q}": {"a": 1, "b": 0} for q in range(3)}
    ranked = [{"a": 3.0, "x": 2.0, "y": 1.0, "b": low} for low in (0.0, 2.5)]
    runs = [{query: own for query in qrels} for own in ranked]
    for last in (runs[1], runs[1] | {"q2": {}}):
        found = compare({"A": runs[0], "B": last}, qrels, measures=["nDCG@5"])._analysis.unjudged
        assert (found.judged, found.judged_at_most) == (0.5, 0.5)
