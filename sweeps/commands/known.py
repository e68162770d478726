"""The commands: a line for each, with the file that has its parser and its function."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar, cast

from sweeps.terminal.command_line import Parser

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Late(Generic[P, R]):
    """A function of `sweeps.commands`, `module:name`. Its module is imported when the function is
    needed, so that no command waits for the libraries of another."""

    place: str

    def load(self) -> Callable[P, R]:
        """The function itself."""
        module, _, name = self.place.partition(":")
        return cast(Callable[P, R], getattr(import_module(f"sweeps.commands.{module}"), name))

    def __call__(self, *words: P.args, **options: P.kwargs) -> R:
        return self.load()(*words, **options)


@dataclass(frozen=True)
class Command:
    """What a user types behind `ranksweep`."""

    name: str
    takes: str  # its argument, in the help
    does: str
    parser: Late[[], Parser]
    run: Late[[list[str]], int]  # takes the words after the name; returns the exit code


GROUPS: dict[str, tuple[Command, ...]] = {
    "begin": (
        Command("doctor", "", "check the environment and a collection before a sweep",
                Late("doctor.command:parser"), Late("doctor.command:main")),
        Command("convert", "FILE", "convert judgments, runs or documents of other tools",
                Late("convert:parser"), Late("convert:main")),
        Command("split", "", "divide judged queries into train, dev and test, or folds",
                Late("split:parser"), Late("split:main")),
        Command("collections", "", "list collections",
                Late("lists:collections_parser"), Late("lists:collections")),
        Command("models", "", "list ranking models, or a paper's settings (--profile)",
                Late("models:parser"), Late("models:main")),
        Command("settings", "", "list settings with type, default and Hugging Face name",
                Late("lists:settings_parser"), Late("lists:settings")),
        Command("measures", "", "list measures and their syntax",
                Late("lists:measures_parser"), Late("lists:measures")),
        Command("completion", "SHELL", "print the completion of commands for bash or zsh",
                Late("completion:parser"), Late("completion:main")),
    ),
    "run": (
        Command("sweeps", "", "list sweeps with their questions",
                Late("lists:sweeps_parser"), Late("lists:sweep_files")),
        Command("run", "SWEEP ...", "run a sweep by name, or from a .toml or .py file",
                Late("run:parser"), Late("run:main")),
        Command("status", "DIR", "show the progress of a sweep",
                Late("status:parser"), Late("status:main")),
        Command("check", "MODULE:CLASS", "run the contract tests on your own model",
                Late("check:parser"), Late("check:main")),
        Command("teach", "MODEL", "score training candidates with a teacher",
                Late("teach:parser"), Late("teach:main")),
        Command("cluster-files", "DIR", "write files for Ray, Slurm and Kubernetes",
                Late("cluster_files:parser"), Late("cluster_files:main")),
    ),
    "look": (
        Command("report", "DIR", "write a sweep's report again and print its table",
                Late("report:parser"), Late("report:main")),
        Command("compare", "SYSTEM ...", "test the differences of any runs or per-query values",
                Late("compare.command:parser"), Late("compare.command:main")),
        Command("measure", "RUN", "print the measures of one run (--qrels)",
                Late("measure:parser"), Late("measure:main")),
        Command("design", "PILOT", "plan the seeds and queries of the next comparison",
                Late("design:parser"), Late("design:main")),
        Command("derive", "DIR", "re-aggregate saved chunk scores, without a GPU",
                Late("derive:parser"), Late("derive:main")),
        Command("latency", "DIR", "measure milliseconds, tokens and memory of a query",
                Late("latency:parser"), Late("latency:main")),
        Command("ui", "DIR", "open a sweep in the MLflow UI",
                Late("mlflow_commands:ui_parser"), Late("mlflow_commands:ui")),
    ),
    "use": (
        Command("export", "DIR", "write the winner's model as a folder (--to FOLDER)",
                Late("export:parser"), Late("export:main")),
        Command("rerank", "FOLDER", "rerank a run with an exported model",
                Late("rerank:parser"), Late("rerank:main")),
    ),
    "keep": (
        Command("storage", "DIR", "list the contents of a storage, or remove unused ones",
                Late("storage:parser"), Late("storage:main")),
        Command("bundle", "DIR", "write a sweep or a comparison as one file (--to)",
                Late("bundling:parser"), Late("bundling:main")),
        Command("verify", "FILE.zip", "recompute every number of a bundle from its runs",
                Late("bundling:verify_parser"), Late("bundling:verify")),
        Command("sync", "DIR", "upload missing trials to MLflow",
                Late("mlflow_commands:sync_parser"), Late("mlflow_commands:sync")),
    ),
}  # fmt: skip
"""{what a user does: its commands}; this is all that a new command adds beside its file."""
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}
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
