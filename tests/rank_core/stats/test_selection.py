"""The gain of a chosen system has no luck of the choice left."""

import numpy as np
import pytest

from rank_core.stats.selection import gain_after_choice


def test_by_hand() -> None:
    """Run 1 chooses B, whose run 0 gains .03; run 0 chooses A, whose run 1 gains .01."""
    dev = {"BM25": [0.30], "A": [0.40, 0.30], "B": [0.34, 0.35]}
    test = {"BM25": [0.30], "A": [0.42, 0.31], "B": [0.33, 0.36]}
    assert gain_after_choice(dev, test, reference="BM25") == pytest.approx(0.02)
    # A trained reference is measured on its own runs that were left out.
    assert gain_after_choice(dev, test, reference="A") == pytest.approx((0.33 - 0.42) / 2)


def test_a_single_system_gains_what_it_gains() -> None:
    test = {"BM25": [0.3], "A": [0.4, 0.5, 0.6]}
    dev = {"BM25": [0.1], "A": [0.5, 0.4, 0.3]}
    assert gain_after_choice(dev, test, reference="BM25") == pytest.approx(0.2)
    below = {"BM25": [0.9], "A": [0.5, 0.4, 0.3]}
    assert gain_after_choice(below, test, reference="BM25") == 0.0, "the first stage is chosen"


def test_runs_of_other_numbers_are_left_out_in_turn() -> None:
    dev = {"A": [0.5, 0.4, 0.45, 0.4], "B": [0.1, 0.2]}
    test = {"A": [0.4, 0.3, 0.6, 0.5], "B": [0.1, 0.3]}
    # Runs 0 and 2 of A with run 0 of B, then 1 and 3 with run 1.
    expected = np.mean([(0.4 + 0.6) / 2 - 0.1, (0.3 + 0.5) / 2 - 0.3])
    assert gain_after_choice(dev, test, reference="B") == pytest.approx(expected)


def test_one_run_of_a_trained_system_cannot_be_left_out() -> None:
    assert (
        gain_after_choice({"A": [0.4], "B": [0.5]}, {"A": [0.4], "B": [0.5]}, reference="A") is None
    )


def test_of_equal_systems_the_chosen_one_gains_nothing() -> None:
    """Twelve of three runs, 400 times: the plain gain is .009 too high."""
    rng, plain, after = np.random.default_rng(1), [], []
    for _ in range(400):
        run_KS = rng.normal(0, 0.01, (12, 3))
        dev_KS, test_KS = (run_KS + rng.normal(0, 0.005, (12, 1)) for _ in "ab")
        dev, test = (
            {"BM25": [-1.0 if one is dev_KS else 0.0]}
            | {str(k): own.tolist() for k, own in enumerate(one)}
            for one in (dev_KS, test_KS)
        )
        plain.append(test_KS[dev_KS.mean(axis=1).argmax()].mean())
        after.append(gain_after_choice(dev, test, reference="BM25"))
    error = 3 * np.std(after) / 20
    assert abs(np.mean(after)) < error < 0.002 and np.mean(plain) > 0.006
