"""The notebook of docs/examples and the Python of README.md and docs/results.md run."""

import gzip
import re
from pathlib import Path

import pytest

from tests.sweeps.report.ranked_sweep import write_ranked_sweep

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "examples" / "notebook.ipynb"
CELLS = (("firstp-w96-s96-0", "FirstP 96", "firstp"), ("maxp-w32-s24-1", "MaxP 32/24", "maxp"))


def test_the_notebook_is_kept_with_what_it_showed() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells), "run it again (docs/api.md says how)"
    shown = {kind for cell in cells for out in cell.outputs for kind in out.get("data", {})}
    assert {"text/html", "image/png"} <= shown
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]


@pytest.mark.long
@pytest.mark.slow
def test_the_notebook_runs_on_a_sweep_like_the_quickstarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    folder = tmp_path / "results" / "window_stride" / "python-docs"
    write_ranked_sweep(folder, cells=CELLS)
    (folder / "trials").rename(tmp_path / "results" / "trials")  # as a sweep leaves them
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()  # raises where a cell does
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "MaxP 32/24 +BM25" in first.outputs[0].data["text/html"]


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
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
