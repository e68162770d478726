"""Every command of README.md, docs/ and the headers of cluster/ is one that its program accepts: it
is read by the program's own parser, and not begun. Messages, columns and exit codes of docs/ are
those of the code."""

import argparse
import ast
import errno
import importlib
import inspect
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.__main__ import main as sweeps_main
from sweeps.plan.options import parse
from sweeps.report.comparison_files import PAIR_COLUMNS
from sweeps.report.gate import GateDecision
from sweeps.report.results import COMPARISON_COLUMNS
from sweeps.terminal.command_line import BAD_INPUT, INTERRUPTED, UNREAD

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MESSAGES = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
VALUE = "\0"

NOT_OURS = {
    "Rscript": "R; tests/sweeps/report/test_recomputed.py",
    "cd": "a word of the shell",
    "docker": "builds the image of a Job, which no test has",
    "echo": "a word of the shell",
    "hf": "huggingface_hub's tool, which signs in a person",
    "export": "a variable of the shell",
    "gcloud": "Google's tool, which no test has",
    "git": "fetches the project",
    "head=$(kubectl": "a Kubernetes cluster, likewise",
    "kubectl": "a Kubernetes cluster; tests/cluster/test_cluster_files.py reads what it applies",
    "python3.11": "makes the environment that the tests run in",
    "nvidia-cuda-mps-control": "NVIDIA's; tests/cluster has one of its name",
    "rsync": "copies files",
    "sky": "SkyPilot; tests/cluster/test_cluster_files.py reads what it launches",
    "ssh": "a tunnel to another machine",
    "ssh-keygen": "makes a key",
}
"""Programs whose words are not looked at, and why."""

MENTION = re.compile(r"ranksweep (run|COMMAND|[a-z]+)( NAME| --help)?|ray submit|python .*NAME.*")
"""A command's name within a sentence."""

PROGRAMS, CLICK = ("ranksweep", "python", "make", "pip", "pytest", "sbatch"), ("ray", "mlflow")


def documented() -> Iterator[tuple[str, list[str]]]:
    """(file, words) of every command."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        for block in re.findall(r"^ *```bash\n(.*?)^ *```", text, re.M | re.S):
            yield from ((path.name, words) for words in commands(block))
        plain = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
        inline = re.findall(r"(?:`|<code>)([^`<]+)(?:`|</code>)", plain)
        names = "|".join((*PROGRAMS, *CLICK))
        for command in (" ".join(command.split()) for command in inline):
            whole = rf"(?:time |[A-Z_]+=\S+ )*(?:{names}) \S"
            if re.match(whole, command) and not MENTION.fullmatch(command):
                yield from ((path.name, words) for words in commands(command))
    for path in sorted((ROOT / "cluster").iterdir()):
        header = re.match(r"(?:#.*\n|\n)*", path.read_text())[0]
        lines = re.findall(r"^#   (?: {4})?(\S.*)$", header, re.M)
        # What stands behind three spaces is said to the reader.
        text = "\n".join(re.split(r" {3,}", line)[0] for line in lines)
        yield from ((path.name, words) for words in commands(text))


def commands(text: str) -> Iterator[list[str]]:
    """The words of each line, without what a shell takes for itself."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.sub(r" \| .*", "", line).split(" && "):
            words = shlex.split(re.sub(r"(?:> \S+|&|\.\.\.)\s*$", "", part), comments=True)
            while words and re.fullmatch(r"time|[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield [words[0].removeprefix(".venv/bin/"), *words[1:]]


DOCUMENTED = list(documented())


def of(*programs: str) -> list[object]:
    """The commands of these programs, as parameters."""
    return [
        pytest.param(words, id=f"{file}: {' '.join(words)}")
        for file, words in {f"{file} {words}": (file, words) for file, words in DOCUMENTED}.values()
        if words[0] in programs
    ]


class Accepted(Exception):
    """A parser has read its words."""


@pytest.fixture
def stop_when_parsed(monkeypatch):
    """Ends what is called as soon as its words are read."""

    def ends(method):
        def parse_and_end(self, args=None, namespace=None):
            method(self, args, namespace)
            raise Accepted

        return parse_and_end

    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("parse_args", "parse_intermixed_args"):
        method = getattr(argparse.ArgumentParser, name)
        monkeypatch.setattr(argparse.ArgumentParser, name, ends(method))


def accept_python(words):
    """Words behind `python`."""
    if words[:2] == ["-m", "pdb"]:
        words = words[2:]
    if words[0] == "-c":
        compile(words[1], "-c", "exec")
        return
    if words[:2] == ["-m", "pytest"]:
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        return
    if words[:2] == ["-m", "sweeps"]:
        if not words[2:] or words[-1] == "--help":
            return
        if words[2] == "run":  # docs/extending.md gives its commands in a copy of the examples
            words = [str(EXAMPLES / Path(w).name) if w.endswith(".toml") else w for w in words]
        with pytest.raises(Accepted):
            sweeps_main(words[2:])
        return
    name = words[1] if words[0] == "-m" else words[0].removesuffix(".py").replace("/", ".")
    rest = words[2:] if words[0] == "-m" else words[1:]
    module = importlib.import_module(name)
    if hasattr(module, "main") and not inspect.signature(module.main).parameters:
        assert rest == []
        return
    with pytest.raises(Accepted):
        if hasattr(module, "EXPERIMENT"):
            parse(rest, prog=name, description="")
        else:
            module.main(rest)


@pytest.mark.parametrize("words", of(*PROGRAMS))
def test_a_command_of_ours_is_accepted(words, stop_when_parsed):
    program, *rest = words
    if program == "ranksweep":
        accept_python(["-m", "sweeps", *rest])
    elif program == "python":
        accept_python(rest)
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert [target for target in rest if not re.search(rf"^{target}:", makefile, re.M)] == []
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        asked = ",".join(re.findall(r"\[(.*?)\]", " ".join(rest))).split(",")
        assert {*asked} - {""} <= set(extras["optional-dependencies"])
    elif program == "sbatch":
        [script] = [at for at, word in enumerate(rest) if word.endswith(".sh")]
        assert (ROOT / rest[script]).exists()
        if rest[script].endswith("slurm-workers.sh"):
            assert rest[script + 1 :] == ["1234"]  # the job that they join
        else:
            accept_python(rest[script + 1 :])


def accept_click(command, words):
    """The parameters of the innermost command."""
    context = command.make_context(command.name, list(words))
    if hasattr(command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        _, inner, rest = command.resolve_command(context, left)
        return accept_click(inner, rest)
    return context.params


@pytest.mark.slow
@pytest.mark.parametrize("words", of(*CLICK))
def test_a_command_of_ray_or_mlflow_is_accepted(words, stop_when_parsed, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *rest = words
    module = {"ray": "ray.scripts.scripts", "mlflow": "mlflow.cli"}[program]
    command = importlib.import_module(module).cli
    params = accept_click(command, rest)
    for name in ("cluster_config_file", "script"):
        assert name not in params or Path(params[name]).exists()
    ours = [word for word in rest if word.startswith("ranksweep ")]  # of `ray exec`
    if rest[0] == "submit":
        accept_python([params["script"], *params["script_args"]])
    elif "ranksweep" in rest:  # of a job
        accept_python(["-m", "sweeps", *rest[rest.index("ranksweep") + 1 :]])
    for inner in ours:
        accept_python(["-m", "sweeps", *shlex.split(inner)[1:]])


def test_no_command_is_left_out():
    programs = {words[0] for _, words in DOCUMENTED}
    assert programs - {*PROGRAMS, *CLICK, *NOT_OURS} == set() and set(NOT_OURS) <= programs
    assert {file for file, _ in DOCUMENTED} >= {"README.md", "tracking.md", "config.yaml"}
    assert len(DOCUMENTED) > 60


def texts(node: ast.AST) -> Iterator[str]:
    """The string literals of a module, with `VALUE` for what an f-string puts in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else VALUE for part in node.values]
        yield "".join(map(str, parts))
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def test_every_message_stands_in_the_code():
    table = MESSAGES.partition("## Messages")[2].partition("\n## ")[0]
    messages = re.findall(r"^\| `(.*?)` \|", table, re.M)
    paths = [
        path for top in ("rank_core", "sweeps", "ranksweep") for path in (ROOT / top).rglob("*.py")
    ]
    known = "\n".join(text for path in paths for text in texts(ast.parse(path.read_text())))
    known += (ROOT / "cluster" / "slurm.sh").read_text() + os.strerror(errno.ENOSPC)
    parts = [(one, part.strip()) for one in messages for part in one.split("...")]
    assert [message for message, part in parts if part not in known] == []
    assert len(messages) > 20


def test_every_column_of_the_comparisons_is_explained():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.partition("## Comparisons")[2].partition("\n\nA field")[0]
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in row.split(", ")]
    assert sorted(name.strip("`") for name in named) == sorted(COMPARISON_COLUMNS)
    assert set(PAIR_COLUMNS) <= {*COMPARISON_COLUMNS, "p_queries_tukey"}
    assert "`p_queries_tukey`" in page


def test_every_exit_code_is_explained():
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", MESSAGES, re.M)}
    gate = {decision.value for decision in GateDecision}
    assert codes == {0, 1, BAD_INPUT, 3, 4, INTERRUPTED, UNREAD} | gate
