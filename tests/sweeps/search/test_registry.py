"""An entry of `SEARCHES` is all that a search needs: its class plans, runs and comes to its end."""

import pytest

from rank_core.errors import BadInput
from sweeps.launch.plan_text import plan_text
from sweeps.plan import search_options
from sweeps.plan.options import parse
from sweeps.plan.search_options import SEARCHES, SearchKind
from sweeps.search.search import Decision, Search, search_class
from tests.sweeps.search.player import SIX, Player, good_small_windows


def words_of(name: str) -> tuple[str, ...]:
    number = ("--num-configs", "4") if SEARCHES[name].drawn == "must" else ()
    return ("--search", name, *number, "--num-seeds", "3", "training.num_epochs=9", *SIX)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_ends_even_where_every_trial_is_lost(name, plan_of, tmp_path):
    plan = plan_of(*words_of(name))
    search = Player(tmp_path / "results", plan, good_small_windows).begin()
    assert type(search) is search_class(name)
    assert search.described()["name"] == name
    launched = []
    while trial := search.next():
        launched.append(trial)
        search.ended(trial, "failed")
    assert search.over and len({trial.name for trial in launched}) == len(launched)
    baseline = [trial.seed for trial in launched if trial.cell.cell == plan.cells[0].cell]
    assert baseline == [1, 2, 3] and len({trial.cell.cell for trial in launched}) > 1


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_has_a_smoke_test(name, plan_of, tmp_path):
    words = [word for word in words_of(name) if not word.startswith("training.")]
    plan = plan_of(*words, "--smoke-test")
    trial = Player(tmp_path / "results", plan, good_small_windows).begin().next()
    assert trial
    training = trial.config.training
    assert (training.max_steps or training.epoch_steps * training.num_epochs) == 2
    assert plan.num_trials <= 12


class Backwards(Search):
    """The grid from its end."""

    def decide(self) -> Decision:
        """All trials."""
        return Decision(tuple(self.plan.trials())[::-1], final=True)


def test_a_search_is_added_by_one_line(plan_of, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="unknown search 'backwards'; known: asha, gp, grid"):
        plan_of("--search", "backwards", *SIX)
    monkeypatch.setitem(search_options.SEARCHES, "backwards", SearchKind(f"{__name__}:Backwards"))
    plan = plan_of("--search", "backwards", *SIX)
    search = Player(tmp_path / "results", plan, good_small_windows).play()
    assert isinstance(search, Backwards) and search.described() == {"name": "backwards"}
    assert f"search      backwards of {len(plan.cells) - 1} configurations" in plan_text(
        plan, finished=0
    )
    drawn = plan_of("--search", "backwards", "--num-configs", "2", *SIX)
    assert "backwards of 2 configurations drawn from" in plan_text(drawn, finished=0)
    with pytest.raises(BadInput, match="needs random, tpe, gp, race, asha, backwards"):
        parse(["--num-configs", "2"], prog="window_stride.py", description="")
