"""A race judges equal seeds, spends its budget, and never drops what the grid would name."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.racing import (
    FIRST_ANALYSIS,
    dunnett_p,
    interim_analysis,
    level_of,
    nominal_levels,
    race_so_far,
    spent,
    survivors,
)

NAMES, SEEDS = tuple("ABCDEF"), tuple(range(10, 18))


def played(dev_K, *, run_sd=0.005, num_queries=40, seed=0):
    """{trial: dev values} of a whole grid; run means differ from `dev_K` by normal luck."""
    rng = np.random.default_rng(seed)
    query_KQ = rng.normal(0, 0.1, (len(dev_K), num_queries))
    query_KQ -= query_KQ.mean(axis=1, keepdims=True)
    finished = {}
    for (k, name), seed_number in itertools.product(enumerate(NAMES[: len(dev_K)]), SEEDS):
        noise_Q = rng.normal(0, 0.05, num_queries)
        values_Q = dev_K[k] + query_KQ[k] + noise_Q - noise_Q.mean() + rng.normal(0, run_sd)
        finished[name, seed_number] = values_Q
    return finished


def race_of(finished, names=NAMES, **settings):
    return race_so_far(finished, configurations=names, seeds=SEEDS, **settings)


def test_one_rival_is_students_t_and_five_are_the_multivariate_t():
    t_T = np.array([0.0, 0.5, 2.0, 3.0, 5.0, 12.0])
    assert dunnett_p(t_T, rivals=1, df=5) == pytest.approx(stats.t.sf(t_T, 5), rel=2e-3)
    correlation = (np.ones((5, 5)) + np.eye(5)) / 2
    for t in (1.5, 2.5):
        below = stats.multivariate_t(np.zeros(5), correlation, df=10).cdf(
            np.full(5, t), maxpts=100_000, random_state=1
        )
        found = float(dunnett_p(np.array([t]), rivals=5, df=10)[0])
        assert found == pytest.approx(1 - below, rel=5e-3)


def test_two_configurations_are_a_paired_t_test_with_a_finite_population():
    # Differences of the run means are .06, .10, .08: mean .08, variance .0004, and with 2 of the
    # pool's 2 sigma^2 = .0004 the se is sqrt(.0004 (1/3 - 1/10)) = sqrt(.0004 * 7/30).
    mean_BKs = np.array([[[0.56, 0.40, 0.48], [0.50, 0.30, 0.40]]])
    analysis = interim_analysis(mean_BKs, np.ones((1, 2), dtype=bool), num_seeds=10)
    se = math.sqrt(0.0004 * 7 / 30)
    assert analysis.leader_B[0] == 0 and analysis.df_B[0] == 2
    assert analysis.gap_BK[0] == pytest.approx([0, 0.08])
    assert analysis.se_BK[0] == pytest.approx([se, se])
    assert analysis.p_BK[0] == pytest.approx([1, stats.t.sf(0.08 / se, 2)], rel=1e-3)


def test_scattered_runs_protect_their_own_configuration():
    calm_BKs = np.array([[[0.1 * k, 0.1 * k + 0.001, 0.1 * k - 0.001] for k in range(4)]])
    calm_BKs[0, 1] += [0.001, -0.001, 0.0]
    wild_BKs = calm_BKs.copy()
    wild_BKs[0, 0] += [-0.3, 0.15, 0.15]
    live_BK = np.ones((1, 4), dtype=bool)
    calm, wild = (interim_analysis(runs, live_BK, num_seeds=6) for runs in (calm_BKs, wild_BKs))
    assert wild.gap_BK == pytest.approx(calm.gap_BK)
    assert wild.se_BK[0, 0] > wild.se_BK[0, 1] > calm.se_BK[0, 1] > 0
    # A steady one is judged by the pool: its own variance is below, the leader's is too.
    assert wild.se_BK[0, 1] == pytest.approx(wild.se_BK[0, 2])


def test_the_budget_grows_to_alpha():
    budget = spent(10, alpha=0.05)
    assert list(budget) == list(range(2, 10))
    assert list(budget.values()) == sorted(budget.values())
    # Two of nine analyses: A(2/9) = .05 ln(1 + 1.71828 * 2/9).
    assert budget[2] == pytest.approx(0.05 * math.log(1 + (math.e - 1) * 2 / 9))
    assert budget[9] == pytest.approx(0.05)


def kept_winners(run_BKS, alpha=0.05):
    """The share of races that keep the grid's winner, eliminating by the levels of those left."""
    B, K, S = run_BKS.shape
    winner_B, live_BK = run_BKS.mean(axis=2).argmax(axis=1), np.ones((B, K), dtype=bool)
    for s in range(2, S):
        analysis = interim_analysis(run_BKS[:, :, :s], live_BK, num_seeds=S)
        counts = live_BK.sum(axis=1)
        level_at = {n: level_of(K, n, S, s, alpha=alpha) for n in set(counts.tolist())}
        live_BK &= ~(analysis.p_BK < np.array([level_at[n] for n in counts.tolist()])[:, None])
    return live_BK[np.arange(B), winner_B].mean()


def test_two_ties_above_clearly_worse_ones_keep_the_grids_winner():
    run_BKS = np.random.default_rng(5).normal(size=(4000, 10, 10))
    run_BKS[:, 2:] -= 20
    assert kept_winners(run_BKS) >= 0.95  # .945 with the levels of ten equal ones


def test_equal_configurations_lose_the_grids_winner_as_often_as_allowed():
    K, S, B = 4, 5, 8000
    run_BKS = np.random.default_rng(5).normal(size=(B, K, S))
    winner_B, live_BK = run_BKS.mean(axis=2).argmax(axis=1), np.ones((B, K), dtype=bool)
    for s, level in nominal_levels(K, S, alpha=0.1).items():
        live_BK &= ~(interim_analysis(run_BKS[:, :, :s], live_BK, num_seeds=S).p_BK < level)
    lost = 1 - live_BK[np.arange(B), winner_B].mean()
    assert abs(lost - 0.1) < 4 * math.sqrt(0.1 * 0.9 / B)


def test_a_race_runs_block_by_block_to_the_grids_winner_for_less():
    finished = played([0.30, 0.31, 0.40, 0.395, 0.33, 0.20])
    done, pending = {}, race_of({}).pending
    assert pending == tuple((name, SEEDS[0]) for name in NAMES)
    while pending:
        done |= {trial: finished[trial] for trial in pending}
        race = race_of(done)
        counts = {line.num_seeds for line in race.standings if line.left_after is None}
        assert counts == {race.num_complete}
        pending = race.pending
    grid = {name: np.mean([finished[name, seed] for seed in SEEDS]) for name in NAMES}
    assert race.over and race.winner == max(grid, key=grid.get) == "C"
    assert race.cost == len(done) / len(finished) < 0.6
    left = [name for verdict in race.verdicts for name in verdict.leaves]
    assert "F" in race.verdicts[0].leaves and len(left) == len(set(left))
    assert set(left) | set(race.live) == set(NAMES)
    assert [line.configuration for line in race.standings if line.left_after is None] == ["C"]


def test_a_race_is_over_with_the_first_interim_analysis_that_only_one_survives():
    finished = played([0.30, 0.31, 0.60, 0.20, 0.33, 0.20])
    race = race_of(finished)
    assert race.over and race.pending == () and race.live == ("C",)
    assert race.num_complete == FIRST_ANALYSIS < len(SEEDS) and len(race.verdicts) == 1


def test_the_state_depends_on_the_finished_trials_alone():
    finished = played([0.30, 0.31, 0.40, 0.395, 0.33, 0.20])
    partial = {trial: finished[trial] for trial in finished if trial[1] <= SEEDS[2]}
    reversed_ = dict(reversed(partial.items()))
    race = race_of(partial)
    assert race_of(reversed_) == race
    ahead = partial | {(race.live[0], SEEDS[3]): finished[race.live[0], SEEDS[3]]}
    waiting = race_of(ahead)
    assert waiting.pending == race.pending[1:] and waiting.standings == race.standings


def test_equal_means_are_led_by_the_first_and_twins_are_named_and_stay():
    finished = played([0.4, 0.4, 0.2, 0.1])
    for seed in SEEDS:
        finished["B", seed] = finished["A", seed].copy()
    race = race_of(finished, NAMES[:4])
    assert race.live == ("A", "B") and race.winner == "A" and race.num_complete == len(SEEDS)
    for verdict in race.verdicts:
        judged = {one.configuration: one for one in verdict.judged}
        assert verdict.leader == "A" and judged["B"].twin == "A" and judged["A"].twin is None
        assert judged["B"].gap == 0 and judged["B"].p == 1
    # The twin is neither a rival nor evidence: the others are judged as without it.
    without = race_of(
        {trial: value for trial, value in finished.items() if trial[0] != "B"}, ("A", "C", "D")
    )
    ours, theirs = race.verdicts[0], without.verdicts[0]
    assert ours.df == theirs.df
    assert ours.judged[-1].p == pytest.approx(theirs.judged[-1].p)


def test_rounding_is_no_gap():
    finished = played([0.4, 0.2])
    scores = {
        "A": np.stack([finished["A", seed] for seed in SEEDS[:3]]),
        "B": np.stack([finished["A", seed] for seed in SEEDS[:3]]) + 1e-17,
    }
    scores["B"] = scores["B"][:, ::-1].copy()
    verdict = survivors(scores, num_configurations=2, num_seeds=8)
    assert verdict.leader == "A" and verdict.leaves == () and verdict.judged[1].gap == 0


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (lambda f: f.update({("A", 10): np.full(40, np.nan)}), "finite"),
        (lambda f: f.update({("A", 11): f["A", 10]}), "seed has no effect"),
    ],
)
def test_a_race_refuses_what_it_cannot_judge(change, law):
    finished = played([0.3, 0.4])
    change(finished)
    with pytest.raises(BadInput, match=law):
        race_of(finished, ("A", "B"))


def test_an_indifference_only_sends_more_home_and_never_the_leader():
    finished = played([0.40, 0.401, 0.402, 0.40, 0.30, 0.40])
    strict, loose = race_of(finished), race_of(finished, delta=0.01)
    assert loose.cost < strict.cost
    for before, after in zip(strict.verdicts[:1], loose.verdicts[:1], strict=True):
        assert set(before.leaves) < set(after.leaves) and after.leader == before.leader
        assert after.leader in after.stays
    assert race_of(finished, delta=0.0) == strict


def test_a_configuration_that_lost_a_trial_is_out_at_that_block_and_not_before():
    finished = played([0.40, 0.401, 0.402, 0.40, 0.401, 0.40])
    whole = race_of(finished)
    lost = ("C", SEEDS[3])
    del finished[lost]
    race = race_of(finished, lost={lost})
    assert race.verdicts[:2] == whole.verdicts[:2]  # after 2 and 3 seeds C was still there
    assert "C" not in race.live and race.over
    out = next(one for one in race.standings if one.configuration == "C")
    assert out.lost and out.left_after == out.num_seeds == 3
    assert not any(one.lost for one in race.standings if one.configuration != "C")


def test_a_race_in_which_all_lost_a_trial_is_over_without_a_live_one():
    race = race_of({}, lost={(name, SEEDS[0]) for name in NAMES})
    assert race.over and not race.live and race.num_complete == 0
