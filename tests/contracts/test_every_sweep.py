"""Every sweep file states its question, plans anywhere, and runs from end to end."""

import ast
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import parse
from tests.e2e.conftest import run_local

__all__ = ["run_local"]

FOLDER = Path(__file__).parents[2] / "sweeps"
SWEEPS = sorted(
    path for path in FOLDER.glob("*.py") if re.search(r"^EXPERIMENT\b", path.read_text(), re.M)
)

assert len(SWEEPS) > 9
every_sweep = pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)


@pytest.fixture
def command(run_script, tmp_path):
    """Runs a copy of the script alone, as `ray submit` does; the imports are told in its stderr."""

    def run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
        script = shutil.copy(path, tmp_path / path.name)
        return run_script(script, *words, python=("-X", "importtime"))

    return run


@pytest.mark.parametrize(
    "path",
    [*SWEEPS, FOLDER / "scaling.py", FOLDER / "positional_bias.py"],
    ids=lambda path: path.stem,
)
def test_the_docstring_states_question_paper_size_and_expectation(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text and "?" in text.partition("\n\n")[0]
    for word in ("Paper:", "Size:", "Expected:"):
        [stated] = re.findall(rf"^{word} (.+)$", text, re.MULTILINE)
        assert len(stated) > 10


@every_sweep
def test_the_plan_has_a_baseline_and_other_cells_that_can_run(
    path, backbone_folder, reranker_folder, collection_folder
):
    module = importlib.import_module(f"sweeps.{path.stem}")
    assert module.EXPERIMENT.name == path.stem and module.EXPERIMENT.question.endswith("?")
    folder = reranker_folder if path.stem == "serving" else backbone_folder
    inputs = ["--collection", str(collection_folder), "--backbone", str(folder)]
    plan = make_plan(module.EXPERIMENT, parse(inputs, prog=path.name, description=""))
    assert len(plan.cells) >= 2
    labels = [cell.label for cell in plan.cells]
    assert len(set(labels)) == len(labels)
    encoding = [cell for cell in plan.cells if cell.chunks.max_chunks]
    assert encoding and all(cell.cost > 0 for cell in encoding)


@pytest.mark.long
@pytest.mark.slow
def test_a_dry_run_anywhere_prints_the_plan_and_launches_nothing(command, tmp_path):
    path = FOLDER / "window_stride.py"
    done = command(path, "--dry-run")
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"trials +\d+ cells x 3 seeds = \d+", done.stdout)
    assert "1.0x  baseline" in done.stdout and "\nmeasured " in done.stdout
    modules = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "torch" in modules and not {"ray", "mlflow"} & modules
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
@every_sweep
def test_a_smoke_test_ends_in_a_report(path, run_local, reranker_folder, tmp_path):
    experiment = importlib.import_module(f"sweeps.{path.stem}").EXPERIMENT
    words = ["--smoke-test", "--num-seeds", "1", "--tracking-uri", "none"]
    words += ["--backbone", str(reranker_folder)] if path.stem == "serving" else []
    sweep = run_local(tmp_path / "results", *words, experiment=experiment)
    page = sweep.folder / "report" / "index.html"
    assert page.stat().st_size > 1000 and str(page) in sweep.text
