"""Differences without unjudged documents: on condensed lists, in the worst case, by one rule."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rank_core.data.trec import read_qrels, read_run, write_run
from rank_core.evaluate import condensed
from rank_core.records import Qrels
from ranksweep import compare
from sweeps.report.analysis import analyse
from sweeps.report.build import write_report
from sweeps.report.comparison import RunComparison, compare_runs
from sweeps.report.unjudged import retested, unjudged_sentences, with_unjudged
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.sweeps.report.ranked_sweep import CELLS, SEEDS, write_ranked_sweep

pytestmark = pytest.mark.usefixtures("no_figures")
NUMBERS = ("condensed_delta", "condensed_p", "bound_low", "bound_high")


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
    text = " ".join(unjudged_sentences(found))
    assert text.count("the table's significant difference holds") == 2 and "few" not in text
    lower = replace(own, letter="a", condensed_letter="a", bound_letter="a")
    weaker = replace(found, unjudged=replace(found.unjudged, of={pair: lower}))
    assert " ".join(unjudged_sentences(weaker)).endswith("are judged."), (
        "not significant with seeds"
    )
    alone = replace(pair, p_both=math.nan)
    single = replace(found, unjudged=replace(found.unjudged, of={alone: lower}))
    assert " ".join(unjudged_sentences(single)) == text, "the letter of one run"


def test_no_judgment_leads_beyond_the_bounds(folder: Path) -> None:
    qrels = judged(folder, 6)
    [pair] = (found := compared(folder, folder / "trials", qrels, "P@5").analysis).primary
    assert found.unjudged is not None
    own, deltas = found.unjudged.of[pair], []
    for salt in range(4):  # of P@5, which has no ideal ranking
        every = {
            query: {f"d{d}": (d * 7 + salt * len(query)) % 4 // 3 for d in range(12)} | known
            for query, known in qrels.items()
        }
        full = compared(folder, folder / "trials", every, "P@5").analysis
        assert full.unjudged is None
        assert " ".join(unjudged_sentences(full)) == ""
        deltas.append(full.primary[0].delta)
    assert own.bound_low < min(deltas) and max(deltas) < own.bound_high
    assert own.bound_low < pair.delta < own.bound_high and own.bound_letter != "A"


def test_the_ceiling_of_judged_documents_by_hand(folder: Path) -> None:
    qrels = {query: dict([*own.items()][:1]) for query, own in judged(folder, 0).items()}
    found = compared(folder, folder / "trials", qrels).analysis
    assert found.unjudged is not None
    ceiling = found.unjudged.judged_at_most, found.unjudged.judged_per_query
    assert ceiling == pytest.approx((1 / 5, 1))
    text = " ".join(unjudged_sentences(found))
    assert "with 1.0 judged documents per query, at most 20% can be" in text
    assert "no query has both relevant and non-relevant" in text
    assert "In the worst case, the table's significant difference does not hold; with" in text


@pytest.mark.parametrize(("last", "ceiling", "words"), [(0, 0.4, "40%"), (2, 0.8, "80%")])
def test_judged_at_most_is_a_share_of_the_ranked_documents(
    folder: Path, last: int, ceiling: float, words: str
) -> None:
    """Two relevant documents of each query, others, and five that are looked at."""
    relevant = {query: dict.fromkeys(("d10", "d11"), 1) for query in judged(folder, 0)}
    qrels = {query: dict.fromkeys((f"d{at}" for at in range(last)), 0) | own
             for query, own in relevant.items()}  # fmt: skip
    found = compared(folder, folder / "trials", qrels).analysis
    assert found.unjudged is not None
    assert found.unjudged.judged_at_most == pytest.approx(ceiling)
    assert f"with {2 + last:.1f} judged documents per query, at most {words} can be" in (
        " ".join(unjudged_sentences(found))
    )


def test_more_judged_documents_than_are_looked_at_are_a_ceiling_of_all(folder: Path) -> None:
    qrels = {query: {f"d{at}": at % 2 for at in range(8)} for query in judged(folder, 0)}
    found = compared(folder, folder / "trials", qrels).analysis
    assert found.unjudged is not None
    assert (found.unjudged.judged_per_query, found.unjudged.judged_at_most) == (8, 1)
    assert 0 < found.unjudged.judged < 1 and "can be" not in " ".join(unjudged_sentences(found))


def test_every_row_is_tested_in_the_family_of_the_report(folder: Path) -> None:
    analysis = with_unjudged(analyse(with_interpolated(load_sweep(folder), "all")))
    added = [*analysis.interpolated_comparisons, *analysis.first_stage_comparisons]
    pairs = [pair for pair in [*analysis.primary, *added] if pair.measure == "nDCG@10"]
    assert len(pairs) == 1 + 3 + 4
    matrix = analysis.whole["nDCG@10"]
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
    assert " ".join(unjudged_sentences(analysis)) in results["conclusions"]
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
    assert own.condensed_delta != found.analysis.primary[0].delta and math.isnan(own.bound_low)


def test_lists_shorter_than_the_cutoff_are_judged_no_further() -> None:
    qrels = {f"q{q}": {"a": 1, "b": 0} for q in range(3)}
    ranked = [{"a": 3.0, "x": 2.0, "y": 1.0, "b": low} for low in (0.0, 2.5)]
    runs = [{query: own for query in qrels} for own in ranked]
    for last in (runs[1], runs[1] | {"q2": {}}):
        found = compare({"A": runs[0], "B": last}, qrels, measures=["nDCG@5"])._analysis.unjudged
        assert (found.judged, found.judged_at_most) == (0.5, 0.5)
