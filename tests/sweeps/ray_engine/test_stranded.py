"""A trial that keeps away from its bad node waits for another one, but not for good."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sweeps.ray_engine import attempts as module
from sweeps.ray_engine.attempts import STRANDED_SECONDS, Stranded
from sweeps.store.failures import SHUNNED_AFTER
from tests.sweeps.ray_engine.attempts import attempts, begin, lost

__all__ = ["attempts"]


@pytest.fixture
def shunning(attempts, monkeypatch):
    """A cluster whose one trial waits for node n2; the clock of the module, in a list."""
    clock = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for number in range(SHUNNED_AFTER):
        begin(attempts, str(number))
        lost(attempts, str(number))
    while attempts.feed.next():
        pass
    assert attempts.next("waits") is not None
    attempts.check_stranded()
    return clock


def test_a_trial_goes_back_where_it_failed_once_the_other_nodes_stay_away(
    attempts, shunning, monkeypatch
):
    attempts.avoided = ("n1",)  # others failed there too
    monkeypatch.setattr(module, "able_nodes", lambda needs: {"n1"})
    attempts.check_stranded()
    shunning[0] += STRANDED_SECONDS - 1
    attempts.check_stranded()  # an autoscaler may still bring one
    shunning[0] += 1
    with pytest.raises(Stranded) as caught:
        attempts.check_stranded()
    attempts.interrupt(caught.value)
    assert attempts.next("again") and attempts.live["again"].avoids == ()
    assert "go back to those they failed on" in attempts.monitor.out.getvalue()
    attempts.check_stranded()


@pytest.mark.parametrize("able", [{"n1", "n3"}, set()], ids=["a new node", "no node at all"])
def test_what_may_still_find_a_node_is_not_stranded(able, attempts, shunning, monkeypatch):
    monkeypatch.setattr(module, "able_nodes", lambda needs: {"n1"})
    attempts.check_stranded()
    monkeypatch.setattr(module, "able_nodes", lambda needs: able)
    for _ in range(3):
        shunning[0] += STRANDED_SECONDS
        attempts.check_stranded()


def test_nothing_is_stranded_as_long_as_a_trial_runs(attempts, shunning, monkeypatch):
    monkeypatch.setattr(module, "able_nodes", lambda needs: {"n1"})
    attempts.live["runs"] = replace(attempts.live["waits"], actor="alive")
    for _ in range(3):
        shunning[0] += STRANDED_SECONDS
        attempts.check_stranded()
