"""The command line that all sweeps share, and the cluster they run on."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rank_core.checkpoints.weights import SWEEP, cell_trials
from rank_core.data.readers import parse_fields
from rank_core.data.transforms.expression import with_absolute_tokenizers, with_fields, with_folder
from rank_core.encoders.backbone_types import NAMED_PROMPT
from rank_core.errors import BadInput, shown
from rank_core.lines import beside
from rank_core.records import SPLITS
from rank_core.settings.config import AS_STATED, FILES, parse_setting, setting_types
from sweeps.plan.flags import (
    FLAGS,
    MOST_SEEDS,
    NOT_CONFIRMED,
    ONCE,
    PREFIX_VARIABLE,
    SEARCH,
    SEARCH_FLAGS,
    SEEDS,
    check_flags,
    help_groups,
)
from sweeps.plan.groups import group_size
from sweeps.plan.machines import Machines, parse_machines
from sweeps.plan.next_command import Asked
from sweeps.plan.profiles import profile
from sweeps.plan.search_options import SEARCHES, SearchSettings, search_settings
from sweeps.plan.search_space import Range, parse_range
from sweeps.store.test_options import TestOptions
from sweeps.terminal.command_line import OUTSIDE_BRACKETS, Parser

DEFAULT_NUM_SEEDS = 3
MOST_POINTS = 10_000
"""The limit of a grid: more would take hours to plan."""
LISTS = tuple(name for name, kind in setting_types().items() if kind == tuple[str, ...])
"""Settings whose value is a list: their commas do not make a grid."""
PROMPTS = ("model.query_prompt", "model.document_prompt")
"""Settings whose value is a text, whose commas make a grid between names of prompts alone."""
TEST_ON = "evaluation.test_on"
SPLIT_OF = re.compile(rf"(.+):({'|'.join(SPLITS)})")  # msmarco-document:dev
FOLDERS = ("collection", "model.backbone")  # settings that may name a folder
BOOTSTRAP = "~/ray_bootstrap_config.yaml"  # written by `ray up` on the head
TOLD = ("started", "reported", "finished", "failed")
"""The methods of a callback, which are called with a trial; it need not have all."""
FLAG_SETTINGS = {
    "collection": "collection",
    "backbone": "model.backbone",
    "model": "model.name",
    "init_from": "training.init_from",
    "test_on": "evaluation.test_on",
}
"""{flag: the setting that it sets}"""


@dataclass(frozen=True)
class Options:
    """The options of a command, checked as far as possible without reading data."""

    collection: str | None
    backbone: str | None
    model: str | None
    init_from: str | None  # a finished trial's folder, its weights, or a cell
    test_on: tuple[str, ...] | None  # further collections that trained models rank
    profile: str
    seeds: tuple[int, ...]  # empty: fresh ones, for a confirmation
    num_seeds: int | None
    storage: str
    name: str | None  # of the sweep's folder; None: the experiment's
    replace: bool  # a sweep with other settings in the folder
    tracking_uri: str | None
    experiment_prefix: str  # of MLflow's experiments
    tests: TestOptions
    interpolate: str
    verbose: bool  # the report in the terminal in full
    engine: str
    num_workers: int  # of a trial, at most
    min_workers: int  # where that is a range; 0: all of them
    cpus_per_worker: int
    gpus_per_worker: float | None
    accelerator: str | None  # the kind of GPU, by Ray's name
    max_slots: int | None  # trials at a time; a cluster may grow to them
    max_gpu_hours: float | None  # core-hours where there is no GPU
    checkpoint_minutes: float  # 0: no checkpoints
    checkpoint_gib: float  # of all running trials; 0: half the free disk
    weights_gib: float  # of weights with training.keep_weights=best
    dry_run: bool
    machines: tuple[Machines, ...]  # of --for, for a dry run
    prepare: bool
    smoke_test: bool
    confirm: bool
    settings: dict[str, Any]  # dotted setting: one value
    grids: dict[str, list[Any]]  # dotted setting: several values
    ranges: dict[str, Range]  # dotted setting: lo..hi
    search: SearchSettings
    asked: Asked  # what was typed
    typed_flags: frozenset[str] = frozenset()  # the flags of the command line, by their names
    code: tuple[str, ...] = ()  # files and folders outside the package that workers need
    auto_precision: Mapping[str, str] = field(default_factory=dict)
    """{cpu or cuda: what `training.precision=auto` is there in the sweep}."""
    callbacks: tuple[object, ...] = ()  # of a caller of Python, told of the sweep's trials

    @property
    def gpu_share(self) -> float:
        """The share of the memory of its GPU that a worker may fill."""
        return self.gpus_per_worker or 1.0


@dataclass(frozen=True)
class Preset:
    """The flags of a sweep's own file; those of the command line override them."""

    flags: Mapping[str, Any] = field(default_factory=dict)  # by their names within `parse`
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def fill(self, arguments: argparse.Namespace) -> None:
        """Set the missing flags, except those of a search or of seeds where the command line names
        another."""
        flags = {*vars(arguments).get("given", ())}
        flags = flags | SEEDS if arguments.smoke_test else flags
        for group, names in ((SEEDS, SEEDS), ({"search"}, SEARCH)):
            flags = flags | names if flags & group else flags
        for name in self.flags.keys() - flags:
            setattr(arguments, name, self.flags[name])


def parse(
    argv: Sequence[str], *, prog: str, description: str, preset: Preset | None = None
) -> Options:
    """The options of a command and of its sweep's file."""
    parser = sweep_parser(prog, description)
    # Settings may stand before, between and after the flags.
    arguments = parser.parse_intermixed_args(list(argv))
    settings, grids, ranges = _settings(arguments.settings)
    asked = _asked(arguments)
    if arguments.confirm:
        _check_confirmation(arguments, [*settings, *grids, *ranges])
    elif preset:
        preset.fill(arguments)
        own = {name: r for name, r in preset.ranges.items() if name not in settings | grids}
        ranges = own | ranges
    check_flags(arguments)
    profile(arguments.profile or "clean")  # refuses an unknown one
    min_workers, num_workers = group_size(arguments.num_workers)
    check_gpus(arguments.gpus_per_worker, num_workers)
    seeds = _seeds(arguments)
    given = vars(arguments)
    checked: dict[str, Any] = dict(
        collection=named_collection(arguments.collection, arguments.fields),
        backbone=absolute_folder(arguments.backbone),
        init_from=_files(arguments.init_from) if arguments.init_from else None,
        test_on=parse_setting(TEST_ON, absolute(TEST_ON, arguments.test_on))
        if arguments.test_on
        else None,
        profile=arguments.profile or "clean",
        machines=parse_machines(arguments.machines) if arguments.machines else (),
        seeds=seeds,
        experiment_prefix=_experiment_prefix(arguments.experiment_prefix),
        engine=_engine(arguments, num_workers),
        num_workers=num_workers,
        min_workers=min_workers,
        tests=TestOptions(
            alpha=arguments.alpha,
            correct_over=arguments.correct_over,
            margin=arguments.margin,
            clusters=arguments.clusters or "",
        ),
        asked=asked,
        typed_flags=frozenset(given.get("given", ())),
        settings=settings,
        grids=grids,
        ranges=ranges,
        search=search_settings(
            {key: given[flag.name] for key, flag in SEARCH_FLAGS.items()},
            ranges=bool(ranges),
            num_seeds=len(seeds),
        ),
    )
    names = {item.name for item in fields(Options)}
    return Options(**{k: v for k, v in given.items() if k in names} | checked)


def _asked(arguments: argparse.Namespace) -> Asked:
    """The flags and settings of the command line as data, before those of a file are added."""
    values = vars(arguments)
    typed = (name for name in values.get("given", ()) if name in FLAGS and name not in ONCE)
    flags = {name: values[name] for name in typed}
    words = (word.partition("=") for word in arguments.settings)
    return Asked(flags=flags, settings={name: text for name, _, text in words})


def check_gpus(gpus: float | None, num_workers: int) -> None:
    """Refuse shares of a GPU with which a trial cannot run or would leave a GPU idle."""
    if gpus is None:
        return
    if not 0 <= gpus <= 1 or (num_workers > 1 and 0 < gpus < 1):
        raise BadInput(
            f"--gpus-per-worker must be 0, a fraction or 1, with several workers 0 or 1 because "
            f"NCCL refuses two on one GPU; got {gpus:g} with {num_workers} workers"
        )


def cluster_address() -> str | None:
    """The cluster to join; None for this machine alone."""
    return os.environ.get("RAY_ADDRESS") or ("auto" if cluster_file() else None)


def cluster_file() -> Path | None:
    """The file of Ray's launcher on the head of its cluster; None on other machines."""
    path = Path(os.path.expanduser(BOOTSTRAP))  # as it is for a user without a home folder
    return path if path.is_absolute() and path.exists() else None


def sweep_parser(prog: str, description: str, *, named: bool = False) -> Parser:
    """The parser of a sweep's command line; `named`: with the sweep before it."""
    words = "[flags] [section.setting=value ...]"
    parser = Parser(prog, description, usage=f"{prog} {'SWEEP ' * named}{words}")
    if named:
        parser.add_argument("question", metavar="SWEEP", help="a sweep's name or file")
    for title, flags in help_groups():
        group = parser.add_argument_group(title)
        for flag in flags:
            flag.add_to(group)
    add_settings(parser)
    return parser


def add_settings(parser: Parser) -> None:
    """Declares the settings among the words of a command."""
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="section.setting=value",
        help="settings (ranksweep settings lists them); swept ones take a,b,c",
    )


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
    name = with_absolute_tokenizers(name, start)
    folder = name.partition("|")[0].strip()
    path = os.path.abspath(os.path.join(start, folder))
    if not (folder and os.path.isdir(path)):
        return name
    from rank_core.data.load import COLLECTIONS  # brings in pandas, which no help needs

    if folder in COLLECTIONS:
        beside(f"note: {folder} is the collection of that name; ./{folder} names the folder here")
        return name
    return with_folder(name, path)


def _files(names: str, start: str = "") -> str:
    """Files and folders, separated by commas, as absolute paths; so is that of `sweep:DIR`."""
    if names.startswith(SWEEP):
        return SWEEP + os.path.abspath(os.path.join(start, names.removeprefix(SWEEP)))
    paths = {name: os.path.abspath(os.path.join(start, name)) for name in names.split(",")}
    there = {path for path in paths.values() if os.path.exists(path) or cell_trials(path)}
    return ",".join(path if path in there else name for name, path in paths.items())


def _test_set(name: str, start: str) -> str:
    """A test set, `NAME` or `NAME:SPLIT`, with an absolute folder."""
    base, split = split_of(name)
    return f"{absolute_folder(base, start)}{split and f':{split}'}"


def split_of(name: str) -> tuple[str, str]:
    """The collection and the split of a test set; "" for test by default."""
    named = SPLIT_OF.fullmatch(name)
    return (named[1], named[2]) if named else (name, "")


def absolute(setting: str, value: str, start: str = "") -> str:
    """The value of a setting, with absolute paths where it names folders or files."""
    if setting in FILES:
        return _files(value, start) if value else value
    if setting == TEST_ON:
        return ",".join(_test_set(name, start) for name in OUTSIDE_BRACKETS.split(value))
    return str(absolute_folder(value, start)) if setting in FOLDERS else value


def _experiment_prefix(flag: str | None) -> str:
    prefix = flag if flag is not None else os.environ.get(PREFIX_VARIABLE, "")
    if not re.fullmatch(r"(\w[\w. -]*(/\w[\w. -]*)*)?", prefix):
        source = "--experiment-prefix" if flag is not None else PREFIX_VARIABLE
        raise BadInput(
            f"{source} must be letters, digits, spaces and _ . - with / between its parts, such as "
            f"team/longdoc, got {shown(prefix)}"
        )
    return prefix


def _engine(arguments: argparse.Namespace, num_workers: int) -> str:
    name, typed = str(arguments.engine), arguments.num_workers
    if name == "local" and num_workers > 1:
        raise BadInput(f"--engine local runs a trial in this process, got --num-workers {typed}")
    stops = arguments.search in SEARCHES and SEARCHES[arguments.search].stops
    if stops and (name == "local" or num_workers > 1):
        raise BadInput(
            f"--search {arguments.search} needs --engine ray and --num-workers 1, got --engine "
            f"{name} and --num-workers {typed}"
        )
    return name


def range_text(options: Options) -> str:
    """`1-4 workers` of a range; "" for a number."""
    least, most = options.min_workers, options.num_workers
    return f"{least}-{most} workers" if least else ""


def _check_confirmation(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Refuse settings of a confirmation, which trains two unchanged cells."""
    refused = [FLAGS[name].flag for name in NOT_CONFIRMED if vars(arguments)[name]]
    if refused := [*refused, *(f"{name}=" for name in settings)]:
        accepted = ", ".join(flag.flag for name, flag in FLAGS.items() if name not in NOT_CONFIRMED)
        raise BadInput(
            f"--confirm uses all settings of the finished sweep and accepts only {accepted}, got "
            f"{', '.join(refused)}"
        )


def check_different(name: str, values: Sequence[Any]) -> None:
    """Refuse a value of a grid that is given twice: a plan would have fewer cells than was
    asked."""
    for place, value in enumerate(values):
        if value in values[:place]:
            raise BadInput(f"the grid has {name}={shown(value)} twice; give it once")


def _seeds(arguments: argparse.Namespace) -> tuple[int, ...]:
    listed, number = arguments.seeds, arguments.num_seeds
    if listed is None:
        number = number or (2 if arguments.smoke_test else DEFAULT_NUM_SEEDS)
        return () if arguments.confirm else tuple(range(1, number + 1))
    if number is not None:
        raise BadInput(f"--num-seeds is not allowed with --seeds, got {number} and {shown(listed)}")
    try:
        seeds = tuple(parse_setting("seed", part) for part in listed.split(","))
    except BadInput:
        seeds = ()
    if not 0 < len({*seeds}) == len(seeds) <= MOST_SEEDS:
        raise BadInput(
            f"--seeds must be different whole numbers such as 1,2,3, at most {MOST_SEEDS:,}, got "
            f"{shown(listed)}"
        )
    return seeds


def typed_settings(words: Sequence[str]) -> dict[str, str]:
    """{setting: its text} of the words `section.setting=value` of a command line."""
    typed: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise BadInput(f"a setting is written section.setting=value, got {shown(word)}")
        if name in typed:
            raise BadInput(f"{name} is set twice; set it once")
        typed[name] = text
    return typed


def _names_prompt(text: str) -> bool:
    """Whether a value of a prompt is no text of its own."""
    named = text.startswith(NAMED_PROMPT) and not text.startswith(2 * NAMED_PROMPT)
    return named or text in (AS_STATED, "")


def _settings(
    words: Sequence[str],
) -> tuple[dict[str, Any], dict[str, list[Any]], dict[str, Range]]:
    """Settings with one value, with several values, and with a range."""
    settings: dict[str, Any] = {}
    grids: dict[str, list[Any]] = {}
    ranges: dict[str, Range] = {}
    for name, text in typed_settings(words).items():
        if name == "seed":
            raise BadInput("seeds must be given with --seeds or --num-seeds, not with seed=")
        texts = [text] if name in LISTS else OUTSIDE_BRACKETS.split(text)
        if name in PROMPTS and not all(map(_names_prompt, texts)):
            texts = [text]
        if span := parse_range(name, text):
            ranges[name] = span
        elif len(texts) > 1:
            values = [parse_setting(name, absolute(name, part)) for part in texts]
            check_different(name, values)
            grids[name] = values
        else:
            settings[name] = parse_setting(name, absolute(name, text))
    return settings, grids, ranges
