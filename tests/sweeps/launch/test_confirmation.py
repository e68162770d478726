"""Confirmations: what is chosen, what is frozen, what is refused, what the report says."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from sweeps.findings import choice
from sweeps.findings.analysis import analyse
from sweeps.launch.command import main
from sweeps.launch.confirmation import (
    Shortlist,
    choose,
    confirmation_records,
    find_shortlist,
)
from sweeps.plan.options import Options, parse
from sweeps.report.headline import headline
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import read_sweep_file, update_sweep_file
from sweeps.systems.load import load_sweep
from sweeps.window_stride import EXPERIMENT
from tests.sweeps.report.test_search import race, standing
from tests.sweeps.systems.test_load import NAMES, read_values, write_sweep, write_values

BEST = "maxp-w64-s48-000000000002"
BASELINE = "firstp-w64-s64-000000000000"
SWEEP, CONFIRMATION = "window_stride/woods", "window_stride-confirm/woods"


def first_sweep(storage: Path, baseline: float = 0.85, **changes: Any) -> Records:
    """A synthetic sweep in which MaxP 64/48 is the best on dev and MaxP 128/64 on test."""
    place = Storage(str(storage))
    place.open()
    records = Records(place, SWEEP)
    write_sweep(records.folder, effect=0.06, **changes)
    shutil.move(records.folder / "trials", storage / "trials")
    table = read_values(storage)
    on_dev = table["split"] == "dev"
    table.loc[on_dev & (table["cell"] == BEST), "value"] = 0.9
    table.loc[on_dev & (table["cell"] == BASELINE), "value"] = baseline
    for folder in (storage / "trials").iterdir():
        cell, _, seed = folder.name.rpartition("-seed")
        settings = {"model.name": cell.partition("-")[0], "chunking.window": 64, "seed": int(seed)}
        (folder / "config.json").write_text(json.dumps(settings))
        for file in folder.glob("attempt-*.json"):
            file.write_text(json.dumps(json.loads(file.read_text()) | {"sweep": SWEEP}))
    write_values(storage, table)
    return records


def asked(storage: Path | str, *words: str) -> Options:
    words = ("--confirm", "--storage", str(storage), *words)
    return parse(words, prog="window_stride.py", description="")


def found(storage: Path | str, *words: str) -> Shortlist:
    options = asked(storage, *words)
    both = confirmation_records(Records(Storage(options.storage), EXPERIMENT.name), options)
    return find_shortlist(*both, options)


def test_nothing_is_confirmed_where_the_baseline_is_the_best_on_dev(tmp_path):
    first = first_sweep(tmp_path, baseline=0.95)
    with pytest.raises(BadInput, match=r"choice is the baseline; nothing to confirm: .*0\.950"):
        choose(first)
    command = ["--confirm", "--engine", "local", "--storage", str(tmp_path)]
    assert main(EXPERIMENT, command, doc=None) == 2
    assert not (tmp_path / "window_stride-confirm").exists()


def test_the_choice_is_the_best_on_dev_whatever_is_on_test(tmp_path):
    store = first_sweep(tmp_path)
    chosen = choose(store)
    assert (chosen.winner.cell, chosen.winner.label) == (BEST, "MaxP 64/48")
    assert chosen.baseline.cell == BASELINE and chosen.num_candidates == 5
    assert chosen.dev_mean == pytest.approx(0.9)
    assert chosen.winner.settings == {"model.name": "maxp", "chunking.window": 64}
    table = read_values(tmp_path)
    others = (table["split"] == "test") & ~table["cell"].isin([BEST, BASELINE])
    table.loc[others, "value"] = 1.0
    write_values(tmp_path, table)
    assert choose(store) == chosen


def test_the_collection_is_named_where_there_are_several(tmp_path, collection_folder):
    first = first_sweep(tmp_path)
    own = load_collection(str(collection_folder)).content_hash
    for name, contents in (("woods", "0000000000000000"), ("woods-" + own[:6], own)):
        records = Records(first.storage, f"window_stride/{name}")
        facts = {"name": "woods", "content_hash": contents}
        replace(read_sweep_file(first), collection=facts).write(records)
    experiment, storage = Records(first.storage, "window_stride"), str(tmp_path)
    with pytest.raises(BadInput, match=rf"needs --collection .*: woods, woods-{own[:6]}$"):
        confirmation_records(experiment, asked(storage))
    options = asked(storage, "--collection", str(collection_folder))
    both = confirmation_records(experiment, options)
    assert [records.sweep for records in both] == [
        f"{name}/woods-{own[:6]}" for name in ("window_stride", "window_stride-confirm")
    ]
    assert find_shortlist(*both, options).winner == choose(first).winner
    shutil.rmtree(both[0].folder)
    [left, _] = confirmation_records(experiment, asked(storage))
    assert left.sweep == "window_stride/woods", "the only one needs no name"


def test_fresh_seeds_follow_every_seed_that_was_ever_launched(tmp_path):
    store = first_sweep(tmp_path)
    assert found(tmp_path).fresh_seeds == (4, 5, 6)
    # Of another plan in the same folder: its cell is not in sweep.json any more.
    other = tmp_path / "trials" / "maxp-w9-s9-0-seed7"
    shutil.copytree(tmp_path / "trials" / f"{BEST}-seed1", other)
    planned = (*read_sweep_file(store).trials, other.name)
    update_sweep_file(store, trials=planned)
    assert found(tmp_path).used_seeds == (1, 2, 3, 7)
    assert found(tmp_path).fresh_seeds == (8, 9, 10)
    assert found(tmp_path, "--num-seeds", "5").fresh_seeds == (8, 9, 10, 11, 12)
    assert found(tmp_path, "--seeds", "5,40").fresh_seeds == (5, 40)


@pytest.mark.parametrize(
    ("fates", "message"),
    [
        ({(0, 2): "running"}, "FirstP .* 2"),
        ({(0, 3): "planned"}, "FirstP .* 3"),
        ({(0, seed): "failed" for seed in (1, 2, 3)}, "FirstP"),
        ({(c, s): "failed" for c in (1, 2, 3, 4) for s in (1, 2, 3)}, "nDCG@10"),
    ],
)
def test_a_sweep_without_baseline_or_candidate_is_refused(tmp_path, fates, message):
    first_sweep(tmp_path, fates=fates)
    with pytest.raises(BadInput, match=message):
        found(tmp_path)


def test_an_eliminated_cell_is_never_confirmed_however_good_on_dev(tmp_path):
    """MaxP 64/48 has the best mean on dev, over its two seeds before it was eliminated."""
    fates = {(NAMES.index(BEST), seed): "planned" for seed in (3, 4, 5)}
    standings = [standing(at, 5, None) for at in (1, 3, 4)]
    standings += [standing(NAMES.index(BEST), 2, 2, leader=NAMES[4], gap=0.02, p=0.01, level=0.03)]
    search = race(standings=standings)
    seeds = (1, 2, 3, 4, 5)
    store = first_sweep(tmp_path, baseline=0.1, search=search, seeds=seeds, fates=fates)
    dev = read_values(tmp_path).query("split == 'dev' and measure == 'nDCG@10'")
    means = dev.groupby("cell")["value"].mean()
    assert means.idxmax() == BEST
    expected = means.drop([BEST, BASELINE]).idxmax()
    chosen = choose(store)
    assert chosen.winner.cell == expected != BEST
    assert chosen.dev_mean == pytest.approx(means[expected])
    # Where the race eliminated all others, the baseline is left, and nothing is confirmed.
    gone = [standing(at, 2, 2, leader=BASELINE, gap=0.1, p=0.0, level=0.03) for at in (1, 2, 3, 4)]
    update_sweep_file(store, search=race(standings=gone))
    with pytest.raises(BadInput, match="the choice is the baseline; nothing to confirm"):
        choose(store)


@pytest.mark.parametrize("over", [True, False])
def test_an_asha_is_confirmed_when_it_has_ended(tmp_path, over):
    search = {"name": "asha", "over": over, "num_seeds": 5, "standings": []}
    first_sweep(tmp_path, search=search)
    if over:
        assert found(tmp_path).fresh_seeds == (4, 5, 6, 7, 8)
    else:
        with pytest.raises(BadInput, match="--confirm needs"):
            found(tmp_path)


def begin(tmp_path: Path, *words: str) -> None:
    """Writes the confirmation's `sweep.json`, as its command does before a launch."""
    storage = Storage(str(tmp_path))
    confirms = found(tmp_path, *words).experiment(EXPERIMENT).confirms
    first = read_sweep_file(Records(storage, SWEEP))
    replace(first, confirms=confirms).write(Records(storage, CONFIRMATION))


def test_a_choice_stays_whatever_happens_to_the_first_sweep(tmp_path):
    store = first_sweep(tmp_path)
    before = found(tmp_path, "--num-seeds", "2")
    begin(tmp_path, "--num-seeds", "2")
    table = read_values(tmp_path)
    table["value"] = 1 - table["value"]
    write_values(tmp_path, table)
    assert choose(store).winner.cell != BEST
    shortlist = found(tmp_path)
    assert shortlist == before and shortlist.winner.cell == BEST
    assert shortlist.seeds(asked(tmp_path)) == (4, 5)
    assert shortlist.seeds(asked(tmp_path, "--num-seeds", "3")) == (4, 5, 6)


CONFIRMS = {
    "sweep": "window_stride",
    "cell": BEST,
    "label": "MaxP 64/48",
    "dev_mean": 0.9123,
    "num_candidates": 17,
    "naive_gain": 0.0456,
}


def test_a_confirmation_has_both_gains_and_no_new_choice(tmp_path):
    folder = write_sweep(tmp_path, confirms=CONFIRMS, seeds=(4, 5, 6), num_queries=60)
    analysis = analyse(load_sweep(folder))
    [one] = [one for one in analysis.primary if one.system == BEST]
    said = headline(analysis)
    assert (said.system, said.gain) == (BEST, one.delta)
    rows = {row.name: row for row in choice.rows(analysis)}
    assert rows["gain over FirstP in window_stride, which chose"].value == 0.0456
    assert rows["candidates"].value == 17 and rows["mean on dev, which chose"].value == 0.9123
