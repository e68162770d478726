"""Progress lines of long steps."""

from rank_core.progress import reported


def test_a_file_gets_a_line_after_five_seconds_and_at_last_every_half_minute(capsys):
    now = [0.0]
    for number, item in enumerate(reported(range(500), "making tiny", clock=lambda: now[0])):
        assert item == number
        now[0] += 0.5
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "making tiny: 10 of 500, 2.0/s, about 4 min left"
    assert lines[-2] == "making tiny: 490 of 500, 2.0/s, about 5 s left"
    assert lines[-1] == "making tiny: done after 250 s" and len(lines) == 11


def test_slow_steps_are_said_in_seconds_each(capsys):
    clock = iter(range(0, 4000, 40))
    assert [*reported(range(4), "shards", clock=lambda: float(next(clock)))] == [0, 1, 2, 3]
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("shards: 1 of 4, ") and " s each, about " in first
