"""Architecture: the only places that print, start a process or decompress."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.test_rooms import FILES, ROOT, tree_of

PRINTS = {
    "rank_core/lines.py": "the door itself",
    "sweeps/terminal/command_line.py": "a constant, from the handler of a signal",
}
STARTS = {"rank_core/children.py": "the door itself"}
"""{file: why what is done there needs no other door}."""


def called(node: ast.Call) -> str:
    """`os.execv` of a call, as it is written."""
    return ast.unparse(node.func)


def prints(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        stream = name.startswith(("sys.stdout.", "sys.stderr.", "sys.__std"))
        if name in ("print", "pprint", "os.write", "traceback.print_exc", "warnings.warn"):
            yield name
        elif stream and name.endswith((".write", ".writelines")):
            yield name
        elif name == "logging.basicConfig" and {one.arg for one in node.keywords} & {"format"}:
            yield name


STARTERS = (
    "subprocess.run subprocess.Popen subprocess.call subprocess.check_call "
    "subprocess.check_output subprocess.getoutput Popen os.system os.popen os.fork os.forkpty "
    "os.posix_spawn pty.spawn get_context ProcessPoolExecutor Process Pool "
    "asyncio.create_subprocess_exec asyncio.create_subprocess_shell runpy.run_module"
).split()
BRING_THEM = {"subprocess", "multiprocessing", "pty", "asyncio.subprocess"}
HARMLESS = {"PIPE", "DEVNULL", "STDOUT", "SubprocessError", "CalledProcessError", "TimeoutExpired"}
"""Names of `subprocess` that start nothing; `Popen` stands in annotations, and calls are found."""


def starts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = called(node)
            if name in STARTERS or name.startswith(("os.exec", "os.spawn", "multiprocessing.")):
                yield name
            if "sys.executable" in [ast.unparse(word) for word in node.args]:
                yield f"{name}(sys.executable)"
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.partition(".")[0] in BRING_THEM)
        elif isinstance(node, ast.ImportFrom) and node.module in BRING_THEM:
            names = {one.name for one in node.names} - HARMLESS - {"Popen"}
            yield from (f"{node.module}.{one}" for one in names)


UNPACKS = {
    "rank_core/data/trec.py": "the door itself",
    "rank_core/data/made/msmarco_far_relevant.py": "one published archive, at a fixed address",
    "sweeps/commands/split.py": "writes",
    "sweeps/commands/bundle.py": "counts the entries of a zip file before it unpacks them",
    "rank_core/checkpoints/checkpoint.py": "reads what this machine wrote",
}


def unpacks(tree: ast.AST) -> Iterator[str]:
    """Calls that decompress, in functions that check no bounds."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [called(node) for node in ast.walk(function) if isinstance(node, ast.Call)]
        if "check_parquet" not in calls:
            yield from (one for one in calls if one.endswith(("ParquetFile", "read_parquet")))
            yield from (one for one in calls if one in ("pq.read_table", "parquet.read_table"))
        names = ast.unparse(function)
        if re.search(r"\b(gzip\.open|bz2\.|lzma\.|zlib\.decompress|ZipFile\(|tarfile\.)", names):
            yield function.name


DOORS = {"unpack": (unpacks, UNPACKS), "print": (prints, PRINTS), "start": (starts, STARTS)}


@pytest.mark.parametrize("door", DOORS)
def test_nothing_passes_another_door(door: str) -> None:
    find, allowed = DOORS[door]
    used = {path.relative_to(ROOT).as_posix(): [*find(tree_of(path))] for path in FILES}
    beside = {path: sorted(calls) for path, calls in used.items() if calls and path not in allowed}
    assert beside == {}
    assert {path for path in allowed if not used[path]} == set(), "a reason without its case"


@pytest.mark.parametrize(
    ("door", "line"),
    [
        ("print", "print(1)"),
        ("print", "sys.stderr.write('x')"),
        ("print", "sys.stdout.writelines(x)"),
        ("print", "os.write(2, b'')"),
        ("print", "logging.basicConfig(format='x')"),
        ("unpack", "def f():\n return pd.read_parquet(x)"),
        ("unpack", "def f():\n return pq.ParquetFile(x)"),
        ("unpack", "def f():\n return gzip.open(x)"),
        ("start", "import subprocess"),
        ("start", "from subprocess import run"),
        ("start", "from multiprocessing import get_context"),
        ("start", "os.execv(a, b)"),
        ("start", "os.system('ls')"),
        ("start", "Popen(['ls'])"),
        ("start", "runpy.run_module('x')"),
    ],
)
def test_each_way_is_seen(door: str, line: str) -> None:
    find, _ = DOORS[door]
    assert [*find(ast.parse(line))]
