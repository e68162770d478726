"""The numbers of seeds and queries that a comparison needs, before it is run.

V(S, Q) = sigma_D^2 / Q + 2 sigma_S^2 / S + 2 sigma_E^2 / (Q S). Paired seeds lower sigma_S by
sqrt(1 - r), where r is the correlation of paired runs, and leave S - 1 degrees of freedom instead
of twice as many. The power is that of the rule of a family (`rank_core.stats.family`) for one
better system among others whose runs vary alike, averaged over the distribution of the mean
squares: with few seeds the closed form at their expectations overstates it. `floor` is the limit of
the detectable difference, as more seeds only reduce the last two parts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.moderation import (
    LEAST_POOL,
    Prior,
    fitted_prior,
    moderated_error,
    seeds_agree,
)
from rank_core.stats.scopes import LEAST_SEEDS, check_probability, infer
from rank_core.stats.variance import (
    Component,
    SeedCorrelation,
    seed_correlation,
    sweep_components,
)

ASSURANCE = 0.8
"""A plan assumes deviations at their one-sided upper limits of this level."""
MOST_SEEDS = 10_000
MOST_QUERIES = 10_000_000
_SLACK = 0.02  # of power, negligible where the goal is out of reach
_DRAWS = 1024
# Places of five mean squares: evenly spread, so that power rises smoothly with the counts.
_QUANTILES_N = (np.arange(_DRAWS) + 0.5) / _DRAWS
_PLACES_5N = (stats.qmc.Sobol(5, scramble=False).random_base2(10).T * _DRAWS).astype(np.int64)
MOST_POOLED = 2_000
_FAR, _NODES = 9.0, 20_001  # where the common factor of a family is evaluated
_ALIKE = 1 - 1e-6  # from this correlation on comparisons are one


@dataclass(frozen=True)
class Variances:
    """The standard deviations that a plan assumes, in units of the measure."""

    difference: float  # sigma_D, of the true per-query differences of two systems
    seed: float  # sigma_S, between training runs
    residual: float  # sigma_E, between training runs on one query
    paired: bool = False
    """True if seeds are paired: then `seed` and `residual` are those of the differences of paired
    runs over sqrt(2)."""

    def __post_init__(self) -> None:
        for name in ("difference", "seed", "residual"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"{name} >= 0 must hold, got {name}={value}")


@dataclass(frozen=True)
class Goal:
    """The difference to be found, the power, and the number of comparisons that share alpha."""

    delta: float
    alpha: float = 0.05
    power: float = 0.8
    family_size: int = 1
    correlation: float = 0.0
    """Of two comparisons of the family, for max-t; 0: Holm's correction, whose condition for the
    smallest p is Bonferroni's level."""

    def __post_init__(self) -> None:
        check_probability("alpha", self.alpha)
        check_probability("power", self.power)
        if not 0 < self.delta < math.inf or self.family_size < 1:
            raise BadInput(
                "delta > 0 and family_size >= 1 must hold, "
                f"got delta={self.delta}, family_size={self.family_size}"
            )
        if not self.family_size < self.alpha * 1e12:
            raise BadInput(
                "alpha / family_size > 1e-12 must hold, "
                f"got alpha={self.alpha}, family_size={self.family_size}"
            )

    @property
    def shares(self) -> float:
        """The number by which alpha is divided."""
        return effective_size(self.alpha, self.family_size, self.correlation)


@lru_cache(maxsize=512)
def effective_size(alpha: float, family_size: int, correlation: float) -> float:
    """alpha over the level at which so many comparisons with one correlation err together with
    probability alpha: the number of comparisons that max-t counts, at most `family_size`."""
    if family_size == 1 or correlation <= 0:
        return float(family_size)
    if correlation >= _ALIKE:
        return 1.0
    # Normals with one correlation share a factor; given its value they are independent (Dunnett and
    # Sobel, 1955).
    factor_N = np.linspace(-_FAR, _FAR, _NODES)
    weight_N = stats.norm.pdf(factor_N) * (factor_N[1] - factor_N[0])
    shift_N, scale = math.sqrt(correlation) * factor_N, math.sqrt(1 - correlation)

    def excess(level: float) -> float:
        z = stats.norm.isf(level / 2)
        beyond_N = stats.norm.sf((z - shift_N) / scale) + stats.norm.sf((z + shift_N) / scale)
        none_N = np.exp(family_size * np.log1p(-np.minimum(beyond_N, 1 - 1e-16)))
        return float(weight_N @ (1 - none_N)) - alpha

    # Between Bonferroni's level and the uncorrected one.
    level = optimize.brentq(excess, alpha / family_size / 2, 2 * alpha, xtol=1e-300, rtol=1e-9)
    return min(max(alpha / float(level), 1.0), float(family_size))


@dataclass(frozen=True)
class Design:
    """The sizes of a sweep whose configurations are each compared with one of them, the
    baseline."""

    num_configurations: int  # with the baseline
    num_seeds: int
    num_queries: int
    power: float  # of each comparison, corrected for all of them
    cost: float


def planned_variances(
    matrix: ScoreMatrix, *, baseline: str, assurance: float = ASSURANCE, paired_seeds: bool = False
) -> Variances:
    """The components of a pilot at their one-sided upper limits; with an assurance of .5 its own.

    Half of all pilots underestimate each of them; at the upper 80% limits the plan is sufficient
    for about four of five. With sigma_S alone at its limit it was for .58 to .89 of them: on few
    queries sigma_D is uncertain, too."""
    if not 0.5 <= assurance < 1:
        raise BadInput(f"0.5 <= assurance < 1 must hold, got assurance={assurance}")
    level = 2 * assurance - 1 if assurance > 0.5 else 0.5  # whose limits are not used
    pilot = sweep_components(matrix, baseline=baseline, level=level, paired_seeds=paired_seeds)
    if math.isnan(pilot.difference.sd):
        same = "the same " if paired_seeds else ""
        raise BadInput(
            f"a plan needs a pilot with {same}two seeds or more (training runs) of the baseline "
            "and of another system"
        )
    parts = (pilot.difference, pilot.seed, pilot.residual)
    D, S, E = (part.high if assurance > 0.5 else part.sd for part in parts)
    return Variances(D, S, E, paired=paired_seeds)


def pooled_seed_deviation(
    components: Sequence[Component], *, assurance: float = ASSURANCE
) -> float:
    """sigma_S over several sweeps, pooled by degrees of freedom, at its one-sided upper limit; with
    an assurance of .5 the deviation itself. It assumes that the runs of all vary alike."""
    known = [one for one in components if one.df > 0 and not math.isnan(one.sd)]
    if not known:
        raise BadInput("a deviation between training runs needs a system with two seeds or more")
    df = sum(one.df for one in known)
    sd = math.sqrt(sum(one.df * one.sd**2 for one in known) / df)
    return sd if assurance == 0.5 else sd * math.sqrt(df / stats.chi2.ppf(1 - assurance, df))


@dataclass(frozen=True)
class Pairing:
    """What pairing the seeds of two systems gains, from the correlation of their runs: the smallest
    differences found with independent and with paired seeds, at the deviations as measured."""

    correlation: SeedCorrelation
    independent: float
    paired: float


def pairing_gain(
    matrix: ScoreMatrix, goal: Goal, *, baseline: str, num_queries: int
) -> Pairing | None:
    """None where systems of three common seeds and a baseline with seeds are missing, and of runs
    that differ between collections. The difference of `goal` is not used. Paired seeds have
    S - 1 degrees of freedom instead of up to twice as many: a small correlation gains nothing."""
    found = None if matrix.run_strata else seed_correlation(matrix)
    if not found or found.num_seeds < LEAST_SEEDS or len(matrix.seeds.get(baseline, ())) < 2:
        return None
    apart = planned_variances(matrix, baseline=baseline, assurance=0.5)
    left = math.sqrt(max(0.0, 1 - found.r))
    paired = replace(apart, seed=left * apart.seed, residual=left * apart.residual, paired=True)
    independent, shared = (
        planned_detectable(one, goal, num_seeds=found.num_seeds, num_queries=num_queries)
        for one in (apart, paired)
    )
    return Pairing(found, independent, shared)


@dataclass(frozen=True)
class _Plan:
    """The standard error of a planned comparison, and the critical differences of its tests for
    many simulated mean squares."""

    error: float
    critical_N: Floats

    def power(self, delta: float) -> float:
        """The probability that the test finds `delta`."""
        if self.error == 0:
            return 1.0 if delta else 0.0
        both = stats.norm.cdf((delta - self.critical_N) / self.error)
        both += stats.norm.cdf((-delta - self.critical_N) / self.error)
        return float(both.mean())


def _plan(variances: Variances, goal: Goal, *, num_seeds: int, num_queries: int) -> _Plan:
    if num_seeds < 2 or num_queries < 2:
        raise BadInput(
            "a plan needs two seeds and two queries or more, "
            f"got {num_seeds} seeds and {num_queries} queries"
        )
    S, Q = float(num_seeds), float(num_queries)
    # The tables whose seeds are estimated: one of differences, or one of each system.
    sides, runs = (1, 2) if variances.paired else (2, 1)
    # The variances that `infer` expects, from the plan's components. In a paired table of
    # differences one side carries the runs of both.
    V_e = runs * variances.residual**2 / (Q * S)
    V_s = runs * variances.seed**2 / S + V_e
    V_q = variances.difference**2 / Q + sides * V_e
    # The test will see estimates of these variances. A quasi-random sample of their chi-squares
    # averages the power over them; at their expectations three seeds look better than they are.
    square_N = _mean_squares(num_seeds, num_queries, sides)
    queries_N = V_q * square_N[0]
    sides_N = [
        (V_s * square_N[1 + side], V_e * square_N[1 + sides + side], S) for side in range(sides)
    ]
    test = infer(
        delta=0.0,
        variance_queries=queries_N,
        variance_seeds=tuple(V for V, _, _ in sides_N),
        variance_error=tuple(V for _, V, _ in sides_N),
        num_seeds=(S,) * sides,
        num_queries=Q,
    )

    def by_own(level: float) -> Floats:
        t_N = stats.t.isf(level / 2, test.welch.at_level(level))
        return np.where(test.se_both > 0, t_N * test.se_both, 0.0)

    joint = goal.alpha / goal.shares
    # The true error of the difference is fixed, while the critical difference varies with the
    # estimated one.
    error = math.sqrt(V_q + 2 * variances.seed**2 / S)
    if goal.family_size + sides - 1 < LEAST_POOL:
        return _Plan(error, by_own(joint))
    # More variances say nothing new, and take gigabytes.
    prior, agree_N = _pool(num_seeds, min(goal.family_size + sides - 1, MOST_POOLED), sides)
    prior = replace(prior, variance=S * V_s * prior.variance)
    error_N, df_N = moderated_error(queries_N, Q, sides_N, prior)

    def by_moderated(level: float) -> Floats:
        return np.asarray(stats.t.isf(level / 2, df_N) * error_N)

    # As `Family`: the larger p where the variances disagree, or the correction is not max-t.
    critical_N = np.maximum(by_own(joint), by_moderated(joint))
    if goal.correlation > 0:
        together_N = np.maximum(by_own(goal.alpha), by_moderated(joint))
        critical_N = np.where(agree_N, together_N, critical_N)
    return _Plan(error, critical_N)


@lru_cache(maxsize=512)
def _pool(num_seeds: int, size: int, sides: int) -> tuple[Prior, Floats]:
    """(The prior of so many seed variances whose expectation is 1, whether they agree), for each
    draw; the first ones are those of `_mean_squares`, the baseline being the second side."""
    df, rng = float(num_seeds - 1), generator(1, "pool of a plan", size)
    others = [rng.permutation(_DRAWS) for _ in range(size - sides)]
    place_NK = np.stack([*_PLACES_5N[1 : 1 + sides], *others], axis=1)
    square_NK = np.take(stats.chi2.ppf(_QUANTILES_N, df) / df, place_NK)
    df_K = np.full(size, df)
    baselines = [1] if sides == 2 else []
    return fitted_prior(square_NK, df_K), seeds_agree(square_NK, df_K, baselines)


@lru_cache(maxsize=512)
def _mean_squares(num_seeds: int, num_queries: int, sides: int) -> Floats:
    """Draws of the mean squares of queries, of seeds and of the residual of each side, over their
    expectations."""
    S, Q = float(num_seeds), float(num_queries)
    df = np.array([Q - 1, *[S - 1] * sides, *[(S - 1) * (Q - 1)] * sides])[:, None]
    return np.asarray(stats.chi2.ppf(_QUANTILES_N[_PLACES_5N[: len(df)]], df) / df)


def planned_power(variances: Variances, goal: Goal, *, num_seeds: int, num_queries: int) -> float:
    """The probability that the test finds `goal.delta`."""
    plan = _plan(variances, goal, num_seeds=num_seeds, num_queries=num_queries)
    return plan.power(goal.delta)


def planned_detectable(
    variances: Variances, goal: Goal, *, num_seeds: int, num_queries: int
) -> float:
    """The smallest difference (MDE) that S seeds on Q queries find with the goal's power, instead
    of the goal's own."""
    plan = _plan(variances, goal, num_seeds=num_seeds, num_queries=num_queries)
    if plan.error == 0:
        return 0.0
    high = plan.error
    while plan.power(high) < goal.power:
        high *= 2
    return float(optimize.brentq(lambda delta: plan.power(delta) - goal.power, 0.0, high))


def floor(variances: Variances, goal: Goal, *, num_queries: int) -> float:
    """The limit of the detectable difference on Q queries as the seeds increase."""
    z = float(stats.norm.isf(goal.alpha / goal.shares / 2) + stats.norm.ppf(goal.power))
    return z * variances.difference / math.sqrt(num_queries)


def seeds_needed(variances: Variances, goal: Goal, *, num_queries: int) -> float:
    """The fewest seeds per system that reach the goal, infinite if the queries do not suffice."""
    return _fewest(
        lambda S: planned_power(variances, goal, num_seeds=S, num_queries=num_queries),
        goal.power,
        least=LEAST_SEEDS,
        most=MOST_SEEDS,
    )


def queries_needed(variances: Variances, goal: Goal, *, num_seeds: int) -> float:
    """The fewest queries that reach the goal, infinite if the seeds do not suffice."""
    return _fewest(
        lambda Q: planned_power(variances, goal, num_seeds=num_seeds, num_queries=Q),
        goal.power,
        least=2,
        most=MOST_QUERIES,
    )


def best_design(
    variances: Variances,
    goal: Goal,
    *,
    num_configurations: int,
    queries: Sequence[int],
    training_cost: float,
    query_cost: float,
    budget: float = math.inf,
) -> Design | None:
    """The cheapest design within the budget that reaches the goal, whose family is all comparisons
    with the baseline. If none does, the cheapest whose power is within .02 of the best; None
    if the budget buys fewer than three seeds, or if no budget would suffice.

    `queries` are the numbers of test queries that may be used. A design costs
    configurations x seeds x (training_cost + queries x query_cost), in units of the budget.
    """
    K, family = num_configurations, replace(goal, family_size=num_configurations - 1)

    def power_on(num_queries: int) -> Callable[[int], float]:
        return lambda S: planned_power(variances, family, num_seeds=S, num_queries=num_queries)

    prices = {Q: K * (training_cost + Q * query_cost) for Q in queries}  # of one seed
    most = {
        Q: MOST_SEEDS if not price or math.isinf(budget) else int(min(budget // price, MOST_SEEDS))
        for Q, price in prices.items()
    }
    best = {Q: power_on(Q)(S) for Q, S in most.items() if S >= LEAST_SEEDS}
    highest = max(best.values(), default=0.0)
    if not best or (highest < goal.power and math.isinf(budget)):
        return None
    # Out of reach: the last hundredths of power would take the whole budget.
    target = goal.power if highest >= goal.power else highest - _SLACK
    designs = [
        Design(K, S, Q, power_on(Q)(S), S * prices[Q])
        for Q in (Q for Q, power in best.items() if power >= target)
        for S in [int(_fewest(power_on(Q), target, least=LEAST_SEEDS, most=most[Q]))]
    ]
    return min(designs, key=lambda design: (design.cost, design.num_seeds))


def _fewest(power_of: Callable[[int], float], target: float, *, least: int, most: int) -> float:
    """The smallest count whose power suffices; power hardly ever falls with the count."""
    high = least
    while power_of(high) < target:
        if high >= most:
            return math.inf
        high = min(2 * high, most)
    # `high // 2` or more failed in the loop above, unless that ended at once.
    low = high // 2 if high > least else least - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= target else (middle, high)
    return high
