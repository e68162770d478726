"""How a command ends: bad words, an interrupt while it is imported, output that nobody reads."""

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.terminal.command_line import check_writable, run_command

ROOT = Path(__file__).parents[3]


def python(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """A process of its own at the top of the checkout."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 100}
    return subprocess.run([sys.executable, *words], cwd=ROOT, **(pipes | how))


def test_output_that_nobody_reads_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)
    done = python("-m", "sweeps", "--help", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_broken_pipe_of_something_else_is_no_end_of_output(capsys):
    def command() -> int:
        raise BrokenPipeError("a socket's")

    with pytest.raises(BrokenPipeError, match="a socket's"):
        run_command(command)


INTERRUPTED = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module, *sys.argv = sys.argv[1:]

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            signal.raise_signal(SIGNAL)

sys.meta_path.insert(0, AtImport())
if sys.argv[0] == "-m":
    runpy.run_module("sweeps", run_name="__main__")
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    "module, by",
    [
        ("numpy.linalg", "SIGINT"),
        ("rank_core.models", "SIGTERM"),
        ("sweeps.plan.options", "SIGINT"),
    ],
)
def test_an_interrupt_while_a_sweep_is_imported_ends_it_in_one_line(module, by):
    script = INTERRUPTED.replace("SIGNAL", f"signal.{by}")
    done = python("-c", script, module, "sweeps/window_stride.py", "--dry-run")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted before anything started\n"


def test_an_import_by_others_leaves_their_interrupts_alone():
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import sweeps;"
    code += "print(signal.getsignal(signal.SIGINT).__name__)"
    assert python("-c", code).stdout == "default_int_handler\n"


def test_an_interrupt_within_a_finalizer_is_not_lost():
    """Python ignores what a `__del__` raises."""
    code = """
import signal, sys, time
from sweeps.terminal.command_line import heed_interrupts, run_command

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def command():
    heed_interrupts()
    Finalized()
    time.sleep(60)
    return 0

sys.exit(run_command(command))
"""
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_a_folder_that_cannot_be_made_is_refused_and_nothing_is_left_behind(tmp_path):
    check_writable("--out", tmp_path / "new" / "newer")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "x", Path("/proc/x"), Path("x" * 300)):
        with pytest.raises(BadInput, match="--out must be a writable folder"):
            check_writable("--out", folder)


@pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://bucket/x", "memory://x"])
def test_a_uri_is_no_folder_of_this_machine(tmp_path, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=f"--out must be a folder of this machine, got {uri}$"):
        check_writable("--out", Path(uri))
    with pytest.raises(BadInput, match="a folder of this machine"):
        check_writable("the folder of --out", Path(uri, "scores.csv").parent)


def test_an_output_without_our_characters_loses_no_computation():
    """A redirected output of an old system is Latin-1, which lacks ↓ and †."""
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    code = "import sys; from sweeps.terminal.command_line import run_command as run; "
    code += "sys.exit(run(lambda: print('a 0.5\u2193') or 0))"
    done = python("-c", code, env=environment, text=False)
    assert (done.returncode, done.stdout) == (0, b"a 0.5?\n")


def test_a_full_disk_is_a_sentence(capsys):
    with open("/dev/full", "w") as full:

        def command() -> int:
            full.write("x")
            full.flush()
            return 0

        assert run_command(command) == 2
        assert capsys.readouterr().err == "error: No space left on device\n"
        with pytest.raises(OSError):
            full.flush()  # what is left of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_working_directory_that_was_removed_is_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["measures"]) == 2
    assert "working directory" in capsys.readouterr().err


def test_a_cache_that_is_a_file_is_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "file"))
    words = ["run", "positional_bias", "--collection", "python-docs", "--storage", str(tmp_path)]
    assert main(words) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Imports a module of the working directory, as `python -m` does, before all others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    known = {*sys.modules}

    def imported(file: str, text: str) -> int:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
        importlib.invalidate_caches()
        name = Path(file).parts[0].removesuffix(".py")
        monkeypatch.delitem(sys.modules, name, raising=False)  # of an earlier test

        def command() -> int:
            return importlib.import_module(name).Class()

        return run_command(command)

    yield imported
    for name in {*sys.modules} - known:
        del sys.modules[name]


@pytest.mark.parametrize("text", ["", "from . import nothing", "import no_such_module_anywhere"])
@pytest.mark.parametrize("file", ["formulaic/__init__.py", "xmltodict.py", "antigravity.py"])
def test_a_module_that_stands_in_for_a_library_is_named(beside, file, text, capsys, tmp_path):
    if file.startswith("antigravity") and "from" in text:
        text = "from os import nothing"
    assert file.startswith("antigravity") or find_spec(file.partition("/")[0].removesuffix(".py"))
    assert beside(file, text) == 2
    said = capsys.readouterr().err
    where = str(tmp_path / file.removesuffix("/__init__.py"))
    assert said.count("\n") == 1 and f"{where} stands in for the library of that name" in said
    assert "Error: " in said and "rename it" in said


def test_an_error_of_a_module_of_another_name_is_its_own(beside):
    with pytest.raises(AttributeError, match="Class"):
        beside("a_module_of_mine.py", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_the_shell_has_closed_is_no_error(closed, tmp_path):
    (tmp_path / "qrels").write_text("q1 0 d1 1\n")
    (tmp_path / "run").write_text("q1 Q0 d1 1 2.5 x\n")
    out = tmp_path / "out.csv"
    words = f"-m sweeps measure {tmp_path}/run --qrels {tmp_path}/qrels --per-query {out}"
    command = f"{sys.executable} {words} {closed}"
    ended = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert out.read_text().startswith("query_id,measure,value")
