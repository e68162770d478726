"""The commands of `ranksweep`; `python -m sweeps` where it is not installed."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from rank_core.errors import unknown
from sweeps.terminal.command_line import heed_interrupts, run_command

COMMANDS = {
    "run": ("run:main", "SWEEP ...", "run a sweep by name, or from a .toml or .py file"),
    "report": ("report:main", "DIR", "write a sweep's report again and print its table"),
    "status": ("status:main", "DIR", "show the progress of a sweep (--watch)"),
    "design": ("design:main", "PILOT", "plan the seeds and queries of the next comparison"),
    "derive": ("derive:main", "DIR", "re-aggregate saved chunk scores, without a GPU"),
    "export": ("export:main", "DIR", "write the winner's model as a folder (--to FOLDER)"),
    "bundle": ("bundle:main", "DIR", "write a sweep and all its values as one file (--to)"),
    "verify": ("bundle:verify", "FILE.zip", "recompute every number of a bundle from its runs"),
    "board": ("board.command:main", "FOLDER", "write a leaderboard page from verified bundles"),
    "rerank": ("rerank:main", "FOLDER", "rerank a run with an exported model"),
    "ui": ("mlflow_commands:ui", "DIR", "open a sweep in the MLflow UI"),
    "sync": ("mlflow_commands:sync", "DIR", "upload missing trials to MLflow"),
    "storage": ("storage:main", "DIR", "list the contents of a storage, remove unused ones"),
    "compare": (
        "compare.command:main",
        "SYSTEM ..",
        "significance tests for any runs or per-query scores",
    ),
    "measure": ("measure:main", "RUN", "print the measures of one run (--qrels)"),
    "check": ("check:main", "MODULE:CLASS", "run the contract tests on your own model"),
    "settings": ("lists:settings", "", "list settings with type, default and Hugging Face name"),
    "collections": ("lists:collections", "", "list collections"),
    "sweeps": ("lists:sweep_files", "", "list sweeps with their questions"),
    "measures": ("lists:measures", "", "list measures and their syntax"),
    "models": ("models:main", "", "list ranking models, or a paper's settings (--profile)"),
    "split": ("split:main", "", "divide judged queries into train, dev and test, or folds"),
    "cluster-files": ("cluster_files:main", "DIR", "write files for Ray, Slurm and Kubernetes"),
    "doctor": ("doctor.command:main", "", "check the environment and a collection before a sweep"),
}
"""{command: (its function in `sweeps.commands`, its argument, its description)}. A module is
imported when its command is called, so that no command waits for the libraries of another."""


def script() -> int:
    """The console script `ranksweep`; returns the exit code."""
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    return run_command(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"ranksweep {_version()}")
        return 0
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    module, _, function = COMMANDS[argv[0]][0].partition(":")
    command = getattr(import_module(f"sweeps.commands.{module}"), function)
    heed_interrupts()
    return int(command(argv[1:]))


def _version() -> str:
    try:
        return version("ranksweep")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"


def usage() -> str:
    """The help text: a line for each command."""
    lines = [f"  {f'{name} {takes}':<20}{does}" for name, (_, takes, does) in COMMANDS.items()]
    commands = "\n".join(lines)
    return f"""usage: ranksweep COMMAND ...

{commands}

DIR is a sweep's folder or URI, for example results/window_stride/python-docs.
COMMAND --help describes a command; --version prints the version."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
