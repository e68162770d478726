"""Faults in copies of a checkout, with the tests that reach them: see mutants.py.

A process that has imported the libraries forks a child per fault, so that none waits for them.
"""

import argparse
import collections
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
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.benchmarks.mutants import FAULTS, MUTANTS, RESULTS, ROOT, faulty, load, product_files

LIBRARIES = (
    *("numpy", "pandas", "scipy.stats", "scipy.sparse", "pyarrow.parquet", "pyarrow.dataset"),
    *("torch", "torch.nn.functional", "transformers", "transformers.models.bert.modeling_bert"),
    *("tokenizers", "safetensors.torch", "ir_measures", "ir_datasets", "optuna", "rich.table"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "jinja2", "fsspec", "pytest"),
)
OURS = ("tests", "rank_core", "sweeps", "ranksweep")


class Reach:
    """The quick tests that run a line, and how long each takes."""

    def __init__(
        self, files: list[str], coverage_files: list[Path], times: list[Path], without: set[str]
    ) -> None:
        self.seconds: dict[str, float] = {}
        self.without = without
        for case in (
            case for path in times if path.exists() for case in ET.parse(path).iter("testcase")
        ):
            file = case.get("classname", "").replace(".", "/") + ".py"
            self.seconds[f"{file}::{case.get('name')}"] = float(case.get("time", 0))
        self.lines: dict[str, dict[int, set[str]]] = {file: {} for file in files}
        for path in coverage_files:
            from coverage import CoverageData

            data = CoverageData(str(path))
            data.read()
            for measured in data.measured_files():
                for file in (file for file in files if measured.endswith(f"/{file}")):
                    for line, contexts in data.contexts_by_lineno(measured).items():
                        tests = {context.partition("|")[0] for context in contexts}
                        known = tests & self.seconds.keys() - without
                        self.lines[file].setdefault(line, set()).update(known)

    def tests(self, file: str, lines: range, seconds: float) -> list[str]:
        """Those of a test file of the same name, then one of each other file in turn; of both the
        shortest, until they take so many seconds. A file of the same name counts whole, as what its
        tests start is not measured. What runs at import alone is noticed by who uses the file, or
        its folder."""
        measured, folder = self.lines[file], file.rpartition("/")[0] + "/"
        found = set().union(*(measured.get(line, set()) for line in lines))
        if not found and any(line in measured for line in lines):
            others = [own for name, own in self.lines.items() if name.startswith(folder)]
            found = set().union(*measured.values()) or set().union(
                *(tests for own in others for tests in own.values())
            )
        named = f"tests/{folder}test_{Path(file).stem}"
        found |= {test for test in self.seconds if test.startswith(named)} - self.without
        files: dict[str, list[str]] = collections.defaultdict(list)
        for test in sorted(found, key=lambda test: (self.seconds[test], test)):
            files[test.partition("::")[0]].append(test)
        own = [path for path in files if Path(file).stem in Path(path).stem]
        turns = sorted(
            (place, self.seconds[test], test)
            for path in files.keys() - set(own)
            for place, test in enumerate(files[path])
        )
        near = self._within(seconds, (test for path in own for test in files[path]))
        far = self._within(seconds, (test for *_, test in turns)) if turns else []
        return near + sorted(far, key=lambda test: test.partition("::")[0])

    def _within(self, seconds: float, tests: Iterable[str]) -> list[str]:
        """The first tests that take at most so many seconds, one at least."""
        chosen, total = [], 0.0
        for test in tests:
            total += self.seconds[test]
            if chosen and total > seconds:
                break
            chosen.append(test)
        return chosen


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
    if "::" in test:
        having = [p for p in paths if re.search(rf"^ *def {function}\(", p.read_text(), re.M)]
        same = [path for path in having if str(path.relative_to(root)) == test.partition("::")[0]]
        if found := same or having[:1]:
            nested = test.partition("::")[2].partition("[")[0]
            return [f"{found[0].relative_to(root)}::{nested}"]
    room = root / "tests" / Path(file).parent
    return [str(path.relative_to(root)) for path in paths if path.parent == room]


def standing(sources: dict[str, str], row: dict[str, Any]) -> str | None:
    """The file whose text a fault changes: its own, else the only other one that has the text."""
    if row["file"] in sources and faulty(sources[row["file"]], row):
        return str(row["file"])
    others = [file for file, source in sources.items() if faulty(source, row)]
    return others[0] if len(others) == 1 else None


def run(args: argparse.Namespace, commit: str) -> None:
    """Every fault that has no result yet, or one of `--again`; with `--same` every killed one, by
    the test that killed it."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.modules["torch"].set_num_threads(1)
    known = {}  # the last result of each
    for row in load(RESULTS):
        if not args.same or row["outcome"] == "killed":
            known[row["id"]] = row
    if args.same:
        done = {name for name, row in known.items() if row["commit"] == commit}
    else:
        done = {name for name, row in known.items() if row["outcome"] not in args.again}
    rows = [row for row in [*load(FAULTS), *load(MUTANTS)] if row["id"] not in done]
    rows = [row for row in rows if not args.same or row["id"] in known]
    todo = [row for row in rows if row["id"].startswith(tuple(args.only))]
    measured = args.coverage if not args.same and any("tests" not in row for row in todo) else []
    files = product_files(args.root)
    sources = {file: (args.root / file).read_text() for file in files}
    reach = Reach(files, measured, args.times, set(args.without))
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
                found = faulty(sources[file], row) if file else None
                if not file or not found:
                    record({"id": row["id"], "outcome": "not found"})
                    continue
                row = row | {"file": file}
                if args.same:
                    tests = killers(args.root, known[row["id"]]["test"], file)
                else:
                    tests = row.get("tests") or reach.tests(file, found[1], args.seconds)
                if not tests:
                    record({"id": row["id"], "outcome": "not reached"})
                    continue
                expected = sum(reach.seconds.get(test, 60) for test in tests)
                slot.begin(row, found[0], tests, 90 + 4 * expected)
        time.sleep(0.1)
