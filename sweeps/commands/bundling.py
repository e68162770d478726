"""`ranksweep bundle` and `ranksweep verify`: a sweep, or a comparison, as one file that anyone can
check."""

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from rank_core.data.readers import parse_fields
from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput
from rank_core.files import write_json
from sweeps.commands.bundle import (
    COMPARISON,
    FORMAT,
    MANIFEST,
    MOST_MIB,
    SWEEP,
    Manifest,
    check_unpacked,
    collection_of,
    files_of,
    installed,
    joined_judgments,
    own_measures,
    qrels_mode,
    stage,
    unpacked,
    write_zip,
)
from sweeps.commands.compare import bundled
from sweeps.store.sweep_file import opened, read_sweep_file, send
from sweeps.systems.access import record_access
from sweeps.systems.access_log import ACCESS_FILE
from sweeps.systems.interpolation import missing_input
from sweeps.systems.load import load_sweep
from sweeps.terminal.command_line import Need, Parser, check_writable, needing
from sweeps.terminal.text import say

MISMATCH = 3  # exit code; 1 is an error of the program itself


def main(argv: Sequence[str]) -> int:
    """Write a finished sweep into one zip file: settings, versions, runs, per-query values, report
    and checksums; or the folder of `compare --out`: the files that it compared, and its report.
    `ranksweep verify FILE` recomputes all numbers. The same folder gives the same bytes.

    Judgments that come with ranksweep are included. Those of ir_datasets have other licences and
    are only hashed. Those of your own folder are hashed unless you add --qrels include."""
    args = parser().parse_args(argv)
    if args.to.suffix != ".zip" or args.to.exists():
        raise BadInput(f"--to must be a new file whose name ends in .zip, got {args.to}")
    check_writable("the folder of --to", args.to.parent)
    if (Path(args.sweep) / COMPARISON).is_file():
        return _bundle_comparison(Path(args.sweep), args.to, args.qrels or "hash", args.by)
    with opened(args.sweep) as records, tempfile.TemporaryDirectory() as temporary:
        sweep, folder = load_sweep(records), Path(temporary)
        if sweep.scores.empty:
            raise BadInput(f"{args.sweep} has no finished trial, so there is nothing to bundle")
        if missing := missing_input(sweep):
            raise BadInput(f"{args.sweep}: {missing}")
        accesses = record_access(sweep, shlex.join(["ranksweep", "bundle", *argv]))
        send(records, ACCESS_FILE)
        collection = collection_of(sweep)
        qrels = qrels_mode(collection, args.qrels)
        about = Manifest(FORMAT, installed(), qrels, args.by, version("matplotlib"))
        stage(sweep, folder, about, accesses)
        write_json(folder / MANIFEST, asdict(about))
        args.to.parent.mkdir(parents=True, exist_ok=True)
        write_zip(args.to, folder)
        number = len(files_of(folder))
    place = folder_and_fields(base_of(collection))[0]
    if Path(place).is_absolute():
        say(f"warning: config.json of every trial names the folder of your documents: {place}")
    _say_bundled(args.to, number, about)
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep bundle`."""
    parser = Parser("ranksweep bundle", main.__doc__)
    add = parser.add_argument
    add("sweep", metavar="DIR", help="the folder or URI of a sweep, or the folder of a comparison")
    add("--to", type=Path, required=True, metavar="FILE.zip", help="a new file")
    add(
        "--qrels",
        choices=("include", "hash"),
        default="",
        help="include the judgments, or only their SHA-256",
    )
    add("--by", default="", metavar="NAME", help="name of the submitter")
    return parser


def _bundle_comparison(source: Path, to: Path, qrels: str, by: str) -> int:
    about = Manifest(FORMAT, installed(), qrels, by, version("matplotlib"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_json(folder / MANIFEST, asdict(about))
        bundled.stage(folder, source, about)
        to.parent.mkdir(parents=True, exist_ok=True)
        write_zip(to, folder)
        number = len(files_of(folder))
    _say_bundled(to, number, about)
    return 0


def _say_bundled(to: Path, number: int, about: Manifest) -> None:
    judgments = "its judgments" if about.qrels == "include" else "the hash of its judgments"
    say(
        f"bundled     {to}: {number} files, {to.stat().st_size:,} bytes, with {judgments}; "
        f"ranksweep verify {to}"
    )


def verify(argv: Sequence[str]) -> int:
    """Check a bundle on any machine: its checksums; every per-query value against runs and
    judgments; results.json, tables and pages against these values, by the program that makes a
    report. Exit code 0: everything matches; 3: the first difference of each file is named. If the
    bundle has only the hash of its judgments, name those of dev and test with --qrels, as files or
    `ir:ID`; without them the per-query values are not checked. Judgments of --qrels replace those
    in the bundle. No code that is in a bundle, or named by it, is run: the values of a custom
    measure (MODULE:NAME) are recomputed only if --measure names it, which runs the module of that
    name on this machine."""
    args = verify_parser().parse_args(argv)
    check_limit(args.max_mib)
    fields = parse_fields(args.fields) if args.fields else {}
    wrong = False
    with own_measures(args.measure):
        found = verdicts(
            args.bundle, args.qrels, fields, measures=args.measure, max_mib=args.max_mib
        )
        for verdict, text in found:
            say(f"{verdict:<12}{text}")
            wrong = wrong or verdict == "wrong"
    say(f"{args.bundle}: {'not everything' if wrong else 'everything that was checked'} matches")
    return MISMATCH if wrong else 0


def verify_parser() -> Parser:
    """The arguments and flags of `ranksweep verify`."""
    parser = Parser("ranksweep verify", verify.__doc__)
    parser.add_argument("bundle", metavar="FILE.zip", type=Path, help="a bundle")
    parser.add_argument("--qrels", nargs="+", default=[], metavar="FILE", help="judgments to use")
    fields_of = "field names of --qrels"
    needing(
        parser.add_argument("--fields", metavar="THEIRS=OURS,...", help=fields_of), Need("qrels")
    )
    add_measure(parser)
    add_limit(parser)
    return parser


def add_measure(parser: Parser) -> None:
    """The flag of measures whose modules may run."""
    text = "your own measure, whose module is run; may be repeated"
    parser.add_argument("--measure", action="append", default=[], metavar="MODULE:NAME", help=text)


def add_limit(parser: Parser) -> None:
    """The flag for the size that a bundle may unpack to."""
    words = f"maximum size of an unpacked bundle in MiB (default: {MOST_MIB})"
    parser.add_argument("--max-mib", type=int, default=MOST_MIB, metavar="MIB", help=words)


def check_limit(max_mib: int) -> None:
    """Refuses a limit that no bundle could meet."""
    if not 1 <= max_mib <= 1 << 30:
        raise BadInput(f"--max-mib must be a whole number of MiB from 1 on, got {max_mib}")


def verdicts(
    bundle: Path,
    qrels: Sequence[str] = (),
    fields: Fields | None = None,
    *,
    measures: Sequence[str] = (),
    max_mib: int = MOST_MIB,
) -> Iterator[tuple[str, str]]:
    """(verdict, text): what was `checked`, what was `not checked` and why, and what is `wrong`.
    Raises `BadInput` for another file, other judgments, and `measures` that it does not have."""
    with unpacked(bundle, max_mib, holds=(SWEEP, COMPARISON)) as folder:
        compared = (folder / COMPARISON).is_file()
        if compared and fields:
            raise BadInput("--fields has no effect: --qrels names the file that was compared")
        own = (
            bundled.read_inputs(folder).options["measures"]
            if compared
            else read_sweep_file(folder / SWEEP).measures
        )
        if strange := [name for name in measures if name not in own]:
            raise BadInput(
                f"--measure must be one of its measures ({', '.join(own)}): {strange[0]}"
            )
        if compared:
            yield from bundled.verdicts(folder, qrels)
        else:
            yield from check_unpacked(folder, joined_judgments(qrels, fields))
