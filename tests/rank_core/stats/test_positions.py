"""Curves by the place of the evidence: bins, bands and the Position Sensitivity Index."""

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.positions import MOST_BINS, bins_of, position_curves
from tests.benchmarks.position_curve import simulated

HALF = 50


@pytest.fixture
def by_half():
    """(scores of one run, positions): .8 +- .1 where the evidence is early, .4 +- .1 where late."""
    wave = np.tile([0.1, -0.1], HALF // 2)
    score_1Q = np.concatenate([0.8 + wave, 0.4 + wave])[None]
    return score_1Q, np.repeat([10, 700], HALF)


def test_bins_have_equal_numbers_of_queries_and_keep_equal_positions_together():
    bins, bin_Q = bins_of(np.random.default_rng(1).permutation(200))
    assert [b.num_queries for b in bins] == [40] * MOST_BINS
    assert [(b.first, b.last) for b in bins[:2]] == [(0, 39), (40, 79)]
    assert sorted(np.bincount(bin_Q)) == [40] * MOST_BINS
    position_Q = np.concatenate([np.zeros(130), np.arange(1, 71)])
    bins, bin_Q = bins_of(position_Q)
    assert (bins[0].last, bins[0].num_queries) == (0, 130) and len(set(bin_Q[:130])) == 1
    assert sum(b.num_queries for b in bins) == 200 and min(b.num_queries for b in bins) >= 20
    assert [len(bins_of(np.arange(n))[0]) for n in (0, 19, 39, 40, 59, 60)] == [0, 0, 1, 2, 2, 3]


@pytest.mark.parametrize("position_Q", [np.zeros(200), np.arange(39), np.arange(0)])
def test_there_is_no_curve_of_one_bin(position_Q):
    assert position_curves({"a": np.ones((1, len(position_Q)))}, position_Q) is None


def test_the_index_is_that_of_the_means_and_its_interval_is_fiellers(by_half):
    score_1Q, position_Q = by_half
    found = position_curves({"a": score_1Q}, position_Q)
    curve = found.curves["a"]
    assert curve.means == pytest.approx((0.8, 0.4)) and curve.index.value == pytest.approx(0.5)
    V = score_1Q[0, :HALF].var(ddof=1) / HALF
    t = stats.t.ppf(0.975, 2 * (HALF - 1))  # two bins, one pair: nothing to correct for
    ratio = np.linspace(0, 1, 200_001)  # of the late mean to the early one
    inside = ratio[abs(0.4 - ratio * 0.8) <= t * np.sqrt(V * (1 + ratio**2))]
    assert curve.index.low == pytest.approx(1 - inside.max(), abs=1e-5)
    assert curve.index.high == pytest.approx(1 - inside.min(), abs=1e-5)
    one = stats.t.ppf(0.975, HALF - 1) * np.sqrt(V)
    widths = np.subtract(curve.high, curve.low) / 2
    assert (widths > one).all() and (widths < 1.3 * one).all()  # over two bins at once


def test_more_systems_and_runs_that_differ_widen_the_band(by_half):
    score_1Q, position_Q = by_half
    alone = position_curves({"a": score_1Q}, position_Q).curves["a"]
    beside = {"a": score_1Q, "b": score_1Q[:, ::-1], "c": score_1Q[:, ::-1] ** 2}
    other = position_curves(beside, position_Q).curves["a"]
    assert other.high[1] > alone.high[1] and other.index.low < alone.index.low
    runs = np.vstack([score_1Q - 0.15, score_1Q, score_1Q + 0.15])
    unsteady = position_curves({"a": runs}, position_Q).curves["a"]
    assert unsteady.means == pytest.approx(alone.means) and unsteady.high[1] > other.high[1]


def test_a_bin_in_which_all_queries_fail_is_not_certain(by_half):
    score_1Q, position_Q = by_half
    score_1Q = np.where(position_Q > 10, 0.0, score_1Q)
    curve = position_curves({"a": score_1Q}, position_Q).curves["a"]
    assert curve.means[1] == 0 and curve.high[1] > 0.01
    assert curve.index.value == curve.index.high == 1 and 0.9 < curve.index.low < 1


def test_the_order_of_queries_and_systems_changes_nothing():
    scores, position_Q = simulated(np.random.default_rng(3), 200, 3, 256, 1.0)
    one = position_curves(scores, position_Q)
    order = np.random.default_rng(4).permutation(200)
    turned = {name: scores[name][:, order] for name in reversed(scores)}
    other = position_curves(turned, position_Q[order])
    assert one.bins == other.bins
    for name, curve in one.curves.items():
        assert curve.means == pytest.approx(other.curves[name].means)
        assert curve.high == pytest.approx(other.curves[name].high, abs=2e-3)


def test_a_model_that_reads_the_first_tokens_shows_it_and_others_do_not():
    """Power and false alarms: `python -m tests.benchmarks.position_curve`."""
    scores, position_Q = simulated(np.random.default_rng(5), 400, 3, 256, 1.0)
    curves = position_curves(scores, position_Q).curves
    first, whole, other = (curve.index for curve in curves.values())
    assert first.low > 0 and whole.low == other.low == 0
    gap = whole - other
    assert gap.low < 0 < gap.high and gap.value == whole.value - other.value
    assert ((first - whole).low, (first - whole).high) == (
        first.low - whole.high,
        first.high - whole.low,
    )


def test_bad_input_is_refused(by_half):
    score_1Q, position_Q = by_half
    with pytest.raises(BadInput, match="a needs a column for each of the 99 positions, got 100"):
        position_curves({"a": score_1Q}, position_Q[1:])
    with pytest.raises(BadInput, match="a has negative scores"):
        position_curves({"a": score_1Q - 0.6}, position_Q)
