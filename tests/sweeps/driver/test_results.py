"""The summary rows for MLflow against the report they come from."""

import json
import statistics

import pandas as pd
import pytest

from sweeps.driver.results import summary_rows
from sweeps.report.build import write_report
from sweeps.tracking.client import connect
from sweeps.tracking.mlflow_writer import query_table
from sweeps.tracking.names import metric_name
from sweeps.tracking.summary import log_summary
from tests.sweeps.report.test_load import write_sweep


@pytest.mark.usefixtures("no_figures")
def test_a_row_per_configuration_says_what_the_report_says(tmp_path):
    report = write_report(write_sweep(tmp_path, num_queries=60)).folder
    results = json.loads((report / "results.json").read_text())
    rows = {row.config_hash: row for row in summary_rows(report)}
    trials = pd.read_parquet(report.parent / "trials.parquet")
    assert list(rows) == [cell["cell"] for cell in results["cells"] if cell["seeds_used"]]
    for cell in results["cells"]:
        row, seeds = rows[cell["cell"]], [int(seed) for seed in cell["fates"]]
        of_cell = trials[(trials["cell"] == cell["cell"]) & trials["seed"].isin(seeds)]
        assert row.metrics["cost/train_seconds"] == pytest.approx(of_cell["train_seconds"].mean())
        table = query_table(row.per_query())
        assert table["columns"][:2] == ["query_id", "nDCG@10"]
        assert statistics.mean(line[1] for line in table["data"]) == pytest.approx(
            mean := row.metrics["agg/ndcg_cut_10_mean"]
        )
        values = list(cell["measures"]["nDCG@10"]["per_seed"].values())
        assert mean == pytest.approx(statistics.mean(values))
        assert row.metrics["agg/ndcg_cut_10_n"] == len(values)
        assert row.metrics["agg/ndcg_cut_10_std"] == pytest.approx(statistics.stdev(values))
    baseline = rows[results["sweep"]["baseline"]]
    assert baseline.metrics["delta/ndcg_cut_10"] is None and baseline.tags.keys() == {"seeds"}
    for one in results["comparisons"]:
        if one["measure"] == "nDCG@10":
            row, p = rows[one["system"]], one["p_both_adjusted"]
            assert row.metrics["delta/ndcg_cut_10"] == one["delta"]
            assert row.metrics["p_both_adjusted/ndcg_cut_10"] == p
            assert row.tags["significant.ndcg_cut_10"] == ("yes" if p < 0.05 else "no")


@pytest.mark.usefixtures("no_figures")
def test_one_seed_has_no_spread(tmp_path):
    rows = summary_rows(write_report(write_sweep(tmp_path, seeds=(1,), num_queries=60)).folder)
    of = rows[-1].metrics
    assert of["agg/ndcg_cut_10_n"] == 1
    assert of["agg/ndcg_cut_10_std"] is None and of["p_both_adjusted/ndcg_cut_10"] is None


@pytest.mark.slow
def test_the_summary_of_144_trials_is_what_pandas_says(tmp_path):
    """MLflow's own group means are over the hundred runs that a page has loaded."""
    kinds = [("FirstP", 96, 96), *(("MaxP", 16 + w, 8 + w) for w in range(35))]
    fates = {(3, 2): "failed", (5, 1): "collapsed", (7, 4): "diverged"}
    sizes = {"kinds": kinds, "seeds": (1, 2, 3, 4), "num_queries": 30, "fates": fates}
    folder = write_sweep(tmp_path / "sweep", **sizes)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    report = write_report(folder).folder
    assert log_summary(uri, "rank/ws", summary_rows(report), report) == 36
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws/summary")
    runs = {r.data.tags["config.hash"]: r for r in client.search_runs([experiment.experiment_id])}

    scores = pd.read_parquet(folder / "per_query.parquet").query("split == 'test'")
    of_seeds = scores.groupby(["cell", "measure", "seed"])["value"].mean()
    expected = of_seeds.groupby(["cell", "measure"]).agg(["mean", "std", "count"])
    assert len(of_seeds) == 2 * (144 - 2) and len(runs) == 36
    for (cell, measure), (mean, std, count) in expected.iterrows():
        shown, name = runs[cell].data.metrics, metric_name(measure)
        assert shown[f"agg/{name}_mean"] == pytest.approx(mean)
        assert shown[f"agg/{name}_std"] == pytest.approx(std)
        assert shown[f"agg/{name}_n"] == count
    incomplete = {r.data.tags["seeds"] for r in runs.values()} - {"4/4"}
    assert incomplete == {"3/4"}
