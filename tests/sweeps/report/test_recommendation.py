"""The recommendation: the cheapest of the undistinguishable, or what would decide."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.report.analysis import Analysis, analyse
from sweeps.report.recommendation import recommendation
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.sweeps.report.ranked_sweep import write_ranked_sweep


def analysed(folder: Path, **changes: Any) -> Analysis:
    return analyse(with_interpolated(load_sweep(write_ranked_sweep(folder, **changes))))


def test_a_smoke_test_has_no_recommendation(tmp_path: Path) -> None:
    found = analysed(tmp_path, strengths=(0.4, 3.0))
    about = replace(found.sweep.about, smoke_test=True)
    said = recommendation(replace(found, sweep=replace(found.sweep, about=about)))
    assert (said.sentence, said.system) == ("A smoke test has no recommendation.", "")


def test_the_recommended_is_better_than_the_first_stage(tmp_path: Path) -> None:
    found = recommendation(analysed(tmp_path, strengths=(0.4, 3.0), num_queries=60))
    assert found.sentence.startswith("Use MaxP 40/20") and "over BM25 (" in found.sentence
    assert len(found.sentence.split(").")[0].split()) <= 25
    assert found.gain_low is not None and found.gain_low > 0


def test_the_cheaper_of_two_that_cannot_be_told_apart(tmp_path: Path) -> None:
    """Each has the lower cost once: the cost decides, not the mean."""
    found = analysed(tmp_path, strengths=(3.0, 3.0), num_queries=60)
    for cheap in range(2):
        cells = [
            replace(cell, encoder_tokens_per_document=40.0 if at == cheap else 80.0)
            for at, cell in enumerate(found.sweep.cells)
        ]
        said = recommendation(replace(found, sweep=replace(found.sweep, cells=tuple(cells))))
        assert said.cost == 40.0 and said.system.startswith(cells[cheap].cell)
        assert "not distinguishable from the best" in said.sentence


def test_below_the_first_stage_nothing_is_recommended(tmp_path: Path) -> None:
    found = recommendation(analysed(tmp_path, strengths=(0.02, 0.02), num_queries=60))
    assert not found.system and "Use" not in found.sentence


def test_undecided_says_what_it_would_take(tmp_path: Path) -> None:
    found = recommendation(analysed(tmp_path, strengths=(0.9, 1.0), first_stage=False))
    assert not found.system and "more queries" in found.sentence
