"""Every p of comparisons.csv is computed again from results.json alone, by docs/statistics.md."""

import json
import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from sweeps.report.build import write_report
from tests.sweeps.report.ranked_sweep import CELLS, write_ranked_sweep
from tests.sweeps.systems.test_load import write_sweep

DRAWS = 400_000


def two_sided(delta, se, df):
    return 2 * stats.t.sf(abs(delta) / se, df)


def results_of(folder):
    """results.json of a sweep's report."""
    return json.loads((write_report(folder).folder / "results.json").read_text())


def welch_p(delta, se, parts):
    """Welch's second order, at most Satterthwaite's."""
    u, a, b, fewest = (parts[name] for name in ("first", "square", "cubic", "fewest"))

    def df(z):
        bend = max(b - u**2, 0)
        second = u - 2 * a + 16 / 3 * b - 10 / 3 * u**2 + 4 / 3 * (z**2 - 1 / (1 + z**2)) * bend
        return 1 / min(max(second, u), max(u, 1 / fewest))

    z = optimize.brentq(
        lambda z: stats.norm.sf(z) - stats.t.sf(abs(delta) / se, df(z)), 0, 38, xtol=1e-12
    )
    return 2 * stats.norm.sf(z)


def behrens_fisher_p(test, family):
    """The p of two parts, by plain integration over the second one."""
    S, d_0 = test["df_runs_a"] + 1, family["prior_df"]
    V_s = (d_0 * family["prior_variance"] + (S - 1) * S * test["variance_seeds_a"]) / (d_0 + S - 1)
    V_q, scale = test["variance_queries"] - test["variance_error_a"], math.sqrt(V_s / S)
    df = min(d_0 + S - 1, family["pool_df"])

    def density(x):
        rest = (abs(test["delta"]) - scale * x, abs(test["delta"]) + scale * x)
        tails = sum(stats.t.sf(one / math.sqrt(V_q), test["df_queries"]) for one in rest)
        return stats.t.pdf(x, df) * tails

    return integrate.quad(density, -np.inf, np.inf, epsabs=1e-12, limit=500)[0]


def max_t(p_K, R_KK):
    """Step-down, the probability of the smallest p by plain simulation of correlated normals."""
    p_K, R_KK = np.asarray(p_K), np.asarray(R_KK)
    z_NK = np.random.default_rng(8).multivariate_normal(
        np.zeros(len(p_K)), R_KK, DRAWS, method="eigh"
    )
    adjusted, largest = np.empty(len(p_K)), 0.0
    order = np.argsort(p_K)
    for step, k in enumerate(order):
        critical = stats.norm.isf(p_K[k] / 2)
        share = (np.abs(z_NK[:, order[step:]]).max(axis=1) >= critical).mean()
        largest = adjusted[k] = max(largest, share, p_K[k])
    return adjusted


def holm(p_K):
    adjusted, largest = np.empty(len(p_K)), 0.0
    for step, k in enumerate(np.argsort(p_K)):
        largest = adjusted[k] = max(largest, min(1.0, (len(p_K) - step) * p_K[k]))
    return adjusted


RULES = {
    "variances agree": dict(seeds=(1, 2, 3)),
    "variances disagree": dict(seeds=(1, 2, 3), fates={(3, 2): "collapsed"}),
    "five seeds": dict(seeds=(1, 2, 3, 4, 5)),
    "by Holm": dict(seeds=(1, 2, 3), correction="holm"),
    "not corrected": dict(seeds=(1, 2, 3), correction="none"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RULES)
def test_every_p_is_computed_again(case, tmp_path):
    options = {"correction": "max-t"} | RULES[case]
    results = results_of(write_sweep(tmp_path, num_queries=60, effect=0.01, **options))
    names = ("comparisons", "further_comparisons", "first_stage_comparisons")
    disagree = {family["seeds_agree"] for family in results["families"]} == {False}
    assert disagree == (case == "variances disagree")
    compute_again(results, [line for name in names for line in results[name]])


@pytest.mark.slow
def test_the_p_of_a_row_with_the_first_stage_against_its_own_model_is_computed_again(tmp_path):
    cells = (*CELLS, ("maxp-w20-s20-2", "MaxP 20", "maxp"))
    results = results_of(write_ranked_sweep(tmp_path, cells=cells, interpolate="all"))
    lines = results["own_model_comparisons"]
    assert {line["paired_runs"] for line in lines} == {True} and len(lines) == 6
    compute_again(results, lines)


@pytest.mark.slow
def test_p_of_few_unlike_runs_over_the_first_stage_is_computed_again(tmp_path):
    cells = (*CELLS, ("maxp-w20-s20-2", "MaxP 20", "maxp"))
    results = results_of(write_ranked_sweep(tmp_path, cells=cells))
    [family] = [one for one in results["families"] if one["baselines"][0] == "first_stage"][:1]
    assert family["p"] == "behrens-fisher"
    compute_again(results, results["first_stage_comparisons"])


def compute_again(results, lines):
    """The p of these lines, by their families."""
    tests = {
        (t["measure"], t["system"], t["baseline"], t["paired_runs"]): t
        for t in results["scope_tests"]
    }
    assert len(tests) == len(results["scope_tests"])
    compared = {(c["measure"], c["system"], c["baseline"]): c for c in lines}
    assert compared
    for key, one in compared.items():
        test = tests[*key, one["paired_runs"]]
        again = two_sided(one["delta"], one["se_queries"], one["num_queries"] - 1)
        assert one["p_queries"] == pytest.approx(again, rel=1e-9)
        assert one["p_both"] == pytest.approx(
            welch_p(one["delta"], one["se_both"], test["welch"]), rel=1e-6
        )
        if one["df_moderated"] is not None:
            moderated = two_sided(one["delta"], one["se_moderated"], one["df_moderated"])
            assert one["p_moderated"] == pytest.approx(moderated, rel=1e-9)
    families = 0
    for family in results["families"]:
        keys = [
            (family["measure"], *pair)
            for pair in zip(family["systems"], family["baselines"], strict=True)
        ]
        if not {*keys} <= compared.keys():
            continue
        families += 1
        rows = [compared[key] for key in keys]
        assert {row["paired_runs"] for row in rows} == {family["paired_runs"]}
        own = np.array([row["p_both"] for row in rows])
        second = np.array([row["p_moderated"] or math.nan for row in rows])
        p_K = {
            "own": own,
            "moderated": np.where(np.isnan(second), own, second),
            "behrens-fisher": second,
            "larger": np.fmax(own, second),
        }[family["p"]]
        R_KK = family["correlation_both"]
        if family["correction"] == "max-t":
            corrected = max_t(p_K, R_KK)
        else:
            corrected = holm(p_K) if family["correction"] == "holm" else p_K
        if family["p"] == "behrens-fisher":
            by_parts = [
                behrens_fisher_p(tests[*key, family["paired_runs"]], family) for key in keys
            ]
            assert second == pytest.approx(by_parts, rel=1e-3)
        if family["p"] in ("moderated", "behrens-fisher"):
            corrected = np.fmax(corrected, own)
        found = [row["p_both_adjusted"] for row in rows]
        assert found == pytest.approx(corrected, rel=0.02, abs=0.002)
        assert {row["correction"] for row in rows} == {family["text"]}
    assert families == len({key[0] for key in compared})
