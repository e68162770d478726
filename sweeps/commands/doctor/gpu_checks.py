"""`ranksweep doctor --gpu`: the tests of tests/gpu with their results and remedies.

pytest runs them in a separate process, which a broken GPU may kill. Each test appends a line to a
file when it ends (tests/gpu/conftest.py).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rank_core.errors import BadInput
from rank_core.files import write_json
from sweeps.commands.doctor.finding import Finding, exit_code, gpus, print_finding, verdict
from sweeps.plan.command_line import check_writable

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "tests" / "gpu"
BLOCKS = ("facts", "same_numbers", "no_wait", "memory", "resume", "ray", "speed")
"""The files of tests/gpu, without test_, in their order."""
MOST_SECONDS = 1200.0  # twice their duration; a GPU that hangs is killed then


def check_gpu(json_file: Path) -> int:
    """Run the checks, print a table, write it to `json_file` and return the exit code."""
    _check_parts(json_file)
    log, start = json_file.with_suffix(".log"), time.monotonic()
    print(f"checks of the GPU, about ten minutes; their output goes to {log}", flush=True)
    lines = _results(log)
    findings = [_finding(line) for line in lines]
    for number, (line, finding) in enumerate(zip(lines, findings, strict=True)):
        if not number or line["block"] != lines[number - 1]["block"]:
            print(line["block"].replace("_", " "))
        print_finding(finding)
    seconds = time.monotonic() - start
    passed = sum(line["result"] == "ok" for line in lines)
    print(f"{passed} of {len(lines)} checks passed in {seconds:.0f} s: {verdict(findings)}")
    code = exit_code(findings)
    write_json(json_file, {"passed": not code, "seconds": round(seconds, 1), "checks": lines})
    print(f"figures and reasons: {json_file}; output of the checks: {log}")
    return code


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


def _results(log: Path) -> list[dict[str, Any]]:
    """A line for each check, at the end those that did not run because the process ended."""
    files = [str(CHECKS / f"test_{block}.py") for block in BLOCKS]
    # Without the project's options, whose plugins a GPU machine may lack.
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--import-mode=importlib"]
    command += ["-p", "no:cacheprovider", "-m", "gpu", "-rA", *files]
    with TemporaryDirectory(prefix="ranksweep-gpu-") as scratch, log.open("w") as output:
        results_file = Path(scratch, "told.jsonl")
        results_file.touch()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"RANKSWEEP_GPU_CHECKS_FILE": str(results_file)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # with its children
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(MOST_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        *whole, _begun = results_file.read_text().split("\n")
    lines = [json.loads(line) for line in whole]
    planned = [check for line in lines for check in line.get("planned", ())]
    ended = [line for line in lines if "planned" not in line]
    for line in ended:
        same = [check for check in planned if check.items() <= line.items()]
        planned = [check for check in planned if check not in same[:1]]
    return [*ended, *_checks_not_run(planned, code)]


def _checks_not_run(planned: list[dict[str, str]], code: int) -> Iterator[dict[str, Any]]:
    if planned or code not in (0, 1):
        reason = f"the process of the checks ended with {code}"
        if code == -signal.SIGKILL:
            reason = f"the process of the checks was killed after {MOST_SECONDS:.0f} s"
        first = planned[:1] or [{"block": "facts", "check": "the checks run", "do": ""}]
        for check in planned or first:
            result = {"result": "failed", "seconds": 0.0, "reason": reason, "figures": {}}
            yield check | result


def _finding(line: dict[str, Any]) -> Finding:
    figures = ", ".join(f"{name} {value}" for name, value in line["figures"].items())
    check = line["check"] + (f" ({line['seconds']:.0f} s)" if line["seconds"] >= 1 else "")
    if line["result"] == "ok":
        return Finding("ok", check, figures)
    if line["result"] == "not run":
        return Finding("note", f"not run, {line['reason']}", check)
    return Finding("error", check, line["reason"].rstrip(".:"), line["do"].rstrip("."))
