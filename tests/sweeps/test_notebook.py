"""The notebooks of docs/examples and the Python of docs/questions.md and docs/results.md run."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ranksweep
from docs.tools.notebook_of import cells_of
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "examples" / "notebook.ipynb"
SCRIPT = ROOT / "docs" / "examples" / "documents_to_service.py"
CELLS = (("firstp-w96-s96-0", "FirstP 96", "firstp"), ("maxp-w32-s24-1", "MaxP 32/24", "maxp"))


@pytest.mark.parametrize("path", [NOTEBOOK, SCRIPT.with_suffix(".ipynb")], ids=lambda p: p.stem)
def test_a_notebook_is_kept_with_what_it_showed(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    silent = [cell for cell in cells if not cell.outputs]
    assert len(silent) <= 1, "run it again (docs/api.md says how)"
    shown = {kind for cell in cells for out in cell.outputs for kind in out.get("data", {})}
    assert {"text/html", "image/png"} <= shown
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]


def test_the_notebook_of_a_script_has_its_cells() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(SCRIPT.with_suffix(".ipynb"), as_version=4)
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert cells == cells_of(SCRIPT.read_text(encoding="utf-8")), "docs/api.md says how"
    assert sum(kind == "code" for kind, _ in cells) <= 10


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.slow
def test_the_script_leads_from_documents_to_a_service(tmp_path: Path) -> None:
    """Over the shipped encoder in place of a model of the Hub."""
    environment = {**os.environ, "MODEL": "tiny-docs", "PYTHONPATH": str(ROOT)}
    environment["RANKSWEEP_CACHE"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert [row["doc_id"] for row in answer] == [1, 0]  # the sorted list before the opened file
    assert (tmp_path / "results/window_stride/mine/report/index.html").exists()


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.slow
def test_the_notebook_trains_the_class_of_its_cell_on_two_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one seed in place of three."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    [asked] = [cell for cell in notebook.cells if '"seeds": 3' in cell.source]
    asked.source = asked.source.replace('"seeds": 3', '"seeds": 1')
    client = nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()  # raises where a cell does
    configs = [
        json.loads(path.read_text()) for path in tmp_path.glob("results/trials/*/config.json")
    ]
    names = {config["model.name"].rpartition(":")[2] for config in configs}
    assert names == {"firstp", "SoftMaxP"}
    sweep = ranksweep.load(tmp_path / "results" / "model_zoo" / "mine")
    assert set(sweep.trials["status"]) == {"done"}


@pytest.mark.parametrize("page", ["docs/questions.md", "docs/results.md"])
def test_the_python_of_a_page_runs_on_a_sweep_like_the_quickstarts(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results" / "window_stride" / "python-docs"
    write_ranked_sweep(folder, cells=CELLS)
    runs = sorted(folder.glob("trials/*/test.run.gz"))
    (tmp_path / "runs").mkdir()
    for name, run in zip(("firstp.1", "firstp.2", "maxp.1", "maxp.2"), runs, strict=False):
        (tmp_path / "runs" / f"{name}.run").write_bytes(gzip.decompress(run.read_bytes()))
    (folder / "qrels" / "test.qrels").rename(tmp_path / "test.qrels")
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    exec(compile(code, page, "exec"), {})
