"""`sweeps derive` on a small finished sweep: every row is marked, tested and written."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rank_core.models.kept_files import CHUNK_SCORES
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import TrialResult, run_trial
from sweeps.__main__ import main
from sweeps.store.records import sealed
from sweeps.store.sweep_file import Cell, SweepFile, find_sweep
from sweeps.systems.system import Kind
from tests.sweeps.systems.test_load import read_values

MEASURES = ("nDCG@10", "RR@10")
BASELINE = {"model.name": "firstp", "chunking.stride": 40}


@pytest.fixture(scope="module")
def sweep_folder(
    small_trial: TrialConfig, collection_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """FirstP 40 and MaxP 40/20 with two seeds each; all kept their chunk scores."""
    folder = tmp_path_factory.mktemp("sweeps") / "window_stride"
    cells, names = [], []
    (folder / "trials").mkdir(parents=True)
    for label, settings in (("FirstP 40", BASELINE), ("MaxP 40/20", {})):
        for seed in (1, 2):
            keep = {"evaluation.keep_chunk_scores": True, "seed": seed}
            config = small_trial.override(settings | keep)
            *_, result = run_trial(config, folder / "workdir")
            assert isinstance(result, TrialResult)
            names.append(f"{result.cell}-seed{seed}")
            sealed(shutil.copytree(folder / "workdir", folder / "trials" / names[-1]))
        cells.append(Cell(result.cell, label))
    described = ("window_stride", "Which?", "test", MEASURES, MEASURES[0], cells[0].cell)
    planned = SweepFile(*described, tuple(cells), seeds=(1, 2), trials=tuple(names))
    planned.write(find_sweep(str(folder)))
    (folder / "qrels").mkdir()
    shutil.copy(collection_folder / "test" / "qrels.trec", folder / "qrels" / "test.qrels")
    return folder


Derive = Callable[..., tuple[str, pd.DataFrame]]


@pytest.fixture
def derive(sweep_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Derive:
    """(what was printed, derived.csv) of a command on a copy."""
    folder = shutil.copytree(sweep_folder, tmp_path / "window_stride")

    def run(*words: str) -> tuple[str, pd.DataFrame]:
        code = main(["derive", str(folder), *words])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        assert not list(folder.rglob("*.unfinished"))
        assert (folder / "report" / "derived.md").read_text().count("|\n") > 2
        return out, pd.read_csv(folder / "report" / "derived.csv")

    return run


def test_every_derived_row_is_marked_and_every_trained_one_is_not(derive: Derive) -> None:
    text, table = derive()
    rows = table.drop_duplicates(["label", "cell"])
    assert list(rows["kind"]).count("trained") == 2
    assert set(rows["kind"]) == {"trained", Kind.DERIVED}
    expected = {"SumP 40/20", "AvgP 40/20", "KMaxAvgP 40/20, k 3", "FirstP 40"}
    assert set(rows.loc[rows["kind"] == Kind.DERIVED, "label"]) == expected
    lines = text.splitlines()
    assert max(len(line) for line in lines if not line.startswith("Tables: ")) <= 80
    assert sum(f" {Kind.DERIVED} " in line for line in lines) == len(expected)
    assert "Not derived from FirstP 40: a FirstP trial reads" in " ".join(text.split())


def test_means_and_differences_are_those_of_the_per_query_values(
    derive: Derive, sweep_folder: Path
) -> None:
    names = ("--aggregators", "avgp", "maxp", "kmax-avgp", "firstp")
    _, table = derive("--k", "1", "3", "3", *names)
    scores = read_values(sweep_folder).query("split == 'test'")
    trained = table[table["kind"] == "trained"].set_index(["cell", "measure"])["mean"]
    for key, mean in scores.groupby(["cell", "measure"])["value"].mean().items():
        assert trained[key] == pytest.approx(mean)
    derived = table[table["kind"] == Kind.DERIVED]
    # What equals the trained cell or another row is shown once.
    labels = ["AvgP 40/20", "FirstP 40", "KMaxAvgP 40/20, k 1", "KMaxAvgP 40/20, k 3"]
    assert sorted(derived["label"]) == sorted(labels * len(MEASURES))
    assert (derived.loc[derived["label"] == labels[2], "delta"] == 0).all()  # of one it is MaxP
    own = derived.apply(lambda row: trained[row["cell"], row["measure"]], axis=1)
    assert derived["delta"].to_numpy() == pytest.approx((derived["mean"] - own).to_numpy())
    assert (derived["seeds"] == "1 2").all() and (derived["delta"] != 0).any()


def test_trials_that_kept_nothing_are_left_out(
    derive: Derive, tmp_path: Path, sweep_folder: Path
) -> None:
    [second] = (tmp_path / "window_stride" / "trials").glob("maxp-*-seed2")
    (second / CHUNK_SCORES).unlink()
    sealed(second)
    text, table = derive("--aggregators", "sump")
    of_maxp = table[table["cell"].str.startswith("maxp")]
    assert set(of_maxp["seeds"].astype(str)) == {"1"}
    assert (
        of_maxp.loc[of_maxp["kind"] == Kind.DERIVED, "p_both"].isna().all()
    )  # one seed cannot tell
    assert "1 to 2 seeds" in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--aggregators", "parade-attn"], "unknown aggregation of chunk scores 'parade-attn'"),
        (["--k", "0"], "--k >= 1 must hold, got 0"),
        (["without"], "none of the 4 finished trials in .*=true"),
        (["untrained"], "FirstP 40 ranked at random: nothing was trained .* each of its 2 seeds"),
    ],
)
def test_bad_input_is_one_message(
    sweep_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    folder = sweep_folder
    if words == ["without"]:
        without = shutil.ignore_patterns(CHUNK_SCORES)
        folder, words = shutil.copytree(sweep_folder, tmp_path / "w", ignore=without), []
        for trial in (folder / "trials").iterdir():
            sealed(trial)
    if words == ["untrained"]:  # as an older version ran them
        folder, words = shutil.copytree(sweep_folder, tmp_path / "w"), []
        for trial in (folder / "trials").iterdir():
            config = json.loads((trial / "config.json").read_text())
            config |= {"training.num_epochs": 0}
            (trial / "config.json").write_text(json.dumps(config))
            sealed(trial)
    assert main(["derive", str(folder), *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert not (folder / "report").exists()
    assert re.search(message, err), err
