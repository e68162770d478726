"""The flags that all sweeps share, as argparse knows them; `command_line` checks what they say."""

import argparse
from typing import Any, NoReturn

from rank_core.checkpoints.checkpoint import Cadence
from rank_core.errors import BadInput
from sweeps.plan.profiles import PROFILES
from sweeps.plan.search_options import SEARCHES

ENGINES = ("ray", "local")


class _Once(argparse.Action):
    """A flag given twice contradicts itself, like a setting given twice."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("given", set())
        if self.dest in given:
            parser.error(f"a flag is given once, got {option_string} twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Bad usage is bad input like any other: one message, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; `{self.prog} --help` lists what is known")


def sweep_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """The parser of a sweep's command line, with a help text on every flag."""
    parser = _Parser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.register("action", None, _Once)
    _add_what_runs(parser)
    _add_how_it_runs(parser)
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print the plan and launch nothing")
    add("--smoke-test", action="store_true", help="the whole path on very little, in seconds")
    add("--confirm", action="store_true", help="train the winner on dev again, with fresh seeds")
    add("settings", nargs="*", metavar="section.setting=value", help="swept settings take a,b,c")
    return parser


def _add_what_runs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--collection", metavar="NAME|DIR", help="a known collection or a folder")
    add("--backbone", metavar="ID|DIR", help="tiny, a Hugging Face id, or a folder")
    add("--model", metavar="NAME", help="an entry of MODELS")
    add("--profile", metavar="NAME", help="settings of a paper: " + ", ".join(PROFILES))
    add(
        "--init-from",
        metavar="TRIAL",
        help="start from a trial that kept its weights; of a cell, from the one of the same seed",
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seeds", metavar="1,2,3", help="the seeds of every cell")
    seeds.add_argument("--num-seeds", metavar="N", type=int, help="seeds 1 .. N (default 3)")
    add("--search", metavar="NAME", help="which configurations run: " + ", ".join(SEARCHES))
    add("--num-configs", metavar="N", type=int, help="how many of them beside the baseline")
    add("--search-seed", metavar="N", type=int, help="draws configurations (default 1)")
    add("--race-delta", metavar="D", type=float, help="difference that a race ignores (default 0)")
    add("--asha-eta", metavar="N", type=int, help="one of N goes on from each rung (default 3)")
    add("--asha-min-epochs", metavar="N", type=int, help="of the first rung at least (default 1)")


def _add_how_it_runs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--storage", metavar="DIR|URI", default="results", help="where results go (default results)"
    )
    add("--tracking-uri", metavar="URI", help="MLflow; default sqlite in the storage; none: off")
    add("--alpha", metavar="A", type=float, default=0.05, help="level of the tests (default .05)")
    add(
        "--engine",
        metavar="NAME",
        default=ENGINES[0],
        help="ray, or local: in this process, one trial after the other, for a debugger",
    )
    add("--num-workers", metavar="N", type=int, default=1, help="workers of one trial (default 1)")
    add(
        "--cpus-per-worker",
        metavar="N",
        type=int,
        default=1,
        help="threads of a worker (default 1)",
    )
    add(
        "--checkpoint-minutes",
        metavar="M",
        type=float,
        default=Cadence().minutes,
        help="time between checkpoints of a running trial (default 1; 0: none)",
    )
    add(
        "--checkpoint-gib",
        metavar="G",
        type=float,
        default=0.0,
        help="most that checkpoints may take (default: what half the free disk holds)",
    )
    add("--gpus-per-worker", metavar="X", type=float, help="default 1 where there are GPUs, else 0")
    add("--max-gpu-hours", metavar="H", type=float, help="of all trials; core-hours without a GPU")
    add("--deadline", metavar="WHEN", help="when to be done: 2h30m, or 2026-11-21T18:00")
