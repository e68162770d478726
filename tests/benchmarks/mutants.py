"""The strength of the tests: how many planted faults and mutants do the quick ones notice?

A planted fault (planted_faults.toml) undoes a repair of this repository's history; a mutant
(mutants.jsonl, drawn at 9165baa) is one statement with one small change. Both are texts that
another layout can be searched for. Each is written into a copy of the tracked files, in which the
test runs that killed it before, or those that its entry names, or those of its room.

    python -m tests.benchmarks.mutants run [--only m024 f12]
    python -m tests.benchmarks.mutants table

`run` appends to proof.jsonl and goes on where it ended; `table` renews the tables of proof.md.
"""

import argparse
import ast
import collections
import copy
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MUTANTS, FAULTS = HERE / "mutants.jsonl", HERE / "planted_faults.toml"
RESULTS, PAGE = HERE / "proof.jsonl", HERE / "proof.md"
OUTCOMES = {0: "survived", 1: "killed", 2: "killed", 4: "killed"}
"""{exit code of pytest: ...}; 2 and 4: a test file that cannot be imported, or has other tests."""

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


def run_tests(tree: Path, tests: list[str]) -> dict[str, Any]:
    """The outcome of tests in a copy, with the first failure."""
    limit, start = 90 + 240 * len(tests), time.monotonic()
    command = f'ulimit -d {12 << 20}; exec timeout -k 5 {limit} "$@"'
    options = "-x -q --tb=no -rfE -p no:cacheprovider -p no:xdist -o timeout=120".split()
    # Without bytecode, as two versions of a file may have the same time and size.
    own = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as scratch:
        done = subprocess.run(
            [
                "bash",
                "-c",
                command,
                "-",
                sys.executable,
                "-m",
                "pytest",
                *options,
                "-m",
                "",
                *tests,
            ],
            cwd=tree,
            env=os.environ | own | {"TMPDIR": scratch},
            capture_output=True,
            text=True,
        )
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    facts = {"outcome": OUTCOMES.get(done.returncode, f"exit code {done.returncode}")}
    facts |= {"test": failed[1] if failed else f"collection of {tests[0].partition('::')[0]}"}
    if done.returncode in (124, 137):
        facts = {"outcome": "killed", "test": "time limit"}
    if facts["outcome"] == "survived":
        facts["test"] = ""
    return facts | {"seconds": round(time.monotonic() - start, 1), "tests": len(tests)}


def killers(root: Path, test: str, file: str) -> list[str]:
    """The test function that killed a fault before, under whatever file has it now; where none has
    it, the tests of the room of the faulty file."""
    function = test.rpartition("::")[2].partition("[")[0]
    paths = sorted((root / "tests").rglob("test_*.py"))
    if "::" in test:
        having = [path for path in paths if re.search(rf"\b{function}\b", path.read_text())]
        same = [path for path in having if str(path.relative_to(root)) == test.partition("::")[0]]
        if found := (same or having)[:1]:
            nested = test.partition("::")[2].partition("[")[0]
            return [f"{found[0].relative_to(root)}::{nested}"]
    room = root / "tests" / Path(file).parent
    return [str(path.relative_to(root)) for path in paths if path.parent == room]


def run(args: argparse.Namespace, commit: str) -> None:
    """Every fault that names its tests, or was killed, unless it ran at this commit."""
    results = load(RESULTS)
    killed = {row["id"]: row["test"] for row in results if row["outcome"] == "killed"}
    done = {row["id"] for row in results if row["commit"] == commit}
    sources = {file: (args.root / file).read_text() for file in product_files(args.root)}
    trees: SimpleQueue[Path] = SimpleQueue()

    def tried(row: dict[str, Any]) -> None:
        file = standing(sources, row)
        changed = faulty(sources[file], row) if file else None
        result: dict[str, Any] = {"outcome": "not found"}
        if file and changed:
            tests = row.get("tests") or killers(args.root, killed[row["id"]], file)
            tree = trees.get()
            (tree / file).write_text(changed)
            result = run_tests(tree, tests)
            (tree / file).write_text(sources[file])
            trees.put(tree)
        with RESULTS.open("a") as lines:
            lines.write(json.dumps({"id": row["id"], **result, "commit": commit}) + "\n")

    with TemporaryDirectory() as work, ThreadPoolExecutor(args.slots) as pool:
        for number in range(args.slots):
            tree = Path(work, str(number))
            tree.mkdir()
            copied = f"git ls-files -z | xargs -0 cp -P --parents -t {tree}"
            subprocess.run(copied, shell=True, cwd=args.root, check=True)
            trees.put(tree)
        chosen = [
            row
            for row in [*load(FAULTS), *load(MUTANTS)]
            if row["id"].startswith(tuple(args.only)) and row["id"] not in done
            if "tests" in row or row["id"] in killed
        ]
        list(pool.map(tried, chosen))


def table() -> str:
    """The end of proof.md: the counts of faults and of mutants, and what was not killed."""
    results: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for row in load(RESULTS):  # the last run counts
        results[row["id"]] |= row
    parts = []
    for title, rows in (("Planted faults", load(FAULTS)), ("Mutants", load(MUTANTS))):
        ran = [row for row in rows if row["id"] in results]
        counts = collections.Counter(results[row["id"]]["outcome"] for row in ran)
        told = ", ".join(f"{num} {name}" for name, num in sorted(counts.items()))
        parts.append(f"## {title}\n\n{len(ran)} of {len(rows)} ran: {told}.\n")
        lines = ["| id | where | fault | outcome | at |", "|---" * 5 + "|"]
        for row in ran:
            result = results[row["id"]]
            if result["outcome"] != "killed":
                what = row.get("behaviour") or f"`{row['statement']}`: `{row['changed']}`"
                cells = [row["id"], row["file"], what, result["outcome"], result.get("commit", "")]
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("action", choices=("run", "table"))
    given.add_argument("--root", type=Path, default=ROOT, help="the checkout that is tested")
    given.add_argument("--slots", type=int, default=2, help="faults tested at a time")
    given.add_argument("--only", nargs="+", default=[""], help="faults whose id begins so")
    args = given.parse_args()
    if args.action == "table":
        PAGE.write_text(PAGE.read_text().partition("## Planted faults")[0] + table())
    else:
        commit = subprocess.check_output(["git", "-C", args.root, "rev-parse", "--short", "HEAD"])
        run(args, commit.decode().strip())


if __name__ == "__main__":
    main()
