"""`ranksweep compare A.run B.run --qrels Q`: the tested table of any systems.

Several runs of one system are its seeds. With one run per system only the queries are random; the
table says so.
"""

import argparse
import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import is_there, shown_path
from rank_core.lines import beside
from rank_core.stats.corrections import CORRECTION_NAMES
from rank_core.stats.scopes import check_probability
from sweeps.commands.compare.bundles import Bundles
from sweeps.commands.compare.gate import pass_gate
from sweeps.plan.next_command import our_command
from sweeps.report.comparison import RunComparison, compare_runs
from sweeps.report.comparison_files import (
    all_pairs,
    check_folder,
    comparison_text,
    pairs_text,
    write_files,
)
from sweeps.report.gate import Rule
from sweeps.report.ranks import rank_rows, ranks_text
from sweeps.store.test_options import CORRECT_OVER, USUAL, TestOptions
from sweeps.systems.runs import MEASURES, TIES, TREC_EVAL, RunSource, by_number
from sweeps.systems.sources import TrainingRun, is_mlflow, training_runs
from sweeps.terminal.command_line import (
    CLUSTERS_HELP,
    CLUSTERS_OF,
    CORRECT_OVER_HELP,
    TIES_HELP,
    VERBOSE,
    Need,
    Parser,
    check_writable,
    needing,
)
from sweeps.terminal.text import numbered, say

SET = "{set}"
"""The placeholder for a query set's name in the path of a run."""

SOURCES = """SYSTEM is a source, or NAME=source1,source2,source3 for several training runs
(seeds) of one system. A source is a file with
  a TREC run (needs --qrels),
  a table of per-query values (CSV, TSV, Parquet, JSON): columns query_id (or qid), measure, value,
    or query_id and a column per measure; seed and system (or name, as PyTerrier's perquery=True
    has it) where it holds several, FILE:NAME for one of them,
  the output of trec_eval -q or ir_measures -q,
a bundle (FILE.zip is verified, then read as its sweep; FILE.zip:LABEL is one cell of it),
the folder or URI of a sweep (DIR: its cells are systems; DIR:LABEL is one of them), the folder
that an earlier comparison wrote (--out), mlflow:EXPERIMENT or runs:/ID (--tracking-uri).
A pattern in quotes names its files: 'NAME=runs/maxp.*.run'; a file by itself is a system with its
name."""
"""The sources of `compare` and `design`."""

EPILOG = f"""{SOURCES} With several query sets (--qrels dl19=FILE --qrels dl20=FILE) each has its
columns, and the table ends in the mean over them, of equal weight. A run has either one file for
all sets, or one per set with {SET} in its name: 'maxp=runs/{SET}/maxp.*.run'. The folders of
sweeps on several collections are compared likewise, label by label."""


LISTS = (
    ("qrels", "FILE", "judgments, which runs need; repeated as NAME=FILE for several query sets"),
    ("baseline", "NAME", "the baseline (default: the first system); may be repeated"),
    ("deterministic", "NAME", "a system without training, such as BM25, which needs only one run; "
     "may be repeated"),
)  # fmt: skip
SWITCHES = {
    "separate-runs": "systems were trained on each query set: their runs there are independent "
    "(default: the k-th run of a system is the same training run on all query sets)",
    "paired-seeds": "seed i of every system shares its randomness (initialisation, order of the "
    "data, negatives) with seed i of the others: differences are tested seed by seed",
    "all-pairs": "also test every pair of systems (pairs.csv)",
    "ranks": "also the rank of every system as an interval, and groups that cannot be told apart",
    "compact": "print only means and letters, one column per measure",
    "verbose": VERBOSE,
}


OPTIONS = ("measures", "digits", "tracking_uri")
"""Flags that are parameters of `run_systems`."""


def main(argv: Sequence[str]) -> int:
    """Test systems, from runs or per-query values, against a baseline and print the table."""
    args = parser().parse_args(argv)
    if not 0 < args.margin <= 1:
        raise BadInput(f"0 < --margin <= 1 must hold, got {args.margin}")
    if args.out is not None:
        check_writable("--out", args.out)
        check_folder(args.out)
    if twice := [name for name in args.baseline if args.baseline.count(name) > 1]:
        raise BadInput(f"--baseline names a system once, got {twice[0]!r} twice")
    if args.measures and not args.systems:
        raise BadInput(
            "a comparison needs two systems or more, got none: --measures takes all words behind "
            "it, so name the systems before it"
        )
    sets = query_sets_of(args.qrels)
    if args.tracking_uri and not has_mlflow(args.systems):
        raise BadInput(NO_MLFLOW)
    rule, tests = _rule(args), _tests(args)
    tests = replace(tests, alpha=rule.level) if rule else tests
    command = shown_path(our_command("compare", *argv))
    comparison = compare_runs(
        systems_of(args.systems, sets=list(sets), tracking_uri=args.tracking_uri),
        sets or None,
        baselines=[*map(shown_path, args.baseline)],
        command=command,
        deterministic=[*map(shown_path, args.deterministic)],
        tests=tests,
        **{name: vars(args)[name] for name in OPTIONS},
    )
    if not rule:
        say(comparison_text(comparison, compact=args.compact, verbose=args.verbose), end="")
    pairs = all_pairs(comparison.analysis) if args.all_pairs else []
    if pairs:
        say("\n".join(pairs_text(comparison.analysis, pairs)))
    ranks = rank_rows(comparison.analysis) if args.ranks else []
    if ranks:
        say("\n".join(ranks_text(comparison.analysis, ranks)))
    if args.out is not None:
        write_files(comparison, args.out, pairs, ranks, compact=args.compact)
        _write_inputs(args, comparison, sets, tests, command)
        say(f"Page: {args.out / 'index.html'}")
    if rule:
        measured = replace(rule, measure=comparison.sweep.primary)
        return pass_gate(comparison, measured, args.out or Path(), reset=args.reset_looks)
    return 0


def _write_inputs(
    args: argparse.Namespace,
    comparison: RunComparison,
    sets: Mapping[str, Path],
    tests: TestOptions,
    command: str,
) -> None:
    """What `bundle` needs, into the folder of --out."""
    from sweeps.commands.compare.bundled import write_inputs  # draws

    write_inputs(
        comparison,
        args.out,
        sets,
        command=command,
        tests=vars(tests),
        options={
            "baselines": [*map(shown_path, args.baseline)],
            "deterministic": [*map(shown_path, args.deterministic)],
            "measures": [*args.measures],
            "digits": args.digits,
        },
        **{name: vars(args)[name] for name in ("compact", "ranks", "all_pairs")},
    )


def _tests(args: argparse.Namespace) -> TestOptions:
    """How the table is tested; without --ties as trec_eval has them where there are scores."""
    typed = {name: vars(args)[name] for name in vars(USUAL)}
    return TestOptions(**typed | ({} if "ties" in args.given else {"ties": None}))


def _rule(args: argparse.Namespace) -> Rule | None:
    """The rule of `--gate`, its measure still open; None without it."""
    if not args.gate:
        return None
    if args.looks < 1:
        raise BadInput(f"--looks must be 1 or more, got {args.looks}")
    check_probability("--alpha", args.alpha)
    no_worse = "margin" in args.given
    return Rule("", args.alpha, args.looks, args.margin, no_worse=no_worse)


def parser() -> Parser:
    """The arguments and flags of `ranksweep compare`."""
    parser = Parser("ranksweep compare", main.__doc__, epilog=EPILOG)
    add = parser.add_argument
    add(
        "systems", nargs="*", metavar="SYSTEM", help="a source, or NAME=sources, as described below"
    )
    for name, metavar, text in LISTS:
        add(f"--{name}", action="append", default=[], metavar=metavar, help=text)
    for name, text in SWITCHES.items():
        add(f"--{name}", action="store_true", help=text)
    shown = f"measures (default: {' '.join(MEASURES)} for runs; for values, all in the files)"
    add("--measures", nargs="+", default=(), metavar="MEASURE", help=shown)
    add(
        "--alpha", type=float, default=USUAL.alpha, help="significance level (default: %(default)s)"
    )
    corrected = "correction of p over all comparisons of a measure (default: %(default)s)"
    add("--correction", choices=CORRECTION_NAMES, default=USUAL.correction, help=corrected)
    add("--correct-over", choices=CORRECT_OVER, default=USUAL.correct_over, help=CORRECT_OVER_HELP)
    margin = "differences up to this size count as practically equal (default: %(default)s)"
    add("--margin", type=float, default=USUAL.margin, help=margin)
    add("--clusters", default="", metavar=CLUSTERS_OF, help=CLUSTERS_HELP)
    add("--ties", choices=TIES, default=TREC_EVAL, help=TIES_HELP)
    digits = "decimals of means and differences in tables, 1 to 6 (default: %(default)s)"
    add("--digits", type=int, choices=range(1, 7), default=3, metavar="N", help=digits)
    gate = "decide whether the second system is better than the first (with --margin: not worse by "
    gate += "more than that): exit code 0, 1 or 5, and a line with keep, discard or undecided"
    needing(
        add("--gate", action="store_true", help=gate),
        *(Need(name, without=True) for name in ("all_pairs", "ranks", "compact", "verbose")),
    )
    looks = "number of looks by which a loop of proposals divides alpha (default: %(default)s)"
    needing(add("--looks", type=int, default=1, metavar="N", help=looks), Need("gate"))
    anew = "begin a new loop of looks"
    needing(add("--reset-looks", action="store_true", help=anew), Need("gate"))
    add("--tracking-uri", metavar="URI", help="tracking URI of MLflow, for mlflow: and runs:/")
    written = "also write the page, the table and all numbers to DIR"
    add("--out", type=Path, metavar="DIR", help=written)
    return parser


NO_MLFLOW = "--tracking-uri needs a system of mlflow:EXPERIMENT or runs:/ID"


def has_mlflow(systems: Sequence[str]) -> bool:
    """True if a system comes from MLflow."""
    parts = (part for text in systems for part in text.partition("=")[2].split(","))
    return any(is_mlflow(text) for text in (*systems, *parts))


def systems_of(
    arguments: Sequence[str], *, sets: Sequence[str] = (), tracking_uri: str | None = None
) -> dict[str, tuple[RunSource, ...]]:
    """{name: its training runs} from `NAME=source1,source2`, patterns and plain sources, in the
    order of the arguments. Plain sources are the systems that they hold, or have their names; a
    cell that several sweeps share is one system with the runs of all, and different cells of one
    label have the names of their sweeps behind it."""
    bundles = Bundles()
    systems: dict[str, tuple[RunSource, ...]] = {}
    alike: dict[str, dict[str, str]] = {}
    """{label: {system: its sweep}} of the cells of plain sweeps."""
    for text in arguments:
        plain, named = _named(text, sets, tracking_uri, bundles)
        for given, runs in named:
            name, new = _once(given, runs, systems)
            sweep = _sweep_of(given, runs) if plain else ""
            if new is runs and not _collections(systems.get(name, ())).isdisjoint(
                _collections(runs)
            ):
                known = alike.get(name, {})
                if not sweep or name not in known or sweep in known.values():
                    raise BadInput(_TWICE.format(name=name))
                name = f"{name} ({sweep})"
            if sweep and new is runs:
                alike.setdefault(given, {})[name] = sweep
            systems[name] = (*systems.get(name, ()), *new)
    return _told_apart(systems, alike)


_TWICE = (
    "a system must be named once, got {name!r} twice: give several runs of a system as "
    "NAME=run1,run2,run3, and different systems names as A=run1 B=run2 or A=DIR:LABEL"
)


def _named(
    text: str, sets: Sequence[str], tracking_uri: str | None, bundles: Bundles
) -> tuple[bool, list[tuple[str, Sequence[RunSource]]]]:
    """Whether an argument is a plain source, and its systems with their training runs."""
    name, equals, rest = text.partition("=")
    if equals and not _is_source(text):
        parts = rest.split(",")
        if not name or not all(parts):
            raise BadInput(f"a system is a run or NAME=run1,run2,run3, got {text!r}")
        return False, [
            (
                shown_path(name),
                [
                    run
                    for part in parts
                    for source in sources_of(part, sets)
                    for run in _of_one_system(source, bundles)
                ],
            )
        ]
    named: list[tuple[str, Sequence[RunSource]]] = []
    for source in sources_of(text, sets):
        held: Mapping[str, Sequence[RunSource]] = {"": [source]}
        if isinstance(source, str):
            inside = bundles.runs(source)
            held = training_runs(source, tracking_uri=tracking_uri) if inside is None else inside
        named += [(label or _name(source), runs) for label, runs in held.items()]
    return True, named


def _of_one_system(source: RunSource, bundles: Bundles) -> Sequence[RunSource]:
    """A source, or the training runs of a bundle's only system."""
    held = bundles.runs(source)
    if held is not None and len(held) > 1:
        raise BadInput(f"{source} holds {len(held)} systems: name one of them, as {source}:LABEL")
    return [source] if held is None else [run for runs in held.values() for run in runs]


def _told_apart(
    systems: Mapping[str, tuple[RunSource, ...]], alike: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[RunSource, ...]]:
    """The systems; those of one label in several sweeps have as much of the ends of the sweeps'
    paths behind it as tells them apart."""
    shown: dict[str, str] = {}
    for label, sweeps in alike.items():
        if label in systems and len(sweeps) > 1:
            paths = {system: shown_path(sweep).split("/") for system, sweep in sweeps.items()}
            lengths = range(1, max(map(len, paths.values())) + 1)
            ends = ({s: "/".join(path[-n:]) for s, path in paths.items()} for n in lengths)
            short = next(end for end in ends if len({*end.values()}) == len(paths))
            shown |= {system: f"{label} ({end})" for system, end in short.items()}
    return {shown.get(system, system): runs for system, runs in systems.items()}


def _sweep_of(label: str, runs: Sequence[RunSource]) -> str:
    """The folder or URI of the sweep whose cell the runs are of; "" for others."""
    first = next(iter(_of_sweeps(runs).values()), None)
    return first.where.removesuffix(f":{label}, seed {first.seed}").rstrip("/") if first else ""


def _once(
    name: str, runs: Sequence[RunSource], systems: Mapping[str, Sequence[RunSource]]
) -> tuple[str, Sequence[RunSource]]:
    """A system with the runs that `systems` lack: sweeps share the trials of equal settings."""
    given = _of_sweeps(runs)
    for known, others in systems.items():
        held = _of_sweeps(others)
        twice = held.keys() & given.keys()
        pairs = [(held[trial].values, given[trial].values) for trial in twice]
        if pairs and all(one is not None and one.equals(other) for one, other in pairs):
            new = [run for trial, run in given.items() if trial not in twice]
            where = next(iter(given.values())).where.rpartition(", seed")[0]
            more = f"with {numbered(len(new), 'further run')}" if new else "shown once"
            beside(f"note: {where} has the trials of {known}: {more}")
            return known, new
    return name, runs


def _of_sweeps(runs: Sequence[RunSource]) -> dict[tuple[str, int | None], TrainingRun]:
    """{(cell, seed): a sweep's run}."""
    of_sweeps = (run for run in runs if isinstance(run, TrainingRun) and run.cell)
    return {(run.cell, run.seed): run for run in of_sweeps}


def _collections(runs: Sequence[RunSource]) -> set[str]:
    """The collections of a sweep's runs; "" of others."""
    return {run.collection if isinstance(run, TrainingRun) else "" for run in runs}


def _is_source(text: str) -> bool:
    """True if a text with a = is a source itself, not `NAME=source`: a label may hold a =."""
    before, colon, _ = text.partition("=")[0].partition(":")
    return is_there(text) or is_mlflow(text) or bool(colon and is_there(before))


def query_sets_of(arguments: Sequence[str]) -> dict[str, Path]:
    """{query set: its judgments} from one file, or from `NAME=FILE` several times; may be empty."""
    if len(arguments) == 1 and ("=" not in arguments[0] or is_there(arguments[0])):
        return {shown_path(Path(arguments[0]).name): Path(arguments[0])}
    sets: dict[str, Path] = {}
    for text in arguments:
        name, _, file = text.partition("=")
        if not name or not file:
            raise BadInput(f"several query sets are given as NAME=FILE, got {text!r}")
        if shown_path(name) in sets:
            raise BadInput(f"a query set must be named once, got {name!r} twice")
        sets[shown_path(name)] = Path(file)
    return sets


def sources_of(text: str, sets: Sequence[str] = ()) -> list[RunSource]:
    """The sources of a path or pattern; with `{set}` in it, the k-th file of every set."""
    if SET not in text:
        return list(_files(text))
    if not sets:
        raise BadInput(
            f"{SET} in a run needs named query sets (--qrels NAME=FILE; in Python systems={{name: "
            f"path}} and qrels={{set: judgments}}), got {text}"
        )
    return [*by_number({name: _files(text.replace(SET, name)) for name in sets})]


def _files(text: str) -> list[str]:
    """The source, or the files of a pattern in the order of the numbers in their names."""
    if not glob.has_magic(text) or is_mlflow(text) or "://" in text or is_there(text):
        return [text]

    def natural(path: str) -> list[tuple[str, int]]:  # seed2 before seed10
        return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", path)]

    paths = sorted(glob.glob(text, recursive=True), key=natural)
    if not paths:
        raise BadInput(f"no file matches {text}")
    return paths


def _name(source: RunSource) -> str:
    """`maxp.1` for `runs/maxp.1.run.gz`."""
    path = next(iter(source.values())) if isinstance(source, Mapping) else source
    return shown_path(Path(Path(str(path)).name.removesuffix(".gz")).stem)
