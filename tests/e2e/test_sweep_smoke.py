"""The whole path on very little: what a sweep leaves, and what the same command does again."""

import gzip
import json
import shutil
from pathlib import Path

import ir_measures
import pytest
from markupsafe import escape

from sweeps.plan.experiment import Experiment, Grid
from sweeps.tracking.client import connect
from tests.e2e.conftest import trials_of, values_of

pytestmark = pytest.mark.slow

SCORE_COLUMNS = ["cell", "seed", "split", "query_id", "measure", "value"]


@pytest.fixture
def copy(smoke, tmp_path):
    """The finished sweep in a folder that a test may change."""
    return shutil.copytree(smoke.storage, tmp_path / "results")


def trial_folders(folder: Path) -> list[Path]:
    """Of all sweeps of the storage."""
    return sorted(folder.parents[1].glob("trials/*-seed*"))


def test_runs_and_judgments_give_the_same_values_to_anyone(smoke):
    scores = values_of(smoke.folder)
    keys = SCORE_COLUMNS[:-1]
    table = dict(zip(scores[keys].itertuples(index=False, name=None), scores["value"], strict=True))
    measures = [ir_measures.nDCG @ 10, ir_measures.RR @ 10]
    again = {}
    for folder in trial_folders(smoke.folder):
        cell, seed = folder.name.rsplit("-seed", 1)
        for split in ("dev", "test"):
            qrels = list(ir_measures.read_trec_qrels(str(smoke.folder / f"qrels/{split}.qrels")))
            with gzip.open(folder / f"{split}.run.gz", "rt") as file:
                run = list(ir_measures.read_trec_run(file))
            for one in ir_measures.iter_calc(measures, qrels, run):
                again[(cell, int(seed), split, one.query_id, str(one.measure))] = one.value
    assert table == again


def test_the_queries_that_moved_most_have_their_texts_and_documents(smoke):
    texts = json.loads((smoke.folder / "qrels" / "shown_texts.json").read_text())
    page = (smoke.folder / "report" / "queries.html").read_text()
    assert texts and all(shown["text"] and shown["passages"] for shown in texts.values())
    for shown in texts.values():
        assert all(str(escape(text)) in page for text in shown["passages"].values())


def test_mlflow_shows_data_settings_the_answer_and_the_report(smoke):
    client = connect(f"sqlite:///{smoke.storage / 'mlflow.db'}")
    [trials] = [e for e in client.search_experiments() if "rank.sweep" in e.tags]
    assert trials.name == "window_stride-woods" and "shared" in " ".join(trials.tags)
    found = client.search_runs([trials.experiment_id], "tags.config.id != ''")
    runs = [run for run in found if run.info.run_name != "BM25"]  # the first stage
    assert len(found) == len(runs) + 1 and len(runs) == 6
    for run in runs:
        inputs = run.inputs.dataset_inputs
        assert {item.dataset.name for item in inputs} == {"woods"}
        assert {item.tags[0].value for item in inputs} == {"train", "dev", "test"}
        assert run.data.tags["mlflow.source.name"].endswith("window_stride.py")
        stride = None if run.data.params["model.name"] == "firstp" else "chunking.stride"
        assert not {"chat.model", "model.k"} & {*run.data.params}
        assert {"chunking.stride"} & {*run.data.params} == {stride} - {None}
    [report] = client.search_runs([trials.experiment_id], "attributes.run_name = 'report'")
    files = {file.path for file in client.list_artifacts(report.info.run_id, "report")}
    assert {"report/index.html", "report/table.md", "report/plots"} <= files
    results = json.loads((smoke.folder / "report" / "results.json").read_text())
    note = trials.tags["mlflow.note.content"]
    assert note.startswith(results["headline"]["sentence"])


def test_another_plan_in_the_folder_joins_and_its_report_is_of_its_own_cells(copy, run_local):
    folder = copy / "window_stride" / "woods"
    before = {
        path: path.stat().st_mtime_ns for path in folder.parents[1].glob("trials/*/result.json")
    }
    words = "--smoke-test --num-seeds 1 chunking.window=64 chunking.stride=48 --tracking-uri none"
    other = run_local(copy, *words.split())
    assert "2 cells x 1 seed = 2, 1 of them done" in other.text
    assert len(trials_of(folder)) == 2
    assert "[1/1]" in other.text and len(trial_folders(folder)) == 7
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "MaxP 64/48" in (folder / "report" / "table.md").read_text()
    assert "MaxP 32/24" not in (folder / "report" / "table.md").read_text()


@pytest.mark.parametrize(
    "change", [lambda all: all[:-90], lambda all: all.replace(b"FirstP", b"O")]
)
def test_a_changed_description_is_written_again_by_the_command(copy, run_local, change):
    path = copy / "window_stride" / "woods" / "sweep.json"
    whole = json.loads(path.read_bytes())
    path.write_bytes(change(path.read_bytes()))
    again = run_local(copy, "--smoke-test", "--num-seeds", "2", "--tracking-uri", "none")
    assert f"{path} was edited" in again.text and "nothing to launch" in again.text
    described = json.loads(path.read_bytes())
    assert described["cells"] == whole["cells"] and described["files"] == whole["files"]


NAME = "training.backbone_learning_rate"


def rates(baseline):
    """A sweep over two learning rates, of which 1e30 diverges."""
    return Experiment(
        name="window_stride",
        question="Which learning rate?",
        swept=(NAME,),
        grid=lambda base, backbone: Grid(points=({NAME: 1e30},), baseline={NAME: baseline}),
        label=lambda config: f"rate {config.training.backbone_learning_rate:g}",
    )


SMALL = "--smoke-test --num-seeds 2 chunking.window=48 chunking.stride=32 --tracking-uri none"


def test_a_diverging_cell_is_recorded_reported_and_not_tried_again(run_local, tmp_path):
    experiment = rates(1e-4)
    sweep = run_local(tmp_path / "results", *SMALL.split(), code=3, experiment=experiment)
    told = " ".join(sweep.text.split())  # a line is as wide as a terminal
    assert "DIVERGED: the training loss must be finite" in told
    trials = trials_of(sweep.folder)
    lost = trials[trials["status"] == "diverged"]
    assert len(lost) == 2 and set(trials["status"]) == {"done", "diverged"}
    assert lost["stop_reason"].str.contains("must be finite, got").all()
    assert set(values_of(sweep.folder)["cell"]) == set(trials[trials["status"] == "done"]["cell"])
    assert "rate 1e+30" in (sweep.folder / "report" / "index.html").read_text()
    again = run_local(tmp_path / "results", *SMALL.split(), code=3, experiment=experiment)
    assert "nothing to launch" in again.text
    assert trials_of(sweep.folder)["attempts"].tolist() == [1] * 4
