"""`python -m sweeps report DIR`: write the report of a sweep again from what is on disk."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from sweeps.report.build import write_report


def main(argv: Sequence[str]) -> int:
    """Write the report of the named sweep folder and print what it found; exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m sweeps report", description=main.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of one sweep")
    command = shlex.join(["python", "-m", "sweeps", "report", *argv])
    print(write_report(parser.parse_args(argv).folder, command).text, end="")
    return 0
