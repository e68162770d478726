"""The benchmark of racing races as the library does, and draws what it says."""

import json

import numpy as np
import pytest

from rank_core.stats.racing import race_so_far
from tests.benchmarks import racing
from tests.benchmarks.simulated_sweeps import DL, R04


def test_a_simulated_race_is_the_librarys_race():
    rng = np.random.default_rng(1)
    grids = racing.drawn(R04, rng, num=12, better=2, K=6, S=6)
    live_BK, trials_B = racing.raced(grids.run_BKS)
    names = tuple("ABCDEF")
    for run_KS, live_K, trials in zip(grids.run_BKS, live_BK, trials_B, strict=True):
        finished = {
            (name, seed): np.array([mean - 0.1, mean, mean + 0.1])
            for name, run_S in zip(names, run_KS, strict=True)
            for seed, mean in enumerate(run_S)
        }
        race = race_so_far(finished, configurations=names, seeds=range(6))
        assert race.live == tuple(np.array(names)[live_K])
        assert race.over and race.cost == pytest.approx(trials / 36)


def test_drawn_grids_have_the_planted_gap_and_the_stated_luck():
    grids = racing.drawn(DL, np.random.default_rng(2), num=4000, better=4)
    better = grids.dev_BK[:, grids.better_K]
    assert grids.better_K.sum() == 4
    assert better.mean() - grids.dev_BK[:, ~grids.better_K].mean() == pytest.approx(0.02, abs=3e-4)
    assert better.std() == pytest.approx(0.04 / 145**0.5, rel=0.03)
    runs = (grids.run_BKS - grids.dev_BK[:, :, None]).std()
    assert runs == pytest.approx((0.005**2 + 0.04**2 / 145) ** 0.5, rel=0.01)


@pytest.mark.slow
def test_one_clear_winner_is_found_for_a_quarter_of_the_cost():
    found = racing.outcome(racing.drawn(R04, np.random.default_rng(3), num=300, better=1))
    assert found.same > 0.98 and found.cost < 0.3 and found.lost_better < 0.02


def test_the_table_of_grids_has_the_share_of_winners_and_the_cost():
    section = racing.budgets(np.random.default_rng(4), 40)
    assert section.columns[-2:] == ("same winner", "cost")
    grids = {row[0]: row for row in section.rows}
    assert set(grids) == {"12 x 5", "18 x 5", "18 x 10", "18 x 20"}
    same, cost = zip(*(row[-2:] for row in section.rows), strict=True)
    assert min(same) > 0.8 > max(cost) and min(cost) > 0.1


@pytest.mark.slow
def test_the_benchmark_prints_the_same_again_and_writes_json(tmp_path, capsys):
    file = tmp_path / "races.json"
    arguments = ["--races", "10", "--only", "hard-runs", "--json", str(file)]
    codes = {racing.main(arguments)}
    first, shown = json.loads(file.read_text()), capsys.readouterr().out
    codes.add(racing.main(arguments))
    assert json.loads(file.read_text()) == first and capsys.readouterr().out == shown
    assert len(codes) == 1 and "three times the luck" in shown


@pytest.mark.long
@pytest.mark.parametrize("section", ["indifference", "seed-luck", "budgets", "equals", "hard-runs"])
def test_the_shipped_seed_keeps_every_promise_of_racing(section, capsys):
    assert racing.main(["--only", section]) == 0
    assert "FAIL" not in capsys.readouterr().out


@pytest.mark.long
def test_only_equal_and_noisy_better_ones_cost_more_than_promised(capsys):
    assert racing.main(["--only", "calibrated"]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if "FAIL: " in line]
    assert [line.split(": ")[1] for line in failed] == ["MSMc"]
    assert "cost in every scenario" in failed[0]
