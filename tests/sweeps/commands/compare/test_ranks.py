"""`compare --ranks`, and bundles as sources: verified first, refused by their first difference."""

import csv
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.commands.bundle import SUMS, unpack, write_zip
from sweeps.commands.compare import command
from sweeps.commands.compare.command import systems_of
from sweeps.report.comparison import compare_runs
from sweeps.report.ranks import rank_rows
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

NUM_SYSTEMS, NUM_QUERIES = 12, 40


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A public board with made values: neighbours differ by .004, queries by far more, and each of
    the systems has one run; the last one fails everywhere."""
    rng = np.random.default_rng(3)
    base_Q = rng.uniform(0.2, 0.7, NUM_QUERIES)
    lines = ["query_id,system,measure,value"]
    for at in range(NUM_SYSTEMS):
        value_Q = np.clip(base_Q + 0.08 - 0.004 * at + rng.normal(0, 0.08, NUM_QUERIES), 0, 1)
        value_Q *= at < NUM_SYSTEMS - 1
        lines += [f"q{q},s{at:02},nDCG@10,{value:.6f}" for q, value in enumerate(value_Q)]
    (tmp_path / "board.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "board.csv"


def fixed() -> list[str]:
    return [word for at in range(NUM_SYSTEMS) for word in ("--deterministic", f"s{at:02}")]


def test_nearly_all_neighbours_of_a_public_board_tie(board, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["compare", str(board), "--ranks", "--out", str(out), *fixed()]) == 0
    printed = capsys.readouterr().out
    ranks = json.loads((out / "results.json").read_text())["ranks"]
    assert len(ranks) == NUM_SYSTEMS and ranks[-1]["system"] == f"s{NUM_SYSTEMS - 1:02}"
    tied = [one["rank_group"] == two["rank_group"] for one, two in pairwise(ranks)]
    assert tied == [True] * (NUM_SYSTEMS - 2) + [False]
    last = ranks[-1]
    assert (last["rank_low"], last["rank_high"], last["rank_group"]) == (12, 12, 2)
    assert all(one["rank_high"] < NUM_SYSTEMS for one in ranks[:-1])
    rows = list(csv.DictReader((out / "table.csv").open()))
    keys = ("rank_low", "rank_high", "rank_group")
    by_system = {one["system"]: [str(one[key]) for key in keys] for one in ranks}
    assert {row["cell"]: [row[key] for key in keys] for row in rows} == by_system
    assert re.search(r"^Ranks, nDCG@10\nsystem +mean +rank +group\n", printed, re.M)
    assert re.search(rf"^s{NUM_SYSTEMS - 1:02} +0\.000 +12 +2$", printed, re.M)


def test_without_three_runs_a_trained_system_has_no_rank(board, tmp_path, capsys):
    assert main(["compare", str(board), "--ranks", "--out", str(tmp_path / "out")]) == 0
    assert "fewer than 3 training runs have no rank" in " ".join(capsys.readouterr().out.split())
    ranks = json.loads((tmp_path / "out" / "results.json").read_text())["ranks"]
    assert {one["rank_low"] for one in ranks} == {None}


def test_without_the_flag_no_output_has_ranks(board, tmp_path, capsys):
    assert main(["compare", str(board), "--out", str(tmp_path / "out"), *fixed()]) == 0
    assert "Ranks" not in capsys.readouterr().out
    assert "ranks" not in json.loads((tmp_path / "out" / "results.json").read_text())
    assert "rank_low" not in (tmp_path / "out" / "table.csv").read_text()


def bundled(sweep: Path, to: Path, *words: str) -> Path:
    assert main(["bundle", str(sweep), "--to", str(to), *words]) == 0
    return to


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, no_figures_here: None) -> Path:
    """A sweep, its bundle with judgments and with their hash, one on other judgments, and one with
    an altered table whose checksums fit."""
    top = tmp_path_factory.mktemp("bundles")
    write_ranked_sweep(top / "ann")
    write_ranked_sweep(top / "cy", num_queries=31)
    bundled(top / "ann", top / "a.zip", "--qrels", "include")
    bundled(top / "ann", top / "hashed.zip")
    bundled(top / "cy", top / "c.zip", "--qrels", "include")
    folder = top / "altered"
    folder.mkdir()
    unpack(top / "a.zip", folder)
    (folder / SUMS).unlink()
    table = folder / "sweep/report/table.md"
    table.write_text(re.sub(r"0\.\d{3}", "0.999", table.read_text(), count=1))
    write_zip(top / "altered.zip", folder)
    shutil.rmtree(folder)
    return top


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures_here")
@pytest.mark.parametrize("bundle", ["a.zip", "hashed.zip"])
def test_a_bundle_is_the_sweep_that_it_holds(made, bundle, capsys):
    of_sweep, of_bundle = (
        compare_runs(systems_of([str(made / name)]), None) for name in ("ann", bundle)
    )
    assert of_bundle.sweep.scores.equals(of_sweep.sweep.scores)
    assert rank_rows(of_bundle.analysis) == rank_rows(of_sweep.analysis)
    places = {part.where for run in of_bundle.runs for part in run.on.values()}
    assert f"{made / bundle}:FirstP 40, seed 1" in places
    assert ("not checked" in capsys.readouterr().err) == (bundle == "hashed.zip")


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures_here")
def test_a_label_of_a_bundle_is_one_of_its_systems(made):
    source = f"{made / 'a.zip'}:MaxP 40/20"
    assert [*systems_of([source])] == ["MaxP 40/20"]
    assert {name: len(runs) for name, runs in systems_of([f"A={source}"]).items()} == {"A": 3}
    with pytest.raises(BadInput, match=r"a\.zip holds 2 systems: name one of them, as .*:LABEL"):
        systems_of([f"A={made / 'a.zip'}"])


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures_here")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["altered.zip"],
            r"altered\.zip: is not as .*report/table\.md: line \d+: states .*0\.999",
        ),
        (["a.zip", "c.zip"], r"c\.zip: its judgments of woods test are not those of .*a\.zip"),
        (["none.zip"], r"none\.zip"),
    ],
)
def test_a_bundle_that_differs_is_refused_by_its_first_difference(made, words, reason):
    with pytest.raises(BadInput, match=reason) as refused:
        command.main([str(made / word) for word in words])
    assert "/tmp/tmp" not in str(refused.value)
