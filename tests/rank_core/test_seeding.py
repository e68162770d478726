"""Streams derived by name from one seed."""

import numpy as np

from rank_core.seeding import derive, generator


def test_a_stream_is_the_same_on_every_machine_and_in_every_version():
    # sha256("1/order") and sha256("7/negatives/3/q1"), first 8 bytes, without the lowest bit.
    assert derive(1, "order") == 620558406644582515
    assert derive(7, "negatives", 3, "q1") == 3379553033993401708


def test_every_seed_fits_where_a_signed_64_bit_number_is_expected():
    seeds = [derive(seed, "init") for seed in range(1000)]
    assert len(set(seeds)) == 1000
    assert min(seeds) >= 0 and max(seeds) < 2**63
    assert max(seeds) > 2**62, "the whole range is used"


def test_streams_of_other_names_or_seeds_share_nothing():
    draws = [
        tuple(generator(seed, *names).integers(0, 2**60, 4))
        for seed in (1, 2)
        for names in (("order",), ("negatives",), ("order", 0), ("order", 1), ())
    ]
    assert len({number for draw in draws for number in draw}) == 4 * len(draws)


def test_drawing_from_one_stream_does_not_affect_another():
    expected = generator(1, "b").random(5)
    first, second = generator(1, "a"), generator(1, "b")
    first.random(1000)
    np.random.default_rng(0).random(3)
    assert np.array_equal(second.random(5), expected)
