"""evaluation.test_on: every trained model ranks further collections, and is trained once."""

import io
import json
import shutil
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ranksweep
from rank_core.errors import BadInput
from rank_core.testing.laws import WORDS
from sweeps.__main__ import main
from sweeps.engine import local
from sweeps.forecast.forecast import Forecast, TrialEstimate
from sweeps.launch import budget_limit, sweep
from sweeps.launch.command import launch
from sweeps.report.over_sets import over_sets
from sweeps.store.sweep_file import read_sweep_file
from sweeps.systems.derived import with_interpolated
from sweeps.systems.interpolation import MixtureInputs, trial_table
from sweeps.systems.load import load_sweep
from sweeps.systems.runs import run_systems
from sweeps.window_stride import EXPERIMENT
from tests.e2e.conftest import run_local

__all__ = ["run_local"]

SETTINGS = ("--num-seeds", "2", "--tracking-uri", "none", "training.max_steps=2",
            "training.batch_size=4", "chunking.window=40", "chunking.stride=20")  # fmt: skip
ALIKE = ("per_query.parquet", "test.run.gz")


def other_texts(folder: Path, to: Path, seed: int, splits: tuple[str, ...] = ("test",)) -> Path:
    """A collection of the same shape with other texts, and of its splits those alone."""
    shutil.copytree(folder, to)
    rng = np.random.default_rng(seed)
    records = [json.loads(line) for line in (to / "docs.jsonl").read_text().splitlines()]
    for record in records:
        record["text"] = " ".join(rng.choice(WORDS, len(record["text"].split())))
    (to / "docs.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    for name in {"train", "dev", "test"} - {*splits}:
        shutil.rmtree(to / name)
    return to


@pytest.fixture(scope="module")
def sets(collection_folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("sets")
    first = other_texts(collection_folder, place / "marsh", seed=1)
    return first, other_texts(collection_folder, place / "heath", 2, splits=("dev", "test"))


@pytest.fixture(scope="module")
def tested(run_local, sets, tmp_path_factory):
    """The folder of a sweep of two systems x two seeds with two test sets."""
    place = tmp_path_factory.mktemp("tested")
    ran = run_local(place / "r", *SETTINGS, "--test-on", f"{sets[0]},{sets[1]}:dev")
    (ran.folder / "printed.txt").write_text(ran.text)
    return ran.folder


def on_set(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}+{name}")


def by_label(folder: Path) -> dict[tuple[str, int], Path]:
    """{(label, seed): folder of the trial}."""
    about = read_sweep_file(folder)
    return {
        (cell.label, seed): folder.parents[1] / "trials" / f"{cell.cell}-seed{seed}"
        for cell in about.cells
        for seed in about.seeds
    }


def content(trial: Path, file: str) -> object:
    """The values of a trial's file, without its own name."""
    if file.endswith(".parquet"):
        return pd.read_parquet(trial / file).drop(columns="cell").to_dict("list")
    import gzip

    lines = gzip.decompress((trial / file).read_bytes()).decode().splitlines()
    return [line.rpartition(" ")[0] for line in lines]


@pytest.mark.slow
def test_models_are_trained_once_and_rank_every_set(tested):
    assert read_sweep_file(tested).test_sets == {
        "marsh": "woods+marsh",
        "heath:dev": "woods+heath-dev",
    }
    for name in ("marsh", "heath-dev"):
        about = read_sweep_file(on_set(tested, name))
        assert about.trained_on == "woods"
        assert [cell.label for cell in about.cells] == [
            cell.label for cell in read_sweep_file(tested).cells
        ]
        for trial in by_label(on_set(tested, name)).values():
            result = json.loads((trial / "result.json").read_text())
            assert result["best_step"] == 0 and result["dev"] == {} and result["test"]
            assert not (trial / "weights.safetensors").exists()
    kept = [
        trial for trial in by_label(tested).values() if (trial / "weights.safetensors").exists()
    ]
    assert len(kept) == 2  # the best seed of each cell, once the sets are ranked


@pytest.mark.slow
def test_values_are_those_of_a_sweep_that_starts_from_the_weights(
    tested, sets, run_local, backbone_folder, collection_folder, tmp_path
):
    every = run_local(tmp_path / "r", *SETTINGS, "training.keep_weights=all").folder
    for (label, seed), trial in by_label(every).items():
        config = json.loads((trial / "config.json").read_text())
        untrained = {
            name: value
            for name, value in config.items()
            if name.startswith(("model.", "chunking.", "training.")) and value not in ([], "")
        } | {"training.num_epochs": 0, "training.keep_weights": "none"}
        from rank_core.settings.config import TrialConfig
        from rank_core.trial.trial import run_trial

        start = TrialConfig().override(
            {
                **untrained,
                "collection": f"{sets[0]}|test-set",
                "training.init_from": str(trial.parent / trial.name.rpartition("-seed")[0]),
                "seed": seed,
            }
        )
        alone = tmp_path / f"{trial.name}-alone"
        list(run_trial(start, alone))
        own = by_label(on_set(tested, "marsh"))[label, seed]
        for file in ALIKE:
            assert content(alone, file) == content(own, file)


@pytest.mark.slow
def test_a_set_added_later_trains_again_what_lost_its_weights_and_nothing_else(
    sets, run_local, tmp_path
):
    folder = run_local(tmp_path / "r", *SETTINGS).folder
    before = {trial: content(trial, "per_query.parquet") for trial in by_label(folder).values()}
    added = run_local(tmp_path / "r", *SETTINGS, "--test-on", str(sets[0]))
    attempts = {trial: len([*trial.glob("attempt-*")]) for trial in before}
    assert sorted(attempts.values()) == [1, 1, 2, 2]
    assert "running 2 finished trials again: weights.safetensors was not saved" in added.text
    assert before == {trial: content(trial, "per_query.parquet") for trial in before}
    again = run_local(tmp_path / "r", *SETTINGS, "--test-on", str(sets[0]))
    assert again.text.count("nothing to launch") == 2
    assert attempts == {trial: len([*trial.glob("attempt-*")]) for trial in before}


@pytest.mark.slow
def test_a_command_that_was_killed_between_sets_goes_on_with_the_next(
    sets, run_local, tmp_path, monkeypatch
):
    words = (*SETTINGS[2:], "--num-seeds", "1", "--test-on", f"{sets[0]},{sets[1]}")
    run, sweeps = local.run_trials, []

    def killed(events, options):
        sweeps.append(events.records.sweep)
        if len(sweeps) == 3:
            raise KeyboardInterrupt
        run(events, options)

    with monkeypatch.context() as patch:
        patch.setattr(local, "run_trials", killed)
        run_local(tmp_path / "r", *words, code=130)
    folder = tmp_path / "r" / "window_stride" / "woods"
    done = {path.parent for path in (tmp_path / "r" / "trials").glob("*/result.json")}
    assert len(done) == 4 and sweeps[-1].endswith("woods+heath")
    run_local(tmp_path / "r", *words)
    assert all(len([*trial.glob("attempt-*")]) == 1 for trial in done)
    assert (on_set(folder, "heath") / "report" / "index.html").exists()


@pytest.mark.slow
def test_a_set_that_exceeds_the_budget_waits_for_a_larger_one(
    sets, run_local, tmp_path, monkeypatch
):
    words = (*SETTINGS[2:], "--num-seeds", "2", "--test-on", f"{sets[0]}")
    folder = tmp_path / "r" / "window_stride" / "woods"

    def forecast(plan, options, num_ended):
        """A second to train a model, ten hours to rank a set by one."""
        each = 36000.0 if plan.experiment.test_set else 1.0
        trials = {cell.cell: TrialEstimate(each, 0.0, 0) for cell in plan.cells}
        return Forecast(trials, 1, 1.0, "core", 0.0, 0.0, 1, 1, 0.0, "x", 1)

    monkeypatch.setattr(budget_limit, "forecast", forecast)
    monkeypatch.setattr(sweep, "forecast", forecast)
    run_local(tmp_path / "r", *words, "--max-gpu-hours", "1", "--dry-run")
    for _ in range(2):  # a resumed command has no more
        text = run_local(tmp_path / "r", *words, "--max-gpu-hours", "1", code=4).text
        assert "4 of 4 planned trials did not start: 2 trials with seed 1 need about 20" in text
        assert read_sweep_file(folder).budget["units"] == 1.0
        assert read_sweep_file(on_set(folder, "marsh")).budget["hours"] < 1.0
    trained = [*by_label(folder).values()]
    assert len(trained) == 4
    assert all((trial / "weights.safetensors").exists() for trial in trained)
    with redirect_stdout(io.StringIO()) as out:
        assert main(["status", str(folder)]) == 0
    assert "marsh: 4 waiting" in out.getvalue()
    shutil.copytree(tmp_path / "r", tmp_path / "given up")
    given_up = run_local(tmp_path / "given up", *words[:-2]).folder
    kept = [(trial / "weights.safetensors").exists() for trial in by_label(given_up).values()]
    assert sum(kept) == 2  # nothing is launched, and the set needs them no more
    # Another sweep of the storage with the same trials launches nothing, and has no say in them.
    other = replace(EXPERIMENT, name="other")
    assert "nothing to launch" in run_local(tmp_path / "r", *words[:-2], experiment=other).text
    run_local(tmp_path / "r", *words, "--max-gpu-hours", "100")
    assert all(len([*trial.glob("attempt-*")]) == 1 for trial in trained)
    assert sum((trial / "weights.safetensors").exists() for trial in trained) == 2
    assert (on_set(folder, "marsh") / "report" / "index.html").exists()


@pytest.mark.slow
def test_a_set_that_was_not_ranked_keeps_the_weights_that_it_needs(
    sets, run_local, tmp_path, monkeypatch
):
    engine, engines = local.run_trials, []

    def broken_on_sets(events, options):
        engines.append(events)
        if len(engines) == 1:
            engine(events, options)

    monkeypatch.setattr(local, "run_trials", broken_on_sets)
    words = (*SETTINGS[2:], "--num-seeds", "2", "--test-on", f"{sets[0]}")
    folder = run_local(tmp_path / "r", *words, code=3).folder
    trained = [*by_label(folder).values()]
    assert len(trained) == 4 and len(engines) == 2
    assert all((trial / "weights.safetensors").exists() for trial in trained)


@pytest.mark.slow
def test_runs_of_one_seed_are_one_run_on_every_set(tested):
    folders = [tested, on_set(tested, "marsh"), on_set(tested, "heath-dev")]
    systems: dict[str, list[str]] = {}
    for folder in folders:
        for cell in load_sweep(folder).cells:
            systems.setdefault(cell.label, []).append(f"{folder}:{cell.label}")
    found = run_systems(systems).sweep
    assert found.separate_runs == () and [*found.collections] == ["woods", "marsh", "heath:dev"]
    assert found.scores.groupby("cell")["seed"].nunique().eq(2).all()


def means(folder: Path, label: str) -> list[float]:
    """The mean nDCG@10 of a system in a sweep's own table, by seed."""
    sweep = with_interpolated(load_sweep(folder))
    rows = [sweep.scores, *(row.scores for row in (sweep.first_stage, *sweep.interpolated) if row)]
    values = pd.concat([table.astype({"cell": str}) for table in rows])
    names = {cell.label: cell.cell for cell in sweep.cells}
    names |= {row.label: row.name for row in (sweep.first_stage, *sweep.interpolated) if row}
    own = values[(values["cell"] == names[label]) & (values["measure"] == "nDCG@10")]
    return [*own.groupby("seed", observed=True)["value"].mean()]


@pytest.mark.slow
def test_every_way_out_has_the_table_over_all_sets(tested, tmp_path, monkeypatch):
    """The run, `report`, Python, the page, and `compare` over folders and over bundles."""
    folders = [tested, on_set(tested, "marsh"), on_set(tested, "heath-dev")]
    printed = (tested / "printed.txt").read_text()
    _, _, table = printed.partition("All test sets: ")
    assert "woods  marsh  heath:dev" in table and "No gain over" in table and "None" not in table
    with redirect_stdout(io.StringIO()) as out:
        assert main(["report", str(tested)]) == 0
    assert table.partition("Page:")[0] in out.getvalue()
    results = json.loads((tested / "report" / "sets" / "results.json").read_text())
    page = (tested / "report" / "index.html").read_text()
    assert 'href="sets/index.html"' in page and "All test sets" in page
    over = ranksweep.load(tested).over_sets()
    assert over is not None and ranksweep.load(folders[1]).over_sets() is None
    frame = over.frame[over.frame["measure"] == "mean nDCG@10"].set_index("system")
    for label, mean in frame["mean"].items():
        by_hand = np.mean([np.mean(means(folder, label)) for folder in folders])
        assert mean == pytest.approx(by_hand, abs=1e-12) and label in table
    assert {"BM25", "FirstP 96", "MaxP 40/20"} < {*frame.index}
    assert len(results["interactions"]) == 2 * (len(frame) - 1)
    bundles = [tmp_path / f"{folder.name}.zip" for folder in folders]
    for folder, file in zip(folders, bundles, strict=True):
        assert main(["bundle", str(folder), "--to", str(file), "--qrels", "include"]) == 0
        assert main(["verify", str(file)]) == 0
    for sources in (folders, bundles):
        compared = tmp_path / sources[1].stem / sources[0].suffix
        assert main(["compare", *map(str, sources), "--out", str(compared)]) == 0
        own = pd.read_csv(compared / "table.csv")
        row = own[(own["measure"] == "mean nDCG@10") & (own["label"] == "MaxP 40/20")]
        assert row["mean"].item() == pytest.approx(frame["mean"]["MaxP 40/20"], abs=1e-12)
        assert row["se_both"].item() == pytest.approx(frame["se_both"]["MaxP 40/20"], abs=1e-12)
    with redirect_stdout(io.StringIO()) as out:
        assert main(["status", str(tested)]) == main(["status", str(folders[1])]) == 0
    assert "marsh: 4 done; heath:dev: 4 done" in out.getvalue()
    assert "the models of woods, beside this folder" in out.getvalue()


@pytest.mark.slow
def test_what_is_not_on_every_set_is_left_out_and_named(tested, tmp_path):
    copy = tmp_path / "r" / "window_stride" / "woods"
    shutil.copytree(tested.parents[1], copy.parents[1])
    lost = by_label(on_set(copy, "marsh"))["MaxP 40/20", 2]
    shutil.rmtree(lost)
    shutil.rmtree(on_set(copy, "heath-dev"))
    over = over_sets(with_interpolated(load_sweep(copy)))
    assert over is not None and [*over.sweep.collections] == ["woods", "marsh"]
    assert over.seeds["MaxP 40/20"] == (1,) and over.seeds["FirstP 96"] == (1, 2)
    assert over.left_out == (
        "heath:dev: no trial has finished there",
        "With the seeds that are on every set alone: MaxP 40/20 (1 seed) and MaxP 40/20 +BM25 "
        "(1 seed).",
    )
    with redirect_stdout(io.StringIO()) as out:
        assert main(["status", str(copy)]) == 0
    assert "heath:dev: not begun" in out.getvalue()
    shutil.rmtree(lost.with_name(lost.name.replace("seed2", "seed1")))
    over = over_sets(with_interpolated(load_sweep(copy)))
    assert over is not None and "MaxP 40/20" not in over.seeds
    lacking = "Not on every set, so not in this table: MaxP 40/20 and MaxP 40/20 +BM25."
    assert over.left_out == ("heath:dev: no trial has finished there", lacking)


@pytest.mark.slow
def test_the_weight_of_the_first_stage_is_that_of_the_training_collections_dev(tested):
    own = load_sweep(tested)
    for (label, seed), trial in by_label(on_set(tested, "marsh")).items():
        trained = by_label(tested)[label, seed].name
        alpha = trial_table(trained, MixtureInputs.of(own))["alpha"].unique()
        table = trial_table(trial.name, MixtureInputs.of(load_sweep(on_set(tested, "marsh"))))
        assert [*table["alpha"].unique()] == [*alpha] and set(table["split"]) == {"test"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--test-on", "{marsh}:dev"], "marsh has no dev split, only test; name one of them"),
        (["--test-on", "{marsh},{marsh}"], "are the same queries"),
        (["--test-on", "{woods}"], "is the collection that the sweep itself trains on or tests"),
        (["--test-on", "{marsh}", "evaluation.folds=4"], "trains one per fold"),
        (["--test-on", "{marsh}", "training.keep_weights=none"], "must be best or all, got none"),
        (["--test-on", "nowhere"], "unknown collection 'nowhere'"),
        (["evaluation.test_alpha=own"], "needs evaluation.test_on"),
    ],
)
def test_bad_sets_are_refused_before_anything_is_trained(
    sets, collection_folder, backbone_folder, tmp_path, words, message
):
    names = {"marsh": sets[0], "woods": collection_folder}
    command = [word.format(**names) for word in words]
    inputs = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    with pytest.raises(BadInput, match=message):
        launch(
            EXPERIMENT,
            [*inputs, *SETTINGS, "--engine", "local", "--storage", str(tmp_path / "r"), *command],
        )
    assert not (tmp_path / "r" / "trials").exists()


def test_a_set_of_a_sweep_without_its_weights_is_refused_by_name(tmp_path):
    from rank_core.checkpoints.weights import stored_cell, weights_file

    assert stored_cell("cell:maxp-w1") == "maxp-w1" and stored_cell("trials/maxp-w1") == ""
    with pytest.raises(BadInput, match="names a cell of a sweep's storage"):
        weights_file("cell:maxp-w1", seed=1)
