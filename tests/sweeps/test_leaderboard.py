"""The summary rows for MLflow against the report they come from."""

import json
import math
import statistics

import pandas as pd
import pytest
from test_report_inputs import write_sweep

from sweeps.leaderboard import summary_rows
from sweeps.report import write_report
from sweeps.tracking.query_table import query_table


def test_a_row_per_configuration_says_what_the_report_says(tmp_path):
    report = write_report(write_sweep(tmp_path)).folder
    results = json.loads((report / "results.json").read_text())
    rows = {row.config_hash: row for row in summary_rows(report)}
    trials = pd.read_parquet(report.parent / "trials.parquet")
    assert list(rows) == [cell["cell"] for cell in results["cells"] if cell["seeds_used"]]
    for cell in results["cells"]:
        found = rows[cell["cell"]].measures["ndcg_cut_10"]
        row, seeds = rows[cell["cell"]], [int(seed) for seed in cell["fates"]]
        of_cell = trials[(trials["cell"] == cell["cell"]) & trials["seed"].isin(seeds)]
        assert row.costs["train_seconds"] == pytest.approx(of_cell["train_seconds"].mean())
        table = query_table(row.per_query)
        assert table["columns"][:2] == ["query_id", "nDCG@10"]
        assert statistics.mean(line[1] for line in table["data"]) == pytest.approx(found.mean)
        values = list(cell["measures"]["nDCG@10"]["per_seed"].values())
        assert found.mean == pytest.approx(statistics.mean(values)) and found.n == len(values)
        assert found.std == pytest.approx(statistics.stdev(values))
    baseline = rows[results["sweep"]["baseline"]].measures["ndcg_cut_10"]
    assert baseline.delta is None and baseline.significant is None
    for one in results["comparisons"]:
        if one["measure"] == "nDCG@10":
            found = rows[one["system"]].measures["ndcg_cut_10"]
            assert (found.delta, found.p_both_adjusted) == (one["delta"], one["p_both_adjusted"])
            assert found.significant == (one["p_both_adjusted"] < 0.05)


def test_one_seed_has_no_spread(tmp_path):
    rows = summary_rows(write_report(write_sweep(tmp_path, seeds=(1,))).folder)
    found = rows[-1].measures["ndcg_cut_10"]
    assert found.n == 1 and math.isnan(found.std) and found.p_both_adjusted is None
