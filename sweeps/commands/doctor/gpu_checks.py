"""`ranksweep doctor --gpu`: the tests of tests/gpu with their results and remedies.

pytest runs them in a separate process, which a broken GPU may kill. Each test appends a line to a
file when it ends (tests/gpu/conftest.py).
"""

import os
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import STDOUT, Popen
from tempfile import TemporaryDirectory
from typing import Any

from rank_core.children import python, start
from rank_core.errors import BadInput
from rank_core.files import write_json
from rank_core.lines import put
from rank_core.parsing import parsed_json
from sweeps.commands.doctor.finding import Diagnosis, exit_code, gpus, print_finding, verdict
from sweeps.terminal.command_line import check_writable

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "tests" / "gpu"
BLOCKS = ("facts", "speed", "same_numbers", "no_wait", "memory", "resume", "ray")
"""The files of tests/gpu, without test_, in their order: what is dear to know comes first."""
MOST_MINUTES = 20.0  # twice their duration; a GPU that hangs is killed then
POLL = 0.2  # seconds


def check_gpu(json_file: Path, minutes: float | None) -> int:
    """Run the checks, for `minutes` at most; print a table, and write it to `json_file` after each
    check. Returns the exit code."""
    _check_parts(json_file)
    log, start = json_file.with_suffix(".log"), time.monotonic()
    put(f"checks of the GPU, {minutes or 10:g} minutes; their output goes to {log}")
    lines: list[dict[str, Any]] = []
    findings: list[Diagnosis] = []
    for line in _results(log, minutes):
        if not lines or line["block"] != lines[-1]["block"]:
            put(line["block"].replace("_", " "))
        lines.append(line)
        findings.append(_finding(line))
        print_finding(findings[-1])
        _write(json_file, lines, findings, time.monotonic() - start, ended=False)
    seconds = time.monotonic() - start
    _write(json_file, lines, findings, seconds, ended=True)
    passed = sum(line["result"] == "ok" for line in lines)
    put(f"{passed} of {len(lines)} checks passed in {seconds:.0f} s: {verdict(findings)}")
    put(f"figures and reasons: {json_file}; output of the checks: {log}")
    return exit_code(findings)


def _write(
    file: Path,
    lines: list[dict[str, Any]],
    findings: list[Diagnosis],
    seconds: float,
    *,
    ended: bool,
) -> None:
    result = {"ended": ended, "passed": not exit_code(findings), "seconds": round(seconds, 1)}
    write_json(file, result | {"checks": lines})


def _check_parts(json_file: Path) -> None:
    """Refuse a machine on which the checks cannot run."""
    if not CHECKS.is_dir():
        raise BadInput(f"--gpu runs the checks of a clone, tests/gpu, which is not in {ROOT}")
    missing = [name for name in ("torch", "transformers", "pytest") if not find_spec(name)]
    if missing:
        raise BadInput(f"--gpu needs {', '.join(missing)}: pip install {' '.join(missing)}")
    check_writable("--json", json_file.absolute().parent)
    if os.environ.get("RANKSWEEP_GPU_CHECKS_ON", "cuda") == "cuda":
        if (found := gpus()).level != "ok":
            raise BadInput(f"--gpu needs an NVIDIA GPU that torch sees: {found.what}")


def _results(log: Path, minutes: float | None) -> Iterator[dict[str, Any]]:
    """A line for each check as it ends, and last those that did not run."""
    files = [str(CHECKS / f"test_{block}.py") for block in BLOCKS]
    # Without the project's options, whose plugins a GPU machine may lack.
    command = python("-m", "pytest", "-o", "addopts=", "--import-mode=importlib")
    command += ["-p", "no:cacheprovider", "-m", "gpu", "-rA", *files]
    planned: list[dict[str, str]] = []
    end = time.monotonic() + 60 * (MOST_MINUTES if minutes is None else minutes)
    with TemporaryDirectory(prefix="ranksweep-gpu-") as scratch, log.open("w") as output:
        results_file = Path(scratch, "told.jsonl")
        results_file.touch()
        process = start(
            command,
            cwd=ROOT,
            more={"RANKSWEEP_GPU_CHECKS_FILE": str(results_file)},
            stdout=output,
            stderr=STDOUT,
            start_new_session=True,  # with its children
        )
        try:
            for line in _told(results_file, process, end):
                planned += line.get("planned", ())
                if "planned" not in line:
                    same = [check for check in planned if check.items() <= line.items()]
                    planned = [check for check in planned if check not in same[:1]]
                    yield line
        finally:
            if killed := process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    if planned or code not in (0, 1):
        result, reason = "failed", f"the process of the checks ended with {code}"
        if killed and minutes is not None:
            result, reason = "not run", f"--minutes {minutes:g} were over"
        elif killed:
            reason = f"the process of the checks was killed after {MOST_MINUTES:g} minutes"
        for check in planned or [{"block": "facts", "check": "the checks run", "do": ""}]:
            yield check | {"result": result, "seconds": 0.0, "reason": reason, "figures": {}}


def _told(file: Path, process: Popen[Any], end: float) -> Iterator[dict[str, Any]]:
    """The lines that a process appends to a file, until its end or the time's."""
    with file.open() as lines:
        begun, ended = "", False
        while not ended:
            ended = process.poll() is not None or time.monotonic() > end
            while part := lines.readline():
                begun += part
                if begun.endswith("\n"):
                    yield parsed_json(begun)
                    begun = ""
            if not ended:
                time.sleep(POLL)


def _finding(line: dict[str, Any]) -> Diagnosis:
    figures = ", ".join(f"{name} {value}" for name, value in line["figures"].items())
    check = line["check"] + (f" ({line['seconds']:.0f} s)" if line["seconds"] >= 1 else "")
    if line["result"] == "ok":
        return Diagnosis("ok", check, figures)
    if line["result"] == "not run":
        return Diagnosis("note", f"not run, {line['reason']}", check)
    return Diagnosis("error", check, line["reason"].rstrip(".:"), line["do"].rstrip("."))
