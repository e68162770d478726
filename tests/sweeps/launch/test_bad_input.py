"""What breaks a rule ends with exit code 2 and one message; nothing has been launched by then."""

import os
import shutil
import sys
import threading
from dataclasses import replace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sweeps.engine import EngineLost
from sweeps.launch.command import ENGINE_LOST, main
from sweeps.plan.description import description_of
from sweeps.store.lock import FILE, only_driver, read_driver
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.window_stride import EXPERIMENT


@pytest.fixture
def refused(inputs_words, tmp_path, capsys):
    """The message of a command line that must be refused, and the proof that nothing ran."""

    def message(*words: str) -> str:
        storage = tmp_path / "results"
        argv = [*words, *(flag for flag in _unless_given(inputs_words, words))]
        if "--storage" not in words:
            argv += ["--storage", str(storage)]
        code = main(EXPERIMENT, argv, doc=None)
        out, err = capsys.readouterr()
        assert code == 2, err
        assert err.startswith("error: ") and err.count("error: ") == 1
        assert "Traceback" not in err + out
        assert out == ""
        assert not storage.exists()
        ray = sys.modules.get("ray")
        assert ray is None or not ray.is_initialized()
        return err

    return message


def _unless_given(inputs_words, words):
    for flag, value in zip(inputs_words[::2], inputs_words[1::2], strict=True):
        if flag not in words:
            yield from (flag, value)


# What `tests/sweeps/plan/test_options.py` cannot know without the inputs: {words: what is named}
COMMAND_LINES = {
    "--gpus-per-worker 1 --dry-run": "CPU and 0 GPU in all",
    "--gpus-per-worker 1 --engine local --dry-run": "0 GPU. Lower",
    "--gpus-per-worker 1": "RAY_ADDRESS",
    "--cpus-per-worker 4096 --dry-run": "4096 CPU",
    "chunking.windw=48": "chunking.window",
    "--bogus": "--bogus",
    "--model maxpp": "maxp",
    "--collection python-doc": "python-docs",
    "--collection /nowhere": "/nowhere",
    "--collection /dev/null": "/dev/null",
    f"--collection {5000 * 'a'}": "aaa...aaa",
    "--backbone ./nowhere": "./nowhere",
    "--backbone nobody/bert-of-nobody": "hf download",
    "evaluation.measures=NDGC@10": "nDCG@10",
    "--dry-run evaluation.measures=nDCG@0": "nDCG@0",
    "evaluation.measures=RR@10,MRR@10": "MRR@10",
    "evaluation.measures=": "evaluation.measures",
    "chunking.window=48 chunking.stride=64": "chunking.stride",
    "--dry-run chunking.window=97,98": "chunking.window <= 96",
    "chunking.max_query_tokens=128": "max_query_tokens <= 127",
    "--model firstp": "chunking.stride",
    "--model parade-transformer chunking.window=2 chunking.stride=1": "chunking.max_chunks",
    "--model sump model.name=maxp": "by --model and by model.name=",
    "training.batch_size=8,16": "training.batch_size",
    "training.batch_size=many": "training.batch_size",
    "training.backbone_learning_rate=nan": "backbone_learning_rate",
    "--num-workers 5 training.batch_size=4": "--num-workers",
    "--tracking-uri mlruns": "tracking URI",
    "--tracking-uri sqlite:////proc/x.db": "--tracking-uri",
    "--storage nosuch://bucket": "--storage",
    "--storage zip://x": "zip://x",
    "--search random --num-configs 5 chunking.window=10..99999999999999999999": "chunking.window",
}


@pytest.mark.parametrize("words", COMMAND_LINES, ids=[words[:80] for words in COMMAND_LINES])
def test_a_bad_command_line_is_refused_by_name(words, refused):
    message = refused(*words.split())
    assert max(map(len, message.split())) < 300 and COMMAND_LINES[words] in message


# Other faults of files: tests/rank_core/data/test_bad_files.py
def test_a_broken_collection_is_refused_with_file_and_line(refused, collection_folder, tmp_path):
    path = shutil.copytree(collection_folder, tmp_path / "broken") / "docs.jsonl"
    with path.open("a") as file:
        file.write(path.read_text().splitlines()[6] + "\n")
    assert f"{path}:21: " in refused("--collection", str(path.parent))


@pytest.mark.parametrize("words", [(), ("--smoke-test",)], ids=["sweep", "smoke test"])
def test_a_file_where_the_storage_should_be_is_refused_and_kept(words, refused, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    message = refused("--storage", str(taken), *words)
    assert f"--storage must be a writable folder, got {taken}: a file is there" in message
    assert taken.read_text() == "mine"


def test_a_smoke_test_does_not_replace_a_whole_sweep(refused, plan_of, inputs_words, tmp_path):
    whole, smoke = (str(tmp_path / name) for name in ("whole", "smoke"))
    for storage, words in ((whole, []), (smoke, ["--smoke-test"])):
        place = Storage(storage)
        place.open()
        description_of(plan_of(*words), words).write(Records(place, "window_stride/woods"))
    assert "another --storage" in refused("--smoke-test", "--storage", whole)
    words = [*inputs_words, "--dry-run", "--storage", smoke]
    assert main(EXPERIMENT, words, doc=None) == 0
    assert main(EXPERIMENT, [*words, "--smoke-test"], doc=None) == 0
    assert main(replace(EXPERIMENT, question="Who?"), words, doc=None) == 2, "of the same name"


def test_a_second_driver_on_the_same_storage_is_refused(inputs_words, tmp_path, capsys):
    storage = Storage(str(tmp_path / "results"))
    storage.open()
    records = Records(storage, "window_stride/woods")
    argv = [*inputs_words, "--storage", storage.uri]
    with only_driver(records) as driver:
        assert main(EXPERIMENT, argv, doc=None) == 2
        assert {path.name for path in records.folder.iterdir()} == {FILE}
        assert read_driver(records).command == driver.command
    assert f"{records.folder} is driven by process {os.getpid()}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "storage, words",
    [
        ("away://bucket/rank", "no route to 10.0.0.1"),
        ("silent://bucket/rank", "no answer for 0 s"),
        ("memory://bucket/rank", "--engine local"),
        ("ftp://127.0.0.1:1/x", "--storage must be a folder or a URI such as s3://"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_a_storage_that_cannot_be_reached_is_refused(
    storage, words, dry, inputs_words, monkeypatch, capsys
):
    class Away(MemoryFileSystem):
        protocol = "away"

        def ls(self, path, **given):
            raise ConnectionError("no route to 10.0.0.1")

    class Silent(MemoryFileSystem):
        protocol = "silent"

        def ls(self, path, **given):
            threading.Event().wait()

    monkeypatch.setattr("sweeps.store.storage.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("sweeps.store.storage.SCHEMES", ("away", "silent", "memory"))
    for one in (Away, Silent):
        fsspec.register_implementation(one.protocol, one, clobber=True)
    argv = [*inputs_words, "--storage", storage, *(["--dry-run"] if dry else [])]
    argv += [] if storage.startswith("memory") else ["--engine", "local"]
    assert main(EXPERIMENT, argv, doc=None) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and words in message and message.count("\n") == 1


def test_an_engine_that_is_lost_ends_the_command_with_a_sentence(monkeypatch, capsys):
    def run_sweep(*args):
        raise EngineLost("Ray has died on this machine again")

    monkeypatch.setattr("sweeps.launch.sweep.run_sweep", run_sweep)
    assert main(EXPERIMENT, [], doc=None) == ENGINE_LOST == 1
    message = capsys.readouterr().err
    assert message.startswith("error: Ray has died on this machine again. Nothing is lost")


@pytest.mark.slow
def test_a_dry_run_writes_nothing(inputs_words, tmp_path, capsys):
    storage = tmp_path / "results"
    argv = [*inputs_words, "--dry-run", "--storage", str(storage)]
    assert main(EXPERIMENT, argv, doc=None) == 0
    assert not storage.exists()
    out = capsys.readouterr().out
    assert "5 cells x 3 seeds = 15" in out and "estimate" in out


def test_inputs_are_made_in_advance_and_found_again(inputs_words, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    words = [*inputs_words, "--prepare", "--storage", str(tmp_path / "results")]
    for _ in range(2):
        assert main(EXPERIMENT, words, doc=None) == 0
        assert capsys.readouterr().out.startswith("prepared    ")
    assert not (tmp_path / "results").exists()
