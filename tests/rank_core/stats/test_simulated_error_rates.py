"""The error rates and the power that the tests promise, by simulation on calibrated variances.

Three kinds of test collections, calibrated on published tables: 249 queries of news (R04), 145
deep-judged (DL), 5193 with sparse judgments (MSM). Most simulations draw the sufficient statistics
of the balanced normal model instead of scores, so that 100,000 sweeps cost a second. Each runs
small, where a wrong formula already shows, and at full size in the long stage.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rank_core.stats.design import Goal, Variances, planned_power
from rank_core.stats.multiplicity import holm
from rank_core.stats.scopes import infer, scope_test
from rank_core.stats.selection import selected_gain
from tests.rank_core.stats.matrices import matrix_of


def small_and_full(names, small, full):
    sizes = [small, pytest.param(*full, marks=pytest.mark.long)]
    return pytest.mark.parametrize(names, sizes)


small_and_full_grid = small_and_full(["num_sweeps"], (5_000,), (100_000,))
COLLECTIONS = {  # sigma of query x system, sigma of the residual, queries
    "R04": (0.06, 0.05, 249),
    "DL": (0.04, 0.04, 145),
    "MSM": (0.09, 0.12, 5193),
}


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


@small_and_full_grid
def test_the_power_is_there_and_the_formula_knows_it(num_sweeps):
    for name, S, delta, least in (
        ("R04", 5, 0.02, 0.80),
        ("DL", 5, 0.02, 0.85),
        ("MSM", 10, 0.01, 0.88),
        ("R04", 3, 0.02, 0.0),
        ("DL", 3, 0.02, 0.0),
        ("MSM", 3, 0.01, 0.0),
    ):
        sigma_MQ, sigma_E, Q = COLLECTIONS[name]
        settings = {"S": S, "sigma_S": 0.005, "delta": delta, "num_sweeps": num_sweeps}
        simulated = (simulate(COLLECTIONS[name], **settings).p_both < 0.05).mean()
        planned = planned_power(
            Variances(difference=sigma_MQ * math.sqrt(2), seed=0.005, residual=sigma_E),
            Goal(delta),
            num_seeds=S,
            num_queries=Q,
        )
        assert simulated >= least, (name, S)
        assert planned == pytest.approx(simulated, abs=0.02), (name, S)


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


@small_and_full(["num_sweeps"], (500,), (3000,))
def test_the_drawn_statistics_are_those_of_drawn_scores(num_sweeps):
    rng = np.random.default_rng(2)
    sigma_MQ, sigma_E, Q = 0.06, 0.05, 60
    tests = [
        scope_test(
            *(
                rng.normal(0, sigma_MQ, Q)
                + rng.normal(0, 0.01, (3, 1))
                + rng.normal(0, sigma_E, (3, Q))
                for _ in range(2)
            )
        )
        for _ in range(num_sweeps)
    ]
    drawn = simulate((sigma_MQ, sigma_E, Q), S=3, sigma_S=0.01)
    for name in ("p_queries", "p_seeds", "p_both"):
        from_scores = np.array([getattr(test, name) for test in tests])
        assert stats.ks_2samp(from_scores, getattr(drawn, name)).pvalue > 0.001, name


@small_and_full(["num_sweeps"], (300,), (3000,))
def test_seventeen_null_comparisons_hold_the_familywise_level_only_in_both(num_sweeps):
    sigma_MQ, sigma_E, Q = COLLECTIONS["R04"]
    S, sigma_S, K = 3, 0.005, 18
    rng = np.random.default_rng(3)
    wrong = {"both": 0, "queries": 0}
    for _ in range(num_sweeps):
        mean_KQ = rng.normal(0, math.hypot(sigma_MQ, sigma_E / math.sqrt(S)), (K, Q))
        mean_KQ += rng.normal(0, sigma_S / math.sqrt(S), (K, 1))
        V_s = (sigma_S**2 + sigma_E**2 / Q) / S * rng.chisquare(S - 1, K) / (S - 1)
        df = (S - 1) * (Q - 1)
        V_e = sigma_E**2 / (Q * S) * rng.chisquare(df, K) / df
        delta_KQ = mean_KQ[1:] - mean_KQ[0]
        found = infer(
            delta=delta_KQ.mean(axis=1),
            variance_queries=delta_KQ.var(axis=1, ddof=1) / Q,
            variance_seeds=(V_s[1:], V_s[0]),
            variance_error=(V_e[1:], V_e[0]),
            num_seeds=(S, S),
            num_queries=Q,
        )
        wrong["both"] += (holm(found.p_both) < 0.05).any()
        wrong["queries"] += (holm(found.p_queries) < 0.05).any()
    assert wrong["both"] / num_sweeps <= 0.06
    assert wrong["queries"] / num_sweeps > 0.1


# The mean of 400 gains has a standard error of .0003, that of 25 four times as much.
@small_and_full(["num_gains", "error"], (25, 0.0012), (400, 0.0003))
def test_the_corrected_gain_of_the_best_of_eighteen_equals_is_unbiased(num_gains, error):
    rng = np.random.default_rng(4)
    S, Q, K = 3, 200, 18
    found = []
    for _ in range(num_gains):
        score_KSQ = (
            rng.normal(0, 0.05, (K + 1, 1, Q))
            + rng.normal(0, 0.005, (K + 1, S, 1))
            + rng.normal(0.4, 0.08, (K + 1, S, Q))
        )
        scores = {f"cell{k}": score_SQ for k, score_SQ in enumerate(score_KSQ)}
        matrix = matrix_of(scores)
        found.append(selected_gain(matrix, baseline="cell0", rng=rng, num_replicates=300))
    assert np.mean([gain.naive for gain in found]) == pytest.approx(0.0103, abs=4 * error)
    assert abs(np.mean([gain.corrected for gain in found])) <= 5 * error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The MLE may be on the boundary")
@small_and_full(["num_sweeps"], (2,), (20,))
def test_the_standard_error_is_that_of_the_crossed_mixed_model(num_sweeps):
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    rng = np.random.default_rng(5)
    S, Q = 4, 20
    compared = 0
    while compared < num_sweeps:
        query_Q = rng.normal(0.5, 0.2, Q)
        score_KSQ = (
            query_Q
            + rng.normal(0, 0.08, (2, 1, Q))
            + rng.normal(0, 0.05, (2, S, 1))
            + rng.normal(0, 0.05, (2, S, Q))
        )
        test = scope_test(*score_KSQ)
        interior = (
            test.variance_seeds_a > 1.5 * test.variance_error_a
            and test.variance_seeds_b > 1.5 * test.variance_error_b
        )
        if not interior:  # the model pools both systems, the closed form cuts each at 0
            continue
        system, seed, query = (index.ravel() for index in np.indices(score_KSQ.shape))
        table = pd.DataFrame(
            {"y": score_KSQ.ravel(), "system": system, "query": query, "everything": 1}
        )
        table["seed"] = system * S + seed
        table["cell"] = system * Q + query
        parts = {"q": "0 + C(query)", "s": "0 + C(seed)", "sq": "0 + C(cell)"}
        fit = mixed.MixedLM.from_formula(
            "y ~ system", groups="everything", vc_formula=parts, data=table
        ).fit(reml=True, method=["powell"], xtol=1e-10, ftol=1e-12)
        assert fit.bse["system"] == pytest.approx(test.se_both, rel=1e-5)
        assert -fit.params["system"] == pytest.approx(test.delta, abs=1e-8)
        compared += 1
