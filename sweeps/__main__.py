"""`ranksweep`, or `python -m sweeps`: what can be done beside running a sweep's file."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from rank_core.errors import unknown
from sweeps.plan.command_line import heed_interrupts, run_command

COMMANDS = {
    "run": ("sweeps.commands.run:main", "SWEEP ...", "a sweep by name, or in a .toml or .py file"),
    "report": (
        "sweeps.commands.report:main",
        "DIR",
        "aggregate seeds, test differences, write DIR/report and print the table",
    ),
    "status": (
        "sweeps.commands.status:main",
        "DIR",
        "how far a running, killed or finished sweep is",
    ),
    "design": (
        "sweeps.commands.design:main",
        "PILOT",
        "plan seeds and queries of the next comparison from a pilot (--delta .01)",
    ),
    "derive": (
        "sweeps.commands.derive:main",
        "DIR",
        "other aggregations, fewer chunks, coarser strides from kept chunk scores",
    ),
    "export": (
        "sweeps.commands.export:main",
        "DIR",
        "write the winner's model as a folder that others load (--to FOLDER)",
    ),
    "bundle": (
        "sweeps.commands.bundle.command:main",
        "DIR",
        "one file with runs, values, report and checksums (--to FILE.zip)",
    ),
    "verify": (
        "sweeps.commands.bundle.verify:main",
        "FILE.zip",
        "recompute every number of such a file from its runs",
    ),
    "rerank": (
        "sweeps.commands.rerank:main",
        "FOLDER",
        "rerank a run by an exported model (--collection X --run IN --out OUT)",
    ),
    "ui": (
        "sweeps.commands.mlflow_commands:ui",
        "DIR",
        "open the sweep's MLflow view on this machine (Ctrl-C ends it)",
    ),
    "sync": (
        "sweeps.commands.mlflow_commands:sync",
        "DIR",
        "send what MLflow has not taken yet",
    ),
    "compare": (
        "sweeps.commands.compare.command:main",
        "SYSTEM ..",
        "the same tested table for anybody's runs or per-query values",
    ),
    "settings": (
        "sweeps.commands.lists:settings",
        "",
        "every setting: type, default, what it is, what Hugging Face calls it",
    ),
    "collections": ("sweeps.commands.lists:collections", "", "every collection that has a name"),
    "sweeps": ("sweeps.commands.lists:sweep_files", "", "every sweep and its question"),
    "measures": ("sweeps.commands.lists:measures", "", "every measure and how it is written"),
    "models": (
        "sweeps.commands.models:main",
        "",
        "the zoo: every ranking system, its paper and size (--backbone B); or --profile P",
    ),
    "prepare": (
        "sweeps.commands.prepare:main",
        "",
        "make a collection's tokens and training rows ahead of a sweep, on every node",
    ),
    "split": (
        "sweeps.commands.split:main",
        "",
        "train, dev and test, or folds, from one file of judgments, by a hash of the queries",
    ),
    "cluster-files": (
        "sweeps.commands.cluster_files:main",
        "DIR",
        "the files of Ray clusters, Slurm and Kubernetes, and the code that nodes run",
    ),
    "doctor": (
        "sweeps.commands.doctor.command:main",
        "",
        "examine the environment and a collection (--collection X) before a sweep",
    ),
}
"""What a command runs, what it takes, and what it does. Its module is imported when it is asked
for: none waits for the libraries of another."""


def script() -> int:
    """The console script `ranksweep`; returns the exit code."""
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
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
    command = getattr(import_module(module), function)
    heed_interrupts()
    return int(command(argv[1:]))


def _version() -> str:
    try:
        return version("ranksweep")
    except PackageNotFoundError:
        return "of a checkout that is not installed"


def usage() -> str:
    """The commands, a line each."""
    lines = [f"  {f'{name} {takes}':<18}{does}" for name, (_, takes, does) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ranksweep COMMAND ...    (or python -m sweeps COMMAND ...)",
            "",
            *lines,
            "",
            "DIR is a sweep's folder or URI, for example results/window_stride/python-docs.",
            "COMMAND --help says more; --version says which ranksweep this is.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
