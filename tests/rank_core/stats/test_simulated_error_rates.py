"""The error rates and the power that the tests promise, by simulation on calibrated variances.

Three kinds of test collections, calibrated on published tables: 249 queries of news (R04), 145
deep-judged (DL), 5193 with sparse judgments (MSM). Most simulations draw the sufficient statistics
of the balanced normal model instead of scores, so that 100,000 sweeps cost a second. Each runs
small, where a wrong formula already shows, and at full size in the long stage.
"""

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.scopes import infer, scope_test


def small_and_full(names, small, full):
    sizes = [small, pytest.param(*full, marks=pytest.mark.long)]
    return pytest.mark.parametrize(names, sizes)


small_and_full_grid = small_and_full(["num_sweeps"], (2_000,), (100_000,))
COLLECTIONS = {  # sigma of query x system, sigma of the residual, queries
    "R04": (0.06, 0.05, 249),
    "DL": (0.04, 0.04, 145),
    "MSM": (0.09, 0.12, 5193),
}


@cache
def simulate(collection, *, S, sigma_S, delta=0.0, num_sweeps=100_000, collapse=0.0, seed=0):
    """The tests of `num_sweeps` pairs of systems that truly differ by delta."""
    sigma_MQ, sigma_E, Q = collection
    rng = np.random.default_rng(seed)

    def chi_square(df):
        return rng.chisquare(df, num_sweeps) / df

    V_s, V_e, mean = [], [], []
    for shift in (delta, 0.0):
        run_BS = rng.normal(0, math.hypot(sigma_S, sigma_E / math.sqrt(Q)), (num_sweeps, S))
        run_BS -= 0.37 * (rng.random((num_sweeps, S)) < collapse)
        own_B = rng.normal(0, sigma_MQ / math.sqrt(Q), num_sweeps)
        mean.append(shift + own_B + run_BS.mean(axis=1))
        V_s.append(run_BS.var(axis=1, ddof=1) / S)
        V_e.append(sigma_E**2 / (Q * S) * chi_square((S - 1) * (Q - 1)))
    return infer(
        delta=mean[0] - mean[1],
        variance_queries=2 * (sigma_MQ**2 + sigma_E**2 / S) / Q * chi_square(Q - 1),
        variance_seeds=tuple(V_s),
        variance_error=tuple(V_e),
        num_seeds=(S, S),
        num_queries=Q,
    )


def true_variance(collection, *, S, sigma_S):
    """V_q and V of the difference of two systems."""
    sigma_MQ, sigma_E, Q = collection
    V_q = 2 * (sigma_MQ**2 + sigma_E**2 / S) / Q
    return V_q, V_q + 2 * sigma_S**2 / S


GRID = [
    (name, S, sigma_S)
    for name in COLLECTIONS
    for S in (3, 5, 10)
    for sigma_S in (0.0, 0.002, 0.005, 0.01)
]


@small_and_full_grid
def test_the_deciding_scope_holds_its_level(num_sweeps):
    for name, S, sigma_S in GRID:
        tests = simulate(COLLECTIONS[name], S=S, sigma_S=sigma_S, num_sweeps=num_sweeps)
        assert 0.03 <= (tests.p_both < 0.05).mean() <= 0.07, (name, S, sigma_S)


@small_and_full_grid
def test_the_queries_scope_is_wrong_as_often_as_predicted(num_sweeps):
    for name, S, sigma_S in GRID:
        V_q, V = true_variance(COLLECTIONS[name], S=S, sigma_S=sigma_S)
        predicted = 2 * stats.norm.sf(stats.norm.isf(0.025) * math.sqrt(V_q / V))
        tests = simulate(COLLECTIONS[name], S=S, sigma_S=sigma_S, num_sweeps=num_sweeps)
        wrong = (tests.p_queries < 0.05).mean()
        assert wrong == pytest.approx(predicted, abs=0.03), (name, S, sigma_S)


@small_and_full_grid
def test_collapsing_runs_make_the_deciding_scope_cautious_and_the_queries_scope_wild(num_sweeps):
    for S in (3, 5, 10):
        settings = {"S": S, "sigma_S": 0.005, "collapse": 0.1, "num_sweeps": num_sweeps}
        tests = simulate((0.09, 0.08, 200), **settings)
        assert (tests.p_both < 0.05).mean() <= 0.05, S
        assert (tests.p_queries < 0.05).mean() > 0.4, S


def raw_scores(rng, *, S, Q, sigma_S=0.005, num_systems=2):
    """Bounded scores: a tenth of the queries are all 0, the rest steps of .01 in [0, 1]."""
    query_Q = rng.beta(1.2, 1.8, Q)
    dead_Q = rng.random(Q) < 0.1
    score_KSQ = (
        query_Q
        + rng.normal(0, 0.06, (num_systems, 1, Q))
        + rng.normal(0, sigma_S, (num_systems, S, 1))
        + rng.normal(0, 0.05, (num_systems, S, Q))
    )
    return np.where(dead_Q, 0.0, np.clip(score_KSQ, 0, 1).round(2))


# The simulation's own standard error is .012 or .004.
@small_and_full(["num_sweeps", "margin"], (300, 0.035), (3000, 0.02))
def test_bounded_zero_inflated_scores_hold_the_level_too(num_sweeps, margin):
    for S in (3, 5):
        rng = np.random.default_rng(1)
        p = [scope_test(*raw_scores(rng, S=S, Q=249)).p_both for _ in range(num_sweeps)]
        assert abs((np.array(p) < 0.05).mean() - 0.05) <= margin, S
