"""Plans reproduce the published table of detectable differences and keep their own promises."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rank_core.stats.design import (
    Design,
    Goal,
    Variances,
    best_design,
    effective_size,
    floor,
    pairing_gain,
    planned_detectable,
    planned_power,
    planned_variances,
    queries_needed,
    seeds_needed,
)
from rank_core.stats.multiplicity import family_level
from rank_core.stats.scopes import infer
from rank_core.stats.variance import sweep_components
from tests.rank_core.stats.matrices import drawn, matrix_of

ONE = Goal(1.0)
"""Of one comparison; the difference is to be found."""


def robust(seed):
    return Variances(difference=0.06 * math.sqrt(2), seed=seed, residual=0.05)


def deep_learning(seed):
    return Variances(difference=0.04 * math.sqrt(2), seed=seed, residual=0.04)


def marco(seed):
    return Variances(difference=0.09 * math.sqrt(2), seed=seed, residual=0.12)


@pytest.mark.parametrize(
    ("collection", "num_queries", "seed", "S", "correlation"),
    [
        (deep_learning, 43, 0.005, 3, None),
        (robust, 249, 0.01, 5, None),
        (marco, 5193, 0.005, 10, None),
        (robust, 249, 0.01, 3, 0.5),
        (deep_learning, 43, 0.005, 5, 0.0),
        (marco, 5193, 0.005, 5, 0.9),
    ],
)
def test_the_power_of_a_plan_is_that_of_drawn_sweeps(collection, num_queries, seed, S, correlation):
    """Mean squares of two tables, or of one of the differences of paired runs that correlate."""
    plan, Q, num, sides = collection(seed), num_queries, 6_000, 2 if correlation is None else 1
    rng = np.random.default_rng(S)
    V_e = 2 / sides * plan.residual**2 / (Q * S)
    V_s = 2 / sides * (1 - (correlation or 0)) * seed**2 / S
    if sides == 1:
        plan = replace(plan, seed=seed * math.sqrt(1 - correlation), paired=True)
    V_q = plan.difference**2 / Q + sides * V_e
    delta = planned_detectable(plan, ONE, num_seeds=S, num_queries=Q)

    def mean_squares(variance, df):
        return tuple(variance * rng.chisquare(df, num) / df for _ in range(sides))

    found = infer(
        delta=rng.normal(delta, math.sqrt(V_q + sides * V_s), num),
        variance_queries=V_q * rng.chisquare(Q - 1, num) / (Q - 1),
        variance_seeds=mean_squares(V_s + V_e, S - 1),
        variance_error=mean_squares(V_e, (S - 1) * (Q - 1)),
        num_seeds=(S,) * sides,
        num_queries=Q,
    )
    planned = planned_power(plan, Goal(delta), num_seeds=S, num_queries=Q)
    # Four standard errors.
    assert planned == pytest.approx((found.p_both < 0.05).mean(), abs=0.021)


@pytest.mark.parametrize(
    ("variances", "num_queries", "expected"),
    [(deep_learning, 43, 0.024), (robust, 249, 0.015), (marco, 5193, 0.0049)],
)
def test_the_floor_is_the_limit_of_infinitely_many_seeds(variances, num_queries, expected):
    lowest = floor(variances(0.005), ONE, num_queries=num_queries)
    assert lowest == pytest.approx(expected, abs=6e-4)
    many = planned_detectable(variances(0.005), ONE, num_seeds=100_000, num_queries=num_queries)
    assert lowest < many < 1.03 * lowest


@pytest.mark.parametrize("family_size", [1, 1000])
def test_the_detectable_difference_of_two_seeds_is_found_however_far_it_is(family_size):
    plan = robust(0.0001)
    goal = Goal(1.0, family_size=family_size)
    goal = replace(goal, delta=planned_detectable(plan, goal, num_seeds=2, num_queries=6))
    assert planned_power(plan, goal, num_seeds=2, num_queries=6) == pytest.approx(0.8, abs=1e-6)


def test_two_seeds_are_never_planned():
    assert seeds_needed(robust(0), Goal(0.3), num_queries=249) == 3


def test_no_number_of_queries_finds_what_two_noisy_seeds_hide():
    assert queries_needed(robust(0.02), Goal(0.01), num_seeds=2) == math.inf


@pytest.mark.parametrize("family_size", [1, 17])
def test_the_counts_are_the_smallest_that_suffice(family_size):
    goal = Goal(0.025, family_size=family_size)
    S = int(seeds_needed(robust(0.005), goal, num_queries=249))
    assert planned_power(robust(0.005), goal, num_seeds=S, num_queries=249) >= 0.8
    assert planned_power(robust(0.005), goal, num_seeds=S - 1, num_queries=249) < 0.8
    Q = int(queries_needed(robust(0.005), goal, num_seeds=6))
    assert planned_power(robust(0.005), goal, num_seeds=6, num_queries=Q) >= 0.8
    assert planned_power(robust(0.005), goal, num_seeds=6, num_queries=Q - 1) < 0.8


def test_a_tiny_design_costs_what_a_hand_computes():
    """Without variance three seeds and the fewest queries suffice: 3 configurations x 3 seeds x
    (10 + 2 queries x 1) = 108."""
    prices = {"training_cost": 10, "query_cost": 1, "queries": [10, 5, 2], "num_configurations": 3}
    certain = Variances(0, 0, 0)
    expected = Design(num_configurations=3, num_seeds=3, num_queries=2, power=1.0, cost=108)
    for budget in (108, 1000, math.inf):
        assert best_design(certain, Goal(0.1), budget=budget, **prices) == expected
    assert best_design(certain, Goal(0.1), budget=107.9, **prices) is None


def designs_of(variances, goal, budgets, **changes):
    prices = {"training_cost": 300, "query_cost": 0.5, "queries": [249, 124, 62]}
    prices |= {"num_configurations": 5} | changes
    return [best_design(variances, goal, budget=budget, **prices) for budget in budgets]


def test_a_design_is_the_cheapest_of_all_that_reach_the_goal():
    goal = Goal(0.03)
    [design] = designs_of(robust(0.005), goal, [1e5])
    family = replace(goal, family_size=4)
    for Q in (249, 124, 62):
        for S in range(3, 20):
            power = planned_power(robust(0.005), family, num_seeds=S, num_queries=Q)
            if power >= 0.8:
                assert design.cost <= 5 * S * (300 + 0.5 * Q)
    assert design.power >= 0.8


def pilot(S=3, Q=100, seed_sd=0.01):
    return drawn({"base": 0, "system": 0}, S=S, Q=Q, own_sd=0.06, seed_sd=seed_sd)


def test_a_plan_assumes_more_variance_than_the_pilot_saw():
    point = sweep_components(pilot(), baseline="base")
    plan = planned_variances(pilot(), baseline="base")
    surer = planned_variances(pilot(), baseline="base", assurance=0.95)
    for name in ("seed", "difference", "residual"):
        own, planned = getattr(point, name), getattr(plan, name)
        assert own.sd < planned < own.high  # the 95% interval is wider than an 80% limit
        assert getattr(surer, name) > planned


def test_a_paired_pilot_sees_the_scatter_of_differences():
    """Runs of both systems that share their luck: half of the seed variance is common."""
    S = 400
    matrix = pilot(S, Q=60, seed_sd=0.03)
    shared_S1 = np.random.default_rng(1).normal(0, 0.03, (S, 1))
    for cell in matrix.cells:
        matrix.scores[cell] += shared_S1
    alone = sweep_components(matrix, baseline="base")
    paired = sweep_components(matrix, baseline="base", paired_seeds=True)
    assert alone.seed.sd == pytest.approx(0.03 * math.sqrt(2), rel=0.1)
    assert paired.seed.sd == pytest.approx(0.03, rel=0.1)
    assert alone.seed.df == 2 * (S - 1) and paired.seed.df == S - 1
    assert paired.residual.sd == pytest.approx(0.05, rel=0.02)
    assert paired.difference.sd == pytest.approx(alone.difference.sd, rel=1e-3)
    assert planned_variances(matrix, baseline="base", paired_seeds=True).paired


def test_pairing_gains_what_the_correlation_of_the_runs_takes_from_their_variance() -> None:
    """Runs that agree up to a constant per system leave the queries alone; independent ones lose,
    for their fewer degrees of freedom."""
    rng = np.random.default_rng(1)
    base_Q, taste_Q, luck_S1 = rng.uniform(0.2, 0.6, 60), rng.normal(0, 0.05, 60), 0.02
    luck_S1 = luck_S1 * rng.normal(0, 1, (6, 1))
    shared = matrix_of({"a": base_Q + luck_S1, "b": base_Q + taste_Q + luck_S1})
    found = pairing_gain(shared, ONE, baseline="a", num_queries=60)
    assert found and found.correlation.r == pytest.approx(1)
    queries = Variances(float(np.std(taste_Q, ddof=1)), 0, 0, paired=True)
    assert found.paired == pytest.approx(
        planned_detectable(queries, ONE, num_seeds=6, num_queries=60)
    )
    assert found.independent > 1.2 * found.paired
    mixed = luck_S1 - luck_S1.mean()
    other = np.vstack([mixed[3:], mixed[:3]])
    other -= mixed * float((other * mixed).sum() / (mixed**2).sum())  # of correlation 0
    apart = matrix_of({"a": base_Q + mixed, "b": base_Q + taste_Q + other})
    none = pairing_gain(apart, ONE, baseline="a", num_queries=60)
    assert none and abs(none.correlation.r) < 1e-9 and none.correlation.low < 0
    assert none.paired > none.independent
    assert pairing_gain(shared.only(["a"]), ONE, baseline="a", num_queries=60) is None


@pytest.mark.parametrize("correlation", [1e-9, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize(("family_size", "alpha"), [(2, 0.05), (10, 0.05), (10, 0.01)])
def test_the_shares_of_a_family_are_those_of_max_t(family_size, alpha, correlation):
    """By the draws that correct a table, whose error is a hundredth."""
    R_KK = np.full((family_size, family_size), correlation)
    np.fill_diagonal(R_KK, 1.0)
    drawn = alpha / family_level(alpha, R_KK, num_draws=50_000)
    assert effective_size(alpha, family_size, correlation) == pytest.approx(drawn, rel=0.01)


def test_a_family_of_any_size_has_its_shares():
    """More comparisons count more, in less memory than their correlations need."""
    sizes = [effective_size(0.05, family_size, 0.5) for family_size in (10, 10**3, 10**5, 10**8)]
    assert sizes == sorted(sizes) and sizes[-1] < 10**8
    assert effective_size(0.05, 10**5, 1.0) == 1
