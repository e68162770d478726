"""Confirmations: what is chosen, what is frozen, what is refused, what the report says."""

import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from sweeps.driver.confirmation import (
    FILE,
    Shortlist,
    choose,
    confirmation_stores,
    find_shortlist,
    freeze,
    read_shortlist,
)
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import Options, parse
from sweeps.plan.plan import Plan
from sweeps.report.analysis import analyse
from sweeps.report.conclusions import confirmation
from sweeps.report.load import load_sweep
from sweeps.report.reliability import assess
from sweeps.report.sections.reliability import reliability_lines
from sweeps.store.checksums import COSTS
from sweeps.store.plan_description import manifest
from sweeps.store.sweep_file import update_sweep_file
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable
from sweeps.window_stride import EXPERIMENT
from tests.sweeps.report.test_load import write_sweep

BEST = "maxp-w64-s48-000000000002"
BASELINE = "firstp-w64-s64-000000000000"


def first_sweep(storage: Path, **changes: Any) -> Store:
    """A synthetic sweep in which MaxP 64/48 is the best on dev and MaxP 128/64 on test."""
    store = Store(str(storage), "window_stride")
    write_sweep(store.folder, effect=0.06, **changes)
    table = pd.read_parquet(store.folder / "per_query.parquet")
    on_dev = table["split"] == "dev"
    table.loc[on_dev & (table["cell"] == BEST), "value"] = 0.9
    table.loc[on_dev & (table["cell"] == BASELINE), "value"] = 0.95
    table.to_parquet(store.folder / "per_query.parquet")
    for cell, seed in table[["cell", "seed"]].drop_duplicates().itertuples(index=False):
        folder = store.folder / "runs" / f"{cell}-seed{seed}"
        folder.mkdir(parents=True)
        settings = {"model.name": cell.partition("-")[0], "chunking.window": 64, "seed": int(seed)}
        (folder / "config.json").write_text(json.dumps(settings))
        result = {"status": "done"} | dict.fromkeys(COSTS, 1)
        (folder / "result.json").write_text(json.dumps(result))
    return store


def asked(storage: Path | str, *words: str) -> Options:
    words = ("--confirm", "--storage", str(storage), *words)
    return parse(words, prog="window_stride.py", description="")


def found(storage: Path | str, *words: str) -> Shortlist:
    options = asked(storage, *words)
    stores = confirmation_stores(Store(options.storage, EXPERIMENT.name), options)
    return find_shortlist(*stores, options)


def test_the_winner_is_the_best_on_dev_and_never_the_baseline(tmp_path):
    chosen = choose(first_sweep(tmp_path))
    assert (chosen.winner.cell, chosen.winner.label) == (BEST, "MaxP 64/48")
    assert chosen.baseline.cell == BASELINE and chosen.num_candidates == 4
    assert chosen.dev_mean == pytest.approx(0.9)
    assert chosen.winner.settings == {"model.name": "maxp", "chunking.window": 64}


def test_a_sweep_in_a_remote_storage_is_chosen_from_alike(tmp_path):
    local, remote = first_sweep(tmp_path), Store(f"memory://{uuid.uuid4().hex}", "window_stride")
    remote.fs.put(f"{local.folder}/", f"{remote.root}/", recursive=True)
    assert choose(remote) == choose(local)
    confirmation = Store(remote.storage, "window_stride-confirm")
    confirmation.open()
    freeze(confirmation, found(remote.storage))
    (confirmation.folder / FILE).unlink()  # another machine has another mirror
    assert read_shortlist(confirmation.pull_file(FILE)) == choose(local)


def test_the_collection_is_named_where_there_are_several(tmp_path, collection_folder):
    first = first_sweep(tmp_path)
    own = load_collection(str(collection_folder)).content_hash
    for name, contents in (("woods", "0000000000000000"), ("woods-" + own[:6], own)):
        shutil.copytree(first.folder, tmp_path / "several" / "window_stride" / name)
        path = tmp_path / "several" / "window_stride" / name / "sweep.json"
        update_sweep_file(path.parent, collection={"name": "woods", "content_hash": contents})
    experiment = Store(str(tmp_path / "several"), "window_stride")
    with pytest.raises(BadInput, match=rf"needs --collection .*: woods, woods-{own[:6]}$"):
        confirmation_stores(experiment, asked(experiment.storage))
    options = asked(experiment.storage, "--collection", str(collection_folder))
    stores = confirmation_stores(experiment, options)
    assert [store.sweep for store in stores] == [
        f"{name}/woods-{own[:6]}" for name in ("window_stride", "window_stride-confirm")
    ]
    assert find_shortlist(*stores, options) == choose(first)
    shutil.rmtree(stores[0].folder)
    [left, _] = confirmation_stores(experiment, asked(experiment.storage))
    assert left.sweep == "window_stride/woods", "the only one needs no name"


def test_no_test_value_moves_the_choice(tmp_path):
    store = first_sweep(tmp_path)
    before = choose(store)
    table = pd.read_parquet(store.folder / "per_query.parquet")
    others = (table["split"] == "test") & ~table["cell"].isin([BEST, BASELINE])
    table.loc[others, "value"] = 1.0
    table.to_parquet(store.folder / "per_query.parquet")
    assert choose(store) == before


def test_the_naive_gain_is_that_of_the_first_report(tmp_path):
    store = first_sweep(tmp_path)
    primary = {one.system: one for one in analyse(load_sweep(store.folder)).primary}
    assert choose(store).naive_gain == pytest.approx(primary[BEST].delta)


def test_fresh_seeds_follow_every_seed_that_was_ever_launched(tmp_path):
    store = first_sweep(tmp_path)
    assert found(tmp_path).fresh_seeds == (4, 5, 6)
    trials = pd.read_parquet(store.folder / "trials.parquet")
    # Of another plan in the same folder: its cell is not in sweep.json any more.
    other = trials.head(1).assign(cell="maxp-w9-s9-0", seed=7)
    pd.concat([trials, other]).to_parquet(store.folder / "trials.parquet")
    assert found(tmp_path).used_seeds == (1, 2, 3, 7)
    assert found(tmp_path).fresh_seeds == (8, 9, 10)
    assert found(tmp_path, "--num-seeds", "5").fresh_seeds == (8, 9, 10, 11, 12)
    assert found(tmp_path, "--seeds", "5,40").fresh_seeds == (5, 40)


def test_seeds_that_were_used_are_refused_with_the_free_ones(tmp_path):
    first_sweep(tmp_path)
    law = r"must not have been used in window_stride, got 2; used: 1, 2, 3; free from 4 on"
    with pytest.raises(BadInput, match=law):
        found(tmp_path, "--seeds", "2,9")


def test_without_a_finished_sweep_there_is_nothing_to_confirm(tmp_path):
    with pytest.raises(BadInput, match=r"needs a finished sweep.* has no sweep\.json, trials"):
        found(tmp_path)
    store = first_sweep(tmp_path)
    (store.folder / "per_query.parquet").unlink()
    with pytest.raises(BadInput, match=r"has no per_query\.parquet. Run the sweep without"):
        found(tmp_path)


@pytest.mark.parametrize(
    ("fates", "message"),
    [
        ({(0, 2): "running"}, "finished baseline in window_stride; FirstP has unfinished seeds 2"),
        ({(0, 3): "planned"}, "FirstP has unfinished seeds 3"),
        ({(0, seed): "failed" for seed in (1, 2, 3)}, "FirstP has no seed with scores"),
        ({(c, s): "failed" for c in (1, 2, 3, 4) for s in (1, 2, 3)}, "needs a finished cell"),
    ],
)
def test_a_sweep_without_baseline_or_candidate_is_refused(tmp_path, fates, message):
    first_sweep(tmp_path, fates=fates)
    with pytest.raises(BadInput, match=message):
        found(tmp_path)


@pytest.mark.parametrize("over", [True, False])
def test_a_halving_is_confirmed_when_it_has_ended(tmp_path, over):
    search = {"name": "halving", "over": over, "num_seeds": 5, "standings": []}
    first_sweep(tmp_path, search=search)
    if over:
        assert found(tmp_path).fresh_seeds == (4, 5, 6, 7, 8)
    else:
        with pytest.raises(BadInput, match="needs a halving that has ended"):
            found(tmp_path)


def test_a_trial_without_its_settings_is_named(tmp_path):
    store = first_sweep(tmp_path)
    (store.folder / "runs" / f"{BEST}-seed1" / "config.json").unlink()
    with pytest.raises(BadInput, match=rf"{BEST}-seed1/config\.json is missing"):
        found(tmp_path)


def frozen(tmp_path: Path, *words: str) -> Path:
    """A frozen shortlist of the synthetic sweep."""
    store = Store(str(tmp_path), "window_stride-confirm")
    store.open()
    freeze(store, found(tmp_path, *words))
    return store.folder / FILE


def test_a_frozen_shortlist_stays_whatever_happens_to_the_first_sweep(tmp_path):
    store = first_sweep(tmp_path)
    path = frozen(tmp_path, "--num-seeds", "2")
    before, shortlist = path.read_bytes(), found(tmp_path)
    table = pd.read_parquet(store.folder / "per_query.parquet")
    table["value"] = 1 - table["value"]
    table.to_parquet(store.folder / "per_query.parquet")
    assert choose(store).winner.cell != BEST
    assert found(tmp_path) == shortlist and shortlist.winner.cell == BEST
    assert shortlist.seeds(asked(tmp_path)) == (4, 5)
    assert shortlist.seeds(asked(tmp_path, "--num-seeds", "3")) == (4, 5, 6)
    assert frozen(tmp_path).read_bytes() == before
    assert json.loads(before)["hash"] == shortlist.hash


def test_another_choice_cannot_replace_a_frozen_one(tmp_path):
    first_sweep(tmp_path)
    path = frozen(tmp_path)
    other = replace(read_shortlist(path), dev_mean=0.5)
    with pytest.raises(BadInput, match="a shortlist is frozen once"):
        freeze(Store(str(tmp_path), "window_stride-confirm"), other)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"MaxP 64/48"', '"MaxP 64/64"', "must be unchanged"),
        ('"winner"', '"looser"', "must hold an unchanged"),
        ("{", "", "must hold an unchanged"),
    ],
)
def test_an_edited_shortlist_is_refused(tmp_path, old, new, message):
    first_sweep(tmp_path)
    path = frozen(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(BadInput, match=rf"shortlist\.json: {message}"):
        found(tmp_path)


@pytest.fixture
def swept_for_real(plan_of, tmp_path, leave_result) -> Plan:
    """A plan over the small collection whose trials left made-up results on dev and test."""
    words = ["chunking.window=48", "chunking.stride=48,32", "training.max_steps=2"]
    plan = plan_of(*words, "--num-seeds", "2", "evaluation.measures=nDCG@10")
    store = Store(str(tmp_path / "results"), "window_stride")
    store.open()
    rows = []
    for trial in plan.trials():
        leave_result(store, trial.name)
        settings = {**trial.config.settings(), "training.micro_batch_tokens": 2}
        path = store.folder / "runs" / trial.name / "config.json"
        path.write_text(json.dumps(settings))
        level = 0.1 * plan.cells.index(trial.cell)
        rows += [
            (trial.cell.cell, trial.seed, split, f"q{i}", "nDCG@10", level + i / 10)
            for split in ("dev", "test")
            for i in range(3)
        ]
    table = TrialTable(store)
    table.plan(plan, store.finished())
    table.write_tables()
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    pd.DataFrame(rows, columns=columns).to_parquet(store.folder / "per_query.parquet", index=False)
    manifest(plan, []).write(store.folder)
    return plan


def test_the_confirmed_cells_are_the_first_ones_to_the_last_setting(swept_for_real, tmp_path):
    first, options = swept_for_real, asked(tmp_path / "results")
    shortlist = found(tmp_path / "results")
    options = replace(options, seeds=shortlist.seeds(options))
    plan = make_plan(shortlist.experiment(EXPERIMENT), options, shortlist.base)
    shortlist.check(plan)
    assert [c.cell for c in plan.cells] == [first.cells[0].cell, first.cells[2].cell]
    assert [c.label for c in plan.cells] == [first.cells[0].label, first.cells[2].label]
    assert plan.cells[1].config.training.micro_batch_tokens == 2
    assert plan.seeds == (3, 4) and plan.base.model.name == "maxp"
    described = manifest(plan, ["--confirm"])
    assert described.sweep == "window_stride-confirm" and described.question.endswith("?")
    assert described.command == "python -m sweeps run window_stride --confirm"
    assert described.confirms["cell"] == described.cells[1].cell
    assert described.confirms["num_candidates"] == 2
    with pytest.raises(BadInput, match=r"trains the frozen cells .* changed since window_stride"):
        shortlist.check(first)


CONFIRMS = {
    "sweep": "window_stride",
    "cell": BEST,
    "label": "MaxP 64/48",
    "dev_mean": 0.9123,
    "num_candidates": 17,
    "naive_gain": 0.0456,
}


def test_the_report_of_a_confirmation_shows_both_gains_and_no_new_choice(tmp_path):
    folder = write_sweep(tmp_path, confirms=CONFIRMS, seeds=(4, 5, 6), num_queries=60)
    analysis = analyse(load_sweep(folder))
    [one] = [one for one in analysis.primary if one.system == BEST]
    text = confirmation(analysis)
    assert "MaxP 64/48 was chosen on dev in window_stride" in text
    assert "the best of 17 candidates (mean nDCG@10 0.912)" in text
    assert "on test was +0.046 in the runs that chose it" in text
    assert text.endswith(f"is {one.delta:+.3f} in these fresh ones.".replace("-", "−"))
    words = dict(reliability_lines(analysis, assess(analysis))).values()
    assert not any("best on dev" in text or "--confirm" in text for text in words)
    assert confirmation(analyse(load_sweep(write_sweep(tmp_path / "plain", num_queries=20)))) == ""


def test_a_confirmation_whose_winner_has_no_run_yet_says_so(tmp_path):
    fates = {(2, seed): "running" for seed in (1, 2, 3)}
    folder = write_sweep(tmp_path, confirms=CONFIRMS, num_queries=20, fates=fates)
    text = confirmation(analyse(load_sweep(folder)))
    assert "+0.046" in text and text.endswith("no fresh one yet.")


def test_a_description_that_confirms_nothing_in_particular_is_refused(tmp_path):
    folder = write_sweep(tmp_path, confirms={"sweep": "window_stride"}, num_queries=5)
    with pytest.raises(BadInput, match=r"sweep\.json: confirms must name .*; missing: cell, label"):
        load_sweep(folder)
