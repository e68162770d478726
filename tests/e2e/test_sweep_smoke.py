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
    agreement = json.loads((smoke.folder / "report" / "results.json").read_text())["agreement"]
    assert len(agreement) == 3 and all(0 < one["rbo_seeds"] <= 1 for one in agreement)


def test_mlflow_shows_data_settings_the_answer_and_the_report(smoke):
    client = connect(f"sqlite:///{smoke.storage / 'mlflow.db'}")
    [trials] = [e for e in client.search_experiments() if "rank.sweep" in e.tags]
    assert trials.name == "window_stride-woods" and "shared" in " ".join(trials.tags)
    runs = client.search_runs([trials.experiment_id], "tags.config.id != ''")
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
    answer = json.loads((smoke.folder / "report" / "results.json").read_text())["conclusions"][0]
    assert trials.tags["mlflow.note.content"].startswith(answer)


def test_more_seeds_add_only_what_is_missing_and_other_cells_join(copy, run_local):
    folder = copy / "window_stride" / "woods"
    before = {
        path: path.stat().st_mtime_ns for path in folder.parents[1].glob("trials/*/result.json")
    }
    more = run_local(copy, "--smoke-test", "--num-seeds", "3", "--tracking-uri", "none")
    assert "3 cells x 3 seeds = 9, 6 of them done" in more.text
    assert "3 trials, one at a time" in more.text and "[3/3]" in more.text
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(trial_folders(folder)) == 9
    # Another plan in the same folder: its report is about its own cells, nothing is lost.
    words = "--smoke-test --num-seeds 1 chunking.window=64 chunking.stride=48 --tracking-uri none"
    other = run_local(copy, *words.split())
    assert "2 cells x 1 seed = 2, 1 of them done" in other.text
    assert len(trials_of(folder)) == 2
    assert len(trial_folders(folder)) == 10
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
    assert f"{path} was changed" in again.text and "nothing to launch" in again.text
    described = json.loads(path.read_bytes())
    assert described["cells"] == whole["cells"] and described["files"] == whole["files"]


def test_a_second_collection_of_the_same_name_leaves_the_first_one_alone(
    copy, run_local, collection_folder, tmp_path
):
    other = shutil.copytree(collection_folder, tmp_path / "woods")
    documents = (other / "docs.jsonl").read_text()
    (other / "docs.jsonl").write_text(documents.replace("harbour", "northern"))
    first = copy / "window_stride" / "woods"
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    words = ("--smoke-test", "--num-seeds", "1", "--tracking-uri", "none")
    second = run_local(copy, *words, "--collection", str(other))
    [folder] = {path.parent for path in first.parent.glob("*/sweep.json")} - {first}
    assert f"Report: {folder}/report/index.html" in second.text
    assert {path: path.read_bytes() for path in before} == before
    names = [json.loads((one / "sweep.json").read_text())["collection"] for one in (first, folder)]
    assert [one["name"] for one in names] == ["woods", "woods"]
    assert folder.name == f"woods-{names[1]['content_hash'][:6]}"
    assert len(trial_folders(folder)) == 6 + 3
    again = run_local(copy, "--smoke-test", "--tracking-uri", "none")
    assert "nothing to launch" in again.text and f"Report: {first}/report" in again.text


def test_what_the_machine_can_never_run_is_refused(run_local, tmp_path):
    words = "--smoke-test --cpus-per-worker 4096 --tracking-uri none"
    refused = run_local(tmp_path / "results", *words.split(), code=2)
    assert refused.text.count("error: ") == 1 and "Traceback" not in refused.text
    assert "a trial needs 4096 CPU" in refused.text and "Lower --cpus-per-worker" in refused.text
    assert not (refused.folder.parents[1] / "trials").exists()
    assert len(trials_of(refused.folder)) == 0


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
