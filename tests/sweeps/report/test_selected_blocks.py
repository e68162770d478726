"""The places of selected blocks: by hand, and in every way out of a sweep."""

import json
import shutil
from pathlib import Path

import pytest

import ranksweep
from rank_core.errors import BadInput
from rank_core.models.kept_files import SELECTED_BLOCKS
from sweeps.report.build import write_report
from sweeps.store.sweep_file import find_sweep
from sweeps.systems.load import load_sweep
from sweeps.systems.selected_blocks import summed
from tests.sweeps.report.ranked_sweep import CELLS, write_ranked_sweep

FIRST = {"whole": 3, "blocks": {"5": {"documents": 2, "read": [2, 2, 0, 0, 0]}}}
CELL, LABEL, _ = CELLS[1]


def test_first_blocks_are_in_the_first_tenths_alone() -> None:
    # Two of five blocks are the first four tenths.
    assert summed([FIRST]).tenths == pytest.approx((0.25,) * 4 + (0,) * 6)


def test_a_block_counts_in_each_tenth_by_its_part() -> None:
    # The second of three blocks lies between 1/3 and 2/3: .2 of it are in the fourth tenth.
    middle = {"whole": 0, "blocks": {"3": {"documents": 4, "read": [0, 4, 0]}}}
    expected = (0, 0, 0, 0.2, 0.3, 0.3, 0.2, 0, 0, 0)
    assert summed([middle]).tenths == pytest.approx(expected)
    # Blocks that are equally often selected say nothing of a place, whatever their number.
    flat = {str(n): {"documents": 9, "read": [n] * n} for n in (2, 3, 7)}
    assert summed([{"whole": 0, "blocks": flat}]).tenths == pytest.approx((0.1,) * 10)


def test_runs_and_folds_add_up() -> None:
    both = summed([FIRST, {"whole": 1, "blocks": {"5": {"documents": 1, "read": [0, 0, 0, 1, 1]}}}])
    assert (both.whole, both.documents, both.read) == (4, {5: 3}, {5: (2, 2, 0, 1, 1)})
    assert summed([{"whole": 1, "blocks": {}}]).tenths == (0,) * 10


def kept_in(folder: Path, content: object) -> Path:
    """A ranked sweep whose second system kept this in every trial."""
    records = find_sweep(str(folder))
    for trial in sorted((folder / "trials").glob(f"{CELL}-seed*")):
        work = shutil.copytree(trial, folder / "work" / trial.name)
        (work / SELECTED_BLOCKS).write_text(json.dumps(content))
        records.publish(trial.name, work)
    shutil.rmtree(folder / "work")
    return folder


def test_a_report_has_the_places_of_selected_blocks(tmp_path: Path) -> None:
    folder = write_ranked_sweep(tmp_path / "sweep")
    before = write_report(folder)
    assert "selected_blocks" not in json.loads((before.folder / "results.json").read_text())
    assert not (before.folder / "plots" / "selected_blocks.svg").exists()

    report = write_report(kept_in(folder, {"fold1": FIRST, "fold2": FIRST}))
    found = json.loads((report.folder / "results.json").read_text())["selected_blocks"]
    assert [*found] == [CELL] and found[CELL]["whole"] == 18
    assert found[CELL]["read"] == {"5": [12, 12, 0, 0, 0]}
    page = (report.folder / "index.html").read_text()
    assert "Selected blocks" in page and "25.0" in page
    assert (report.folder / "plots" / "selected_blocks.svg").exists()
    frame = ranksweep.load(folder).selected_blocks
    assert set(frame["system"]) == {LABEL} and len(frame) == 10
    assert frame.loc[frame["tenth"] <= 4, "share"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "content", [[], {"whole": 1}, {"blocks": {"2": {"read": [1]}}, "whole": 0}]
)
def test_a_file_of_another_form_is_refused(content: object, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{SELECTED_BLOCKS} must have"):
        load_sweep(kept_in(write_ranked_sweep(tmp_path / "sweep"), content))
