"""Trials beside each other on a GPU: its program on a CPU, and its daemon of CUDA MPS, by a script
that stands for NVIDIA's."""

import json
import os
import time
from pathlib import Path

import pytest
import torch

from tests.gpu import mps, packing

DAEMON = """#!/bin/sh
number="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -d ]; then
    sleep 600 &
    echo $! > "$number"; echo $! >> HERE/daemons
    echo "STARTED${CUDA_VISIBLE_DEVICES+ on one GPU}"; exit CODE
fi
read -r line
echo "$line" >> HERE/asked
case "$line" in
    get_server_list) echo SERVER;;
    quit*) if [ OBEYS = yes ]; then kill "$(cat "$number")"; fi;;
esac
"""


@pytest.fixture
def control(tmp_path, monkeypatch):
    """`control(code, server, obeys)`: puts the script on the PATH; its folder."""

    def put(code=0, server="4711", obeys="yes"):
        text = DAEMON.replace("HERE", str(tmp_path)).replace("CODE", str(code))
        script = tmp_path / mps.CONTROL
        script.write_text(text.replace("SERVER", server).replace("OBEYS", obeys))
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path

    return put


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def daemons(folder):
    return [int(line) for line in (folder / "daemons").read_text().split()]


def all_end(pids):
    until = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(alive, pids))


@pytest.mark.parametrize("obeys", ["yes", "no"])
def test_the_daemon_of_mps_ends_whatever_happens_beside_it(obeys, control):
    folder = control(obeys=obeys)
    with pytest.raises(ZeroDivisionError), mps.own_mps() as own:
        [pid] = daemons(folder)
        assert alive(pid) and mps.serves(own) and Path(own[mps.PIPES]).is_dir()
        raise ZeroDivisionError
    assert all_end([pid])
    assert (folder / "asked").read_text().splitlines()[-1].startswith("quit")


def test_a_daemon_that_does_not_start_says_why(control, monkeypatch):
    folder = control(code=3)
    monkeypatch.setenv(
        "CUDA_VISIBLE_DEVICES", "3"
    )  # of the processes, which a daemon would renumber
    with pytest.raises(mps.NoDaemon, match=r"ended with 3: STARTED$"), mps.own_mps():
        pass
    assert all_end(daemons(folder))


def measure(file, *words):
    sizes = ["--small", "--sizes", "tiny", "--steps", "2", "--trials", "1"]
    packing.main(["--json", str(file), *sizes, *words])
    return json.loads(file.read_text())["rows"]


@pytest.mark.long
@pytest.mark.slow
def test_trials_are_packed_with_and_without_mps(control, tmp_path, monkeypatch, capsys):
    folder, file = control(), tmp_path / "packing.json"
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 25)
    rows = measure(file, "--at-once", "2")
    cases = [*packing.cases(["tiny"], [2])]
    assert [*rows] == [case.key for case in cases]
    for case in cases:
        row = rows[case.key]
        assert len(row["seconds"]) == case.slots and row["trials/hour"] > 0, row
        assert row["idle"] == 0.75 and row["tokens/s"] > 0
    assert len(daemons(folder)) == sum(case.mps for case in cases) and all_end(daemons(folder))
    assert capsys.readouterr().out.count("\n| ") == 1 + len(cases)

    monkeypatch.setattr(packing, "row_of", None)  # nothing is left to measure
    assert measure(file, "--at-once", "2") == rows


@pytest.mark.slow
def test_a_row_that_cannot_be_measured_says_why_and_is_tried_again(control, tmp_path, capsys):
    folder, file = control(server=""), tmp_path / "packing.json"
    alone, served = (packing.Case("tiny", 1, with_mps).key for with_mps in (False, True))
    rows = measure(file, "--at-once", "1")
    assert "serves no process" in rows[served]["error"] and rows[alone]["trials/hour"] > 0
    assert all_end(daemons(folder))
    control()
    again = measure(file, "--at-once", "1")
    assert again[alone] == rows[alone] and again[served]["trials/hour"] > 0
    ratio = again[served]["trials/hour"] / again[alone]["trials/hour"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"| {served} |") and f" {ratio:.2f} " in last


@pytest.mark.slow
def test_a_slot_that_ends_early_makes_a_row_of_its_last_words(control, tmp_path, monkeypatch):
    folder = control()
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", "sometimes")
    rows = measure(tmp_path / "packing.json", "--at-once", "1")
    assert all("RANKSWEEP_FAST_PATHS" in row["error"] for row in rows.values()), rows
    assert all_end(daemons(folder))


def test_no_row_begins_when_the_minutes_are_over(tmp_path, capsys):
    file = tmp_path / "packing.json"
    packing.main(["--json", str(file), "--minutes", "0", "--sizes", "tiny", "--at-once", "1"])
    assert not file.exists() and "no time for tiny, 1 at once" in capsys.readouterr().out
