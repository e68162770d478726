"""Paired seeds, compact tables, digits: what is asked for is what is computed and written."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.stats.scopes import infer
from sweeps.commands.compare.command import main
from sweeps.report.comparison import compare_runs
from sweeps.store.test_options import TestOptions

QUERY_4 = np.array([0.3, 0.4, 0.6, 0.7])
LUCK_3 = np.array([-0.1, 0.0, 0.1])
"""Of run i, shared by both systems: it leaves their differences."""
OWN_3 = np.array([0.02, 0.04, 0.06])
HARD_4 = np.array([-0.03, -0.01, 0.01, 0.03])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """B = query + luck, A = B + own seed effect + query effect: without residual."""
    b_34 = QUERY_4 + LUCK_3[:, None]
    a_34 = b_34 + OWN_3[:, None] + HARD_4
    rows = [
        (system, seed + 1, f"q{query}", "AP", float(score_34[seed, query]))
        for system, score_34 in (("B", b_34), ("A", a_34))
        for seed in range(3)
        for query in range(4)
    ]
    columns = ["system", "seed", "query_id", "measure", "value"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "values.csv", index=False)
    return tmp_path / "values.csv"


def test_unequal_seeds_are_not_paired_but_a_deterministic_system_may_stand_beside(
    table: Path,
) -> None:
    values = pd.read_csv(table)
    systems = {name: [rows] for name, rows in values.groupby("system")}
    one_run = values[values["seed"] == 2].drop(columns=["seed", "system"]).iloc[:4]
    tests = TestOptions(paired_seeds=True)
    more = {**systems, "bm25": [one_run]}
    beside = compare_runs(more, None, tests, baselines=["B"], deterministic=["bm25"])
    paired = compare_runs(systems, None, tests, baselines=["B"])
    assert beside.analysis.paired
    [one] = paired.analysis.comparisons
    assert beside.analysis.comparisons[0].p_both == one.p_both
    # The differences are .02, .04, .06 by seed and -.03, -.01, .01, .03 by query, without residual.
    assert one.delta == pytest.approx(0.04, rel=1e-9)
    assert one.se_both**2 == pytest.approx(0.0004 / 3 + 0.002 / 3 / 4, rel=1e-9)
    # The luck that both have is else in the variances of both: .01 / 3 and .0144 / 3.
    [alone] = compare_runs(systems, baselines=["B"]).analysis.comparisons
    assert alone.se_both**2 == pytest.approx(0.002 / 12 + 0.01 / 3 + 0.0144 / 3, rel=1e-9)
    systems["A"] = [values[(values["system"] == "A") & (values["seed"] < 3)]]
    with pytest.raises(BadInput, match="same seeds in every system, got 1, 2 of A and 1, 2, 3 of"):
        compare_runs(systems, None, tests)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_paired_test_keeps_its_level_and_gains_with_the_correlation(correlation: float) -> None:
    """4,000 drawn pairs of 3 runs over 200 queries (standard error .0034 at .05)."""
    rng = np.random.default_rng(int(10 * correlation))
    num, S, Q, df = 4000, 3, 200, 2 * 199
    error, taste = 0.08**2 / Q, 0.05**2 / Q  # of a run's mean, and of a system's
    common, *own = rng.normal(0, 0.01, (3, num, S))
    weight, rest = math.sqrt(correlation), math.sqrt(1 - correlation)
    noise = rng.normal(0, math.sqrt(error), (2, num, S))
    first, second = (weight * common + rest * one + e for one, e in zip(own, noise, strict=True))
    gap = first - second
    delta = gap.mean(axis=1) + rng.normal(0, math.sqrt(2 * taste), num)
    queries = 2 * (taste + error / S) * rng.chisquare(Q - 1, num) / (Q - 1)

    def rejected(shift: float, *means: np.ndarray) -> float:
        of_error = 2 / len(means) * error / S
        found = infer(
            delta=delta + shift,
            variance_queries=queries,
            variance_seeds=tuple(one.var(axis=1, ddof=1) / S for one in means),
            variance_error=tuple(of_error * rng.chisquare(df, num) / df for _ in means),
            num_seeds=(S,) * len(means),
            num_queries=Q,
        )
        return (found.p_both < 0.05).mean()

    assert 0.025 < rejected(0, gap) < 0.062
    paired, alone = rejected(0.03, gap), rejected(0.03, first, second)
    assert alone + 0.15 < paired if correlation else alone - 0.15 < paired < alone


@pytest.mark.usefixtures("no_figures")
def test_compact_is_means_and_letters_in_a_column_per_measure(table: Path, capsys) -> None:
    values = pd.read_csv(table)
    more = values.assign(measure="RR", value=1 - values["value"])
    pd.concat([values, more]).to_csv(table, index=False)
    out = table.parent / "out"
    assert main([str(table), "--compact", "--digits", "2", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if str(out) not in line) <= 80
    table_at = next(at for at, line in enumerate(lines) if line.startswith("system"))
    heading, _, first, second = lines[table_at : table_at + 4]
    assert re.split(r"  +", heading) == ["system", "AP", "RR"]
    assert re.split(r"  +", first) == ["B", "0.50", "0.50"]
    assert re.split(r"  +", second)[:2] == ["A", "0.54"]
    markdown = (out / "table.md").read_text().splitlines()
    assert markdown[0] == "| system | AP | RR |" and len(markdown[2].split("|")) == 5
    latex = (out / "table.tex").read_text()
    assert r"\begin{tabular}{@{}lll@{}}" in latex and r"\toprule" in latex and "±" not in latex
    assert "interval" not in latex and len(latex.partition("caption")[2].splitlines()[0]) < 600
