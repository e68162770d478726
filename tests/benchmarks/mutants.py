"""The strength of the tests: how many planted faults and mutants do the quick ones notice?

A planted fault (planted_faults.toml) undoes a repair of this repository's history; a mutant
(mutants.jsonl, drawn at 9165baa) is one statement with one small change. Both are texts that
another layout can be searched for (`find`). Each is written into a copy of the tracked files, in
which the test runs that killed it before, or those that its entry names, or those of its room.

    python -m tests.benchmarks.mutants run [--only m024 f12]
    python -m tests.benchmarks.mutants table

`run` appends to proof.jsonl and goes on where it ended; `table` renews the tables of proof.md. A
process that has imported the libraries forks a child per fault, so that none waits for them.
"""

import argparse
import ast
import collections
import copy
import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MUTANTS, FAULTS = HERE / "mutants.jsonl", HERE / "planted_faults.toml"
RESULTS, PAGE = HERE / "proof.jsonl", HERE / "proof.md"
LIBRARIES = (
    *("numpy", "pandas", "scipy.stats", "scipy.sparse", "pyarrow.parquet", "pyarrow.dataset"),
    *("torch", "torch.nn.functional", "transformers", "transformers.models.bert.modeling_bert"),
    *("tokenizers", "safetensors.torch", "ir_measures", "ir_datasets", "optuna", "rich.table"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "jinja2", "fsspec", "pytest"),
)
OURS = ("tests", "rank_core", "sweeps", "ranksweep")

HEADERS = (ast.FunctionDef, ast.If, ast.While, ast.For, ast.With)
SIMPLE = (
    *(ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Raise),
    *(ast.Continue, ast.Break),
)


def statements(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Any]]:
    """Every statement that can be changed alone, with the dotted name of what it stands in."""
    for node in ast.iter_child_nodes(tree):
        inner = inside
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{inside}.{node.name}".lstrip(".")
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, HEADERS + SIMPLE):
            yield inner, node
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from statements(node, inner)


def text_of(node: Any) -> str:
    """A statement in one form whatever its layout; of a compound one the first line."""
    node = copy.copy(node)
    if isinstance(node, HEADERS):
        node.body, node.orelse, node.decorator_list = [ast.Pass()], [], []
    return ast.unparse(node).removesuffix("\n    pass")


def product_files(root: Path) -> list[str]:
    found = (path for room in ("rank_core", "sweeps") for path in (root / room).rglob("*.py"))
    return sorted(str(path.relative_to(root)) for path in found)


def _located(source: str, row: dict[str, Any]) -> Any:
    """A mutant's statement: in its function, else where it stands once in the file."""
    pairs = statements(ast.parse(source))
    equal = [(inside, node) for inside, node in pairs if text_of(node) == row["statement"]]
    there = [node for inside, node in equal if inside == row["inside"]]
    if len(there) >= row["nth"]:
        return there[row["nth"] - 1]
    return equal[0][1] if len(equal) == 1 else None


def faulty(source: str, row: dict[str, Any]) -> str | None:
    """The changed source; None where the text is not found."""
    if "search" in row:
        once = source.count(row["search"]) == 1
        return source.replace(row["search"], row["replace"]) if once else None
    if (node := _located(source, row)) is None:
        return None
    lines = source.splitlines()
    end = node.end_lineno
    if isinstance(node, HEADERS):
        body = node.body[0]
        end = min(part.lineno for part in (body, *getattr(body, "decorator_list", ()))) - 1
    line = lines[node.lineno - 1]
    start = line[: node.col_offset] + "el" * line.lstrip().startswith("elif ")
    return "\n".join([*lines[: node.lineno - 1], start + row["changed"], *lines[end:]]) + "\n"


def load(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    if path.suffix == ".toml":
        rows = tomllib.loads(path.read_text())["fault"]
        return [{"id": f"f{number:02}"} | row for number, row in enumerate(rows, 1)]
    return [json.loads(line) for line in path.read_text().splitlines()]


def standing(sources: dict[str, str], row: dict[str, Any]) -> str | None:
    """The file whose text a fault changes: its own, else the only other one that has the text in a
    function or class of the same name."""
    if row["file"] in sources and faulty(sources[row["file"]], row):
        return str(row["file"])
    name = row.get("inside", "").rpartition(".")[2]
    same = re.compile(rf"^ *(def|class) {name}\b" if name else "", re.M)
    others = [file for file, text in sources.items() if same.search(text) and faulty(text, row)]
    return others[0] if len(others) == 1 else None


def find(root: Path) -> None:
    """Says of each fault whether its text stands where it stood, elsewhere or nowhere."""
    sources = {file: (root / file).read_text() for file in product_files(root)}
    for row in [*load(FAULTS), *load(MUTANTS)]:
        if (file := standing(sources, row)) != row["file"]:
            print(row["id"], row["file"], "->", file or "nowhere")


class FirstFailure:
    """A pytest plugin."""

    test = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.test = self.test or (report.nodeid if report.failed else "")

    def pytest_collectreport(self, report: Any) -> None:
        self.test = self.test or (f"collection of {report.nodeid}" if report.failed else "")


def make_copy(root: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    names = subprocess.check_output(["git", "-C", root, "ls-files", "-z"], text=True)
    for name in filter(None, names.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, to / name, follow_symlinks=False)


def run_tests(tree: Path, tests: list[str]) -> None:
    """In a child: runs the tests in the copy and leaves [exit code, first failure] there."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    log = os.open(tree / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    (tree / "tmp").mkdir(exist_ok=True)
    os.chdir(tree)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    os.environ |= {"PYTHONPATH": str(tree), "TMPDIR": str(tree / "tmp")}
    import pytest

    failure, options = FirstFailure(), ["-x", "-q", "--tb=short", "-m", "", "-o", "timeout=120"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={tree / 'base'}"]
    code = pytest.main([*options, *tests], plugins=[failure])
    (tree / "answer.json").write_text(json.dumps([int(code), failure.test]))


class Slot:
    """A copy of the tree, in which one fault at a time is tested."""

    def __init__(self, root: Path, tree: Path) -> None:
        make_copy(root, tree)
        self.tree, self.pid, self.count = tree, 0, 0

    def begin(self, row: dict[str, Any], source: str, tests: list[str], limit: float) -> None:
        self.row, self.tests, self.limit, self.start = row, tests, limit, time.monotonic()
        self.file = self.tree / row["file"]
        self.kept = self.file.read_bytes(), self.file.stat().st_mtime
        (self.tree / "answer.json").unlink(missing_ok=True)
        self.file.write_text(source)
        self.count += 1  # no two versions of a file share a time, so that none's bytecode is taken
        os.utime(self.file, (1e9 + self.count, 1e9 + self.count))
        self.pid = os.fork()
        if self.pid == 0:
            try:
                run_tests(self.tree, tests)
            finally:
                os._exit(0)

    def ended(self) -> dict[str, Any] | None:
        """The result where the tests have ended or used up their time."""
        took = time.monotonic() - self.start
        done = os.waitpid(self.pid, os.WNOHANG)[0]
        if not done and took < self.limit:
            return None
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what the tests started, too
        if not done:
            os.waitpid(self.pid, 0)
        self.file.write_bytes(self.kept[0])
        os.utime(self.file, (self.kept[1], self.kept[1]))
        self.pid, answer = 0, self.tree / "answer.json"
        code, test = json.loads(answer.read_text()) if answer.exists() else (None, "")
        outcome = {0: "survived", 1: "killed", 2: "killed"}.get(code, f"exit code {code}")
        if code == 4:  # a test file that cannot be imported, or has other tests
            outcome, test = "killed", test or f"collection of {self.tests[0].partition('::')[0]}"
        if not done:
            outcome, test = "killed", "time limit"
        facts = {"outcome": outcome, "test": test, "seconds": round(took, 1)}
        return {"id": self.row["id"], **facts, "tests": len(self.tests)}


def killers(root: Path, test: str, file: str) -> list[str]:
    """The test function that killed a fault before, under whatever file has it now; where none has
    it, the quick tests of the room of the faulty file."""
    function = re.escape(test.rpartition("::")[2].partition("[")[0])
    paths = sorted((root / "tests").rglob("test_*.py"))
    laws = sorted((root / "rank_core" / "testing").glob("test_*.py"))  # imported by tests
    if "::" in test:
        given = {
            p for p in (*paths, *laws) if re.search(rf"^ *def {function}\(", p.read_text(), re.M)
        }
        having = [path for path in paths if path in given or given.intersection(laws)]
        same = [path for path in having if str(path.relative_to(root)) == test.partition("::")[0]]
        if found := same or [path for path in having if path in given][:1]:
            nested = test.partition("::")[2].partition("[")[0]
            return [f"{found[0].relative_to(root)}::{nested}"]
    room = root / "tests" / Path(file).parent
    return [str(path.relative_to(root)) for path in paths if path.parent == room]


def run(args: argparse.Namespace, commit: str) -> None:
    """Every fault that names its tests, or was killed, unless it ran at this commit."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.modules["torch"].set_num_threads(1)
    results = load(RESULTS)
    killed = {row["id"]: row["test"] for row in results if row["outcome"] == "killed"}
    done = {row["id"] for row in results if row["commit"] == commit}
    todo = [
        row
        for row in [*load(FAULTS), *load(MUTANTS)]
        if row["id"].startswith(tuple(args.only))
        and row["id"] not in done
        and ("tests" in row or row["id"] in killed)
    ]
    sources = {file: (args.root / file).read_text() for file in product_files(args.root)}
    slots = [Slot(args.root, args.work / f"slot{number}") for number in range(args.slots)]

    def record(result: dict[str, Any]) -> None:
        with RESULTS.open("a") as file:
            file.write(json.dumps(result | {"commit": commit}) + "\n")

    while todo or any(slot.pid for slot in slots):
        for slot in slots:
            if slot.pid and (result := slot.ended()):
                record(result)
            while todo and not slot.pid:
                row = todo.pop(0)
                file = standing(sources, row)
                changed = faulty(sources[file], row) if file else None
                if not file or not changed:
                    record({"id": row["id"], "outcome": "not found"})
                    continue
                tests = row.get("tests") or killers(args.root, killed[row["id"]], file)
                slot.begin(row | {"file": file}, changed, tests, 90 + 240 * len(tests))
        time.sleep(0.1)


def _cell(text: str) -> str:
    return "`" + " ".join(text.split()).replace("|", "\\|").replace("`", "'") + "`"


def table() -> str:
    """The tables of proof.md: of the faults, of the mutants, and what survived."""
    results: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for row in load(RESULTS):  # the last run counts
        results[row["id"]] |= row
    faults, mutants = load(FAULTS), load(MUTANTS)
    parts = []
    for title, rows in (("Planted faults", faults), ("Mutants", mutants)):
        ran = [results[row["id"]] for row in rows if row["id"] in results]
        counts = collections.Counter(row["outcome"] for row in ran)
        told = ", ".join(f"{num} {name}" for name, num in sorted(counts.items()))
        share = f"{100 * counts['killed'] / max(1, len(ran)):.1f}%"
        parts.append(f"## {title}\n\n{len(ran)} of {len(rows)} ran: {told}; {share} killed.\n")
        for survived in (True, False):
            parts.append(
                "| id | where | fault | outcome | first failing test | s | at |\n" + "|---" * 7
            )
            parts[-1] += "|"
            for row in (row for row in rows if row["id"] in results):
                result = results[row["id"]]
                if (result["outcome"] == "killed") == survived:
                    continue
                what = row.get("behaviour") or f"{_cell(row['statement'])}: {_cell(row['changed'])}"
                where = f"{row['file']} {row.get('inside', row.get('commit'))}"
                test = _cell(result["test"]) if result.get("test") else result.get("note", "")
                cells = [row["id"], where, what, result["outcome"], test]
                cells += [result.get("seconds", ""), result.get("commit", "")]
                parts[-1] += "\n| " + " | ".join(map(str, cells)) + " |"
            parts[-1] += "\n"
    return "\n".join(parts)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("action", choices=("find", "run", "table"))
    given.add_argument("--root", type=Path, default=ROOT, help="the checkout that is tested")
    given.add_argument("--slots", type=int, default=2, help="faults tested at a time")
    given.add_argument("--only", nargs="+", default=[""], help="faults whose id begins so")
    given.add_argument("--work", type=Path, default=Path("/tmp/mutants"))
    args = given.parse_args()
    if args.action == "find":
        find(args.root)
    elif args.action == "table":
        PAGE.write_text(PAGE.read_text().partition("## Planted faults")[0] + table())
    else:
        commit = subprocess.check_output(["git", "-C", args.root, "rev-parse", "--short", "HEAD"])
        run(args, commit.decode().strip())


if __name__ == "__main__":
    main()
