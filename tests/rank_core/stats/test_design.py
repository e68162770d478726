"""Plans reproduce the published table of detectable differences and keep their own promises."""

import math

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.design import (
    Goal,
    Variances,
    cheapest_design,
    detectable_curve,
    floor,
    planned_detectable,
    planned_error,
    planned_power,
    planned_variances,
    queries_needed,
    seeds_needed,
)
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.variance import sweep_components


def robust(seed):
    return Variances(difference=0.06 * math.sqrt(2), seed=seed, residual=0.05)


def deep_learning(seed):
    return Variances(difference=0.04 * math.sqrt(2), seed=seed, residual=0.04)


def marco(seed):
    return Variances(difference=0.09 * math.sqrt(2), seed=seed, residual=0.12)


SEEDS = (2, 3, 4, 5, 8, 10, 20)
TABLE = [
    (deep_learning, 43, 0.005, "37 32 30 29 27 27 26"),
    (deep_learning, 145, 0.002, "19 16 16 15 14 14 14"),
    (deep_learning, 145, 0.010, "50 32 27 24 20 19 16"),
    (robust, 249, 0.005, "26 21 20 19 17 17 16"),
    (robust, 249, 0.010, "49 33 28 25 21 20 18"),
    (marco, 5193, 0.010, "55 31 24 21 16 14 10"),
]


@pytest.mark.parametrize(("collection", "num_queries", "seed", "expected"), TABLE)
def test_detectable_differences_are_those_of_the_table(collection, num_queries, seed, expected):
    curve = detectable_curve(collection(seed), seeds=SEEDS, num_queries=num_queries)
    thousandths = [int(text) for text in expected.split()]
    assert [1000 * mde for _, mde in curve] == pytest.approx(thousandths, abs=0.51)


@pytest.mark.parametrize(
    ("variances", "num_queries", "expected"),
    [(deep_learning, 43, 0.024), (robust, 249, 0.015), (marco, 5193, 0.0049)],
)
def test_the_floor_is_the_limit_of_infinitely_many_seeds(variances, num_queries, expected):
    lowest = floor(variances(0.005), num_queries=num_queries)
    assert lowest == pytest.approx(expected, abs=6e-4)
    many = planned_detectable(variances(0.005), num_seeds=100_000, num_queries=num_queries)
    assert lowest < many < 1.03 * lowest


@pytest.mark.parametrize(
    ("collection", "num_queries", "delta", "expected"),
    [
        (robust, 249, 0.02, [2, 4, 11]),
        (deep_learning, 145, 0.015, [6, 12, 36]),
        (deep_learning, 145, 0.02, [2, 4, 9]),
        (marco, 5193, 0.01, [3, 7, 23]),
    ],
)
def test_seeds_needed_are_those_of_the_table(collection, num_queries, delta, expected):
    for seed, wanted in zip((0.002, 0.005, 0.01), expected, strict=True):
        needed = seeds_needed(collection(seed), Goal(delta), num_queries=num_queries)
        assert needed == wanted


def test_no_number_of_seeds_finds_what_lies_below_the_floor():
    assert seeds_needed(robust(0.002), Goal(0.015), num_queries=249) == math.inf


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


def test_power_never_falls_with_more_seeds_or_more_queries():
    goal = Goal(0.02)
    by_seeds = [
        planned_power(robust(0.01), goal, num_seeds=S, num_queries=249) for S in range(2, 30)
    ]
    by_queries = [
        planned_power(robust(0.01), goal, num_seeds=5, num_queries=Q) for Q in range(10, 900, 30)
    ]
    assert by_seeds == sorted(by_seeds) and by_queries == sorted(by_queries)


def test_the_cheapest_design_trades_seeds_for_queries_with_their_prices():
    goal = Goal(0.02)
    arguments = {"seeds": range(2, 15), "most_queries": 5000}
    noisy = Variances(difference=0.05, seed=0.005, residual=0.2)
    dear_training = cheapest_design(noisy, goal, training_cost=1e4, query_cost=1, **arguments)
    dear_queries = cheapest_design(noisy, goal, training_cost=1, query_cost=1, **arguments)
    assert dear_training.num_seeds < dear_queries.num_seeds
    assert dear_training.num_queries > dear_queries.num_queries
    for design in (dear_training, dear_queries):
        assert design.power >= 0.8
    assert dear_training.cost == pytest.approx(
        2 * dear_training.num_seeds * (1e4 + dear_training.num_queries)
    )


def test_a_goal_out_of_reach_is_refused_with_what_could_be_found():
    with pytest.raises(BadInput, match=r"no design with 2-5 seeds .* 0\.015 could be found"):
        cheapest_design(
            robust(0.005),
            Goal(0.001),
            seeds=range(2, 6),
            most_queries=249,
            training_cost=1,
            query_cost=1,
        )


def test_without_any_variance_everything_is_found():
    certain = Variances(0, 0, 0)
    assert planned_power(certain, Goal(0.001), num_seeds=2, num_queries=10) == 1


def pilot(S=3):
    rng = np.random.default_rng(0)
    scores = {
        name: rng.normal(0.5, 0.06, 100)
        + rng.normal(0, 0.01, (S, 1))
        + rng.normal(0, 0.05, (S, 100))
        for name in ("base", "system")
    }
    return ScoreMatrix(
        measure="AP",
        cells=tuple(scores),
        query_ids=tuple(map(str, range(100))),
        seeds={cell: tuple(range(S)) for cell in scores},
        scores=scores,
    )


def test_a_plan_assumes_more_seed_variance_than_the_pilot_saw():
    point = sweep_components(pilot(), baseline="base")
    plan = planned_variances(pilot(), baseline="base")
    assert plan.seed > point.seed.sd
    assert plan.seed < point.seed.high  # the 95 % interval is wider than an 80 % limit
    assert (plan.difference, plan.residual) == (point.difference.sd, point.residual.sd)
    surer = planned_variances(pilot(), baseline="base", assurance=0.95)
    assert surer.seed > plan.seed


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(BadInput, match="two seeds or more"):
        planned_variances(pilot(S=1), baseline="base")
    with pytest.raises(BadInput, match=r"0\.5 < assurance < 1"):
        planned_variances(pilot(), baseline="base", assurance=0.5)
    with pytest.raises(BadInput, match="two seeds and two queries"):
        planned_error(robust(0.01), num_seeds=1, num_queries=100)
    with pytest.raises(BadInput, match="seed >= 0"):
        Variances(0.1, math.nan, 0.1)
    with pytest.raises(BadInput, match="delta > 0"):
        Goal(0)
