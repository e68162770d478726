"""The commands by name, each with its function and its line in the help."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from sweeps.terminal.command_line import Parser

GROUPS = {
    "begin": {
        "doctor": (
            "doctor.command:main",
            "",
            "check the environment and a collection before a sweep",
        ),
        "convert": (
            "convert:main",
            "FILE",
            "write judgments, runs or documents of other tools anew",
        ),
        "split": ("split:main", "", "divide judged queries into train, dev and test, or folds"),
        "collections": ("lists:collections", "", "list collections"),
        "models": ("models:main", "", "list ranking models, or a paper's settings (--profile)"),
        "settings": (
            "lists:settings",
            "",
            "list settings with type, default and Hugging Face name",
        ),
        "measures": ("lists:measures", "", "list measures and their syntax"),
        "completion": (
            "completion:main",
            "SHELL",
            "print the completion of commands for bash or zsh",
        ),
    },
    "run": {
        "sweeps": ("lists:sweep_files", "", "list sweeps with their questions"),
        "run": ("run:main", "SWEEP ...", "run a sweep by name, or from a .toml or .py file"),
        "status": ("status:main", "DIR", "show the progress of a sweep"),
        "check": ("check:main", "MODULE:CLASS", "run the contract tests on your own model"),
        "teach": ("teach:main", "MODEL", "score training candidates with a teacher"),
        "cluster-files": ("cluster_files:main", "DIR", "write files for Ray, Slurm and Kubernetes"),
    },
    "look": {
        "report": ("report:main", "DIR", "write a sweep's report again and print its table"),
        "compare": (
            "compare.command:main",
            "SYSTEM ..",
            "significance tests for any runs or per-query scores",
        ),
        "measure": ("measure:main", "RUN", "print the measures of one run (--qrels)"),
        "design": ("design:main", "PILOT", "plan the seeds and queries of the next comparison"),
        "derive": ("derive:main", "DIR", "re-aggregate saved chunk scores, without a GPU"),
        "ui": ("mlflow_commands:ui", "DIR", "open a sweep in the MLflow UI"),
    },
    "use": {
        "export": ("export:main", "DIR", "write the winner's model as a folder (--to FOLDER)"),
        "rerank": ("rerank:main", "FOLDER", "rerank a run with an exported model"),
    },
    "keep": {
        "storage": ("storage:main", "DIR", "list the contents of a storage, or remove unused ones"),
        "bundle": ("bundle:main", "DIR", "write a sweep and all its values as one file (--to)"),
        "verify": ("bundle:verify", "FILE.zip", "recompute every number of a bundle from its runs"),
        "sync": ("mlflow_commands:sync", "DIR", "upload missing trials to MLflow"),
    },
}
"""{what a user does: {command: (its function in `sweeps.commands`, its argument, its
description)}}. A module is imported when its command is called, so that no command waits for the
libraries of another."""
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
OTHER_WORDS = {
    "plan": "run SWEEP --dry-run",
    "train": "run SWEEP",
    "tune": "run SWEEP --search NAME",
    "evaluate": "measure RUN",
    "logs": "status DIR",
}
"""{a command of other tools: what it is here}"""


def sweep_names() -> list[str]:
    """The names of the package's sweeps."""
    files = Path(__file__).parents[1].glob("[!_]*.py")
    return sorted(path.stem for path in files)


def function_of(name: str) -> Callable[[Sequence[str]], int]:
    """The function of a command, which takes the words after its name; it is imported here."""
    module, _, function = COMMANDS[name][0].partition(":")
    command: Callable[[Sequence[str]], int] = getattr(
        import_module(f"sweeps.commands.{module}"), function
    )
    return command


class _HasParser(BaseException):
    """Ends a command as soon as it has its parser."""


def parser_of(name: str) -> Parser:
    """The parser with which a command reads its words; of `run` that of the sweeps' flags."""

    def end(parser: Parser, *_: Any, **__: Any) -> NoReturn:
        raise _HasParser(parser)

    try:
        with patch.multiple(Parser, parse_args=end, parse_intermixed_args=end):
            function_of(name)(["window_stride"] if name == "run" else [])
    except _HasParser as found:
        parser: Parser = found.args[0]
        return parser
    raise AssertionError(f"{name} has no parser")
