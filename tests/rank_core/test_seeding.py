"""Streams derived by name from one seed."""

from rank_core.seeding import derive, generator


def test_a_stream_is_the_same_on_every_machine_and_in_every_version():
    # sha256("1/order") and sha256("7/negatives/3/q1"), first 8 bytes, without the lowest bit.
    assert derive(1, "order") == 620558406644582515
    assert derive(7, "negatives", 3, "q1") == 3379553033993401708


def test_streams_of_other_names_or_seeds_share_nothing():
    draws = [
        tuple(generator(seed, *names).integers(0, 2**60, 4))
        for seed in (1, 2)
        for names in (("order",), ("negatives",), ("order", 0), ("order", 1), ())
    ]
    assert len({number for draw in draws for number in draw}) == 4 * len(draws)
