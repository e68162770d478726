"""What a storage holds and what can go: in a folder, in memory, and after a kill at any moment."""

import itertools
import json
from dataclasses import replace

import pytest

from rank_core.errors import BadInput
from sweeps.store.inventory import (
    DONE,
    HALF,
    UNFINISHED,
    remove_sweep,
    remove_trials,
    take_inventory,
)
from sweeps.store.lock import only_driver
from sweeps.store.records import Records, sealed
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import FILE, Cell, SweepFile

NUMBER = itertools.count()


@pytest.fixture(params=["folder", "memory"])
def storage(request, tmp_path):
    """Two sweeps that share a trial, one that starts from a trial, an orphan, a half-removed trial
    and one without a result."""
    uri = str(tmp_path / "s") if request.param == "folder" else f"memory://s{next(NUMBER)}"
    storage = Storage(uri)
    storage.open()
    for name in ("a-seed1", "b-seed1", "c-seed1", "c-seed2", "orphan-seed1", "half-seed1"):
        finish(storage, tmp_path, name)
    storage.remove("trials/half-seed1/result.json")
    Records(storage, "q/x").begin("tried-seed1")
    described(storage, "q/x", "a-seed1", "b-seed1")
    described(storage, "q/y", "b-seed1")
    described(storage, "r/x", config={"training.init_from": f"{storage.uri}/trials/c"})
    return storage


def finish(storage, tmp_path, name):
    folder = tmp_path / "work" / name
    folder.mkdir(parents=True)
    (folder / "values.txt").write_text("x" * 100)
    facts = {"status": "done", "cell": name.rpartition("-seed")[0], "seed": 1}
    (folder / "result.json").write_text(json.dumps(facts))
    sealed(folder)
    for file in folder.iterdir():
        storage.write(f"trials/{name}/{file.name}", file)


def described(storage, sweep, *trials, config=None):
    cells = (Cell("none", config=config or {}),)
    file = SweepFile("q", "Which?", "test", ("P@5",), "P@5", "none", cells, trials=trials)
    records = Records(storage, sweep)
    file.write(records)
    records.write_file("report/index.html", b"page")
    return records


def names(trials):
    return {trial.name for trial in trials}


def test_who_uses_what(storage):
    found = take_inventory(storage)
    assert [sweep.name for sweep in found.sweeps] == ["q/x", "q/y", "r/x"]
    status = {name: trial.status for name, trial in found.trials.items()}
    assert status == dict.fromkeys(["a-seed1", "b-seed1", "c-seed1", "c-seed2"], DONE) | {
        "orphan-seed1": DONE, "half-seed1": HALF, "tried-seed1": UNFINISHED
    }  # fmt: skip
    assert found.users("b-seed1") == ["q/x", "q/y"] and found.users("c-seed2") == ["r/x"]
    assert names(found.orphans) == {"orphan-seed1", "half-seed1", "tried-seed1"}
    assert names(found.only_of(found.sweep("q/x"))) == {"a-seed1"}
    listed = storage.files()
    assert found.num_bytes == sum(entry.size for entry in listed.values())
    assert found.sweep(f"{storage.uri}/q/y/").name == "q/y" == found.sweep("q/y").name
    assert found.sweep("r").name == "r/x"
    for wrong in ("q", "z", "", "trials"):
        with pytest.raises(BadInput, match="q/x, q/y"):
            found.sweep(wrong)


def test_a_sweep_goes_with_the_trials_of_no_other(storage):
    assert list(remove_sweep(storage, "q/x")) == ["a-seed1", "q/x"]
    found = take_inventory(storage)
    assert [sweep.name for sweep in found.sweeps] == ["q/y", "r/x"]
    assert "a-seed1" not in found.trials and "b-seed1" in found.trials
    assert not [path for path in storage.files() if path.startswith("q/x")]
    assert list(remove_sweep(storage, "q/y")) == ["b-seed1", "q/y"]


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("what", ["sweep", "orphans"])
def test_a_removal_that_is_killed_anywhere_can_be_repeated(storage, what, monkeypatch):
    """The process ends before each of its removals in turn, until one gets through."""
    for survived in itertools.count():
        calls = itertools.count()
        removal, folder = Storage.remove, Storage.remove_folder

        def killed(real, calls=calls, survived=survived):
            def call(self, path):
                if not path.startswith(".") and next(calls) == survived:
                    raise Killed
                real(self, path)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "remove", killed(removal))
            patch.setattr(Storage, "remove_folder", killed(folder))
            try:
                if what == "sweep":
                    list(remove_sweep(storage, "q/x"))
                else:
                    list(remove_trials(storage, sorted(names(take_inventory(storage).orphans))))
                break
            except Killed:
                pass
        found = take_inventory(storage)
        assert {"b-seed1", "c-seed1", "c-seed2"} <= found.trials.keys(), "others use them"
        if what == "sweep" and "q/x" not in {sweep.name for sweep in found.sweeps}:
            break  # nothing of it is left
        storage.remove("q/x/driver.json")  # its process has ended
    assert survived >= 3
    found = take_inventory(storage)
    left = {"b-seed1", "c-seed1", "c-seed2"}
    assert found.trials.keys() == left | (
        {"orphan-seed1", "half-seed1", "tried-seed1"} if what == "sweep" else {"a-seed1"}
    )


def test_a_trial_that_is_half_removed_is_not_finished(storage, monkeypatch):
    """Its result goes before its values: what is left never counts."""

    def half(self, path):
        self.remove(f"{path}/values.txt")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "remove_folder", half)
        with pytest.raises(Killed):
            list(remove_trials(storage, ["orphan-seed1"]))
    left = take_inventory(storage).trials.get("orphan-seed1")
    assert left is None or left.status != DONE


def test_nothing_of_a_running_sweep_is_removed(storage):
    records = Records(storage, "q/x")
    with only_driver(records):
        with pytest.raises(BadInput, match="driven by"):
            list(remove_sweep(storage, "q/x"))
        found = take_inventory(storage)
        assert found.sweep("q/x").begins and not found.orphans, "it may use any trial"
        with pytest.raises(BadInput, match="about to begin"):
            found.check_removable()
        with pytest.raises(BadInput, match="about to begin"):
            list(remove_sweep(storage, "q/y"))
        described(storage, "q/x", "a-seed1", "orphan-seed1")  # as its driver does at its start
        found = take_inventory(storage)
        assert names(found.orphans) == {"half-seed1", "tried-seed1"}
        found.check_removable()


@pytest.mark.parametrize("content", [b"{", b'{"schema_version": 2}', b'{"schema_version": 3}'])
def test_trials_stay_while_a_description_cannot_be_read(storage, content):
    Records(storage, "q/y").write_file(FILE, content)
    found = take_inventory(storage)
    assert not found.orphans and found.sweep("q/y").problem
    with pytest.raises(BadInput, match="not known"):
        found.check_removable()
    with pytest.raises(BadInput, match="not known"):
        list(remove_sweep(storage, "q/x"))
    assert list(remove_sweep(storage, "q/y")) == ["q/y"], "the damaged one itself may go"
    assert take_inventory(storage).trials.keys() >= {"a-seed1", "b-seed1"}


def test_a_sweep_of_more_seeds_than_it_has_planned_uses_them_all(storage):
    records = Records(storage, "q/y")
    file = SweepFile("q", "?", "test", ("P@5",), "P@5", "c", (Cell("c"),), seeds=(1,))
    replace(file, trials=("c-seed2",)).write(records)
    assert take_inventory(storage).sweep("q/y").trials == {"c-seed1", "c-seed2"}


def test_a_folder_that_is_a_link_is_removed_without_what_it_leads_to(tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "result.json").write_text("{}")
    (tmp_path / "results" / "trials").mkdir(parents=True)
    (tmp_path / "results" / "trials" / "t1").symlink_to(moved)
    Storage(str(tmp_path / "results")).remove_folder("trials/t1")
    assert not (tmp_path / "results" / "trials" / "t1").is_symlink()
    assert (moved / "result.json").exists()


LINKS = {
    "itself": lambda trial: (trial / "link").symlink_to(trial / "link"),
    "its folder": lambda trial: (trial / "link").symlink_to("."),
    "a folder above": lambda trial: (trial / "link").symlink_to("../.."),
    "each other": lambda trial: [
        (trial.parent / one / "link").symlink_to(trial.parent / other)
        for one, other in (("t1", "t2"), ("t2", "t1"))
    ],
}


@pytest.mark.parametrize("link", LINKS)
def test_a_link_that_leads_back_is_left_out(tmp_path, link):
    """The files that are read are those without it, or each of them once more by the other one."""
    for name in ("t1", "t2"):
        (tmp_path / "trials" / name).mkdir(parents=True)
        (tmp_path / "trials" / name / "result.json").write_text("{}")
    usual = Storage(str(tmp_path)).files()
    LINKS[link](tmp_path / "trials" / "t1")
    found = Storage(str(tmp_path)).files()
    assert {*usual} <= {*found}
    assert {name.count("link") for name in found} <= {0, 1}
    assert link == "each other" or {*found} == {*usual}
