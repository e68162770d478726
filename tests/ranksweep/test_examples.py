"""Every public name has an example in its docstring, and every example runs as it stands."""

import ast
import doctest
import importlib
import inspect
import io
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rank_core
import ranksweep
from rank_core.data.trec import write_qrels, write_run
from rank_core.export.folder import write_model
from rank_core.export.reranker import Ranked
from rank_core.ranking.interpolation import Mixture
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import CellComparison
from rank_core.stats.matrix import score_matrix
from ranksweep import results
from tests.sweeps.conftest import quick_reports
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

ROOT = Path(__file__).parents[2]
RUNNER = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FURTHER = {
    "rank_core.export.reranker.Ranked": Ranked,
    "rank_core.stats.compare.CellComparison.significant": CellComparison.significant,
    "rank_core.stats.matrix.score_matrix": score_matrix,
    "ranksweep.TrialConfig.override": TrialConfig.override,
    "ranksweep.TrialConfig.settings": TrialConfig.settings,
}
"""Names of the API reference that no package exports."""
WITH_METHODS = (
    ranksweep.Comparison,
    ranksweep.MeasuredRun,
    ranksweep.Reranker,
    ranksweep.Split,
    ranksweep.Sweep,
    Mixture,
    results.TestedTable,
)
"""Classes whose objects a user holds: each public method has an example too."""
SWEEP = """
name = "my_sweep"
question = "Does BM25 rank better than chance?"
grid = { "model.name" = ["bm25"] }

[base]
collection = "own_collection:notes"
model.backbone = "tiny-docs"

[baseline]
"model.name" = "random"
"""


def public_docstrings() -> dict[str, str]:
    """{public name: its docstring}; that of a constant is the text below it."""
    found = {"ranksweep": ranksweep.__doc__ or ""}
    for package in (rank_core, ranksweep):
        for name in package.__all__:
            if name != "__version__":  # in the example of the package
                found[f"{package.__name__}.{name}"] = docstring_of(package, name)
    found |= {name: inspect.getdoc(one) or "" for name, one in FURTHER.items()}
    for kind in WITH_METHODS:
        for name, one in vars(kind).items():
            if name[0] != "_" and (callable(one) or isinstance(one, (property, classmethod))):
                found[f"{kind.__name__}.{name}"] = inspect.getdoc(one) or ""
    return found


def docstring_of(package: Any, name: str) -> str:
    one = getattr(package, name)
    if callable(one):
        return inspect.getdoc(one) or ""
    module = importlib.import_module(package._PUBLIC[name])
    if module is rank_core:
        return docstring_of(rank_core, name)
    body = ast.parse(inspect.getsource(module)).body
    for statement, text in pairwise(body):
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else []
        if any(ast.unparse(target) == name for target in targets) and isinstance(text, ast.Expr):
            return inspect.cleandoc(ast.literal_eval(text.value))
    return ""


def test_every_public_name_has_an_example():
    docstrings, parser = public_docstrings(), doctest.DocTestParser()
    assert [name for name, text in docstrings.items() if not parser.get_examples(text)] == []
    assert len(docstrings) > 60


@pytest.fixture
def folder_of_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory with the files that examples name: a model, a sweep, runs, own code."""
    for path in (ROOT / "docs" / "examples").glob("own_*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    windows = {"chunking.window": 64, "chunking.stride": 48, "model.backbone": "tiny-docs"}
    write_model(Path("model"), TrialConfig().override(windows), None)
    write_ranked_sweep(Path("results/window_stride/woods"))
    Path("my_sweep.toml").write_text(SWEEP)
    Path("runs").mkdir()
    queries = [f"q{i}" for i in range(6)]
    write_qrels(Path("test.qrels"), {query: {"d0": 1} for query in queries})
    for place, system in enumerate("ab"):
        for seed in (1, 2, 3):
            ranks = {query: (i * seed + place * i) % 4 for i, query in enumerate(queries)}
            run = {
                q: {f"d{(j - rank) % 5}": 5.0 - j for j in range(5)} for q, rank in ranks.items()
            }
            write_run(Path(f"runs/{system}.{seed}.run"), run, system)
    with quick_reports():
        yield


def test_every_example_runs(folder_of_examples):
    parser, report = doctest.DocTestParser(), io.StringIO()
    runner = doctest.DocTestRunner(optionflags=RUNNER, verbose=False)
    seen = set()
    for name, text in public_docstrings().items():
        if text not in seen:
            runner.run(parser.get_doctest(text, {}, name, None, None), out=report.write)
        seen.add(text)
    assert runner.failures == 0, report.getvalue()
    assert runner.tries > 150
