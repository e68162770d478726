"""Every search decides by what has ended and by nothing else; what it wants is what its name says.

A finished trial is made up: its folder in the store, with per-query values on dev, as it leaves it.
"""

import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.racing import FIRST_ANALYSIS
from sweeps.plan.plan import Plan, PlanLine, Trial
from sweeps.plan.search_options import SearchOutcome
from sweeps.plan.search_space import Range, Space, parse_range
from sweeps.search import search as search_module
from sweeps.search import study as study_module
from sweeps.search.proposing import ProposingSearch
from sweeps.search.race import RaceSearch
from sweeps.search.search import WRITING, Decision, Listed, Search, search_class
from sweeps.search.study import Proposal, importance, propose
from sweeps.store.records import Records
from sweeps.store.sweep_file import read_sweep_file, update_sweep_file
from tests.benchmarks.schedule import Cluster, InPlanOrder, Lengths, clusters, simulated
from tests.sweeps.search.player import SIX, Player, good_small_windows, leave, window_of


@pytest.fixture
def race_plan(plan_of) -> Plan:
    return plan_of("--search", "race", "--num-seeds", "6", *SIX)


def text_of(lines: Iterable[PlanLine]) -> str:
    return "\n".join(text for _, text in lines)


def names(search: Search) -> list[str]:
    return [trial.name for trial in search.decision.wanted]


def test_a_race_sends_the_worse_ones_home_and_runs_the_rest_to_the_end(race_plan, tmp_path):
    player = Player(tmp_path, race_plan, good_small_windows)
    search = player.play(slots=2)
    seeds = {cell.cell: 0 for cell in race_plan.cells}
    for trial in player.launched:
        seeds[trial.cell.cell] += 1
    by_window = {cell.cell: cell.config.chunking.window for cell in race_plan.cells}
    baseline, *others = seeds
    assert seeds[baseline] == 6
    assert max(seeds[cell] for cell in others if by_window[cell] == 16) == 6
    assert all(seeds[cell] < 6 for cell in others if by_window[cell] == 32)
    least = 6 + 2 * (len(others) - 1) + 6
    assert f"{least} to {6 * len(seeds)} trials" in text_of(RaceSearch.plan_lines(race_plan))
    assert least <= len(player.launched) < 0.7 * race_plan.num_trials
    assert sorted(names(search)) == sorted(trial.name for trial in player.launched)


def test_the_person_who_watches_a_race_hears_once_who_has_left(race_plan, tmp_path, capsys):
    player = Player(tmp_path, race_plan, good_small_windows)
    player.play(ends=3 * len(race_plan.cells) + 4)
    search = player.play()
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("race: ")]
    assert isinstance(search, RaceSearch)
    assert len(told) == len(search.race().verdicts)
    assert told[0].startswith("race: after 2 of 6 seeds MaxP 16/8 leads on dev, ")
    assert all("MaxP 32/8" not in line for line in told[1:])


def test_at_every_moment_all_live_configurations_have_equal_seeds(race_plan, tmp_path):
    player = Player(tmp_path, race_plan, good_small_windows)
    done = {cell.cell: 0 for cell in race_plan.cells}
    search, running, rng = player.begin(), [], generator(5, "order")
    assert isinstance(search, RaceSearch)
    while running or not search.over:
        while len(running) < 5 and (trial := search.next()):
            running.append(trial)
            live, block = search.race().live, trial.seed
            if block > FIRST_ANALYSIS and not search.race().over and trial.cell.cell in live:
                assert {done[cell] for cell in live} <= {block - 1, block}
                assert min(done[cell] for cell in live) >= block - 1
        trial = running.pop(int(rng.integers(len(running))))
        leave(player.records, trial, good_small_windows(trial))
        search.ended(trial, "done")
        done[trial.cell.cell] += 1
    assert {done[cell] for cell in search.race().live} == {6}


GOALS = (
    *("--objective", "nDCG@10,tokens_per_document,ms_per_query"),
    *("--at-most", "peak_memory=1,tokens_per_document=5000"),
)
GENERATIONS = "NSGAIISampler(population_size=2)"


@pytest.mark.parametrize(
    "words",
    [
        ("race",),
        ("tpe", "--num-configs", "5"),
        ("tpe", "--num-configs", "6", *GOALS),
        (GENERATIONS, "--num-configs", "6"),
    ],
)
def test_a_killed_search_goes_on_as_if_nothing_had_happened(plan_of, tmp_path, words):
    plan = plan_of("--num-seeds", "4", *SIX, "--search", *words)
    whole = Player(tmp_path / "whole", plan, good_small_windows).play()
    player = Player(tmp_path / "killed", plan, good_small_windows)
    for number in itertools.count():  # a killed driver loses what was running
        search = player.play(slots=3, order=number, ends=5)
        if search.over and all(map(player.status, names(search))):
            break
    assert names(search) == names(whole)
    assert search.described() == whole.described()
    assert search.described()["name"] == words[0]
    for path in player.records.folder.glob("search-*.json"):
        noted = [own.get("notes", {}) for own in json.loads(path.read_text())["proposals"]]
        generations = {value for notes in noted for value in notes.values()}
        assert (max(generations, default=0) > 0) is (words[0] == GENERATIONS)


@pytest.mark.parametrize(
    "words", [("race",), ("tpe", "--num-configs", "5"), ("tpe", "--num-configs", "5", *GOALS)]
)
def test_a_growing_and_shrinking_cluster_changes_no_decision(plan_of, tmp_path, words):
    plan = plan_of("--num-seeds", "4", *SIX, "--search", *words)
    fixed = Player(tmp_path / "fixed", plan, good_small_windows).play(slots=2)
    changing = Player(tmp_path / "changing", plan, good_small_windows)
    search = changing.play(order=1, nodes=(1, 4, 2, 6))
    assert names(search) == names(fixed)
    assert search.described() == fixed.described()


COMPARING = [("race",), ("asha", "training.num_epochs=9")]


def spoiled(plan: Plan) -> dict[str, frozenset[str]]:
    """A trial of a race that is lost, and cells that ASHA stops."""
    wide = (cell.cell for cell in plan.cells[1:] if cell.config.chunking.window > 16)
    return {"lost": frozenset({f"{plan.cells[2].cell}-seed2"}), "stopped": frozenset(wide)}


@pytest.mark.parametrize("words", COMPARING)
def test_ends_that_change_no_trial_cost_no_decision(plan_of, tmp_path, monkeypatch, words):
    plan = plan_of("--num-seeds", "6", *SIX, "--search", *words)
    kind, decisions = search_class(words[0]), list[Decision]()
    decide, race = kind.decide, RaceSearch._after_ends

    def counted(search: Search) -> Decision:
        decisions.append(decide(search))
        return decisions[-1]

    def played(folder: str, slots: int) -> list[str]:
        decisions.clear()
        player = Player(tmp_path / folder, plan, good_small_windows, **spoiled(plan))
        search = player.play(slots=slots, order=slots)
        assert not isinstance(search, RaceSearch) or search.race() == race(search)
        return [trial.name for trial in player.launched]

    monkeypatch.setattr(kind, "decide", counted)
    for slots in (1, 4):
        launched = played(f"{slots}", slots)
        assert len(decisions) <= (1 + slots if words[0] == "asha" else 6 + 1)
        with monkeypatch.context() as eager:
            eager.setattr(kind, "changes", lambda *_: True)
            eager.setattr(RaceSearch, "race", race)
            assert played(f"eager {slots}", slots) == launched
            assert len(decisions) == 1 + len(launched)


@pytest.mark.parametrize("words", COMPARING)
def test_describing_a_search_takes_a_share_of_the_time_and_leaves_nothing_out(
    plan_of, tmp_path, monkeypatch, words
):
    plan = plan_of("--num-seeds", "6", *SIX, "--search", *words)
    player = Player(tmp_path, plan, good_small_windows, **spoiled(plan))
    seconds, written = itertools.count(), list[Mapping[str, object]]()  # one for each look

    def write(records: Records, **facts: object) -> None:
        written.append(facts)
        update_sweep_file(records, **facts)

    monkeypatch.setattr(search_module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(search_module, "update_sweep_file", write)
    search = player.play(slots=2)
    assert 2 <= len(written) <= 2 + len(player.launched) * WRITING
    assert ["cells" in facts for facts in written] == [True] + [False] * (len(written) - 1)
    assert read_sweep_file(player.records).search == search.described()


def test_whom_a_race_eliminates_is_written_at_once(race_plan, tmp_path, monkeypatch):
    """A driver that is killed at any end has told of them, however slowly it writes."""
    monkeypatch.setattr(search_module, "WRITING", 1e-9)
    player = Player(tmp_path, race_plan, good_small_windows, **spoiled(race_plan))
    left = set[str]()
    ended = RaceSearch.ended

    def told(search: RaceSearch, trial: Trial, status: str) -> None:
        ended(search, trial, status)
        left.update(search.eliminated)
        assert search.eliminated == {*read_sweep_file(player.records).eliminated}

    monkeypatch.setattr(RaceSearch, "ended", told)
    player.begin().describe()
    player.play(slots=2)
    assert len(left) > 1


def test_new_cells_are_written_at_once_and_their_study_in_time(plan_of, tmp_path, monkeypatch):
    words = ("chunking.window=16,24,32,40", "chunking.stride=4,6,8,10")
    plan = plan_of("--num-seeds", "1", "--search", "tpe", "--num-configs", "16", *words)
    player = Player(tmp_path, plan, good_small_windows)
    seconds, studies = itertools.count(), list[int]()  # one for each look
    launch, write = ProposingSearch.next, ProposingSearch.write_description

    def launched(search: ProposingSearch, slots: int = 1) -> Trial | None:
        trial = launch(search, slots)
        assert trial is None or trial.name in read_sweep_file(player.records).trials
        return trial

    def written(search: ProposingSearch) -> None:
        studies.append(len(search.plan.cells))
        write(search)

    monkeypatch.setattr(search_module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(ProposingSearch, "next", launched)
    monkeypatch.setattr(ProposingSearch, "write_description", written)
    player.begin().describe()  # as before the first trial
    search = player.play()
    assert len(player.launched) == 17 and len(studies) <= 4
    assert read_sweep_file(player.records).search == search.described()


@pytest.mark.parametrize(("words", "early"), [*zip(COMPARING, (True, False), strict=True)])
def test_a_race_begins_with_what_its_block_would_wait_for_and_asha_in_order(
    plan_of, tmp_path, words, early
):
    """Whom ASHA stops depends on who has reported before."""
    plan = plan_of("--num-seeds", "3", *SIX, "--search", *words)
    *cells, last = [replace(cell, cost=1.0) for cell in plan.cells]
    plan = replace(plan, cells=(*cells, replace(last, cost=9.0)))
    player = Player(tmp_path, plan, good_small_windows)
    several = player.begin().next(4)
    assert several and (several.cell.cell == last.cell) is early
    assert player.begin().next(1).cell == plan.cells[0]


@pytest.mark.parametrize("name", ["tpe", "gp", "QMCSampler(scramble=True)"])
def test_proposals_depend_on_no_order_of_ends_and_are_a_study_that_optuna_opens(
    plan_of, tmp_path, name
):
    plan = plan_of("--num-seeds", "2", "--search", name, "--num-configs", "4", *SIX)
    player = Player(tmp_path / "1", plan, good_small_windows)
    first = player.play()
    second = Player(tmp_path / "2", plan, good_small_windows).play(slots=4, order=3)
    assert names(first) == names(second)
    [path] = player.records.folder.glob("search-*.optuna.log")
    backend = JournalStorage(JournalFileBackend(str(path)))
    study = optuna.load_study(study_name="window_stride", storage=backend)
    labels = [one.label for one in first.plan.cells[1:]]
    assert len(labels) == 4 and [one.user_attrs["label"] for one in study.trials] == labels
    assert {trial.state for trial in study.trials} == {optuna.trial.TrialState.COMPLETE}
    assert study.best_trial.params["chunking.window"] == 16
    assert not list(player.records.folder.glob("*.unfinished*"))


@pytest.mark.parametrize(("slots", "seeds", "at_once"), [(8, 1, 9), (12, 3, 5), (2, 1, 4)])
def test_proposals_fill_the_slots_and_the_plan_says_so(plan_of, tmp_path, slots, seeds, at_once):
    words = ("chunking.window=16,24,32,40", "chunking.stride=6,8,12")
    plan = plan_of("--num-seeds", str(seeds), "--search", "tpe", "--num-configs", "10", *words)
    plan = replace(plan, search=plan.search.filling(slots, seeds))
    search = Player(tmp_path, plan, good_small_windows).begin()
    assert len(search.ahead) == seeds * (1 + at_once) > slots
    lines = text_of(search.plan_lines(plan))
    assert f"first {9 + at_once} at random" in lines and f"the last {at_once - 1};" in lines


@pytest.mark.parametrize("name", ["tpe", "gp"])
def test_a_proposal_uses_dev_values_once_ten_have_ended(name):
    space = Space(({},), {"c": Range(0.0, 1.0, log=False, whole=False)})

    def proposed(number, values):
        known = [Proposal({"c": i / 10}, {}) for i in range(number)]
        seen = [
            (proposal, SearchOutcome((float(values[i]),)), True) for i, proposal in enumerate(known)
        ]
        return next(propose(name, space, seen, seed=1))

    rising, falling = range(10), range(10, 0, -1)
    assert proposed(9, rising) == proposed(9, falling)
    assert proposed(10, rising) != proposed(10, falling)


def test_a_proposal_uses_costs_and_limits():
    """Quality and cost rise together: what lies far up is dear, or over the limit."""
    space = Space(({},), {"c": Range(0.0, 1.0, log=False, whole=False)})

    def proposed(outcome_of: Callable[[float], SearchOutcome], num_objectives: int) -> float:
        points = [i / 20 for i in range(20)]
        seen = [(Proposal({"c": c}, {}), outcome_of(c), True) for c in points]
        drawn = [
            next(propose("tpe", space, seen, seed=seed, num_objectives=num_objectives)).values["c"]
            for seed in range(10)
        ]
        return float(np.mean(drawn))

    best = proposed(lambda c: SearchOutcome((c,)), 1)
    within = proposed(lambda c: SearchOutcome((c,), (c - 0.5,)), 1)
    assert best > 0.8 and 0.3 < within < 0.6
    # A front of all points, and one of the cheap half alone, where the dear half gains nothing.
    half = proposed(lambda c: SearchOutcome((min(c, 0.5), c)), 2)
    assert half < 0.5


def test_limits_reach_every_sampler_that_reads_them(monkeypatch):
    """Optuna 4 has no other way than a function."""
    made = partial(study_module._sampler, seed=1, limited=True)
    names = ["tpe", "gp", "TPESampler(n_startup_trials=3)", "GPSampler()", "NSGAIISampler()"]
    monkeypatch.setattr(optuna, "__version__", "4.5.0")
    with warnings.catch_warnings(action="ignore"):
        assert [vars(made(name))["_constraints_func"] for name in names] == (
            [study_module._constraints] * len(names)
        )
    made("RandomSampler()")  # which takes none


def test_a_search_of_several_objectives_is_a_study_of_several(plan_of, tmp_path):
    words = ("--search", "tpe", "--num-configs", "4", "--num-seeds", "2", *GOALS, *SIX)
    player = Player(tmp_path, plan_of(*words), good_small_windows)
    search = player.play()
    [path] = player.records.folder.glob("search-*.optuna.log")
    backend = JournalStorage(JournalFileBackend(str(path)))
    study = optuna.load_study(study_name="window_stride", storage=backend)
    assert [own.name for own in study.directions] == ["MAXIMIZE", "MINIMIZE", "MINIMIZE"]
    tokens = [cell.chunks.tokens_per_document for cell in search.plan.cells[1:]]
    assert [trial.values[1] for trial in study.trials] == tokens
    # A second for the 12 queries that `leave` makes up, of a trial of a byte.
    assert {trial.values[2] for trial in study.trials} == {1000 / 12}
    assert {trial.system_attrs["constraints"][0] for trial in study.trials} == {2**-20 - 1}


def test_what_reads_more_tokens_than_allowed_never_runs(plan_of, tmp_path):
    free = plan_of(*SIX)
    chunked = [cell for cell in free.cells if cell.config.model.name == "maxp"]
    tokens = sorted(cell.chunks.tokens_per_document for cell in chunked)
    limit = f"tokens_per_document={tokens[2]:g}"
    for words in ((), ("--search", "tpe", "--num-configs", "6")):
        plan = plan_of("--num-seeds", "1", *words, *SIX, "--at-most", limit)
        search = Player(tmp_path / str(len(words)), plan, good_small_windows).play()
        read = [trial.cell.chunks.tokens_per_document for trial in search.decision.wanted[1:]]
        assert len(read) >= 2 and max(read) <= tokens[2]
    assert any(limit in own.reason for own in plan_of(*SIX, "--at-most", limit).removed)
    none = ("--search", "tpe", "--num-configs", "6", "--at-most", "tokens_per_document=1")
    with pytest.raises(BadInput, match="no configuration can run: reads"):
        Player(tmp_path / "none", plan_of(*none, *SIX), good_small_windows).begin()


def test_the_setting_that_decides_is_the_important_one():
    """`a` decides, `b` does nothing, and seed 3 alone says the opposite."""
    space = Space(tuple({"a": a, "b": b} for a in range(4) for b in range(4)))
    points = {str(own): Proposal(own, {}) for own in space.points}
    values = {
        cell: {seed: float(own.values["b" if seed == 3 else "a"]) for seed in (1, 2, 3)}
        for cell, own in points.items()
    }
    first, second = importance(space, points, values)
    assert (first["setting"], second["setting"]) == ("a", "b")
    assert first["by_seed"][0] > 0.9 > first["share"] > 0.5 and first["by_seed"][2] < 0.1
    assert importance(space, dict([*points.items()][:9]), dict([*values.items()][:9])) == []


def test_infeasible_and_repeated_points_are_never_proposed(plan_of, tmp_path):
    # A stride beyond its window leaves text unread: 3 of these 6 points cannot run.
    words = ("chunking.window=16,24", "chunking.stride=8,20,32")
    plan = plan_of("--num-seeds", "1", "--search", "tpe", "--num-configs", "6", *words)
    player = Player(tmp_path, plan, good_small_windows)
    search = player.play()
    pairs = [(t.config.chunking.window, t.config.chunking.stride) for t in player.launched[1:]]
    assert set(pairs) == {(16, 8), (24, 8), (24, 20)} and len(pairs) == 3
    assert search.over  # fewer than asked for: there is nothing else


def test_more_configurations_and_more_seeds_go_on_from_the_same_proposals(plan_of, tmp_path):
    words = ("--search", "tpe", *SIX)
    player = Player(tmp_path, plan_of("--num-seeds", "1", "--num-configs", "3", *words), window_of)
    few = [cell.cell for cell in player.play().plan.cells]
    player.plan = plan_of("--num-seeds", "2", "--num-configs", "5", *words)
    more = [cell.cell for cell in player.play().plan.cells]
    assert more[:4] == few and len(more) == 6


def test_a_lost_trial_takes_its_configuration_out_of_the_race_and_stays_wanted(race_plan, tmp_path):
    best = next(cell.cell for cell in race_plan.cells if cell.config.chunking.window == 16)
    lost = f"{best}-seed3"
    search = Player(tmp_path, race_plan, good_small_windows, lost=frozenset({lost})).play()
    assert lost in names(search)  # so the command ends with a failed trial
    assert f"{best}-seed4" not in names(search)
    [line] = [one for one in search.described()["standings"] if one["cell"] == best]
    assert line["left_after"] == 2 and line["reason"] == "a trial was lost"


def test_random_draws_without_replacement_and_more_of_the_same(plan_of):
    def drawn(*words: str) -> list[str]:
        return [cell.cell for cell in plan_of("--search", "random", *SIX, *words).cells]

    three, five = drawn("--num-configs", "3"), drawn("--num-configs", "5")
    assert five[:4] == three and len(set(five)) == 6
    assert set(drawn("--num-configs", "99")) >= set(five)  # all that there are
    assert any(drawn("--num-configs", "3", "--search-seed", str(n)) != three for n in (2, 3, 4))
    assert drawn("--num-configs", "3", "--num-seeds", "7") == three


def test_a_space_accepts_its_own_points_alone():
    space = Space(({"a": 1, "b": 2}, {"a": 3}), {"c": Range(0.0, 1.0, log=False, whole=False)})
    assert space.axes() == {"a": (1, 3), "b": (2, None)}
    assert space.point({"a": 3, "b": None, "c": 0.12345}) == {"a": 3, "c": 0.123}
    assert space.point({"a": 1, "b": None, "c": 0.5}) is None


def test_ranges_are_searched_within_the_law(plan_of, tmp_path):
    plan = plan_of(
        *("--num-seeds", "1", "--search", "tpe", "--num-configs", "4"),
        *("chunking.window=16..40", "chunking.stride=8"),
    )
    player = Player(tmp_path, plan, good_small_windows)
    player.play()
    windows = [window_of(trial) for trial in player.launched[1:]]
    assert len(set(windows)) == 4 and all(16 <= window <= 40 for window in windows)


@pytest.mark.parametrize(
    ("word", "law"),
    [
        ("chunking.window=40..16", "lo < hi must hold"),
        ("chunking.window=0..16:log", "0 < lo < hi must hold"),
        ("chunking.window=1.5..16", "chunking.window must be a whole number, got '1.5'"),
        ("model.name=1..2", "a setting that is a number"),
    ],
)
def test_a_range_without_numbers_is_refused(word, law):
    name, _, value = word.partition("=")
    with pytest.raises(BadInput, match=law):
        parse_range(name, value)


ASHA = ("--search", "asha", "--num-seeds", "3", "training.num_epochs=9")


def test_configurations_that_asha_stops_run_no_further_seed(plan_of, tmp_path):
    plan = plan_of(*ASHA, *SIX)
    stopped = {cell.cell for cell in plan.cells[1:] if cell.config.chunking.window > 16}
    player = Player(tmp_path, plan, good_small_windows, stopped=frozenset(stopped))
    search = player.play(slots=4, order=4)
    assert {trial.cell.cell for trial in player.launched if trial.competes} == {
        cell.cell for cell in plan.cells[1:]
    }
    seeds = {cell.cell: 1 if cell.cell in stopped else 3 for cell in plan.cells}
    assert sorted(names(search)) == sorted(
        trial.name for trial in plan.trials() if trial.seed <= seeds[trial.cell.cell]
    )
    left = {line["cell"] for line in search.described()["standings"] if line["left_after"] == 0}
    assert left == stopped and search.described()["over"]


@pytest.mark.parametrize(
    ("words", "law"),
    [
        (("chunking.window=16", "chunking.stride=8"), "--search asha"),
        (("--asha-min-epochs", "9", *SIX), "--asha-min-epochs"),
        (("training.max_steps=3", *SIX), "training.max_steps"),
        (("evaluation.folds=3", *SIX), "evaluation.folds"),
    ],
)
def test_a_plan_that_asha_cannot_judge_is_refused(plan_of, words, law):
    plan = plan_of(*ASHA, *words)
    with pytest.raises(BadInput, match=law):
        list(search_class("asha").plan_lines(plan))


def test_the_plan_says_how_many_trials_a_search_can_come_to(plan_of):
    proposing = plan_of("--search", "gp", "--num-configs", "3", "--num-seeds", "4", *SIX)
    assert "at most 16 trials" in text_of(search_class("gp").plan_lines(proposing))
    assert list(Listed.plan_lines(plan_of(*SIX))) == []


def launched(search: Listed, slots: int) -> list[tuple[str, int]]:
    """(cell, seed) of all trials in the order of their launch."""
    return [(trial.cell.cell, trial.seed) for trial in iter(lambda: search.next(slots), None)]


LONG_LAST = Lengths((1.0,) * 20 + (10.0,), (0.4,) * 20 + (4.0,))


@pytest.mark.parametrize("cluster", clusters(8), ids=lambda cluster: cluster.name)
def test_no_long_trial_is_what_the_slots_wait_for_at_the_end(cluster: Cluster):
    before, least = simulated(LONG_LAST.search(InPlanOrder, 5), LONG_LAST.hours, cluster)
    after, _ = simulated(LONG_LAST.search(Listed, 5), LONG_LAST.hours, cluster)
    assert before > 1.3 * least
    assert after <= 1.05 * least


class Forgetful(Listed):
    """Knows the tokens of trials alone."""

    def measured(self, trial: Trial, seconds: float) -> None:
        """Learns nothing."""


def test_lengths_that_tokens_do_not_show_are_learned_from_the_first_seed():
    hours, cluster = LONG_LAST.hours, next(clusters(8))
    alike_by_tokens = Lengths((1.0,) * 21, hours)
    learned, least = simulated(alike_by_tokens.search(Listed, 10), hours, cluster)
    by_tokens, _ = simulated(alike_by_tokens.search(Forgetful, 10), hours, cluster)
    assert learned <= 1.05 * least
    assert by_tokens > 1.15 * least


@pytest.mark.parametrize("words", [(), ("--search", "random", "--num-configs", "3")])
def test_lengths_of_an_earlier_command_are_those_of_its_finished_trials(plan_of, tmp_path, words):
    player = Player(tmp_path, plan_of(*SIX, *words), good_small_windows)
    first = player.begin().next(2)
    leave(player.records, first, player.value(first))
    search = player.begin()
    seconds = player.records.state(first.name).result_seconds(1)
    rest = [one for one in player.plan.trials() if one.name != first.name]
    again = next(one for one in rest if one.cell == first.cell)
    work = sum(seconds * one.cost / first.cost for one in rest)
    assert search.share(again) == pytest.approx(seconds / (work + seconds))


def test_a_trial_that_is_most_of_the_work_has_most_of_the_slots_and_the_last_one_all():
    cluster = next(clusters(8))
    alone, least = simulated(LONG_LAST.search(Listed, 1), LONG_LAST.hours, cluster)
    groups, _ = simulated(LONG_LAST.search(Listed, 1), LONG_LAST.hours, cluster, 8)
    assert alone == least == 4.0
    assert groups < 0.5 * alone


def test_one_slot_and_trials_of_one_length_take_the_order_of_the_plan():
    in_plan_order = launched(LONG_LAST.search(InPlanOrder, 5), 8)
    assert launched(LONG_LAST.search(Listed, 5), 1) == in_plan_order
    alike = Lengths((3.0,) * 21, (4.0,) * 21)
    assert launched(alike.search(Listed, 5), 64) == in_plan_order


def test_an_early_end_leaves_about_as_many_seeds_of_every_cell():
    many = Lengths((1.0,) * 99 + (2.0,), (2.0,) * 99 + (4.0,))
    half = launched(many.search(Listed, 10), 4)[:500]
    assert {seed for _, seed in half} == set(range(5))


def test_under_a_budget_seeds_start_in_turn_and_the_longest_of_each_first():
    search = LONG_LAST.search(Listed, 3)
    search.limit.by_seed = True
    order = launched(search, 8)
    assert [seed for _, seed in order] == [0] * 21 + [1] * 21 + [2] * 21
    assert [order[at][0] for at in (0, 21, 42)] == ["cell20"] * 3
    assert order[1:21] == [(f"cell{i}", 0) for i in range(20)]
