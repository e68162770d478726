"""The flags that all sweeps share, each declared once: parser, help, range, and place in a sweep's
file come from here. Defaults are those of `Options` and `SearchSettings`; `options.py` checks what
several flags decide together."""

import argparse
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rank_core.checkpoints import Cadence
from rank_core.errors import BadInput, unknown
from sweeps.plan.machines import GPUS
from sweeps.plan.profiles import PROFILES
from sweeps.plan.search_options import SEARCHES
from sweeps.store.test_options import CORRECT_OVER, USUAL
from sweeps.store.trial_costs import COST_UNITS
from sweeps.terminal.command_line import (
    CLUSTERS_HELP,
    CLUSTERS_OF,
    CORRECT_OVER_HELP,
    INTERPOLATE,
    VERBOSE,
    Need,
    needing,
)

ENGINES = ("ray", "local")
MOST_SEEDS, MOST_WORKERS, MOST_CONFIGS = 1_000, 10_000, 100_000
PREFIX_VARIABLE = "RANKSWEEP_EXPERIMENT_PREFIX"
PREFIX_HELP = f"none, or ${PREFIX_VARIABLE}"
DEFAULT_BACKBONE = (
    "a Hugging Face id or a folder (default: all-MiniLM-L6-v2; over python-docs tiny-docs)"
)
SEARCH_HELP = (
    f"{', '.join(SEARCHES)} (default: grid), or a sampler of Optuna, QMCSampler(scramble=True); "
    "asha needs Ray; which trials it stops is not reproducible"
)
OBJECTIVE_HELP = (
    "what the search seeks and the report weighs up: the measure, then costs "
    f"({', '.join(COST_UNITS)})"
)
AT_MOST_HELP = (
    "limits of costs, such as tokens_per_document=600, for the search and the choice; "
    "configurations that read more tokens do not run"
)
COST_WEIGHT_HELP = (
    "what one unit of a cost counts in the choice, in units of the measure: ms_per_query=0.001"
)
SEARCH_FROM_HELP = (
    "finished sweeps with the same collection and settings, whose trials begin the search"
)
INTERPOLATE_HELP = (
    "add rows interpolated with the first stage; best: those of the baseline and the best on dev"
)
REPLACE_HELP = "overwrite the sweep in this folder, which has other settings; its trials are kept"
MINUTES_HELP = "minutes between checkpoints (default: %(default)g; 0: no checkpoints)"
WORKERS_HELP = (
    "workers per trial, or a range such as 1-4: more for long trials, and a trial goes on with "
    "fewer or more where nodes leave or join"
)
SLOTS_HELP = "maximum number of trials at a time; a cluster may add its workers later"
FOR_HELP = (
    f"with --dry-run: plan for these GPUs ({', '.join(GPUS)}), which need not be here; "
    "@2.5 is the price of a GPU-hour"
)
HOURS_HELP = "budget in GPU-hours (core-hours without a GPU) over all commands of the sweep"


@dataclass(frozen=True)
class Flag:
    """A flag. A `kind` of bool is a switch, described by a verb; others by a noun."""

    flag: str
    metavar: str
    help: str
    kind: type = str
    default: Any = None
    least: float = 0
    most: float = math.inf
    inside: bool = False  # `least` and `most` are excluded
    choices: tuple[str, ...] | None = None
    confirmed: bool = True  # --confirm accepts it: it changes no confirmed cell
    key: str = ""  # in the table `search` of a sweep's file
    needs: tuple[Need, ...] = ()  # to have an effect
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # it needs too: any of
    may_be_empty: bool = False
    dest: str = ""  # its name in Python where the flag's is a word of Python

    @property
    def name(self) -> str:
        """The name in Python: `num_seeds`."""
        return self.dest or self.flag.removeprefix("--").replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declares the flag in a parser."""
        text = self.help
        if self.default is not None and self.kind is not bool and "default" not in text:
            text += " (default: %(default)s)"
        if self.kind is bool:
            action = parser.add_argument(self.flag, dest=self.name, action="store_true", help=text)
        else:
            action = parser.add_argument(
                self.flag,
                dest=self.name,
                metavar=None if self.choices else self.metavar,
                type=self.kind,
                default=self.default,
                choices=self.choices,
                help=text,
            )
        needing(action, *self.needs, may_be_empty=self.may_be_empty)

    def check(self, value: float) -> None:
        """Refuses a number out of its range, and one that is none."""
        if not math.isfinite(value):
            raise BadInput(f"{self.flag} must be a finite number, got {value}")
        ends = "" if self.inside else "="
        for law, end, broken in ((">", self.least, value < self.least),
                                 ("<", self.most, value > self.most)):  # fmt: skip
            if broken or (self.inside and value == end):
                raise BadInput(f"{self.flag} {law}{ends} {end:,g} must hold, got {value}")


GROUPS: dict[str, tuple[Flag, ...]] = {
    "what runs": (
        Flag("--collection", "NAME|DIR", "collection: a name or a folder"),
        Flag("--fields", "THEIRS=OURS,...", "field names in a folder's files: id=doc_id,body=text"),
        Flag("--backbone", "ID|DIR", f"encoder: {DEFAULT_BACKBONE}", confirmed=False),
        Flag("--model", "NAME", "ranking model (ranksweep models lists them)", confirmed=False),
        Flag("--profile", "NAME", f"settings of a paper: {', '.join(PROFILES)}", confirmed=False),
        Flag(
            "--init-from",
            "TRIAL",
            "start from the weights of this trial, or of this cell's trial with the same seed",
            confirmed=False,
        ),
        Flag(
            "--test-on",
            "NAME,...",
            "further collections that every trained model ranks, named as for --collection; "
            "NAME:SPLIT for a split other than test",
            confirmed=False,
        ),
    ),
    "seeds and search": (
        Flag("--seeds", "1,2,3", "seeds of every cell"),
        Flag("--num-seeds", "N", "seeds 1 to N (default: 3)", int, least=1, most=MOST_SEEDS),
        Flag("--search", "NAME", SEARCH_HELP, key="name"),
        Flag(
            "--num-configs",
            "N",
            "number of configurations besides the baseline",
            int,
            most=MOST_CONFIGS,
            key="num_configs",
        ),
        Flag(
            "--search-seed",
            "N",
            "random seed of the search itself (default: 1)",
            int,
            least=-math.inf,
            key="seed",
        ),
        Flag(
            "--race-delta",
            "D",
            "differences smaller than D count as ties in a race (default: 0)",
            float,
            key="delta",
        ),
        Flag(
            "--asha-eta",
            "N",
            "keep the best 1/N at each rung (default: 3)",
            int,
            least=2,
            key="eta",
        ),
        Flag(
            "--asha-min-epochs",
            "N",
            "epochs before the first ASHA decision (default: 1)",
            int,
            least=1,
            key="min_epochs",
        ),
        Flag("--objective", "MEASURE,COST,...", OBJECTIVE_HELP, key="objectives"),
        Flag("--at-most", "COST=N,...", AT_MOST_HELP, key="at_most"),
        Flag("--cost-weight", "COST=W,...", COST_WEIGHT_HELP, key="cost_weights"),
        Flag("--search-from", "DIR,...", SEARCH_FROM_HELP, key="start_from"),
    ),
    "results": (
        Flag("--storage", "DIR|URI", "folder of the results", default="results"),
        Flag(
            "--name",
            "NAME",
            "name of the sweep's folder in the storage (default: the name of its question)",
        ),
        Flag("--replace", "", REPLACE_HELP, bool, confirmed=False),
        Flag(
            "--tracking-uri",
            "URI",
            "tracking URI of MLflow, or none (default: SQLite in the storage)",
        ),
        Flag("--alpha", "A", "significance level", float, USUAL.alpha, most=1, inside=True),
        Flag(
            "--correct-over",
            "",
            CORRECT_OVER_HELP,
            default=USUAL.correct_over,
            choices=CORRECT_OVER,
        ),
        Flag(
            "--margin",
            "D",
            "differences up to D of a measure count as practically equal",
            float,
            USUAL.margin,
            most=1,
            inside=True,
        ),
        Flag(
            "--experiment-prefix",
            "NAME",
            f"prefix of the names of MLflow's experiments (default: {PREFIX_HELP})",
            needs=(Need("tracking_uri", ("none",), without=True),),
            may_be_empty=True,
        ),
        Flag("--clusters", CLUSTERS_OF, CLUSTERS_HELP),
        Flag("--verbose", "", VERBOSE, bool, needs=(Need("dry_run", without=True),)),
        Flag("--interpolate", "", INTERPOLATE_HELP, default="best", choices=INTERPOLATE),
        Flag(
            "--weights-gib",
            "G",
            "disk limit for saved weights in GiB; the best on dev are kept",
            float,
            10.0,
            settings={"training.keep_weights": ("best",), "evaluation.folds": (0,)},
        ),
    ),
    "engine and resources": (
        Flag(
            "--engine",
            "",
            "ray, or local: one trial at a time in this process",
            default="ray",
            choices=ENGINES,
        ),
        Flag("--num-workers", "N|N-M", WORKERS_HELP, default="1"),
        Flag(
            "--cpus-per-worker", "N", "CPU threads per worker", int, 1, least=1, most=MOST_WORKERS
        ),
        Flag(
            "--gpus-per-worker",
            "X",
            "GPUs per worker (default: 1 where there are GPUs)",
            float,
            least=-math.inf,
        ),
        Flag(
            "--accelerator",
            "KIND",
            "GPU of the nodes that run trials, by Ray's name, such as A100",
            needs=(Need("engine", ("local",), without=True),),
        ),
        Flag(
            "--max-slots",
            "N",
            SLOTS_HELP,
            int,
            least=1,
            most=MOST_WORKERS,
            needs=(Need("engine", ("local",), without=True),),
        ),
        Flag("--checkpoint-minutes", "M", MINUTES_HELP, float, Cadence().minutes),
        Flag(
            "--checkpoint-gib",
            "G",
            "disk limit of all checkpoints in GiB (default: half the disk)",
            float,
            0.0,
            needs=(Need("checkpoint_minutes", (0,), without=True),),
        ),
        Flag("--max-gpu-hours", "H", HOURS_HELP, float, inside=True),
    ),
    "instead of the whole sweep": (
        Flag("--dry-run", "", "print the plan and launch nothing", bool),
        Flag("--for", "8xH100@2.5,...", FOR_HELP, needs=(Need("dry_run"),), dest="machines"),
        Flag(
            "--prepare",
            "",
            "download and tokenise on every node, then exit (no GPU needed)",
            bool,
            needs=(Need("dry_run", without=True),),
        ),
        Flag(
            "--smoke-test",
            "",
            "run every step on a tiny sample, to test the set-up",
            bool,
            confirmed=False,
        ),
        Flag("--confirm", "", "retrain the best on dev and the baseline with fresh seeds", bool),
    ),
}
"""{title in the help: its flags}"""
FIRST = ("collection", "backbone", "num_seeds", "storage", "dry_run", "machines")
"""What most people need; the help begins with these flags."""
FLAGS = {flag.name: flag for group in GROUPS.values() for flag in group}
SEARCH_FLAGS = {flag.key: flag for flag in FLAGS.values() if flag.key}
"""{key of the table `search` in a sweep's file: its flag}"""
SEARCH = {flag.name for flag in SEARCH_FLAGS.values()}
SEEDS = {"seeds", "num_seeds"}
MODES = [flag.name for flag in GROUPS["instead of the whole sweep"]]
ONCE = ("replace",)
"""Flags of one command alone, which no command that follows repeats."""
NOT_CONFIRMED = [name for name, flag in FLAGS.items() if flag.key or not flag.confirmed]
"""Flags that would change the confirmed cells."""


def help_groups() -> Iterator[tuple[str, list[Flag]]]:
    """The groups of the help, each flag once: those that most people need first."""
    yield "what most people need", [FLAGS[name] for name in FIRST]
    for title, flags in GROUPS.items():
        yield title, [flag for flag in flags if flag.name not in FIRST]


def add_flags(parser: argparse._ActionsContainer, names: Collection[str]) -> None:
    """Declares some of the flags in the parser of another command."""
    for name in names:
        FLAGS[name].add_to(parser)


def written(given: Mapping[str, Any]) -> list[str]:
    """The words of a command line for flags given in Python: `num_seeds=5`, `confirm=True`. None
    is not a flag."""
    words = []
    for name, value in given.items():
        if name not in FLAGS:
            raise unknown("flag of a sweep", name, FLAGS)
        if value is None or value is False:
            continue
        words += (
            [FLAGS[name].flag] if FLAGS[name].kind is bool else [FLAGS[name].flag, _text(value)]
        )
    return words


def _text(value: Any) -> str:
    """`2` for 2.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def check_settings(given: Iterable[str], settings: Mapping[str, Any]) -> None:
    """Refuses a given flag that has no effect with these settings."""
    for flag in (FLAGS[name] for name in given if name in FLAGS):
        for name, values in flag.settings.items():
            if settings[name] not in values:
                needed = " or ".join(map(str, values))
                raise BadInput(f"{flag.flag} needs {name}={needed}, got {name}={settings[name]}")


def check_flags(args: argparse.Namespace, names: Iterable[str] = FLAGS) -> None:
    """Refuses numbers out of their ranges."""
    for name in names:
        if FLAGS[name].kind in (int, float) and vars(args).get(name) is not None:
            FLAGS[name].check(vars(args)[name])
