"""The command line that all sweeps share, and the cluster they run on."""

import argparse
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rank_core.checkpoints import Cadence
from rank_core.checkpoints.weights import cell_trials
from rank_core.data.readers.records import parse_fields
from rank_core.data.transforms.expression import with_fields, with_folder
from rank_core.errors import BadInput, shown, unknown
from rank_core.settings.config import parse_setting, setting_types
from sweeps.plan.budget import Budget, parse_budget
from sweeps.plan.command_line import INTERPOLATE, Parser
from sweeps.plan.profiles import PROFILES, profile_settings
from sweeps.plan.search_options import SEARCHES, SearchSettings, search_settings
from sweeps.plan.search_space import Range, parse_range

ENGINES = ("ray", "local")
DEFAULT_NUM_SEEDS = 3
MOST_SEEDS, MOST_WORKERS = 1_000, 10_000
MOST_POINTS = 10_000
"""The limit of a grid: more would take hours to plan."""
OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")  # commas of a|debias(seed=1,parts=3) are its own
LISTS = tuple(name for name, kind in setting_types().items() if kind == tuple[str, ...])
"""Settings whose value is a list: their commas do not make a grid."""
FOLDERS = ("collection", "model.backbone")  # settings that may name a folder
BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")  # written by `ray up` on the head
FILES = ("training.init_from", "training.teacher", "training.negatives_from")
"""Settings that name files or folders of files."""
PREFIX, PREFIX_VARIABLE = "rank", "RANKSWEEP_EXPERIMENT_PREFIX"
FLAG_SETTINGS = {
    "collection": "collection",
    "backbone": "model.backbone",
    "model": "model.name",
    "init_from": "training.init_from",
}
"""{flag: the setting that it sets}"""
SEEDS = {"seeds", "num_seeds"}
SEARCH = {
    *("search", "num_configs", "search_seed"),
    *("race_delta", "halving_eta", "halving_min_epochs"),
}
NOT_CONFIRMED = (*("backbone", "model", "init_from", "profile"), *sorted(SEARCH))
"""Flags that would change the confirmed cells."""


@dataclass(frozen=True)
class Options:
    """The options of a command, checked as far as possible without reading data."""

    collection: str | None
    backbone: str | None
    model: str | None
    init_from: str | None  # a finished trial's folder, its weights, or a cell
    profile: str
    seeds: tuple[int, ...]  # empty: fresh ones, for a confirmation
    num_seeds: int | None
    storage: str
    tracking_uri: str | None
    experiment_prefix: str  # of MLflow's experiments
    alpha: float
    interpolate: str
    engine: str
    num_workers: int
    cpus_per_worker: int
    gpus_per_worker: float | None
    budget: Budget
    checkpoint_minutes: float  # 0: no checkpoints
    checkpoint_gib: float  # of all running trials; 0: half the free disk
    weights_gib: float  # of weights with training.keep_weights=best
    dry_run: bool
    smoke_test: bool
    confirm: bool
    settings: dict[str, Any]  # dotted setting: one value
    grids: dict[str, list[Any]]  # dotted setting: several values
    ranges: dict[str, Range]  # dotted setting: lo..hi
    search: SearchSettings
    code: tuple[str, ...] = ()  # files and folders outside the package that workers need

    @property
    def gpu_share(self) -> float:
        """The share of the memory of its GPU that a worker may fill."""
        return min(1.0, self.gpus_per_worker or 1.0)


@dataclass(frozen=True)
class Preset:
    """The flags of a sweep's own file; those of the command line override them."""

    flags: Mapping[str, Any] = field(default_factory=dict)  # by their names within `parse`
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def fill(self, arguments: argparse.Namespace) -> None:
        """Set the missing flags, except those of a search or of seeds where the command line names
        another."""
        flags = vars(arguments).get("given", set())
        flags = flags | SEEDS if arguments.smoke_test else flags
        for group, names in ((SEEDS, SEEDS), ({"search"}, SEARCH)):
            flags = flags | names if flags & group else flags
        for name in self.flags.keys() - flags:
            setattr(arguments, name, self.flags[name])


def parse(
    argv: Sequence[str], *, prog: str, description: str, preset: Preset | None = None
) -> Options:
    """The options of a command and of its sweep's file."""
    parser = _parser(prog, description)
    # Settings may stand before, between and after the flags.
    arguments = parser.parse_intermixed_args(list(argv))
    settings, grids, ranges = _settings(arguments.settings)
    if arguments.confirm:
        _check_confirmation(arguments, [*settings, *grids, *ranges])
    elif preset:
        preset.fill(arguments)
        own = {name: r for name, r in preset.ranges.items() if name not in settings | grids}
        ranges = own | ranges
    _check_numbers(arguments)
    seeds = _seeds(arguments)
    budget = parse_budget(arguments.max_gpu_hours, arguments.deadline, time.time())
    checked: dict[str, Any] = dict(
        collection=named_collection(arguments.collection, arguments.fields),
        backbone=absolute_folder(arguments.backbone),
        init_from=_files(arguments.init_from) if arguments.init_from else None,
        profile=_profile(arguments.profile),
        seeds=seeds,
        experiment_prefix=_experiment_prefix(arguments.experiment_prefix),
        engine=_engine(arguments),
        budget=budget,
        settings=settings,
        grids=grids,
        ranges=ranges,
        search=search_settings(
            arguments.search,
            arguments.num_configs,
            arguments.search_seed,
            arguments.race_delta,
            eta=arguments.halving_eta,
            min_epochs=arguments.halving_min_epochs,
            ranges=bool(ranges),
            num_seeds=len(seeds),
        ),
    )
    names = {item.name for item in fields(Options)}
    return Options(**{k: v for k, v in vars(arguments).items() if k in names} | checked)


def _check_numbers(arguments: argparse.Namespace) -> None:
    _check_range("--num-workers", arguments.num_workers, MOST_WORKERS)
    _check_range("--cpus-per-worker", arguments.cpus_per_worker, MOST_WORKERS)
    if not 0 < arguments.alpha < 1:
        raise BadInput(f"0 < --alpha < 1 must hold, got {arguments.alpha}")
    for name in ("checkpoint_minutes", "checkpoint_gib", "weights_gib"):
        if not 0 <= vars(arguments)[name] < float("inf"):
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} >= 0 must hold, got {vars(arguments)[name]}")
    gpus = arguments.gpus_per_worker
    if gpus is not None and not (0 <= gpus <= 1 or gpus in range(MOST_WORKERS)):
        raise BadInput(f"--gpus-per-worker must be 0, a fraction or a whole number, got {gpus}")


def cluster_address() -> str | None:
    """The cluster to join; None for this machine alone."""
    return os.environ.get("RAY_ADDRESS") or ("auto" if BOOTSTRAP.expanduser().exists() else None)


def _parser(prog: str, description: str) -> argparse.ArgumentParser:
    """The parser of a sweep's command line. Flags with a value are described by a noun, switches by
    a verb."""
    parser = Parser(prog, description, usage=f"{prog} [flags] [section.setting=value ...]")
    _add_what_runs(parser.add_argument_group("what runs"))
    _add_search(parser.add_argument_group("seeds and search"))
    _add_results(parser.add_argument_group("results"))
    _add_resources(parser.add_argument_group("engine and resources"))
    add = parser.add_argument_group("instead of the whole sweep").add_argument
    add("--dry-run", action="store_true", help="print the plan and launch nothing")
    add("--smoke-test", action="store_true", help="run the whole path on little data, in seconds")
    add("--confirm", action="store_true", help="train the winner on dev again with fresh seeds")
    return parser


def _add_what_runs(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--collection", metavar="NAME|DIR", help="collection: a name or a folder")
    add("--fields", metavar="THEIRS=OURS,...", help="field names of a folder: id=doc_id,body=text")
    add("--backbone", metavar="ID|DIR", help="encoder: tiny, a Hugging Face id or a folder")
    add("--model", metavar="NAME", help="ranking model (ranksweep models lists them)")
    add("--profile", metavar="NAME", help="settings of a paper: " + ", ".join(PROFILES))
    add(
        "--init-from",
        metavar="TRIAL",
        help="trial whose weights to start from; of a cell, its trial with the same seed",
    )
    add(
        "settings",
        nargs="*",
        metavar="section.setting=value",
        help="settings (ranksweep settings lists them); swept ones take a,b,c",
    )


def _add_search(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    seeds = group.add_mutually_exclusive_group()
    seeds.add_argument("--seeds", metavar="1,2,3", help="seeds of every cell")
    seeds.add_argument(
        "--num-seeds", metavar="N", type=int, help=f"seeds 1 to N (default: {DEFAULT_NUM_SEEDS})"
    )
    add("--search", metavar="NAME", help=f"{', '.join(SEARCHES)} (default: grid)")
    add("--num-configs", metavar="N", type=int, help="configurations beside the baseline")
    add("--search-seed", metavar="N", type=int, help="seed of the search (default: 1)")
    add("--race-delta", metavar="D", type=float, help="difference a race ignores (default: 0)")
    add("--halving-eta", metavar="N", type=int, help="one of N passes each rung (default: 3)")
    add("--halving-min-epochs", metavar="N", type=int, help="epochs of rung 1 (default: 1)")


def _add_results(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--storage",
        metavar="DIR|URI",
        default="results",
        help="folder of the results (default: %(default)s)",
    )
    add("--tracking-uri", metavar="URI", help="MLflow, or none (default: sqlite in the storage)")
    add(
        "--alpha",
        metavar="A",
        type=float,
        default=0.05,
        help="significance level (default: %(default)s)",
    )
    add(
        "--experiment-prefix",
        metavar="NAME",
        help=f"prefix of MLflow's experiments (default: {PREFIX}, or ${PREFIX_VARIABLE})",
    )
    add(
        "--interpolate",
        choices=INTERPOLATE,
        default=INTERPOLATE[0],
        help="systems also shown interpolated with the first stage; best: the baseline and the "
        "best on dev (default: %(default)s)",
    )
    add(
        "--weights-gib",
        metavar="G",
        type=float,
        default=10.0,
        help="limit of kept weights, the best on dev first (default: %(default)g)",
    )


def _add_resources(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--engine",
        metavar="NAME",
        default=ENGINES[0],
        help="ray, or local: one trial at a time in this process (default: %(default)s)",
    )
    for flag, text in (("--num-workers", "workers of a trial"), ("--cpus-per-worker", "threads")):
        add(flag, metavar="N", type=int, default=1, help=f"{text} (default: %(default)s)")
    add("--gpus-per-worker", metavar="X", type=float, help="default: 1 where there are GPUs")
    add(
        "--checkpoint-minutes",
        metavar="M",
        type=float,
        default=Cadence().minutes,
        help="time between checkpoints (default: %(default)g; 0: none)",
    )
    add(
        "--checkpoint-gib",
        metavar="G",
        type=float,
        default=0.0,
        help="limit of all checkpoints (default: half the free disk)",
    )
    add(
        "--max-gpu-hours",
        metavar="H",
        type=float,
        help="budget over all commands; core-hours without a GPU",
    )
    add("--deadline", metavar="WHEN", help="end of the sweep: 2h30m or 2026-11-21T18:00")


def named_collection(name: str | None, fields: str | None) -> str | None:
    """The collection of a setting, with an absolute folder and the names of `--fields`."""
    if fields is None:
        return absolute_folder(name)
    if name is None:
        raise BadInput(
            "--fields names columns of a collection's files: it needs --collection DIR; in a file "
            'write collection = "DIR|fields(THEIRS=OURS,...)"'
        )
    parse_fields(fields)
    return absolute_folder(with_fields(name, fields))


def absolute_folder(name: str | None, start: str = "") -> str | None:
    """A folder as an absolute path, also within a collection's expression, because trials run in
    other working directories. Relative paths start at `start` (default: the working directory)."""
    if name is None:
        return None
    folder = name.partition("|")[0].strip()
    path = os.path.abspath(os.path.join(start, folder))
    return with_folder(name, path) if folder and os.path.isdir(path) else name


def _files(names: str, start: str = "") -> str:
    """Files and folders, separated by commas, as absolute paths."""
    paths = {name: os.path.abspath(os.path.join(start, name)) for name in names.split(",")}
    return ",".join(path if _exists(path) else name for name, path in paths.items())


def _exists(name: str) -> bool:
    return os.path.exists(name) or bool(cell_trials(name))


def _profile(name: str | None) -> str:
    profile_settings(name or "clean")
    return name or "clean"


def absolute(setting: str, value: str, start: str = "") -> str:
    """The value of a setting, with absolute paths where it names folders or files."""
    if setting in FILES:
        return _files(value, start)
    return str(absolute_folder(value, start)) if setting in FOLDERS else value


def _check_range(flag: str, value: int, most: int) -> None:
    if value < 1:
        raise BadInput(f"{flag} >= 1 must hold, got {value}")
    if value > most:
        raise BadInput(f"{flag} <= {most:,} must hold, got {value}")


def _experiment_prefix(flag: str | None) -> str:
    prefix = flag if flag is not None else os.environ.get(PREFIX_VARIABLE) or PREFIX
    if not re.fullmatch(r"\w[\w. -]*(/\w[\w. -]*)*", prefix):
        source = "--experiment-prefix" if flag is not None else PREFIX_VARIABLE
        raise BadInput(
            f"{source} must be letters, digits, spaces and _ . - with / between its parts, such as "
            f"team/longdoc, got {shown(prefix)}"
        )
    return prefix


def _engine(arguments: argparse.Namespace) -> str:
    name = str(arguments.engine)
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "local" and arguments.num_workers > 1:
        raise BadInput(
            "--engine local runs a trial in this process alone, got --num-workers "
            f"{arguments.num_workers}; --engine ray starts several workers"
        )
    return name


def _check_confirmation(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Refuse settings of a confirmation, which trains two unchanged cells."""
    flags = [
        f"--{name.replace('_', '-')}"
        for name in NOT_CONFIRMED
        if getattr(arguments, name) is not None
    ]
    refused = [*flags, *["--smoke-test"] * arguments.smoke_test, *(f"{name}=" for name in settings)]
    if refused:
        raise BadInput(
            "--confirm uses all settings of the finished sweep and accepts only --collection, "
            "--storage, --seeds, --num-seeds, --engine, --num-workers, --cpus-per-worker, "
            "--gpus-per-worker, --checkpoint-minutes, --checkpoint-gib, --weights-gib, "
            "--max-gpu-hours, --deadline, --tracking-uri, --experiment-prefix and --dry-run, got "
            f"{', '.join(refused)}"
        )


def _seeds(arguments: argparse.Namespace) -> tuple[int, ...]:
    listed, number = arguments.seeds, arguments.num_seeds
    if listed is None:
        if number is None:
            number = 2 if arguments.smoke_test else DEFAULT_NUM_SEEDS
        _check_range("--num-seeds", number, MOST_SEEDS)
        return () if arguments.confirm else tuple(range(1, number + 1))
    try:
        seeds = tuple(parse_setting("seed", part) for part in listed.split(","))
    except BadInput:
        text = shown(listed)
        raise BadInput(f"--seeds must be whole numbers such as 1,2,3, got {text}") from None
    if len(set(seeds)) < len(seeds):
        raise BadInput(f"--seeds must differ from each other, got {shown(listed)}")
    _check_range("the number of --seeds", len(seeds), MOST_SEEDS)
    return seeds


def _settings(
    words: Sequence[str],
) -> tuple[dict[str, Any], dict[str, list[Any]], dict[str, Range]]:
    """Settings with one value, with several values, and with a range."""
    settings: dict[str, Any] = {}
    grids: dict[str, list[Any]] = {}
    ranges: dict[str, Range] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise BadInput(f"a setting is written section.setting=value, got {shown(word)}")
        if name == "seed":
            raise BadInput("seeds must be given with --seeds or --num-seeds, not with seed=")
        if name in settings or name in grids or name in ranges:
            raise BadInput(f"a setting is given once, got {name} twice")
        texts = [text] if name in LISTS else OUTSIDE_BRACKETS.split(text)
        if span := parse_range(name, text):
            ranges[name] = span
        elif len(texts) > 1:
            grids[name] = [parse_setting(name, absolute(name, part)) for part in texts]
        else:
            settings[name] = parse_setting(name, absolute(name, text))
    return settings, grids, ranges
