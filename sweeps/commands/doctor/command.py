"""`ranksweep doctor`: environment and data, or the GPU of this machine."""

from collections.abc import Sequence
from pathlib import Path

from rank_core.errors import BadInput
from sweeps.commands.doctor.gpu_checks import check_gpu
from sweeps.plan.flags import add_flags
from sweeps.terminal.command_line import Need, Parser, needing

OF_DATA = ("collection", "fields", "backbone")


def main(argv: Sequence[str]) -> int:
    """Examine the environment and a collection before a sweep, or check a GPU; exit code 2 if
    there are errors."""
    arguments = parser().parse_intermixed_args(list(argv))
    if arguments.gpu:
        if arguments.minutes is not None and not arguments.minutes > 0:
            raise BadInput(f"--minutes must be above 0, got {arguments.minutes:g}")
        return check_gpu(arguments.json or Path("gpu-checks.json"), arguments.minutes)
    # Not needed by --gpu, which runs with torch alone.
    from sweeps.commands.doctor.examination import examine

    return examine(arguments)


def parser() -> Parser:
    """The arguments and flags of `ranksweep doctor`."""
    parser = Parser("ranksweep doctor", main.__doc__)
    add_flags(parser, OF_DATA)
    add = parser.add_argument
    gpu = add(
        "--gpu", action="store_true", help="check this machine's GPU; needs pytest and ten minutes"
    )
    needing(gpu, *(Need(name, without=True) for name in (*OF_DATA, "settings")))
    minutes = "with --gpu: stop after N minutes, skipping the remaining checks"
    needing(add("--minutes", metavar="N", type=float, help=minutes), Need("gpu"))
    kept = "with --gpu: file for the results (default: gpu-checks.json)"
    needing(add("--json", metavar="FILE", type=Path, help=kept), Need("gpu"))
    what = "the sweep to examine for, such as chunk_size or my_sweep.toml, and settings"
    add("settings", nargs="*", metavar="SWEEP section.setting=value", help=what)
    return parser
