"""A queue hands out each trial once, in its order, and is over with the last one."""

from sweeps.search.feed import Queue


def test_a_queue_is_over_once_everything_is_handed_out(plan_of):
    trials = list(plan_of("chunking.window=48", "chunking.stride=32", "--num-seeds", "2").trials())
    queue, handed = Queue(trials), []
    while not queue.over:
        assert list(queue.ahead) == trials[len(handed) :]
        handed.append(queue.next())
        queue.ended(handed[-1], "failed")
    assert handed == trials
    assert queue.next() is None and list(queue.ahead) == []


def test_a_queue_of_nothing_is_over_at_once():
    assert Queue([]).over and Queue([]).next() is None
