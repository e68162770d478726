"""What a notebook holds: a sweep's frames, table and figures; anybody's runs compared."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import rank_core
import ranksweep
from rank_core.data.trec import read_run, write_qrels, write_run
from rank_core.errors import BadInput
from ranksweep import compare, load
from sweeps.__main__ import main
from sweeps.store.test_options import TestOptions
from sweeps.systems.runs import run_systems
from tests.sweeps.report.ranked_sweep import CELLS, MEASURES, write_ranked_sweep

LABELS = ["BM25", "FirstP 40", "FirstP 40 +BM25", "MaxP 40/20", "MaxP 40/20 +BM25"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ranked_sweep(tmp_path_factory.mktemp("sweeps") / "window_stride" / "woods")


def test_trials_and_values_are_frames_under_the_names_of_the_table(folder: Path) -> None:
    sweep = load(str(folder))
    assert list(sweep.trials["system"]) == ["FirstP 40"] * 3 + ["MaxP 40/20"] * 3
    test = sweep.per_query[sweep.per_query["split"] == "test"]
    assert list(test["system"].unique()) == ["FirstP 40", "MaxP 40/20", *LABELS[2::2], "BM25"]
    assert len(test) == (4 * 3 + 1) * 30 * len(MEASURES)
    assert set(sweep.per_query["split"]) == {"dev", "test"}
    means = test.groupby(["system", "measure"])["value"].mean()
    frame = load(folder).table().frame
    assert list(frame["system"].unique()) == LABELS
    for row in frame.itertuples():
        assert row.mean == pytest.approx(means[row.system, row.measure])
    of_baseline = frame[frame["system"] == LABELS[1]]
    assert of_baseline["delta"].isna().all() and frame["delta"].notna().sum() == 8
    [look] = (folder / "test_access.jsonl").read_text().splitlines()
    assert "ranksweep.load(" in look, "counted once"


def test_the_table_is_drawn_by_a_notebook_and_written_by_print(folder: Path) -> None:
    sweep = load(folder)
    html = sweep._repr_html_()
    assert html == sweep.table()._repr_html_()
    assert all(label in html for label in LABELS) and "<html" not in html
    text = repr(sweep)
    assert text.startswith("window_stride: Which?") and "MaxP 40/20 +BM25" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "MaxP 40/20 +BM25" in sweep.table().markdown()
    assert sweep.table().latex("tab:mine").count("tab:mine") == 1


def test_a_plot_is_a_figure_that_a_notebook_shows_without_pyplot(folder: Path) -> None:
    sweep = load(folder)
    forest = sweep.plot("forest")
    png, size = forest._repr_png_()
    assert isinstance(forest, Figure) and png.startswith(b"\x89PNG") and size["width"] > 300
    with pytest.raises(BadInput, match=r"unknown plot 'wood'.*forest"):
        sweep.plot("wood")


def test_runs_are_compared_with_seeds_and_judgments(folder: Path) -> None:
    cell = CELLS[1][0]
    systems = {
        "BM25": folder / "first_stage" / "test.run.gz",
        "MaxP": sorted((folder / "trials").glob(f"{cell}-seed*/test.run.gz")),
    }
    qrels = folder / "qrels" / "test.qrels"
    found = compare(systems, qrels, measures=["nDCG@10"], deterministic=["BM25"])
    frame = found.frame.set_index("system")
    assert list(frame["seeds"]) == [1, 3] and frame.loc["MaxP", "baseline"] == "BM25"
    trained = load(folder).table().frame
    own = trained[(trained["system"] == "MaxP 40/20") & (trained["measure"] == "nDCG@10")]
    assert frame.loc["MaxP", "mean"] == pytest.approx(own["mean"].item())
    [row] = re.findall('<tr[^>]*><th scope="row">BM25.*?</tr>', found._repr_html_())
    assert "0.638" in row and "±" not in re.sub("<[^>]*>", "", row)  # a single run has no deviation
    assert "2 systems, 4 runs" in repr(found)
    other = compare(systems, qrels, baseline="MaxP", measures=["nDCG@10"], deterministic=["BM25"])
    assert other.frame.set_index("system").loc["BM25", "baseline"] == "MaxP"


def test_a_comparison_is_drawn_and_saved_and_names_its_options(
    folder: Path, tmp_path: Path
) -> None:
    systems = {name: f"{folder}/trials/{name}-*/test.run.gz" for name in ("firstp", "maxp")}
    found = compare(systems, folder / "qrels" / "test.qrels", measures="nDCG@10")
    assert isinstance(found.plot("forest"), Figure)
    found.save(str(tmp_path), pairs=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"index.html", "table.tex", "comparisons.csv", "pairs.csv"} <= names
    with pytest.raises(BadInput, match="unknown option of the tests 'out'; known: alpha, "):
        compare(systems, out=tmp_path)
    options = inspect.signature(compare).parameters
    own = set(inspect.signature(run_systems).parameters) - {"baselines", "command"}
    assert options.keys() == own | {"baseline"}
    named = {*options, *(field.name for field in fields(TestOptions))}
    documented = {*re.findall(r"^ +(\w+)(?: \(.*\))?: ", compare.__doc__ or "", re.MULTILINE)}
    assert named - {"systems", "qrels", "tests"} <= documented
    with pytest.raises(BadInput, match="qrels= in Python"):
        compare(systems)


def test_frames_of_runs_and_of_values_are_compared_like_files(folder: Path) -> None:
    names = ("query_id", "q0", "doc_id", "rank", "score", "tag")
    files = {
        name: sorted((folder / "trials").glob(f"{name.lower()}-*/test.run.gz"))
        for name in ("FirstP", "MaxP")
    }
    frames = {
        name: [pd.read_csv(path, sep=r"\s+", names=names) for path in own]
        for name, own in files.items()
    }
    qrels = folder / "qrels" / "test.qrels"
    judged = pd.read_csv(qrels, sep=" ", names=["qid", "q0", "docno", "label"])
    of_files = compare(files, qrels, measures=["nDCG@10"]).frame
    pyterrier = {"query_id": "qid", "doc_id": "docno"}
    of_frames = compare(
        {name: [one.rename(columns=pyterrier) for one in own] for name, own in frames.items()},
        judged,
        measures=["nDCG@10"],
    ).frame
    pd.testing.assert_frame_equal(of_frames, of_files)
    values = load(folder).per_query.query("split == 'test' and measure == 'nDCG@10'")
    of_values = compare(
        {
            label: [part for _, part in values[values["system"] == label].groupby("seed")]
            for label in ("FirstP 40", "MaxP 40/20")
        }
    ).frame
    numbers = ["mean", "delta", "ci_low", "p_both"]
    pd.testing.assert_frame_equal(of_values[numbers], of_files[numbers])


def test_a_pattern_and_a_dictionary_are_taken_as_they_are(folder: Path) -> None:
    qrels = folder / "qrels" / "test.qrels"
    pattern = f"{folder}/trials/maxp-*/test.run.gz"
    paths = sorted((folder / "trials").glob("maxp-*/test.run.gz"))
    runs = [dict(read_run(path)) for path in paths]  # as ranx's to_dict() has them
    systems = {"A": pattern, "B": runs, "BM25": folder / "first_stage" / "test.run.gz"}
    frame = compare(systems, qrels, measures="nDCG@10", deterministic="BM25").frame
    assert frame["mean"][0] == frame["mean"][1] and list(frame["seeds"]) == [3, 3, 1]


def test_one_frame_of_values_holds_all_systems(folder: Path) -> None:
    values = load(folder).per_query.query("split == 'test' and measure == 'nDCG@10'")
    frame = values[["system", "seed", "query_id", "measure", "value"]]
    assert set(compare(frame.rename(columns={"system": "name"})).frame["system"]) == set(
        values["system"]
    )
    with pytest.raises(BadInput, match="two systems or more"):
        compare(frame[frame["system"] == "MaxP 40/20"])


def test_public_names_cost_nothing_until_they_are_used() -> None:
    heavy = "torch", "pandas", "scipy", "matplotlib", "ray", "mlflow"
    code = f"import sys, rank_core, ranksweep; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
    assert {"mixture", "read_run", "compare_cells"} <= set(dir(rank_core))
    assert rank_core.read_run is read_run is ranksweep.read_run
    assert set(ranksweep.__all__) <= set(dir(ranksweep))
    for package in (rank_core, ranksweep):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018


def test_every_name_of_the_library_is_one_of_the_door() -> None:
    assert set(rank_core.__all__) < set(ranksweep.__all__)
    for name in rank_core.__all__:
        assert getattr(ranksweep, name) is getattr(rank_core, name), name
    assert ranksweep.__version__ == version("ranksweep")


def test_both_comparisons_correct_by_the_same_rule_unless_told() -> None:
    of_cells = inspect.signature(ranksweep.compare_cells).parameters["correction"].default
    assert of_cells == TestOptions().correction == "max-t"


def test_the_measures_of_a_run_are_those_of_the_command(tmp_path, capsys) -> None:
    run = {"q1": {"d1": 3.0, "d2": 2.0}, "q2": {"d1": 2.0, "d2": 1.0}, "q9": {"d1": 1.0}}
    qrels = {"q1": {"d1": 1}, "q2": {"d2": 2}, "q3": {"d1": 1}}
    measured = ranksweep.measure(run, qrels, ["RR", "P@1"])
    assert measured.means == {"RR": 0.5, "P@1": pytest.approx(1 / 3)}
    assert list(measured.frame["measure"]) == ["RR", "P@1"] and {*measured.frame["queries"]} == {3}
    assert list(measured.per_query["value"]) == [1, 0.5, 0, 1, 0, 0]
    write_run(tmp_path / "a.run", run, "mine")
    write_qrels(tmp_path / "q", qrels)
    words = ["measure", str(tmp_path / "a.run"), "--qrels", str(tmp_path / "q")]
    assert main([*words, "--measures", "RR", "P@1"]) == 0
    assert repr(measured) in capsys.readouterr().out
    of_files = ranksweep.measure(tmp_path / "a.run", str(tmp_path / "q"), ["RR", "P@1"])
    assert repr(of_files) == repr(measured) and "excluded: 1" in repr(measured)
    assert list(ranksweep.measure(run, qrels).means) == ["nDCG@10", "RR@10"]
    with pytest.raises(BadInput, match="no document of the run is judged"):
        ranksweep.measure(run, {"q1": {"z": 1}})
