"""The probability of superiority: scipy's interval, and what ties and sides do to it."""

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.superiority import superiority


@pytest.mark.parametrize(("wins", "losses"), [(0, 8), (3, 9), (60, 40), (500, 0)])
def test_without_ties_it_is_the_share_of_wins_in_wilsons_interval(wins, losses):
    found = superiority(wins, 0, losses, alpha=0.1)
    other = stats.binomtest(wins, wins + losses).proportion_ci(0.9, method="wilson")
    assert found.probability == wins / (wins + losses)
    assert (found.low, found.high) == pytest.approx((other.low, other.high))


def test_exchanging_the_systems_mirrors_it_and_ties_are_halves():
    one, other = superiority(20, 7, 30), superiority(30, 7, 20)
    assert one.probability + other.probability == pytest.approx(1)
    assert one.low + other.high == pytest.approx(1)
    assert superiority(0, 10, 0).probability == 0.5


@pytest.mark.parametrize("share_of_ties", [0.0, 0.4])
def test_the_interval_covers_the_true_probability(share_of_ties):
    rng, hits, num = np.random.default_rng(2), 0, 2000
    for _ in range(num):
        delta_Q = rng.normal(0.3, 1, 60) * (rng.random(60) >= share_of_ties)
        wins, losses = int((delta_Q > 0).sum()), int((delta_Q < 0).sum())
        found = superiority(wins, 60 - wins - losses, losses)
        truth = share_of_ties / 2 + (1 - share_of_ties) * stats.norm.cdf(0.3)
        hits += found.low <= truth <= found.high
    assert hits / num >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / num)


@pytest.mark.parametrize("counts", [(0, 0, 0), (-1, 2, 3)])
def test_no_query_has_none(counts):
    with pytest.raises(BadInput, match="superiority needs queries"):
        superiority(*counts)
