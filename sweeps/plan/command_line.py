"""The command line that all sweeps share."""

import argparse
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rank_core.checkpoints.chain import cell_trials
from rank_core.data.transforms import base_of, with_base
from rank_core.errors import BadInput, unknown
from rank_core.settings.config import setting_types
from sweeps.plan.budget import Budget, parse_budget
from sweeps.plan.flags import ENGINES, sweep_parser
from sweeps.plan.profiles import profile_settings
from sweeps.plan.search_options import SearchSettings, search_settings
from sweeps.plan.search_space import is_range

DEFAULT_NUM_SEEDS = 3
OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")  # commas of a|debias(seed=1,parts=3) are its own
LISTS = tuple(name for name, kind in setting_types().items() if kind == tuple[str, ...])
"""Settings whose own value is a list, not a grid."""
FOLDERS = ("collection", "model.backbone")  # settings that may name a folder
FILES = ("training.init_from", "training.teacher", "training.negatives_from")
"""Settings that name files, and folders of files."""
NOT_CONFIRMED = (
    *("collection", "backbone", "model", "init_from", "profile"),
    *("search", "num_configs", "search_seed", "race_delta", "asha_eta", "asha_min_epochs"),
)
"""Flags that would change what is confirmed."""


@dataclass(frozen=True)
class Options:
    """What the user asked for, checked as far as it can be without reading any data."""

    collection: str | None
    backbone: str | None
    model: str | None
    init_from: str | None  # a finished trial's folder, its weights, or a cell
    profile: str
    seeds: tuple[int, ...]  # empty: a confirmation takes fresh ones
    num_seeds: int | None
    storage: str
    tracking_uri: str | None
    alpha: float
    engine: str
    num_workers: int
    cpus_per_worker: int
    gpus_per_worker: float | None
    budget: Budget
    checkpoint_minutes: float  # 0: no checkpoints
    checkpoint_gib: float  # of all running trials; 0: what the disk holds
    dry_run: bool
    smoke_test: bool
    confirm: bool
    settings: dict[str, str]  # dotted setting: one value
    grids: dict[str, list[str]]  # dotted setting: several values
    ranges: dict[str, str]  # dotted setting: lo..hi
    search: SearchSettings


def parse(argv: Sequence[str], *, prog: str, description: str) -> Options:
    """The options of one command."""
    parser = sweep_parser(prog, description)
    # Settings may stand before, between and after the flags.
    arguments = parser.parse_intermixed_args(list(argv))
    settings, grids, ranges = _settings(arguments.settings)
    if arguments.confirm:
        _check_confirmation(arguments, [*settings, *grids, *ranges])
    _at_least_one("--num-workers", arguments.num_workers)
    _at_least_one("--cpus-per-worker", arguments.cpus_per_worker)
    if not 0 < arguments.alpha < 1:
        raise BadInput(f"0 < --alpha < 1 must hold, got {arguments.alpha}")
    for name in ("checkpoint_minutes", "checkpoint_gib"):
        if not 0 <= vars(arguments)[name] < float("inf"):
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} >= 0 must hold, got {vars(arguments)[name]}")
    gpus = arguments.gpus_per_worker
    if gpus is not None and (gpus < 0 or (gpus > 1 and gpus != int(gpus))):
        raise BadInput(f"--gpus-per-worker must be 0, a fraction or a whole number, got {gpus}")
    seeds = _seeds(arguments)
    budget = parse_budget(arguments.max_gpu_hours, arguments.deadline, time.time())
    return Options(
        collection=_folder(arguments.collection),
        backbone=_folder(arguments.backbone),
        model=arguments.model,
        init_from=_files(arguments.init_from) if arguments.init_from else None,
        profile=_profile(arguments.profile),
        seeds=seeds,
        num_seeds=arguments.num_seeds,
        storage=arguments.storage,
        tracking_uri=arguments.tracking_uri,
        alpha=arguments.alpha,
        engine=_engine(arguments),
        num_workers=arguments.num_workers,
        cpus_per_worker=arguments.cpus_per_worker,
        gpus_per_worker=gpus,
        budget=budget,
        checkpoint_minutes=arguments.checkpoint_minutes,
        checkpoint_gib=arguments.checkpoint_gib,
        dry_run=arguments.dry_run,
        smoke_test=arguments.smoke_test,
        confirm=arguments.confirm,
        settings=settings,
        grids=grids,
        ranges=ranges,
        search=search_settings(
            arguments.search,
            arguments.num_configs,
            arguments.search_seed,
            arguments.race_delta,
            eta=arguments.asha_eta,
            min_epochs=arguments.asha_min_epochs,
            ranges=bool(ranges),
            num_seeds=len(seeds),
        ),
    )


def _folder(name: str | None) -> str | None:
    """Folders as absolute paths, also within a collection's expression: trials run in other working
    directories."""
    if name is None:
        return None
    base = base_of(name)
    return with_base(name, os.path.abspath(base)) if os.path.isdir(base) else name


def _files(names: str) -> str:
    """The same for files and folders, one or several with commas between."""
    paths = (os.path.abspath(name) if _is_there(name) else name for name in names.split(","))
    return ",".join(paths)


def _is_there(name: str) -> bool:
    return os.path.exists(name) or bool(cell_trials(name))


def _profile(name: str | None) -> str:
    profile_settings(name or "clean")
    return name or "clean"


def _absolute(setting: str, value: str) -> str:
    if setting in FILES:
        return _files(value)
    return str(_folder(value)) if setting in FOLDERS else value


def _at_least_one(flag: str, value: int) -> None:
    if value < 1:
        raise BadInput(f"{flag} >= 1 must hold, got {value}")


def _engine(arguments: argparse.Namespace) -> str:
    name = str(arguments.engine)
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "local" and arguments.num_workers > 1:
        raise BadInput(
            "--engine local runs a trial in this one process, got --num-workers "
            f"{arguments.num_workers}; --engine ray starts several workers"
        )
    return name


def _check_confirmation(arguments: argparse.Namespace, settings: list[str]) -> None:
    """A confirmation trains two cells as they were; only how it runs is for the user to say."""
    flags = [
        f"--{name.replace('_', '-')}"
        for name in NOT_CONFIRMED
        if getattr(arguments, name) is not None
    ]
    found = [*flags, *["--smoke-test"] * arguments.smoke_test, *(f"{name}=" for name in settings)]
    if found:
        raise BadInput(
            "--confirm takes all settings from the finished sweep; beside it stand only --storage, "
            "--seeds, --num-seeds, --engine, --num-workers, --cpus-per-worker, --gpus-per-worker, "
            "--checkpoint-minutes, --checkpoint-gib, --max-gpu-hours, --deadline, "
            f"--tracking-uri and --dry-run, got {', '.join(found)}"
        )


def _seeds(arguments: argparse.Namespace) -> tuple[int, ...]:
    listed, number = arguments.seeds, arguments.num_seeds
    if listed is None:
        if number is None:
            number = 2 if arguments.smoke_test else DEFAULT_NUM_SEEDS
        _at_least_one("--num-seeds", number)
        return () if arguments.confirm else tuple(range(1, number + 1))
    try:
        seeds = tuple(int(part) for part in listed.split(","))
    except ValueError:
        raise BadInput(f"--seeds must be whole numbers such as 1,2,3, got {listed!r}") from None
    if len(set(seeds)) < len(seeds):
        raise BadInput(f"--seeds must differ from each other, got {listed}")
    return seeds


def _settings(
    words: Sequence[str],
) -> tuple[dict[str, str], dict[str, list[str]], dict[str, str]]:
    """Settings with one value, with several, and with a range of values."""
    settings: dict[str, str] = {}
    grids: dict[str, list[str]] = {}
    ranges: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"a setting is written section.setting=value, got {word!r}")
        if name not in setting_types():
            raise unknown("setting", name, setting_types())
        if name == "seed":
            raise BadInput("seeds are given by --seeds or --num-seeds, not by seed=")
        if name in settings or name in grids or name in ranges:
            raise BadInput(f"a setting is given once, got {name} twice")
        values = [value] if name in LISTS else OUTSIDE_BRACKETS.split(value)
        if is_range(value):
            ranges[name] = value
        elif len(values) > 1:
            grids[name] = [_absolute(name, one) for one in values]
        else:
            settings[name] = _absolute(name, value)
    return settings, grids, ranges
