"""`python -m sweeps compare A.run B.run --qrels Q`: the tested table for any TREC runs.

Several runs of one system are its seeds. With one run per system only the queries can be random:
the table says so wherever it matters.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rank_core.stats.multiplicity import CORRECTIONS
from sweeps.commands.compare.comparison import MEASURES, compare_runs
from sweeps.commands.compare.inputs import baselines_of, query_sets_of, systems_of
from sweeps.commands.compare.pairs import all_pairs, pairs_text
from sweeps.commands.compare.results import write_files
from sweeps.commands.compare.text import comparison_text

EPILOG = """SYSTEM is a run, or NAME=run1,run2,run3 for several runs (seeds) of one system. A
pattern in quotes stands for its files: 'NAME=runs/maxp.*.run'. A run by itself is a system with the
name of its file. With several query sets (--qrels dl19=FILE --qrels dl20=FILE) the queries are
pooled, keyed by (set, query_id), unless --apart is given; a run has either one file for all sets,
or one per set with {set} in its name: 'maxp=runs/{set}/maxp.*.run'."""


def main(argv: Sequence[str]) -> int:
    """Test TREC runs against a baseline and print the table; exit code 0."""
    given = _parser().parse_args(argv)
    sets = query_sets_of(given.qrels)
    found = compare_runs(
        systems_of(given.systems, sets=list(sets)),
        sets,
        baselines=baselines_of(given.baseline),
        measures=given.measures,
        alpha=given.alpha,
        correction=given.correction,
        deterministic=given.deterministic,
        apart=given.apart,
    )
    print(comparison_text(found, margin=given.margin), end="")
    pairs = all_pairs(found) if given.all_pairs else []
    if pairs:
        print("\n".join(pairs_text(found, pairs)))
    if given.out is not None:
        write_files(found, given.out, pairs, margin=given.margin)
        print(f"Tables: {given.out}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sweeps compare", description=main.__doc__, epilog=EPILOG
    )
    parser.add_argument("systems", nargs="+", metavar="SYSTEM")
    parser.add_argument(
        "--qrels",
        action="append",
        required=True,
        metavar="FILE",
        help="judgments; repeated as NAME=FILE for several query sets",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="every query set is a collection of its own, with columns of its own and the average "
        "gain over all; sets named dl/2019 and dl/2020 are pooled as dl. The k-th run of "
        "a system must be the same training run everywhere",
    )
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        metavar="NAME",
        help="default: the first system. May be repeated, each has its letter; SYSTEM=NAME is the "
        "baseline of that system alone, all of these share a letter",
    )
    parser.add_argument(
        "--measures",
        nargs="+",
        default=MEASURES,
        metavar="MEASURE",
        help="COLLECTION=MEASURE is a measure of that collection alone",
    )
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--correction", choices=CORRECTIONS, default="holm")
    parser.add_argument(
        "--margin",
        type=float,
        default=0.01,
        help="a difference that practice does not notice (default: %(default)s)",
    )
    parser.add_argument(
        "--deterministic",
        action="append",
        default=[],
        metavar="NAME",
        help="a system (BM25) whose one run is the only one there is; may be repeated",
    )
    parser.add_argument("--all-pairs", action="store_true", help="test every pair of systems too")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the table there as well")
    return parser
