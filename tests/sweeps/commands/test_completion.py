"""The completion of the command line, asked of the shells themselves."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rank_core.models import MODELS
from rank_core.settings.config import declared_settings, parse_setting
from sweeps.__main__ import main
from sweeps.commands.completion import NAMES, SHELLS, known_values
from sweeps.commands.known import COMMANDS

ASK = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE="{line}" COMP_POINT={point}
compopt() {{ echo "compopt $*"; }}
_ranksweep_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completion")
    paths = {"bash": folder / "ranksweep.bash", "zsh": folder / "_ranksweep"}
    for shell, path in paths.items():
        with path.open("w") as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", file)
            assert main(["completion", shell]) == 0
    return paths


def in_bash(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word; it divides a line at = and @ too."""
    line = re.sub(" ([=@]) ?", r"\1", " ".join(words))
    values = {"last": len(words) - 1, "line": line, "point": len(line)}
    code = ASK.format(script=script, words=" ".join(words), **values)
    done = subprocess.run(
        ["bash", "--norc", "-c", code], cwd=script.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "words, offered",
    [
        ("ranksweep comp", ["compare", "completion"]),
        ("ranksweep completion z", ["zsh"]),
        ("ranksweep run wind", ["window_stride"]),
        ("ranksweep run reference/ce", ["reference/cedr"]),
        ("ranksweep run seeds --collection robust04-t", ["robust04-title"]),
        ("ranksweep run seeds --engine lo", ["local"]),
        ("ranksweep run seeds --max", ["--max-slots", "--max-gpu-hours"]),
        ("ranksweep run seeds --model parade-transformer-", 3),
        ("ranksweep run seeds training.ba", ["training.backbone_learning_rate=", 1]),
        ("ranksweep run seeds chunking.window = 75,150 training.num", 2),
        ("ranksweep export results --t", ["--to"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bash_offers_commands_flags_and_names(scripts, words, offered):
    found = in_bash(scripts["bash"], *words.split())
    assert all(one.startswith((words.split()[-1], "compopt")) for one in found)
    if isinstance(offered, int):
        assert len(found) == offered
    else:
        assert {one for one in offered if isinstance(one, str)} <= {*found}


def test_bash_writes_no_space_after_the_name_of_a_setting(scripts):
    *said, word = in_bash(scripts["bash"], "ranksweep", "run", "seeds", "chunking.w")
    assert word == "chunking.window=" and said[-1] == "compopt -o nospace +o filenames"


def test_the_folder_of_a_sweep_is_no_name_of_a_question(scripts):
    assert in_bash(scripts["bash"], "ranksweep", "export", "wind")[-1] == ""


def test_bash_offers_files_where_a_file_may_stand(scripts):
    (scripts["bash"].parent / "own_sweep.toml").touch()
    assert "own_sweep.toml" in in_bash(scripts["bash"], "ranksweep", "run", "own")
    assert "own_sweep.toml" in in_bash(scripts["bash"], "ranksweep", "compare", "own")


@pytest.mark.parametrize(
    "words, offered",
    [
        ("model.name = parade-a", ["parade-avg", "parade-attn"]),
        ("model.name =", [*MODELS]),
        ("chunking.window = 75 training.loss = teacher-r", ["teacher-ranknet"]),
        ("training.loss = ranknet,teacher-r", ["ranknet,teacher-ranknet"]),
        ("training.loss=ranknet,teacher-r", ["training.loss=ranknet,teacher-ranknet"]),
        ("collection = robust04-t", ["robust04-title"]),
        ("evaluation.measures = nDCG @ 10,RR", ["@10,RR@10"]),
        ("evaluation.measures = nDCG @", ["@10"]),
        ("evaluation.measures=nDCG@10,RR", ["evaluation.measures=nDCG@10,RR@10"]),
        ("training.keep_run = t", ["true"]),
        ("model.backbone = tiny-docs-", ["tiny-docs-untrained"]),
        ("chunking.window = 7", [""]),
        ("training.teacher = own", [""]),  # bash itself offers files where nothing is offered
    ],
)
def test_bash_offers_the_values_of_a_setting(scripts, words, offered):
    """COMP_WORDBREAKS may lack = and @."""
    unquoted, *found = in_bash(scripts["bash"], "ranksweep", "run", "seeds", *words.split())
    assert (unquoted, found) == ("compopt +o filenames", offered)


def test_every_setting_with_known_values_has_its_own(scripts):
    values = known_values()
    for declared in declared_settings():
        if declared.kind is bool or isinstance(declared.rule, tuple):
            assert {*values[declared.name]} >= ({*declared.rule} or {"true", "false"})
            for value in values[declared.name]:
                assert parse_setting(declared.name, value) in (value, True, False)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes_a_command_line(scripts):
    """Typed into a terminal, with the script in a folder of `fpath`."""
    given = {
        "ranksweep ru\twin\t": "run window_stride",
        "ranksweep run seeds --colle\trobust04-t\t": "run seeds --collection robust04-title",
        "ranksweep run seeds model.name=parade-at\ttraining.loss=ranknet,teacher-r\t": (
            "run seeds model.name=parade-attn training.loss=ranknet,teacher-ranknet"
        ),
        "ranksweep run seeds collection=robust04-t\tmodel.head=cl\t": (
            "run seeds collection=robust04-title model.head=classifier"
        ),
        "ranksweep run seeds chunking.w\t75 training.num\t2 --dry\t": (
            "run seeds chunking.window=75 training.num_epochs=2 --dry-run"
        ),
    }
    folder = scripts["zsh"].parent
    (folder / ".zshrc").write_text(
        f"PS1='> '; fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D\n"
        "ranksweep() { print -r -- given: $@ }; echo ready\n"
    )
    for typed, completed in given.items():
        assert f"given: {completed}\r\n" in in_zsh(folder, typed)


def in_zsh(folder: Path, typed: str) -> str:
    """What a terminal shows after some keys and Enter."""
    child, terminal = pty.fork()
    if child == 0:
        words = {"ZDOTDIR": str(folder), "TERM": "dumb", "COLUMNS": "200", "LINES": "40"}
        os.execvpe("zsh", ["zsh", "-i"], {**os.environ, **words})
    try:
        read_until_quiet(terminal, "ready")
        for part in re.findall(r"[^\t]+\t", typed):
            os.write(terminal, part.encode())
            read_until_quiet(terminal)
        os.write(terminal, b"\n")
        return read_until_quiet(terminal, "given")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def read_until_quiet(terminal: int, needed: str = "", quiet: float = 0.7) -> str:
    """What a terminal shows until it is silent for some seconds."""
    shown, end = "", time.monotonic() + 60
    ready = select.poll()  # `select` fails where a process of many tests has 1,024 open files
    ready.register(terminal, select.POLLIN)
    while time.monotonic() < end:
        if ready.poll(1000 * quiet):
            shown += os.read(terminal, 4096).decode(errors="replace")
        elif needed in shown:
            return shown
    raise AssertionError(f"the shell shows {shown!r}")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_every_flag_is_in_the_script(scripts, shell):
    text = scripts[shell].read_text()
    for name, command in COMMANDS.items():
        flags = {flag for action in command.parser()._actions for flag in action.option_strings}
        assert [word for word in {name, *flags} if word not in text] == []
    for names in NAMES.values():
        assert " ".join(names()) in text


def test_a_command_without_its_libraries_is_completed_by_its_name(monkeypatch, capsys):
    def parser():
        raise ModuleNotFoundError("torch")

    monkeypatch.setitem(COMMANDS, "export", replace(COMMANDS["export"], parser=parser))
    assert main(["completion", "bash"]) == 0
    text = capsys.readouterr().out
    assert " export " in text and "_export___register" not in text
    assert "_report_pos_0_COMPGEN" in text
