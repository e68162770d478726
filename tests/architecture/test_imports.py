"""What may import what: the library knows nothing of the cluster, the models nothing of tables."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {"ray", "mlflow", "optuna", "sweeps"}
FILES = sorted((ROOT / "rank_core").rglob("*.py"))

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import rank_core
for module in pkgutil.walk_packages(rank_core.__path__, "rank_core."):
    importlib.import_module(module.name)
for name in rank_core.__all__:
    getattr(rank_core, name)
print(sum(name.startswith("rank_core.") for name in sys.modules))
print(*({FORBIDDEN} & set(sys.modules)))
"""

# Without scipy nobody has scikit-learn, which transformers would otherwise try to use.
BLOCKED = "pandas scipy sklearn ir_measures ir_datasets bm25s matplotlib"
IMPORT_MODELS = """
import sys
for name in "{BLOCKED}".split():
    sys.modules[name] = None
import rank_core.chunking.chunks, rank_core.chunking.batches, rank_core.models, rank_core.training.train, rank_core.ranking.rerank
from rank_core.models import MODELS
print(len(MODELS))
"""

# What builds encoders takes half of the seconds that a command would need to start; `import
# transformers` brings in each part of itself when that is first named.
IMPORT_COMMAND = """
import sys
import sweeps.window_stride
print("transformers" in sys.modules, "transformers.modeling_utils" in sys.modules)
"""


def imported_packages(path):
    """Top-level packages of every import statement, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_of_the_library_names_the_cluster(path):
    assert FORBIDDEN.isdisjoint(imported_packages(path))


@pytest.mark.slow
def test_importing_all_of_the_library_brings_in_no_cluster():
    count, found = run_python(IMPORT_EVERYTHING.format(FORBIDDEN=FORBIDDEN))
    assert int(count) >= len(FILES) - 1  # rank_core itself is not counted
    assert found == ""


@pytest.mark.slow
def test_models_and_training_import_where_tables_and_statistics_are_missing():
    [count] = run_python(IMPORT_MODELS.format(BLOCKED=BLOCKED))
    assert int(count) >= 8


@pytest.mark.slow
def test_a_command_starts_without_what_builds_encoders():
    assert run_python(IMPORT_COMMAND) == ["True False"]
