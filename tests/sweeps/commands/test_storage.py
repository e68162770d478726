"""`ranksweep storage`: dry by default, and what it says is what it does."""

import os
import shutil
import time
from pathlib import Path

import pytest

from rank_core.cache import cache_entries, cache_root, cached_directory
from sweeps.__main__ import main
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.tracking.client import connect, default_tracking_uri
from sweeps.tracking.thread import sync
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A storage of the test's own."""
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    return made(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """A storage for tests that remove nothing."""
    folder = tmp_path_factory.mktemp("storage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSWEEP_CACHE", str(folder / "cache"))
        yield made(folder)


def made(folder):
    """A storage with a sweep of two trials in MLflow, and an orphan of a third."""
    sweep = MadeSweep(folder, seeds=(1, 2))
    sweep.whole("c1-seed1", "c1-seed2", "c2-seed1")
    uri = default_tracking_uri(sweep.records)
    sync(sweep.reader, uri, EXPERIMENT)
    sweep.describe(trials=("c1-seed1", "c1-seed2"), seeds=())
    return Path(sweep.records.storage.root)


def everything(place):
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.name[0] != "."}


def test_nothing_goes_without_yes(unchanged, capsys):
    before = everything(unchanged)
    assert main(["storage", str(unchanged), "--orphans", "--remove", "ws/woods"]) == 0
    said = capsys.readouterr().out
    assert "1 trial that no sweep uses" in said and "Nothing was removed" in said
    assert "ws/woods with 2 trials" in said and "3 MLflow runs" in said
    assert everything(unchanged) - before <= {"mlflow.db-wal", "mlflow.db-shm"}
    assert before <= everything(unchanged)


def test_orphans_go_with_their_runs(place, capsys):
    assert main(["storage", str(place), "--orphans", "--yes"]) == 0
    assert "1 orphan" in (said := capsys.readouterr().out) and "1 MLflow run of" in said
    assert {path.name for path in (place / "trials").iterdir()} == {"c1-seed1", "c1-seed2"}
    client = connect(default_tracking_uri(Records(Storage(str(place)), "ws/woods")))
    [experiment] = [e for e in client.search_experiments() if e.name != "Default"]
    runs = client.search_runs([experiment.experiment_id])
    keys = {run.data.tags["rank.trial_key"].rpartition("/")[2] for run in runs}
    assert keys == {"c1-seed1", "c1-seed2"}
    assert main(["storage", str(place)]) == 0 and "orphans  " not in capsys.readouterr().out


def test_a_removed_sweep_can_begin_again(place, tmp_path, capsys):
    assert main(["storage", str(place), "--remove", "ws/woods", "--yes"]) == 0
    assert not (place / "ws").exists() and not list((place / "artifacts").rglob("*.parquet"))
    again = MadeSweep(tmp_path, seeds=(1,))
    again.whole("c1-seed1")
    assert sync(again.reader, default_tracking_uri(again.records), EXPERIMENT) == 2


def test_what_the_cache_has_not_used_for_days_goes(place, capsys):
    for key in ("old", "new"):
        cached_directory("tokens", key, lambda folder: (folder / "f").write_text("x"))
    kept = cache_root() / "llm-answers"  # answers that were paid for
    kept.mkdir()
    (kept / "answer.json").write_text("{}")
    ago = time.time() - 10 * 86_400
    for path in (cache_root() / "tokens" / "old", cache_root() / "tokens" / "old" / "f"):
        os.utime(path, (ago, ago))
    os.utime(kept / "answer.json", (ago, ago))
    assert main(["storage", str(place), "--cache", "9"]) == 0
    assert "1 folder of the cache, 1 B" in capsys.readouterr().out
    assert len(list(cache_entries())) == 2
    assert main(["storage", str(place), "--cache", "9", "--yes"]) == 0
    assert [entry.path.name for entry in cache_entries() if entry.path.is_dir()] == ["new"]
    assert (kept / "answer.json").exists()
    cached_directory("tokens", "new", shutil.rmtree)  # it is there: nothing builds it
    built = cached_directory("tokens", "old", lambda folder: (folder / "f").write_text("y"))
    assert (built / "f").read_text() == "y"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--yes"], "--yes needs"),
        (["--remove", "nothing"], "ws/woods"),
        (["--cache", "0"], "--cache must be 1 day"),
        (["--cache", "nan"], "finite"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, named, unchanged, capsys):
    before = everything(unchanged)
    assert main(["storage", str(unchanged), *words]) == 2
    assert named in capsys.readouterr().err and everything(unchanged) == before


@pytest.mark.parametrize("name", ["", "ws/woods", "nowhere"])
def test_a_folder_that_is_no_storage_is_refused(name, unchanged, tmp_path, capsys):
    where = str(unchanged / name) if name else str(tmp_path / "empty")
    assert main(["storage", where]) == (2 if name != "ws/woods" else main(["storage", where]))
    assert "not a storage of sweeps" in capsys.readouterr().err
