"""The benchmarks of the statistics draw what they say they draw, and print what they promise."""

import importlib
import json
import math

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.scopes import scope_test


@pytest.fixture
def load():
    """Imports a benchmark."""
    return lambda name: importlib.import_module(f"tests.benchmarks.{name}")


def test_drawn_means_and_mean_squares_are_those_of_drawn_scores(load):
    sweeps = load("simulated_sweeps")
    kind = sweeps.Kind("small", 0.06, 0.05, 60)
    rng = np.random.default_rng(2)
    tests = [
        scope_test(
            *(
                rng.normal(0, kind.query, 60)
                + rng.normal(0, 0.01, (3, 1))
                + rng.normal(0, kind.residual, (3, 60))
                for _ in range(2)
            )
        )
        for _ in range(1500)
    ]
    drawn = sweeps.null_and_planted(kind, rng, num=20_000, S=3, seed_sd=0.01)
    for name in ("p_queries", "p_seeds", "p_both", "se_both", "df_both"):
        from_scores = np.array([getattr(test, name) for test in tests])
        assert stats.ks_2samp(from_scores, getattr(drawn, name)).pvalue > 0.001, name


def test_the_chosen_one_of_equals_is_lucky_where_theory_says(load):
    sweeps = load("simulated_sweeps")
    found = sweeps.best_of_equals(np.random.default_rng(3), num=4000, K=18)
    gains = {name: gain for name, (_, gain) in found.items()}
    assert gains["same queries, same runs"] == pytest.approx(0.0102, abs=6e-4)
    assert gains["dev chooses, same runs"] == pytest.approx(0.0027, abs=6e-4)
    assert gains["dev chooses, fresh seeds"] == pytest.approx(0, abs=6e-4)


def test_bounded_scores_are_bounded_and_have_their_share_of_zeros(load):
    sweeps = load("simulated_sweeps")
    score_2SQ = sweeps.bounded_scores(np.random.default_rng(4), S=3)
    assert score_2SQ.shape == (2, 3, 249)
    assert score_2SQ.min() == 0 and score_2SQ.max() <= 1
    assert 0.05 < (score_2SQ == 0).all(axis=(0, 1)).mean() < 0.2


@pytest.mark.parametrize(
    ("shape", "skewed"),
    [("normal", False), ("resampled", False), ("exponential", True), ("lognormal", True)],
)
def test_runs_of_every_shape_have_mean_0_and_deviation_1(load, shape, skewed):
    drawn = load("simulated_sweeps").SHAPES[shape](np.random.default_rng(6), (400, 2000))
    assert (drawn.mean(), drawn.std()) == (pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.03))
    assert (abs((drawn**3).mean()) > 1) == skewed


def test_a_family_of_equals_is_decided_by_each_rule_and_power_is_that_of_the_planted_one(load):
    rates = load("error_rates")
    rng = np.random.default_rng(7)
    drawn = [rates._family_decisions(rng, *rates.FAMILIES["all .01"][:2], 5, "normal")
             for _ in range(150)]  # fmt: skip
    wrong, power = np.mean(drawn, axis=0)[:3], np.mean(drawn, axis=0)[3:]
    assert all(wrong < 0.11) and list(wrong) == sorted(wrong)[::-1]  # ever fewer
    assert all(power > 0.45) and list(power) == sorted(power)[::-1]


def test_the_error_rates_are_the_same_again_and_written_as_json(load, tmp_path, capsys):
    rates = load("error_rates")
    file = tmp_path / "rates.json"
    arguments = ["--simulations", "40", "--only", "type-1", "--json", str(file)]
    codes = {rates.main(arguments)}
    first, shown = json.loads(file.read_text()), capsys.readouterr().out
    codes.add(rates.main(arguments))
    assert json.loads(file.read_text()) == first and capsys.readouterr().out == shown
    (section,) = first["sections"]
    assert len(section["rows"]) == 36 and len(codes) == 1
    assert shown.count("\n| ") == 38
    noise = 4 * math.sqrt(0.05 * 0.95 / 400)
    assert all(abs(row[6] - 0.045) < noise for row in section["rows"])
    assert all(0.4 < row[8] < 0.85 for row in section["rows"])  # of .80 with a known variance


def test_a_broken_promise_is_printed_and_ends_with_1(load, capsys):
    bars = load("bars")
    kept = bars.Bar("two is at least one", "2", True)
    broken = bars.Bar("one is at least two", "1", False)

    def code(*found):
        section = bars.Section("Numbers", ("a", "b"), [("x", 0.25)], found)
        return bars.report([section], settings={}, json_file=None)

    assert (code(kept), code(kept, broken)) == (0, 1)
    shown = capsys.readouterr().out
    assert "- ok: two is at least one (found 2)" in shown
    assert "- FAIL: one is at least two (found 1)" in shown
    assert "1 of 2 bars ok, 1 FAIL" in shown and "| x | 0.2500 |" in shown


@pytest.mark.long
@pytest.mark.parametrize(
    "section", ["hard-scores", "family", "fresh-seeds", "corrected-gain", "power"]
)
def test_the_shipped_seed_keeps_every_promise(load, section, capsys):
    assert load("error_rates").main(["--only", section]) == 0
    assert "FAIL" not in capsys.readouterr().out
