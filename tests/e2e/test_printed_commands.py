"""Every command that the product prints runs as it is printed, on a folder made by a sweep.

`printed()` finds the places in the source. Each stands in `RUN`, with the test that provokes and
runs its command, in `NAMES`, where the text names a command without its words, or in `NOT_RUN`,
with the reason."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rank_core.data.load import load_collection
from rank_core.data.trec import write_qrels, write_queries
from sweeps.__main__ import COMMANDS, main
from sweeps.commands.known import sweep_names as sweeps
from sweeps.plan.next_command import our_command
from sweeps.systems import choice
from tests.sweeps.conftest import quick_reports
from tests.sweeps.launch.test_test_sets import other_texts
from tests.sweeps.printed import ROOT, VALUE, printed
from tests.sweeps.test_documented_commands import accept_python, stop_when_parsed

__all__ = ["stop_when_parsed"]

NEXT_STEPS = "tests/e2e/test_next_steps.py"
RUN = {
    "rank_core/data/trec.py:require_identifier": "tests/sweeps/commands/test_convert.py",
    "rank_core/data/vocabulary.py:Reading.remedy": "tests/rank_core/data/test_advice.py",
    "rank_core/data/folder.py:_undivided": "test_files_of_one_folder_are_split_as_printed",
    "sweeps/commands/bundling.py:_say_bundled": "test_a_bundle_is_verified_by_the_printed_command",
    "sweeps/commands/compare/command.py:main": "test_a_comparison_is_made_again",
    "sweeps/commands/design.py:command_of": "test_a_design_leads_to_its_sweep",
    "sweeps/commands/export.py:_cell": "test_a_seed_that_is_missing_is_trained",
    "sweeps/commands/export.py:_no_weights": "test_weights_that_are_missing_are_made",
    "sweeps/commands/report.py:main": "test_a_sweep_without_a_report_gets_one",
    "sweeps/commands/split.py:main": "test_what_split_wrote_is_examined",
    "sweeps/commands/status.py:_next_steps": "test_a_sweep_without_a_report_gets_one",
    "sweeps/commands/status.py:_sweeps_below": "test_a_folder_of_sweeps_leads_to_one",
    "sweeps/commands/storage.py:_plan": "test_a_storage_is_cleaned_as_it_says",
    "sweeps/launch/confirmation.py:choose": "test_a_winner_that_is_the_baseline_is_exported",
    "sweeps/report/over_sets.py:over_sets": "test_the_line_of_all_test_sets_makes_a_table",
    "sweeps/launch/sweep.py:_run_engine": "test_mlflow_gets_what_it_lacks",
    "sweeps/launch/sweep.py:_print_weights": "test_the_winner_is_exported_as_the_sweep_says",
    "sweeps/systems/interpolation.py:missing_input": "test_a_missing_file_is_written_again",
    "sweeps/systems/load.py:_check_files": "test_a_damaged_sweep_is_written_again",
    "sweeps/report/next_step.py:NextStep.lines": NEXT_STEPS,
    "sweeps/report/next_step.py:_of_runs": "test_a_comparison_is_made_again",
    "sweeps/report/next_step.py:_Place.of_folder": NEXT_STEPS,
    "sweeps/report/next_step.py:_Place.step": NEXT_STEPS,
    "sweeps/report/next_step.py:_Place.with_seeds": NEXT_STEPS,
    "sweeps/report/next_step.py:_confirms": NEXT_STEPS,
    "sweeps/report/next_step.py:_unfinished": NEXT_STEPS,
    "sweeps/store/sweep_file.py:parse_sweep_file": "test_a_damaged_sweep_is_written_again",
    "sweeps/tracking/server.py:serve": "test_mlflow_gets_what_it_lacks",
}
"""{place: the test that runs what it prints}."""

NAMES = {
    "rank_core/data/folder.py:",
    "rank_core/data/overlap.py:",
    "rank_core/data/store.py:Splits.__missing__",
    "rank_core/errors.py:unknown",
    "rank_core/evaluate.py:_unknown_measure",
    "rank_core/encoders/openvino_runtime.py:quantized",
    "rank_core/export/folder.py:_changed",
    "rank_core/export/folder.py:require_model",
    "rank_core/export/served.py:_read",
    "rank_core/export/served.py:_require_same_model",
    "rank_core/models/runtimes.py:check_runtime",
    "rank_core/settings/config.py:Evaluation",
    "rank_core/settings/config.py:Model",
    "rank_core/settings/config.py:TrialConfig",
    "rank_core/settings/training.py:Training",
    "ranksweep/api.py:_words",
    "ranksweep/results.py:Sweep.export",
    "sweeps/__main__.py:_unknown",
    "sweeps/commands/doctor/examination.py:_sizes",
    "sweeps/commands/doctor/examination.py:asked_of",
    "sweeps/commands/doctor/examination.py:shared_subjects",
    "sweeps/commands/lists.py:settings_page",
    "sweeps/systems/sources.py:ranking_of",
    "sweeps/commands/run.py:",
    "sweeps/commands/run.py:main",
    "sweeps/commands/teach.py:parser",
    "sweeps/commands/teach.py:teacher_of",
    "sweeps/plan/make_plan.py:base_config",
    "sweeps/serving.py:grid",
}
"""Places that name a command of ours; `test_a_named_command_exists` looks at each."""

NOT_RUN = {
    "sweeps/tracking/server.py:_wait_until_healthy": "names the log of a server that did not start",
    "rank_core/data/hub.py:_snapshot": "the Hub",
    "rank_core/encoders/hub.py:_downloaded": "the Hub",
    "sweeps/commands/hub.py:require_login": "the Hub",
    "rank_core/errors.py:not_installed": "installs",
    "rank_core/encoders/checkpoint.py:open_tokenizer": "installs",
    "sweeps/commands/doctor/finding.py:_requirements": "installs",
    "sweeps/commands/doctor/gpu_checks.py:_check_parts": "installs what checks a GPU",
    "sweeps/commands/mlflow_commands.py:_sweep_parser": "`ui` and `sync` themselves, of their help",
    "sweeps/store/sweep_file.py:command_in": "makes a command for those above",
    "sweeps/launch/at_home.py:home_lines": "names the command that started the cluster",
    "sweeps/tracking/client.py:": "upgrades a database of MLflow",
}
"""{place: why its command is not run}."""


def test_every_place_that_prints_a_command_is_run_or_listed():
    places = {one.place for one in printed()}
    listed = [*RUN, *NAMES, *NOT_RUN]
    assert len(listed) == len({*listed})
    assert places - {*listed} == set(), "add a test that runs what is printed there"
    assert {*listed} - places == set(), "nothing is printed there any more"
    tests = {*RUN.values()} - {NEXT_STEPS}
    elsewhere = {test for test in tests if test.startswith("tests/")}
    assert tests - elsewhere <= globals().keys()
    assert all((ROOT / file).exists() for file in elsewhere)


@pytest.mark.parametrize(
    "command",
    sorted(
        {
            one.command
            for one in printed()
            if one.command.startswith("ranksweep ") and one.place not in RUN
        }
    ),
)
def test_a_named_command_exists(command, stop_when_parsed, capsys):
    """A name alone, with a flag of its, or words that its parser accepts."""
    words = shlex.split(command.replace(VALUE, "models").replace("SWEEP", "seeds"))[1:]
    if words[0] == "run" and len(words) == 2:
        assert words[1] in {*sweeps(), "FILE.toml", "models"}
    elif (
        len(words) == 1 or words[-1] == "--help" or command.partition(" ")[2].endswith(f" {VALUE}")
    ):
        assert words[0] in COMMANDS
    elif words[1].startswith("--"):
        with pytest.raises(SystemExit):
            main([words[0], "--help"])
        assert f"{words[1]} " in capsys.readouterr().out
    else:
        accept_python(["-m", "sweeps", *words])


SMALL = ("chunking.window=40", "chunking.stride=20", "training.max_steps=2")
FLAGS = ("--engine", "local", "--tracking-uri", "none")


class Shell:
    """Runs commands as a reader's shell does, and finds those that they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def run(self, *words: object, code: int = 0) -> str:
        """All that a command prints."""
        assert main([*map(str, words)]) == code, self.capsys.readouterr()
        out, err = self.capsys.readouterr()
        return f"{out}{err}"

    def run_printed(self, text: str, name: str) -> str:
        """What the one printed command `name` prints."""
        [command] = commands_in(text, name)
        return self.run(*command)


def commands_in(text: str, name: str) -> list[list[str]]:
    """The words, behind the program's, of the commands of this name in a text."""
    program = r"(?:ranksweep|\S*python\S* -m sweeps|\S+/ranksweep)"
    found = re.findall(rf"{program} ({name}\b[^`\n]*)", text)
    return [shlex.split(command) for command in dict.fromkeys(found)]


@pytest.fixture(scope="module")
def inputs(collection_folder, backbone_folder) -> list[str]:
    return ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    """A working directory, in which commands name the module."""
    folder = tmp_path_factory.mktemp("printed") / "a folder"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, quick_reports():
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "orig_argv", ["python", "-m", "sweeps"])
        patch.setenv("COLUMNS", "2000")
        yield folder


@pytest.fixture(scope="module")
def swept(place, inputs) -> Path:
    """A sweep of two systems and three seeds."""
    words = ["run", "window_stride", *inputs, *SMALL, *FLAGS, "--num-seeds", "3"]
    assert main(words) == 0
    return place / "results" / "window_stride" / "woods"


@pytest.fixture
def copy(swept, place, tmp_path, monkeypatch) -> Path:
    """The same to be changed, in a working directory like its own."""
    shutil.copytree(place / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path / swept.relative_to(place)


@pytest.fixture
def shell(capsys) -> Shell:
    return Shell(capsys)


@pytest.mark.slow
def test_the_winner_is_exported_as_the_sweep_says(place, inputs, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell.run_printed(shell.run("run", "window_stride", *inputs, *SMALL, *FLAGS), "export")
    assert Path("model/ranker.json").exists()


@pytest.mark.slow
def test_the_line_of_all_test_sets_makes_a_table(
    place, inputs, collection_folder, shell, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    marsh = other_texts(collection_folder, tmp_path / "marsh", seed=1)
    words = (*inputs, *SMALL, *FLAGS, "--test-on", marsh)
    assert "marsh" in shell.run("run", "window_stride", *words)
    [stored] = Path("results").glob("*/woods/report/sets/results.json")
    table = shell.run_printed(json.loads(stored.read_text())["sweep"]["command"], "compare")
    assert "mean nDCG@10" in table and "marsh" in table


@pytest.mark.slow
def test_a_sweep_without_a_report_gets_one(copy, shell):
    shutil.rmtree(copy / "report")
    shell.run_printed(shell.run("status", copy), "report")
    assert (copy / "report" / "index.html").exists()
    noted = (copy / "report" / "index.html").read_text()
    again = commands_in(noted, "report")
    assert all(main(words) == 0 for words in again)


@pytest.mark.slow
def test_a_folder_of_sweeps_leads_to_one(copy, shell):
    text = shell.run("status", copy.parents[1])
    assert "6 done" in shell.run_printed(text, "status")


@pytest.mark.slow
def test_a_storage_is_cleaned_as_it_says(copy, shell):
    storage = copy.parents[1]
    [used] = storage.glob("trials/maxp-*-seed3")
    orphan = shutil.copytree(used, used.with_name(used.name.replace("seed3", "seed9")))
    listed = shell.run("storage", storage)
    assert all(Path(words[1]) == storage for words in commands_in(listed, "storage"))
    plan = shell.run(*next(c for c in commands_in(listed, "storage") if "--orphans" in c))
    assert orphan.exists()
    shell.run_printed(plan, "storage")
    assert used.exists() and not orphan.exists()


@pytest.mark.slow
def test_a_seed_that_is_missing_is_trained(copy, shell):
    """By `status`, and by `export` of the cell that lacks it."""
    [last] = copy.parents[1].glob("trials/maxp-*-seed3")
    shutil.rmtree(last)
    shell.run_printed(shell.run("status", copy), "run")
    assert (last / "result.json").exists()
    label = json.loads((copy / "sweep.json").read_text())["cells"][1]["label"]
    for trial in copy.parents[1].glob("trials/maxp-*"):
        shutil.rmtree(trial)
    text = shell.run("export", copy, "--cell", label, "--to", "m", code=2)
    shell.run_printed(text.replace(" runs it", ""), "run")
    assert (last / "result.json").exists()


@pytest.mark.slow
def test_weights_that_are_missing_are_made(copy, shell):
    for path in copy.parents[1].glob("trials/*/weights.safetensors"):
        path.unlink()
    text = shell.run("export", copy, "--to", "m", code=2)
    shell.run_printed(text, "run")
    shell.run("export", copy, "--to", "m")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweep.json", "qrels/test.qrels"])
def test_a_damaged_sweep_is_written_again(copy, shell, name):
    path = copy / name
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    shell.run_printed(shell.run("report", copy, code=2), "run")
    shell.run("report", copy)


@pytest.mark.slow
def test_a_missing_file_is_written_again(copy, shell):
    (copy / "qrels" / "test.qrels").unlink()
    shell.run_printed(shell.run("bundle", copy, "--to", "a.zip", code=2), "run")
    shell.run("bundle", copy, "--to", "a.zip")


@pytest.mark.slow
def test_a_design_leads_to_its_sweep(copy, shell):
    text = shell.run("design", copy, "--delta", "0.9", "--gpu-hours", "0.2")
    shell.run_printed(text, "run")


@pytest.mark.slow
def test_a_bundle_is_verified_by_the_printed_command(copy, shell):
    text = shell.run("bundle", copy, "--to", "a.zip")
    shell.run_printed(text, "verify")


@pytest.mark.slow
def test_a_comparison_is_made_again(copy, shell):
    """With the flag that its next step adds."""
    trials = copy.parents[1] / "trials"
    [one] = trials.glob("firstp-*-seed1")
    runs = [f"BM25={copy}/first_stage/test.run.gz", f"model={one}/test.run.gz"]
    judged = ("--qrels", copy / "qrels" / "test.qrels")
    text = shell.run("compare", *runs, *judged, "--out", "c")
    command = json.loads(Path("c/results.json").read_text())["sweep"]["command"]
    shutil.rmtree("c")
    shell.run_printed(command, "compare")
    both = [f"BM25={copy}/first_stage/test.run.gz", f"RM3={one}/test.run.gz"]
    text = shell.run("compare", *both, *judged)
    assert "--deterministic" in text
    shell.run_printed(text, "compare")


@pytest.mark.slow
def test_what_split_wrote_is_examined(place, collection_folder, shell, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    splits = load_collection(str(collection_folder)).splits.values()
    write_qrels(Path("q.trec"), {q: own for split in splits for q, own in split.qrels.items()})
    write_queries(Path("q.tsv"), {q: text for one in splits for q, text in one.queries.items()})
    files = ("--qrels", "q.trec", "--queries", "q.tsv", "--docs", collection_folder / "docs.jsonl")
    monkeypatch.setattr("rank_core.encoders.hub.DEFAULT", "tiny-docs")  # no network here
    shell.run_printed(shell.run("split", *files, "--to", "mine"), "doctor")


@pytest.mark.slow
def test_files_of_one_folder_are_split_as_printed(
    inputs, collection_folder, shell, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    splits = load_collection(str(collection_folder)).splits.values()
    mine = tmp_path / "my files"
    mine.mkdir()
    write_qrels(mine / "qrels.trec", {q: own for one in splits for q, own in one.qrels.items()})
    write_queries(mine / "queries.tsv", {q: t for one in splits for q, t in one.queries.items()})
    shutil.copy(collection_folder / "docs.jsonl", mine)
    text = shell.run("run", "window_stride", "--collection", mine, *inputs[2:], code=2)
    shell.run_printed(text, "split")
    assert load_collection("FOLDER").documents


@pytest.mark.slow
def test_mlflow_gets_what_it_lacks(place, inputs, shell, tmp_path, monkeypatch):
    """By the command that a sweep names where MLflow does not answer."""
    monkeypatch.chdir(tmp_path)
    shell.run("run", "window_stride", *inputs, *SMALL, *FLAGS[:2], "--num-seeds", "1")
    text = shell.run_printed(
        our_command("sync", str(tmp_path / "results/window_stride/woods")), "sync"
    )
    assert "sqlite:///" in text


@pytest.mark.slow
def test_a_winner_that_is_the_baseline_is_exported(copy, inputs, shell, monkeypatch):
    every = choice._candidates
    monkeypatch.setattr(
        choice,
        "_candidates",
        lambda *sweep, **how: [one for one in every(*sweep, **how) if one.label == "FirstP 96"],
    )
    text = shell.run("run", "window_stride", "--engine", "local", "--confirm", code=2)
    assert "the choice is the baseline" in text
    shell.run_printed(text, "export")
    assert Path("model/ranker.json").exists()
