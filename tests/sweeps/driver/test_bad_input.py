"""What breaks a rule ends with exit code 2 and one message; nothing has been launched by then."""

import os
import shutil
import sys
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sweeps.driver.command import main
from sweeps.store.driver import FILE, only_driver, read_driver
from sweeps.store.plan_description import manifest
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


# (words, everything the message must say: the law, what was found, what is known)
COMMAND_LINES = [
    (
        "chunking.windw=48",
        ["'chunking.windw'", "did you mean chunking.window? Nearest: chunking.w"],
    ),
    ("window=48", ["unknown setting 'window'", "did you mean chunking.window?", "chat.window"]),
    ("windw=48", ["unknown setting 'windw'", "did you mean chunking.window?"]),
    ("nonsense", ["section.setting=value", "'nonsense'"]),
    ("--bogus", ["--bogus", "`window_stride.py --help` lists the flags"]),
    ("--model maxpp", ["unknown model 'maxpp'", "did you mean maxp?", "`ranksweep models` lists"]),
    (
        "model.name=maxpp",
        ["unknown model 'maxpp'", "did you mean maxp?", "`ranksweep models` lists"],
    ),
    ("--collection python-doc", ["'python-doc'", "did you mean python-docs?", "docs.jsonl"]),
    ("--backbone ./nowhere", ["`tiny-docs`, a folder or a Hugging Face id", "./nowhere"]),
    ("evaluation.measures=NDGC@10", ["'NDGC@10'", "did you mean nDCG@10?", "`ranksweep measures`"]),
    ("evaluation.measures=nDCG@ten", ["spelled as ir_measures", "'nDCG@ten'"]),
    ("--dry-run evaluation.measures=nDCG@0", ["'nDCG@0'", "its cutoff must be"]),
    ("evaluation.measures=RR@10,MRR@10", ["the same measure", "'RR@10'", "'MRR@10'"]),
    ("evaluation.measures=nDCG@10,ERR", ["'ERR'", "no installed tool computes it", "ERR@20"]),
    ("evaluation.measures=", ["evaluation.measures must name at least one measure", "()"]),
    (
        "chunking.window=48 chunking.stride=64",
        ["0 < chunking.stride <= chunking.window", "stride=64", "window=48"],
    ),
    ("chunking.window=97", ["chunking.window <= 96 must hold", "131 positions", "window=97"]),
    (
        "chunking.window=97,98",
        ["chunking.window <= 96 must", "got chunking.window=97, chunking.window=98"],
    ),
    ("chunking.window=0", ["chunking.stride <= chunking.window", "chunking.window=0"]),
    ("chunking.max_query_tokens=128", ["max_query_tokens <= 127 must hold", "tokens=128"]),
    ("chunking.overflow=last", ["unknown chunking.overflow 'last'", "first-last-sampled"]),
    ("--model firstp", ["chunking.stride has no effect", "set it to chunking.window=32"]),
    (
        "--model parade-transformer chunking.window=2 chunking.stride=1",
        ["reads at most", "chunks per document", "lower chunking.max_chunks"],
    ),
    ("--seeds one,two", ["whole numbers such as 1,2,3", "'one,two'"]),
    ("--seeds 1,,2", ["whole numbers", "'1,,2'"]),
    ("--seeds 1,2,1", ["must differ from each other", "1,2,1"]),
    ("--num-seeds 0", ["--num-seeds >= 1 must hold", "got 0"]),
    ("--num-seeds three", ["--num-seeds", "'three'"]),
    ("--seeds 1 --num-seeds 2", ["--num-seeds", "not allowed with", "--seeds"]),
    ("seed=3", ["--seeds or --num-seeds", "seed="]),
    ("training.margin=1 training.margin=2", ["given once", "training.margin twice"]),
    ("chunking.window=48 chunking.window=48,64", ["given once", "chunking.window twice"]),
    ("--model sump model.name=maxp", ["given once", "--model and model.name="]),
    ("--collection woods collection=woods", ["given once", "--collection and collection="]),
    (
        "training.batch_size=8,16",
        ["training.batch_size", "chunking.window, chunking.stride", "run FILE.toml"],
    ),
    ("training.batch_size=many", ["training.batch_size must be a whole number", "'many'"]),
    ("training.batch_size=0", ["training.batch_size", "training.batch_size=0"]),
    ("training.num_epochs=1.5", ["whole number", "'1.5'"]),
    ("training.backbone_learning_rate=nan", ["backbone_learning_rate", "nan"]),
    ("training.paired_seeds=maybe", ["true or false", "'maybe'"]),
    ("training.precision=int8", ["unknown training.precision 'int8'", "bf16"]),
    ("chunking.window=48,wide", ["chunking.window must be a whole number", "'wide'"]),
    ("--num-workers 0", ["--num-workers >= 1 must hold", "got 0"]),
    ("--num-workers 2 --num-workers 3", ["given once", "--num-workers twice"]),
    (
        "--num-workers 5 training.batch_size=4",
        ["--num-workers <= training.batch_size", "got 5 workers", "training.batch_size=4"],
    ),
    ("--cpus-per-worker -1", ["--cpus-per-worker >= 1 must hold", "got -1"]),
    ("--gpus-per-worker 2", ["--gpus-per-worker must be 0, a fraction or 1", "got 2"]),
    ("--gpus-per-worker=-1", ["--gpus-per-worker must be 0, a fraction or 1", "got -1"]),
    (
        "--num-workers 2 --gpus-per-worker .5",
        ["the 2 workers of a trial need a GPU each", "must be 0 or 1", "got 0.5"],
    ),
    ("--gpus-per-worker 1.5", ["--gpus-per-worker", "0, a fraction or 1", "1.5"]),
    ("--tracking-uri mlruns", ["tracking URI", "'mlruns'", "sqlite:///FILE"]),
    ("--tracking-uri http://", ["needs a host", "'http://'", "http(s)://HOST:PORT"]),
    ("--tracking-uri sqlite://x.db", ["three slashes", "sqlite:///FILE"]),
    ("--tracking-uri gopher://x", ["unknown", "gopher", "none"]),
    ("--storage nosuch://bucket", ["a folder or a URI such as s3://", "nosuch://bucket"]),
    ("--storage ftp://127.0.0.1/x", ["unknown scheme", "ftp://127.0.0.1/x", "known: file, s3"]),
    ("--storage zip://x", ["unknown scheme", "zip://x"]),
    ("--storage http://127.0.0.1:1/x", ["unknown scheme", "http://127.0.0.1:1/x"]),
    ("--tracking-uri sqlite:////proc/x.db", ["--tracking-uri must be a writable folder", "/proc"]),
    ("--gpus-per-worker nan", ["--gpus-per-worker", "finite", "nan"]),
    ("--gpus-per-worker inf", ["--gpus-per-worker", "finite", "inf"]),
    ("--num-workers 1" + 20 * "0", ["--num-workers <= 10,000 must hold"]),
    ("--num-seeds 1" + 20 * "0", ["--num-seeds <= 1,000 must hold"]),
    ("--seeds 1" + 20 * "0", ["whole numbers such as 1,2,3"]),
    ("--deadline 0s", ["--deadline must be in the future", "0s"]),
    ("--deadline 0h0m", ["--deadline must be in the future", "0h0m"]),
    (f"--deadline {5000 * '9'}d", ["--deadline must be a time such as", "9...9"]),
    ("--collection /nowhere", ["'/nowhere' does not exist", "docs.jsonl"]),
    ("--collection ./nowhere", ["'./nowhere' does not exist"]),
    ("--collection /dev/null", ["'/dev/null' is a file"]),
    (f"--collection {5000 * 'a'}", ["unknown collection", "aaa...aaa"]),
    (f"training.batch_size={5000 * '9'}", ["training.batch_size must be a whole", "99...99"]),
    ("training.margin=inf", ["|training.margin| < 1e+300 must hold", "inf"]),
    (
        "--search random --num-configs 5 chunking.window=10..99999999999999999999",
        ["|chunking.window| < 1e+15 must hold", "99999999999999999999"],
    ),
    ("chunking.window=1..9 --search tpe --num-configs 9999999", ["--num-configs <= 100,000"]),
]


@pytest.mark.parametrize(
    "words, expected", COMMAND_LINES, ids=[words[:80] for words, _ in COMMAND_LINES]
)
def test_a_bad_command_line_is_refused_with_law_finding_and_choices(words, expected, refused):
    message = refused(*words.split())
    assert max(map(len, message.split())) < 300
    assert [text for text in expected if text not in message] == []


def replace_line(number, line):
    def edit(text: str) -> str:
        lines = text.splitlines()
        lines[number - 1] = line
        return "\n".join(lines) + "\n"

    return edit


def repeat_line(number):
    def edit(text: str) -> str:
        return text + text.splitlines()[number - 1] + "\n"

    return edit


# (file, edit, place); all other ways: tests/rank_core/data/test_bad_files.py
COLLECTIONS = {
    "broken JSON": ("docs.jsonl", replace_line(5, '{"doc_id": "d04", "text": "no end'), 5),
    "duplicate document": ("docs.jsonl", repeat_line(7), 21),
    "duplicate candidate": ("test/bm25.run", repeat_line(2), 49),
}


@pytest.mark.parametrize("case", COLLECTIONS)
def test_a_broken_collection_is_refused_with_file_and_line(
    case, refused, collection_folder, tmp_path
):
    file, edit, line = COLLECTIONS[case]
    broken = tmp_path / "broken"
    shutil.copytree(collection_folder, broken)
    path = broken / file
    path.write_text(edit(path.read_text()))
    assert f"{path}:{line}: " in refused("--collection", str(broken))


def test_a_collection_without_its_files_is_told_which_are_missing(refused, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    message = refused("--collection", str(folder))
    assert "lacks docs.jsonl" in message and "test/qrels.trec" in message


@pytest.mark.parametrize("words", [(), ("--smoke-test",)], ids=["sweep", "smoke test"])
def test_a_file_where_the_storage_should_be_is_refused_and_kept(words, refused, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    message = refused("--storage", str(taken), *words)
    assert "--storage must be writable" in message and str(taken) in message
    assert taken.read_text() == "mine"


def test_a_backbone_that_would_need_the_network_is_refused_with_the_remedy(refused):
    message = refused("--backbone", "nobody/bert-of-nobody")
    assert "hf download nobody/bert-of-nobody --local-dir DIR" in message
    assert "--backbone tiny-docs" in message


def test_a_folder_that_is_no_checkpoint_is_refused(refused, tmp_path):
    folder = tmp_path / "no-checkpoint"
    folder.mkdir()
    message = refused("--backbone", str(folder))
    assert "is no Hugging Face checkpoint (config.json, weights, tokenizer)" in message


def test_a_smoke_test_does_not_replace_a_whole_sweep(refused, plan_of, inputs_words, tmp_path):
    whole, smoke = (str(tmp_path / name) for name in ("whole", "smoke"))
    for storage, words in ((whole, []), (smoke, ["--smoke-test"])):
        place = Storage(storage)
        place.open()
        manifest(plan_of(*words), words).write(Records(place, "window_stride/woods"))
    assert "another --storage" in refused("--smoke-test", "--storage", whole)
    words = [*inputs_words, "--dry-run", "--storage", smoke]
    assert main(EXPERIMENT, words, doc=None) == 0
    assert main(EXPERIMENT, [*words, "--smoke-test"], doc=None) == 0


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


@pytest.mark.parametrize("uri, extra", [("s3://bucket/x", "s3"), ("gs://bucket/x", "gcs")])
def test_a_missing_client_is_named_with_its_extra(uri, extra, inputs_words, monkeypatch, capsys):
    def missing(storage):
        raise ImportError("Install x to access it")

    monkeypatch.setattr("sweeps.store.storage.fsspec.core.url_to_fs", missing)
    monkeypatch.setattr("sweeps.store.storage.find_spec", lambda name: None)
    assert main(EXPERIMENT, [*inputs_words, "--storage", uri, "--dry-run"], doc=None) == 2
    assert f"pip install 'ranksweep[{extra}]'" in capsys.readouterr().err


def test_a_dry_run_of_a_bad_command_line_is_refused_alike(refused):
    assert "chunking.window <= 96" in refused("--dry-run", "chunking.window=500")


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


def test_the_program_is_called_by_its_file_in_help(capsys):
    with pytest.raises(SystemExit):
        main(EXPERIMENT, ["--help"], doc="Which window?")
    text = capsys.readouterr().out
    assert text.startswith("usage: window_stride.py") and "Which window?" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raise RuntimeError('no disk')", "RuntimeError: no disk"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("sys.exit(4)", "SystemExit: 4"),
        ("json.loads('{')", "JSONDecodeError: Expecting property name"),
    ],
)
def test_a_collection_s_function_that_fails_is_named_with_its_line(
    refused, tmp_path, monkeypatch, line, message
):
    (tmp_path / "failing.py").write_text(f"import json, sys\n\ndef notes():\n    {line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    error = refused("--collection", "failing:notes")
    assert error.startswith("error: collection failing:notes ") and message in error
    assert f"{tmp_path / 'failing.py'}:4" in error
