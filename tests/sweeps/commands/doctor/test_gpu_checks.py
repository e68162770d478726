"""`python -m sweeps doctor --gpu`: the table of tests/gpu, on machines with and without a GPU."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from sweeps.__main__ import main
from sweeps.commands.doctor import gpu_checks
from sweeps.commands.doctor.gpu_checks import BLOCKS, CHECKS
from tests.gpu import speed
from tests.gpu.test_ray import one_gpu
from tests.gpu.test_speed import at_once
from tests.gpu.work import parts, random_bert

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("lacking", ["NVIDIA GPU", "pytest", "transformers", "a clone"])
def test_what_a_machine_lacks_is_named_in_a_line(lacking, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("RANKSWEEP_GPU_CHECKS_ON", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_checks, "find_spec", lambda name: None if name == lacking else True)
    if lacking == "a clone":
        monkeypatch.setattr(gpu_checks, "CHECKS", tmp_path / "tests" / "gpu")
    assert main(["doctor", "--gpu", "--json", str(tmp_path / "checks.json")]) == 2
    out, err = capsys.readouterr()
    assert lacking in err and (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_every_file_of_checks_is_a_block():
    assert {f"test_{name}.py" for name in BLOCKS} == {p.name for p in CHECKS.glob("test_*.py")}


def test_the_idle_share_says_how_many_trials_fill_a_gpu():
    shares = (0, 0.49, 0.5, 0.66, 0.67, 1)
    assert [at_once(share) for share in shares] == [1, 1, 2, 2, 3, 3]


CHECK = {"block": "facts", "check": "a GPU is there", "do": "Buy one."}
TOLD = {"result": "ok", "seconds": 2.5, "reason": "", "figures": {"GiB": 80}}
SLOW = {"block": "speed", "check": "it is fast", "do": "Wait."}
NOT_RUN = {"result": "not run", "seconds": 0.0, "reason": "ray is not installed", "figures": {}}
ON_RAY = {"block": "ray", "check": "two trials share it", "do": ""}


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """`pretended(end, *lines)`: the exit code and the JSON of checks that tell these lines and then
    run a shell command."""
    monkeypatch.setenv("RANKSWEEP_GPU_CHECKS_ON", "cpu")
    monkeypatch.setenv("COLUMNS", "80")

    def run(end, *lines, words=()):
        told = tmp_path / "told"
        told.write_text("".join(json.dumps(line) + "\n" for line in lines))
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\ncat {told} >> "$RANKSWEEP_GPU_CHECKS_FILE"\n{end}\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(script))
        file = tmp_path / "checks.json"
        code = main(["doctor", "--gpu", "--json", str(file), *words])
        return code, json.loads(file.read_text())

    return run


def test_the_table_says_what_passed_and_what_was_not_run(pretended, capsys):
    planned = {"planned": [CHECK, ON_RAY]}
    code, told = pretended("exit 0", planned, CHECK | TOLD, ON_RAY | NOT_RUN)
    table = capsys.readouterr().out.splitlines()[1:5]
    assert table == [
        "facts",
        "  ok       a GPU is there (2 s): GiB 80",
        "ray",
        "  note     not run, ray is not installed: two trials share it",
    ]
    assert (code, told["passed"]) == (0, True)
    assert told["checks"] == [CHECK | TOLD, ON_RAY | NOT_RUN]


def test_checks_that_a_dead_process_left_out_have_failed(pretended, capsys):
    code, told = pretended("kill -6 $$", {"planned": [CHECK, SLOW]}, CHECK | TOLD)
    assert code == 2
    assert [check["result"] for check in told["checks"]] == ["ok", "failed"]
    assert "the process of the checks ended with -6" in told["checks"][1]["reason"]


def test_a_gpu_that_hangs_ends_the_checks(pretended, monkeypatch):
    monkeypatch.setattr(gpu_checks, "MOST_MINUTES", 0.0)
    code, told = pretended("sleep 600", {"planned": [SLOW]})
    assert code == 2
    assert "killed after" in told["checks"][0]["reason"]


def test_what_a_check_found_is_on_disk_before_the_next_one(pretended, tmp_path):
    file, seen = tmp_path / "checks.json", tmp_path / "seen.json"
    later = f"for i in $(seq 100); do [ -s {file} ] && break; sleep .1; done; cp {file} {seen}"
    pretended(later, {"planned": [CHECK, SLOW]}, CHECK | TOLD)
    early = json.loads(seen.read_text())
    assert (early["ended"], early["checks"]) == (False, [CHECK | TOLD])


def test_checks_end_when_the_minutes_are_over(pretended, capsys):
    words, planned = ["--minutes", "0.03"], {"planned": [CHECK, SLOW]}
    code, told = pretended("sleep 600", planned, CHECK | TOLD, words=words)
    assert (code, told["ended"]) == (0, True)
    assert [check["result"] for check in told["checks"]] == ["ok", "not run"]
    assert "--minutes" in told["checks"][1]["reason"]


@pytest.mark.parametrize("words", [["--minutes", "3"], ["--gpu", "--minutes", "0"]])
def test_minutes_are_of_gpu_checks_and_above_0(words, capsys):
    assert main(["doctor", *words]) == 2
    assert "--minutes" in capsys.readouterr().err


def test_the_page_installs_the_versions_that_the_checks_hold_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = [r for r in project["optional-dependencies"]["serve"] if r.startswith(("torch", "tr"))]
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert len(pinned) == 2 and all(f'"{requirement}"' in page for requirement in pinned)


def test_trials_share_one_gpu_of_several(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert one_gpu() == {"CUDA_VISIBLE_DEVICES": "2"}


@pytest.mark.slow
def test_speed_is_that_of_clipped_steps_with_dropout(tmp_path):
    backbone, settings = random_bert(tmp_path, 2, 64, 4, 256), {"model.dropout": 0.1}
    some = parts("parade-attn", backbone, torch.device("cpu"), settings)
    clip = torch.nn.utils.clip_grad_norm_
    with patch.object(torch.nn.utils, "clip_grad_norm_", side_effect=clip) as clipped:
        figures, step = speed.measured(speed.training, some, 500, torch.bfloat16)
        before = some.model.head.weight.detach().clone()
        step()
    assert [call.args[1] for call in clipped.call_args_list] == [1.0] * 4
    assert not torch.equal(some.model.head.weight, before) and some.model.dropout.training
    assert {"tokens/s", "range", "MFU", "first call s"} == figures.keys()


@pytest.mark.parametrize(("seconds", "repeats"), [(0.0, 10), (0.15, 2)])
def test_a_time_is_of_two_seconds_or_ten_repeats(seconds, repeats, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(speed, "SECONDS", 0.3)
    _, later = speed.times_of(lambda: time.sleep(seconds), torch.device("cuda"))
    assert len(later) == repeats


PLANTED = """
from rank_core.encoders import packed
def lost_residual(ctx, y_TK, residual_TH):
    x_TH, weight = ctx.saved_tensors
    return y_TK @ weight, y_TK.t() @ x_TH, y_TK.sum(0)
packed._Product.backward = staticmethod(lost_residual)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("paths", "code"), [("", 1), ("usual", 1), ("off", 0)])
def test_a_fault_of_flat_rows_is_found_and_vanishes_without_fast_paths(paths, code, tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED)
    check = f"{CHECKS / 'test_same_numbers.py'}::test_gradients_in_16_bits"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "planted", check]
    environment = {"RANKSWEEP_GPU_CHECKS_ON": "cpu", "RANKSWEEP_FAST_PATHS": paths}
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout[-2000:]


def checked(tmp_path, on, **environment):
    """(exit code, output, the checks' lines by block) of the command itself."""
    command = [sys.executable, "-m", "sweeps", "doctor", "--gpu", "--json", "checks.json"]
    environment |= {"RANKSWEEP_GPU_CHECKS_ON": on, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True
    )
    checks = json.loads((tmp_path / "checks.json").read_text())["checks"]
    blocks = {name: [line for line in checks if line["block"] == name] for name in BLOCKS}
    return done.returncode, done.stdout, blocks


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the fake device needs g++")
def test_the_doctor_runs_to_its_end_on_the_fake_device(tmp_path):
    from tests.contracts.fake_cuda.library import compile_library

    library = compile_library(tmp_path)
    code, table, blocks = checked(tmp_path, "fake", LD_PRELOAD=str(library))
    assert code == 0, table
    assert all(blocks.values())
    assert [line["result"] for line in blocks["no_wait"]] == ["ok", "ok"]
    reasons = {line["reason"] for lines in blocks.values() for line in lines if line["reason"]}
    assert reasons == {"only a GPU has it", "the fake device computes no values"}


@pytest.mark.long
@pytest.mark.ray
def test_all_checks_that_need_no_gpu_pass_on_a_cpu(tmp_path):
    code, table, blocks = checked(tmp_path, "cpu")
    assert code == 0, table
    not_run = {line["reason"] for lines in blocks.values() for line in lines if line["reason"]}
    assert not_run <= {"only a GPU has it", "counted above, by the profiler"}
