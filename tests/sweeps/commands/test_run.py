"""`ranksweep run`, and the command that a sweep's folder tells to go on with."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from rank_core.records import Collection
from sweeps.__main__ import main
from sweeps.commands import run as run_command
from sweeps.terminal.command_line import program, typed_command

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture
def ran(monkeypatch):
    """What would run: (experiment's name, words, seeds of the preset)."""
    calls = []

    def run(experiment, argv, *, doc, prog, preset=None):
        calls.append((experiment.name, list(argv), dict(preset.flags) if preset else None, doc))
        return 0

    monkeypatch.setattr(run_command, "run_experiment", run)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return calls


def test_a_sweep_is_one_of_ours_a_toml_file_or_a_python_file(ran, monkeypatch):
    assert main(["run", "window_stride", "--dry-run"]) == 0
    assert main(["run", str(EXAMPLES / "own_sweep.toml"), "--num-seeds", "2"]) == 0
    assert sys.path[0] == str(EXAMPLES)
    assert main(["run", str(EXAMPLES / "own_sweep.py")]) == 0
    names = [(name, words, flags) for name, words, flags, _ in ran]
    assert names == [
        ("window_stride", ["--dry-run"], None),
        ("smooth_windows", ["--num-seeds", "2"], {"num_seeds": 3}),
        ("smooth_chunks", [], None),
    ]
    assert [doc.partition("?")[1] for *_, doc in ran] == ["?"] * 3
    sys.modules.pop("own_sweep")


def test_several_collections_are_run_one_after_another_then_compared(ran, monkeypatch, capsys):
    compared = []
    compare = "sweeps.commands.compare.command.main"
    monkeypatch.setattr(compare, lambda words: compared.append(words) or 0)
    loaded = lambda name: Collection(name, name, {}, {})  # noqa: E731
    monkeypatch.setattr("rank_core.data.load.load_collection", loaded)
    monkeypatch.setattr(run_command, "check_experiment", lambda *args, **words: None)
    both = ["--collection", "one", "--collection=two"]
    assert main(["run", "serving", *both, "--storage", "memory://", "--seeds", "1"]) == 0
    common = ["--storage", "memory://", "--seeds", "1", "--collection"]
    assert [words for _, words, *_ in ran] == [[*common, "one"], [*common, "two"]]
    [folders] = compared
    assert [folder.rpartition("serving/")[2] for folder in folders] == ["one", "two"]
    assert main(["run", "serving", *both, "--dry-run"]) == 0 and len(compared) == 1


def test_of_several_collections_each_is_known_before_any_runs(ran, collection_folder, capsys):
    for names in ((str(collection_folder), "python-dcs"), ("a", "a")):
        words = [word for name in names for word in ("--collection", name)]
        assert main(["run", "serving", *words]) == 2 and names[1] in capsys.readouterr().err
    assert not ran


def test_of_several_collections_each_is_checked_before_any_runs(
    ran, collection_folder, tmp_path, capsys
):
    """The second one has too few queries for the folds."""
    small = tmp_path / "small"
    shutil.copytree(collection_folder, small)
    for file in small.glob("*/*.*"):  # the first query of each split
        lines = file.read_text().splitlines()
        kept = [line for line in lines if line.split()[0] == f"{file.parent.name}-0"]
        file.write_text("\n".join(kept))
    words = ["--collection", str(collection_folder), "--collection", str(small)]
    words += ["--storage", str(tmp_path / "results"), "evaluation.folds=4"]
    words += ["--backbone", "tiny-docs"]
    assert main(["run", "window_stride", "--smoke-test", *words]) == 2
    error = capsys.readouterr().err
    assert f"error: --collection {small}: evaluation.folds=4 exceeds the 3 judged" in error
    assert not ran and not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dry-run", "x.toml"], "of a sweep comes before its flags, got --dry-run"),
        (["window_strid"], "unknown sweep 'window_strid'; did you mean window_stride?"),
        (["none.py"], "none.py does not exist"),
        (["bare.py"], "bare.py must define EXPERIMENT = Experiment(...)"),
        (["broken.py"], "broken.py:1: ZeroDivisionError"),
        (["json.py"], "json.py: another module is called json; rename the file"),
    ],
)
def test_what_is_no_sweep_is_refused(ran, words, message, capsys, tmp_path, monkeypatch):
    for name, text in {"bare.py": "x = 1", "broken.py": "1 / 0", "json.py": ""}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) == 2 and ran == []
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and error.count("\n") == 1
    sys.modules.pop("bare", None)


@pytest.mark.parametrize(
    ("orig", "argv", "given", "command"),
    [
        (["python", "sweeps/seeds.py", "--x"], ["sweeps/seeds.py", "--x"], ["--x"],
         "python sweeps/seeds.py --x"),
        (["py", "-m", "sweeps", "run", "a b.toml"], ["m.py", "run", "a b.toml"], [],
         "py -m sweeps run 'a b.toml'"),
        (["py", "/x/bin/ranksweep", "run", "s", "--y"], ["/x/bin/ranksweep", "run", "s", "--y"],
         ["--y"], "/x/bin/ranksweep run s --y"),
        (["py", "/there/ranksweep", "run", "s"], ["/there/ranksweep", "run", "s"], [],
         "ranksweep run s"),
        (["py", "-m", "pytest"], ["pytest", "tests"], ["--z"], "ranksweep run seeds --z"),
    ],
)  # fmt: skip
def test_the_stored_command_is_the_typed_one(monkeypatch, orig, argv, given, command):
    monkeypatch.setattr(sys, "orig_argv", orig)
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(shutil, "which", lambda name: "/there/ranksweep")
    assert shlex.join(typed_command("seeds", given)) == command


def test_a_command_begins_with_the_script_or_in_a_checkout_with_the_module(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "orig_argv", [f"{tmp_path}/python", "x.py"])
    assert program() == [f"{tmp_path}/python", "-m", "sweeps"]
    (tmp_path / "ranksweep").touch()  # beside the interpreter of a .venv that is not activated
    assert program() == [f"{tmp_path}/ranksweep"]
