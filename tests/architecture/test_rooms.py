"""Architecture: which room may import which, and requirements of every file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("rank_core", "sweeps", "ranksweep")
FILES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))

# Ground first. A room imports from its row and from itself, nothing else; a row names only rooms
# above it. "rank_core", "sweeps" and "ranksweep" are the modules at the top of the packages.
CORE = {
    "rank_core": "",
    "rank_core.settings": "rank_core",
    "rank_core.stats": "rank_core",
    "rank_core.checkpoints": "rank_core",
    "rank_core.llm": "rank_core settings",
    "rank_core.first_stage": "rank_core",
    "rank_core.data": "rank_core settings first_stage",
    "rank_core.encoders": "rank_core data",
    "rank_core.chunking": "rank_core settings checkpoints data encoders",
    "rank_core.retrieval": "rank_core settings data encoders chunking",
    "rank_core.models": "rank_core settings checkpoints llm first_stage encoders chunking "
    "retrieval",
    "rank_core.ranking": "rank_core settings data encoders chunking models",
    "rank_core.training": "rank_core settings data encoders chunking models ranking",
    "rank_core.export": "rank_core settings checkpoints data encoders chunking models ranking "
    "training",
    "rank_core.trial": "rank_core settings checkpoints data encoders chunking models ranking "
    "training",
    "rank_core.testing": "rank_core settings encoders chunking models ranking training",
}
SWEEPS = {
    "sweeps.terminal": "",
    "sweeps.store": "terminal",
    "sweeps.plan": "terminal store",
    "sweeps.tracking": "terminal store",
    "sweeps.search": "terminal store plan",
    "sweeps.systems": "terminal store plan tracking",
    "sweeps.findings": "terminal store plan systems",
    "sweeps.report": "terminal store plan systems findings",
    "sweeps.engine": "terminal store plan tracking search systems",
    "sweeps.positions": "terminal plan report",
    "sweeps.ray_engine": "terminal store plan search engine",
    "sweeps.speedup": "terminal store plan report ray_engine",
    "sweeps.forecast": "terminal store plan ray_engine",
    "sweeps.launch": "terminal store plan tracking search systems findings report engine "
    "ray_engine forecast",
    "sweeps.commands": "terminal store plan tracking systems findings report engine forecast "
    "launch",
    "sweeps": "terminal store plan tracking systems report positions ray_engine speedup forecast "
    "launch commands",
    "ranksweep": "terminal store plan systems findings report launch commands",
}
LEAVES = {
    "sweeps.positions": "sweeps.positional_bias",
    "sweeps.speedup": "sweeps.scaling",
}
"""{part: the only module outside of it that imports it}: each could be a package of its own."""
FORBIDDEN = {"ray", "mlflow", "optuna", "sweeps", "ranksweep"}
"""What `rank_core` never names."""

LATE = {
    ("sweeps.plan.options", "rank_core.data.load"): "brings in pandas, which no help needs",
    ("sweeps.serving", "rank_core.encoders.backbones"): "torch, which no help needs",
    ("sweeps.serving", "rank_core.encoders.checkpoint"): "torch, which no help needs",
    ("sweeps.serving", "rank_core.encoders.published_heads"): "torch, which no help needs",
    ("rank_core.data.made.stdlib_docstrings", "rank_core.children"): "runs as a script alone",
    ("rank_core.data.made.stdlib_docstrings", "rank_core.parsing"): "runs as a script alone",
    ("rank_core.encoders.backbones", "rank_core.encoders.sparse"): "brings in its encoder",
    ("rank_core.encoders.shipped", "rank_core.encoders.checkpoint"): "brings in torch",
    ("rank_core.models", "rank_core.models.ranker"): "brings in torch",
    ("rank_core.models.checks", "rank_core.encoders.backbones"): "brings in torch",
    ("rank_core.models.checks", "rank_core.encoders.lora"): "brings in torch",
    ("rank_core.models.checks", "rank_core.encoders.published_heads"): "brings in torch",
    ("rank_core.models.checks", "rank_core.models.build"): "brings in torch",
    ("rank_core.models.checks", "rank_core.models.ranker"): "brings in torch",
    ("rank_core.models.checks", "rank_core.models.runtimes"): "brings in torch",
    ("sweeps.chunk_size", "rank_core.models.dense"): "brings in transformers",
    ("sweeps.chunk_size", "rank_core.retrieval.collection"): "brings in transformers",
    ("ranksweep.results", "sweeps.commands.export"): "brings in torch",
    ("sweeps.commands.check", "rank_core.testing.author"): "brings in torch and transformers",
    ("sweeps.commands.check", "rank_core.testing.plugin"): "brings in torch and pytest",
    ("sweeps.commands.compare.bundles", "sweeps.commands.bundle"): "draws",
    ("sweeps.commands.compare.command", "sweeps.commands.compare.bundled"): "draws",
    ("sweeps.report.comparison_files", "sweeps.report.files"): "draws",
    ("sweeps.commands.doctor.command", "sweeps.commands.doctor.examination"): "brings in pandas",
    ("sweeps.commands.latency", "sweeps.forecast.latency"): "brings in torch",
    ("sweeps.commands.lists", "rank_core.encoders.shipped"): "brings in torch",
    ("sweeps.commands.schema", "rank_core.export.served"): "brings in torch",
    ("sweeps.commands.schema", "rank_core.export.serving"): "brings in torch",
    ("sweeps.commands.status", "sweeps.terminal.notation"): "brings in scipy, help needs none",
    ("sweeps.launch.command", "sweeps.launch.sweep"): "brings in torch",
    ("sweeps.launch.sweep", "sweeps.ray_engine.cluster"): "brings in Ray",
    ("sweeps.launch.sweep", "sweeps.ray_engine.runner"): "brings in Ray",
    ("sweeps.forecast.forecast", "sweeps.ray_engine.cluster"): "brings in Ray",
    ("sweeps.positional_bias", "rank_core.encoders.backbones"): "brings in torch",
    ("sweeps.positional_bias", "rank_core.llm.chat"): "only with --judge",
    ("sweeps.positional_bias", "sweeps.positions.page"): "brings in pandas",
    ("sweeps.positions.rsv", "rank_core.encoders.backbones"): "brings in torch",
    ("sweeps.commands.run", "rank_core.data.load"): "brings in numpy, help needs none",
    ("sweeps.commands.run", "sweeps.commands.compare.command"): "brings in pandas, likewise",
    ("sweeps.plan.profiles", "rank_core.models"): "brings in numpy, `status` needs none",
    ("sweeps.ray_engine.trial_process", "sweeps.ray_engine.group_network"): "brings in Ray Train",
    ("sweeps.systems.derived", "sweeps.systems.aggregations"): "brings in torch",
    ("sweeps.tracking.pyfunc_model", "rank_core.export.reranker"): "MLflow runs it as a script",
    ("sweeps.tracking.registered_model", "rank_core.export.folder"): "brings in torch",
    ("ranksweep.api", "rank_core.process_state"): "brings in torch",
    ("ranksweep.api", "ranksweep.planned"): "brings in torch",
}
"""(module, what it imports inside a function): the heavy library that would come with it."""
BY_NAME = {
    "rank_core": "its public names",
    "rank_core.data.made.stdlib_docstrings": "Python's modules, whose docstrings it collects",
    "rank_core.first_stage.languages": "the stemmer of a language",
    "rank_core.own_code": "a user's module",
    "rank_core.records": "the maker of a collection, which stands above it",
    "ranksweep.by_value": "the module of a user's class",
    "sweeps.commands.known": "the module of a command",
    "sweeps.commands.run": "the module of a sweep",
    "sweeps.search.search": "the module of a search",
    "ranksweep": "its public names",
}
"""{module that imports what a variable names: what that is}; the other imports can be read here."""

MAX_FUNCTION_LINES = 60
VARIABLE = "(a variable)"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def module_name(path: Path) -> str:
    """`rank_core.errors` of its file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
def room_of(module: str) -> str:
    """The folder just below the package, or the package itself."""
    top, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    return f"{top}.{room}" if (ROOT / top / room).is_dir() and room else top


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether it is imported inside a function) of every import of a file. A package's
    public names are imported for type checkers alone."""
    public = path.name == "__init__.py" and path.parent.parent == ROOT

    def walk(node: ast.AST, late: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if public and isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if named := _named_by_call(child):
                yield named, late
            elif isinstance(child, ast.Import):
                yield from ((alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: imports are absolute"
                for alias in child.names:
                    full = f"{child.module}.{alias.name}"
                    yield (full if full in MODULES else str(child.module)), late
            yield from walk(child, late or isinstance(child, (*FUNCTIONS, ast.Lambda)))

    return list(walk(tree_of(path), False))


def _named_by_call(node: ast.AST) -> str:
    """What `import_module("...")` or `__import__("...")` imports: `VARIABLE` for another argument
    than a text; "" for other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    function = ast.unparse(node.func).rpartition(".")[2]
    if function not in ("import_module", "__import__"):
        return ""
    name = node.args[0]
    return name.value if isinstance(name, ast.Constant) else VARIABLE


def own_imports(late: bool) -> Iterator[tuple[str, str]]:
    """(module, imported module) within the packages, at the top of files or inside functions."""
    for module, path in MODULES.items():
        for imported, inside in imports(path):
            if inside == late and imported in MODULES and imported != module:
                yield module, imported


def allowed_rooms(room: str) -> set[str]:
    if room in CORE:
        names = CORE[room].split()
        return {name if name == "rank_core" else f"rank_core.{name}" for name in names}
    return {f"sweeps.{name}" for name in SWEEPS[room].split()} | set(CORE)


def test_the_table_names_every_room_and_goes_down_only():
    rooms = [*CORE, *SWEEPS]
    assert set(rooms) == {room_of(module) for module in MODULES}
    for row, room in enumerate(rooms):
        above = [name for name in allowed_rooms(room) if name not in rooms[:row]]
        assert above == [], f"{room} may not import from a room above it"


def test_every_room_imports_only_what_the_table_allows():
    wrong = {
        f"{module} imports {imported}"
        for late in (False, True)
        for module, imported in own_imports(late)
        if room_of(imported) not in allowed_rooms(room_of(module)) | {room_of(module)}
    }
    assert wrong == set()


def test_no_module_imports_itself_in_a_circle():
    below: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, imported in (*own_imports(late=False), *own_imports(late=True)):
        below[module].add(imported)
    while ready := {module for module, others in below.items() if not others & below.keys()}:
        for module in ready:
            del below[module]
    assert below == {}


def test_an_import_inside_a_function_has_its_reason():
    assert set(own_imports(late=True)) == set(LATE)


def test_a_module_that_a_variable_names_is_stated():
    named = {
        module
        for module, path in MODULES.items()
        if VARIABLE in (imported for imported, _ in imports(path))
    }
    assert named == {*BY_NAME}


def test_nothing_else_imports_a_leaf():
    users = {
        leaf: module
        for late in (False, True)
        for module, imported in own_imports(late)
        for leaf in LEAVES
        if imported.startswith(leaf) and not module.startswith(leaf)
    }
    wrong = {leaf: module for leaf, module in users.items() if module != LEAVES[leaf]}
    assert wrong == {} and users.keys() >= {"sweeps.positions", "sweeps.speedup"}


def test_the_library_names_no_cluster():
    named = {
        f"{path.relative_to(ROOT)} imports {imported}"
        for module, path in MODULES.items()
        for imported, _ in imports(path)
        if module.startswith("rank_core") and imported.partition(".")[0] in FORBIDDEN
    }
    assert named == set()


def test_every_file_and_room_has_a_docstring():
    silent = [
        module
        for module, path in MODULES.items()
        if (tree_of(path).body or path.name == "__init__.py")
        and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def public_functions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Functions of a module and methods of its public classes, by name."""
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{name}", f) for name, f in public_functions(node.body))
            else:
                yield node.name, node


def test_every_public_function_has_a_docstring():
    silent = [
        f"{module}.{name}"
        for module, path in MODULES.items()
        for name, function in public_functions(tree_of(path).body)
        if not ast.get_docstring(function)
    ]
    assert silent == []


def test_a_function_fits_a_screen():
    long = [
        f"{module}.{node.name}"
        for module, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, FUNCTIONS) and lines_of(node) > MAX_FUNCTION_LINES
    ]
    assert long == []


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring, whose examples are no code to follow."""
    first = function.body[0]
    said = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return function.end_lineno - function.lineno + 1 - said


def run_python(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# Without scipy there is no scikit-learn, which transformers would otherwise use.
BLOCKED = "pandas scipy sklearn ir_measures ir_datasets matplotlib"
IMPORT_MODELS = """
import importlib, sys
for name in "{BLOCKED}".split():
    sys.modules[name] = None
names = "chunking.chunks chunking.batches models training.train ranking.rerank export.reranker"
for name in names.split():
    importlib.import_module(f"rank_core.{name}")
from rank_core.models import MODELS, model_class
print(len([model_class(name) for name in MODELS]))
"""


@pytest.mark.slow
def test_models_and_training_import_where_tables_and_statistics_are_missing():
    [count] = run_python(IMPORT_MODELS.replace("{BLOCKED}", BLOCKED))
    assert int(count) >= 36


SAME_NAME = {
    "Reranker": "that of rank_core as a transformer of PyTerrier",
    "Sweep": "what users hold, made from the records that the report reads",
}
"""{class of `ranksweep`: its relation to the one of the same name in a room below}."""


def test_a_public_class_has_a_name_of_its_own():
    """One name, one meaning."""
    places: dict[str, list[Path]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path)
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert several.keys() == SAME_NAME.keys(), several
    for found in several.values():
        assert len(found) == 2 and sum(ROOT / "ranksweep" in path.parents for path in found) == 1
