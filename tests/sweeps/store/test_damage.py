"""Every file of a finished sweep, damaged in every way: one message says what and where, nothing
else is touched, and the sweep's command brings everything back."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pandas as pd
import pytest

from sweeps.__main__ import main
from tests.e2e.conftest import run_local

__all__ = ["run_local"]

pytestmark = pytest.mark.slow

WORDS = (
    *("--smoke-test", "--num-seeds", "2", "--tracking-uri", "none"),
    *("chunking.window=48,64", "chunking.stride=32"),
    *("evaluation.keep_chunk_scores=true", "training.keep_weights=all"),
)


def other_json(path: Path) -> None:
    path.write_text(json.dumps({"status": "done", "cells": [1]}))


def same_size(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 3),
    "other JSON": other_json,
    "a bit": same_size,
    "gone": Path.unlink,
}
TRIAL_FILES = (
    *("result.json", "config.json", "history.jsonl", "per_query.parquet"),
    *("dev.run.gz", "test.run.gz", "chunk_scores.parquet", "weights.safetensors"),
)
SWEEP_FILES = ("sweep.json", "trials.parquet", "per_query.parquet", "events.jsonl")
OUT_COMMANDS = (("report",), ("derive",))
NOBODY = 65534
COMMANDS = (("report",), ("design", "--delta", ".01"), ("derive",))


@pytest.fixture(scope="module")
def finished(run_local, tmp_path_factory):
    return run_local(tmp_path_factory.mktemp("damage") / "results", *WORDS).folder


@pytest.fixture
def folder(finished, tmp_path):
    """The finished sweep in a folder that a test may change."""
    copy = tmp_path / "results" / finished.parent.name / finished.name
    shutil.copytree(finished, copy)
    return copy


def contents(folder: Path) -> dict[Path, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in found}


def damage_file(path: Path, damage: str) -> None:
    """Of a dataset, its first file."""
    DAMAGES[damage](min(path.glob("*.parquet")) if path.is_dir() else path)


def first_trial(folder: Path) -> Path:
    return sorted(folder.glob("runs/*-seed1"))[0]


@pytest.fixture
def refusal(capsys):
    """The one message of a command; "" where it did its work."""

    def message(command: tuple[str, ...], folder: Path) -> str:
        code = main([command[0], str(folder), *command[1:]])
        out, err = capsys.readouterr()
        assert (code, out.strip() == "") in [(2, True), (0, False)], out + err
        assert "Traceback" not in out + err and err.count("error: ") == (code == 2)
        return err

    return message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user as well")
def test_another_user_reads_a_finished_sweep(finished, refusal):
    home = Path(tempfile.mkdtemp())  # pytest's own folders are private
    try:
        home.chmod(0o755)
        folder = shutil.copytree(finished, home / "woods")
        own = home / "own"
        own.mkdir()
        own.chmod(0o777)
        commands = [("status",), ("design", "--delta", ".01")]
        commands += [(*command, "--out", str(own)) for command in OUT_COMMANDS]
        for command in commands:  # imports what they need: Python itself may be private
            assert refusal(command, folder) == ""
        for path in own.rglob("*"):
            path.chmod(0o777)
        os.seteuid(NOBODY)
        for command in commands:
            assert refusal(command, folder) == ""
        assert (own / "index.html").stat().st_size and (own / "derived.md").stat().st_size
        for command in OUT_COMMANDS:
            assert "--out (default DIR/report) must be a writable" in refusal(command, folder)
    finally:
        os.seteuid(0)
        shutil.rmtree(home)


def test_a_trial_has_all_the_files_that_are_damaged_here(finished):
    for trial in finished.glob("runs/*"):
        assert {path.name for path in trial.iterdir()} == set(TRIAL_FILES)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", TRIAL_FILES)
def test_a_damaged_trial_is_named_by_all_who_read_the_sweep(folder, refusal, capsys, file, damage):
    path = first_trial(folder) / file
    DAMAGES[damage](path)
    before = contents(folder)
    if (file, damage) == ("weights.safetensors", "gone"):  # a trial is whole without them
        assert [refusal(command, folder) for command in COMMANDS] == [""] * len(COMMANDS)
        return
    for command in COMMANDS:
        message = refusal(command, folder)
        assert f"runs/{path.parent.name}/{file} " in message
        assert "the sweep's command sets the trial aside and runs it again" in message
    assert main(["status", str(folder)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "5 done, 1 damaged" in text and f"damaged: {path.parent.name}: {file} " in text
    assert "resume python -m sweeps run window_stride" in text
    assert contents(folder) == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", SWEEP_FILES)
def test_a_damaged_file_of_the_sweep_ends_in_one_message_or_does_no_harm(
    folder, refusal, file, damage
):
    damage_file(folder / file, damage)
    before = contents(folder / "runs")
    for command in (*COMMANDS, ("status",), ("sync",), ("ui",)):
        message = refusal(command, folder)
        if message and command[0] not in ("sync", "ui"):
            missing = (
                f"{folder} has no {file}, which",
                f"found none in {folder}",
                f"({file}) or a comparison's (per_query.parquet); {folder} has neither",
            )
            assert any(words in message for words in (str(folder / file), *missing))
    assert contents(folder / "runs") == before


def test_one_command_sets_aside_runs_again_and_restores_everything(folder, run_local):
    before = contents(folder)
    trials = sorted(folder.glob("runs/*"))
    damaged = {
        trials[0]: ("result.json", "truncated"),
        trials[1]: ("per_query.parquet", "garbage"),
        trials[2]: ("history.jsonl", "gone"),
        trials[3]: ("config.json", "other JSON"),
        trials[4]: ("test.run.gz", "a bit"),
    }
    for trial, (file, damage) in damaged.items():
        DAMAGES[damage](trial / file)
    for file, damage in zip(SWEEP_FILES, ("garbage", "empty", "truncated", "gone"), strict=True):
        damage_file(folder / file, damage)
    broken = contents(folder / "runs")
    again = run_local(folder.parents[1], *WORDS)
    for trial, (file, _) in damaged.items():
        assert f"warning: {trial.name} is damaged ({file} " in again.text
        assert f"kept as runs/{trial.name}.damaged-1, runs again" in again.text
        kept = contents(folder / "runs" / f"{trial.name}.damaged-1")
        assert kept == {
            Path(*path.parts[1:]): content
            for path, content in broken.items()
            if path.parts[0] == trial.name
        }
    assert f"{len(damaged)} trials, one at a time" in again.text
    assert "warning: " in again.text and "has no readable events.jsonl" in again.text
    after = contents(folder)
    whole = [path for path in before if path.parts[:2] == ("runs", trials[5].name)]
    assert len(whole) == len(TRIAL_FILES)
    exact = [
        path for path in before if path.suffix == ".gz" or "per_query.parquet" in path.parts[-2:]
    ]
    assert len(exact) == 3 * 6 + 6 + 1 + 2  # runs, values, curves, the candidates of two splits
    assert {path: after[path] for path in (*whole, *exact)} == {
        path: before[path] for path in (*whole, *exact)
    }
    last = run_local(folder.parents[1], *WORDS)
    assert "nothing to launch" in last.text and "warning" not in last.text


def test_edited_values_are_refused_also_where_no_checksum_tells(folder, refusal):
    """In a folder of version 0.1, which has one table."""
    path = folder / "per_query.parquet"
    table = pd.read_parquet(path)
    shutil.rmtree(path)
    table.loc[table["split"] == "test", "value"] *= 20
    table.to_parquet(path, index=False)
    assert "per_query.parquet: RR@10 must be from 0 to 1, got 5.0 for " in refusal(
        ("report",), folder
    )


def test_a_table_of_the_dataset_that_lacks_a_query_is_named(folder, refusal):
    file = sorted((folder / "per_query.parquet").glob("*.parquet"))[1]
    table = pd.read_parquet(file)
    table[table["query_id"] != table["query_id"].iloc[0]].to_parquet(file, index=False)
    message = refusal(("report",), folder)
    assert f"{file} was changed after the trial's end" in message


def test_a_trial_of_version_01_is_read_without_checksums(folder, refusal, run_local):
    for path in folder.glob("runs/*/result.json"):
        result = json.loads(path.read_text())
        del result["checksum"], result["files"]
        path.write_text(json.dumps(result))
    assert refusal(("report",), folder) == ""
    again = run_local(folder.parents[1], *WORDS)
    assert "nothing to launch" in again.text and "damaged" not in again.text
