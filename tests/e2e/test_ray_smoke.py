"""The one sweep on Ray that is not about failures: it leaves what the local engine leaves."""

import re
import shutil
import sys

import pandas as pd
import pytest

from tests.e2e.conftest import ROOT, trials_of, values_of

pytestmark = pytest.mark.ray


def trial_folders(sweep):
    return sorted(sweep.folder.parents[1].glob("trials/*-seed*"))


def test_both_engines_give_the_same_values_bit_for_bit(smoke, ray_smoke):
    ours, theirs = (values_of(sweep.folder) for sweep in (smoke, ray_smoke))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    for mine, other in zip(trial_folders(smoke), trial_folders(ray_smoke), strict=True):
        assert mine.name == other.name
        for name in ("dev.run.gz", "test.run.gz", "per_query.parquet"):
            assert (mine / name).read_bytes() == (other / name).read_bytes()


def test_both_engines_leave_the_same_table_and_report(smoke, ray_smoke):
    costs = ["train_seconds", "eval_seconds", "peak_memory_bytes"]
    ours, theirs = (trials_of(sweep.folder).drop(columns=costs) for sweep in (smoke, ray_smoke))
    keys = ["cell", "seed"]
    pd.testing.assert_frame_equal(
        ours.sort_values(keys, ignore_index=True), theirs.sort_values(keys, ignore_index=True)
    )
    for name in ("comparisons.csv", "table.md"):
        ours, theirs = (
            (sweep.folder / "report" / name).read_text() for sweep in (smoke, ray_smoke)
        )
        assert ours == theirs
    assert " slot" in ray_smoke.text and "one at a time in this process" in smoke.text
    page = ray_smoke.folder / "report" / "index.html"
    assert page.stat().st_size > 1000 and str(page) in ray_smoke.text


def test_mlflow_has_the_runs_of_both_engines(smoke, ray_smoke, read_mlflow):
    ours, theirs = (
        read_mlflow(f"sqlite:///{sweep.storage / 'mlflow.db'}") for sweep in (smoke, ray_smoke)
    )
    assert ours.keys() == theirs.keys() and len(ours) == 6
    for name, (status, metrics) in ours.items():
        assert theirs[name][0] == status == "FINISHED"
        assert theirs[name][1].keys() == metrics.keys()
        assert theirs[name][1]["train/loss"] == metrics["train/loss"]


def test_the_same_command_again_launches_nothing_and_needs_no_ray(ray_smoke, run_sweep, tmp_path):
    # Standard error names every module that is imported.
    imports = [sys.executable, "-X", "importtime"][1:]
    script = str(ROOT / "sweeps" / "window_stride.py")
    copy = shutil.copytree(ray_smoke.storage, tmp_path / "results")
    before = {path: path.stat().st_mtime_ns for path in copy.glob("trials/*/*")}
    again = run_sweep(copy, "--smoke-test", program=[*imports, script])
    assert "nothing to launch" in again.text and "6 of them done" in again.text
    modules = set(re.findall(r"\| +([\w.]+)$", again.text, re.MULTILINE))
    assert "torch" in modules
    assert "ray" not in modules
    assert {path: path.stat().st_mtime_ns for path in copy.glob("trials/*/*")} == before


@pytest.mark.long
def test_asha_stops_trials_without_a_result_and_the_others_run_all_seeds(run_sweep, tmp_path):
    words = ("--smoke-test", "--search", "asha", "--asha-eta", "2", "--tracking-uri", "none")
    sweep = run_sweep(tmp_path / "results", *words)
    trials = trials_of(sweep.folder)
    assert set(trials["status"]) <= {"done", "stopped"}
    seeds = trials[trials["status"] == "done"].groupby("cell")["seed"].nunique()
    assert set(seeds) == {2} and len(seeds) >= 2  # the baseline and the best
    for row in trials[trials["status"] == "stopped"].itertuples():
        result = sweep.storage / "trials" / f"{row.cell}-seed1" / "result.json"
        assert row.seed == 1 and not result.exists()
