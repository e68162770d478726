"""`python -m sweeps`: what can be done with a sweep's folder after its command has ended."""

import sys
from collections.abc import Callable, Sequence

from rank_core.errors import BadInput, unknown
from sweeps.commands import derive, design, doctor, models, report, status
from sweeps.commands.compare import command as compare_runs
from sweeps.commands.mlflow_commands import sync, ui

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "report": report.main,
    "status": status.main,
    "design": design.main,
    "derive": derive.main,
    "compare": compare_runs.main,
    "doctor": doctor.main,
    "models": models.main,
    "ui": ui,
    "sync": sync,
}
USAGE = """usage: python -m sweeps COMMAND ...

  report DIR       aggregate seeds, test differences, write DIR/report and print the table
  status DIR       how far a running, killed or finished sweep is (DIR may be a URI)
  design DIR       plan seeds and queries of the next comparison from a pilot (--delta .01)
  derive DIR       other aggregations, fewer chunks, coarser strides from kept chunk scores
  ui DIR           open the sweep's MLflow view on this machine (Ctrl-C ends it)
  sync DIR         send what MLflow has not taken yet
  compare RUN ...  the same tested table for any TREC runs (--qrels FILE)
  models           the zoo: every ranking system, its paper, size and settings (--backbone B)
  doctor           examine the environment and a collection (--collection X) before a sweep

DIR is a sweep's folder, for example results/window_stride. COMMAND --help says more.
"""


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if argv else 2
    try:
        if argv[0] not in COMMANDS:
            raise unknown("command", argv[0], COMMANDS)
        return COMMANDS[argv[0]](argv[1:])
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
