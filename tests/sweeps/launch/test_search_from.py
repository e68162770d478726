"""Finished trials of other sweeps begin a search, or are refused."""

import json
import shutil
from dataclasses import replace

import pytest

from rank_core.errors import BadInput
from sweeps.launch.search_from import started
from sweeps.store.sweep_file import read_sweep_file
from tests.sweeps.search.player import SIX, Player, good_small_windows

TWELVE = ("chunking.window=16,24,32,40", "chunking.stride=6,8,12")
"""So many configurations that a model proposes, by their values."""
TPE = ("--search", "tpe", "--num-configs", "9", "--num-seeds", "2")


def earlier(plan, folder) -> Player:
    """A sweep of three windows that ran to its end."""
    player = Player(folder, plan, good_small_windows)
    player.play()
    return player


def test_finished_trials_begin_a_search_and_stay_what_they_were(plan_of, tmp_path):
    """What the search has read from another sweep is on disk: it goes on without that sweep. Its
    FirstP cells with the same windows are no points of the space."""
    first = earlier(plan_of("--num-seeds", "1", *TWELVE), tmp_path / "first")
    where = str(first.records.folder)
    words = (*TPE, *TWELVE, "--search-from", where)
    killed = Player(tmp_path / "killed", plan_of(*words), good_small_windows)
    plan = started(killed.plan, killed.records)
    in_space = [cell for cell in first.plan.cells if cell.config.model.name == "maxp"]
    assert [dict(own.point) for own in plan.search.started] == [
        {"chunking.window": c.config.chunking.window, "chunking.stride": c.config.chunking.stride}
        | ({"model.name": "maxp"} if "model.name" in plan.space.axes() else {})
        for c in in_space
    ]
    whole = Player(tmp_path / "whole", plan, good_small_windows).play()
    killed.plan = plan
    killed.play(ends=1)
    shutil.rmtree(first.records.folder)
    killed.plan = started(plan_of(*words), killed.records)
    search = killed.play(slots=2, order=3)
    assert [cell.cell for cell in search.plan.cells] == [cell.cell for cell in whole.plan.cells]
    assert search.described()["started"] == len(in_space)
    [path] = killed.records.folder.glob("search-*.json")
    kept = [tuple(own["values"]) for own in json.loads(path.read_text())["started"]]
    assert kept == [own.outcome.values for own in plan.search.started]
    with pytest.raises(BadInput, match="does not exist"):
        started(plan_of(*words, "--search-seed", "2"), killed.records)


def test_a_cell_without_its_number_of_tokens_is_no_free_one(plan_of, tmp_path):
    first = earlier(plan_of("--num-seeds", "1", *SIX), tmp_path)
    file = read_sweep_file(first.records)
    cells = [replace(own, encoder_tokens_per_document=None) for own in file.cells[:-1]]
    replace(file, cells=(*cells, file.cells[-1])).write(first.records)
    words = (*TPE, *SIX, "--search-from", str(first.records.folder))
    num_started = [
        len(started(plan_of(*words, *goals), first.records).search.started)
        for goals in (
            (),
            ("--objective", "nDCG@10,tokens_per_document"),
            ("--at-most", "tokens_per_document=9999"),
            ("--objective", "nDCG@10,peak_memory"),
        )
    ]
    assert num_started[0] > 1 and num_started == [num_started[0], 1, 1, num_started[0]]


@pytest.mark.parametrize(
    ("changes", "words", "law"),
    [
        ({"primary": "RR@10"}, (), "its measure is RR@10, here nDCG@10"),
        ({"swept": ("training.loss",)}, (), "it sweeps training.loss, this search chunking"),
        (
            {"collection": {"name": "other", "content_hash": "0"}},
            (),
            r"its collection is other \(0\)",
        ),
        ({}, ("training.num_epochs=3",), "training.num_epochs is 1 there and 3 here"),
        ({}, ("chunking.window=50..60", "chunking.stride=8"), "no finished configuration among"),
    ],
)
def test_trials_that_do_not_compare_are_refused(changes, words, law, plan_of, tmp_path):
    first = earlier(plan_of("--num-seeds", "1", *SIX), tmp_path)
    replace(read_sweep_file(first.records), **changes).write(first.records)
    space = SIX if "chunking.stride=8" not in words else ()
    plan = plan_of(*TPE, *space, *words, "--search-from", str(first.records.folder))
    with pytest.raises(BadInput, match=law):
        started(plan, first.records)
