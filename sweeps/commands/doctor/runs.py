"""The run files of a collection folder: what their ranks say beside their scores."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rank_core.data.folder import SPLITS
from rank_core.data.trec import read_lines, read_run
from sweeps.commands.doctor.finding import Finding


class Ranks(NamedTuple):
    """Counts over the lines of a run."""

    lines: int
    tied: int  # scores that another document of the query has as well
    against: int  # documents that another one with a higher score stands behind
    repeated: int  # ranks that another document of the query has as well


def run_files(folder: Path) -> Iterator[Finding]:
    """A finding for every run whose ranks contradict or must complete its scores."""
    for split in SPLITS:
        for path in sorted([*folder.glob(f"{split}/*.run"), *folder.glob(f"{split}/*.run.gz")]):
            name, found = f"{split}/{path.name}", count_ranks(path)
            if found.against:
                yield Finding(
                    "warning",
                    f"{name}: {found.against:,} of {found.lines:,} lines have a rank that "
                    "contradicts the scores",
                    "the order is that of the scores, as in every evaluation tool",
                    "check that a higher score is better there",
                )
            elif found.tied:
                how = "doc_id, for ranks repeat as well" if found.repeated else "the rank column"
                yield Finding(
                    "note",
                    f"{name}: {found.tied:,} of {found.lines:,} scores are tied",
                    f"here their order is that of {how}, trec_eval looks at the doc_id alone",
                )


def count_ranks(path: Path) -> Ranks:
    """Reads the run once more, with its ranks."""
    ranks: dict[str, dict[str, int]] = {}
    for _, line in read_lines(path):
        query_id, _, doc_id, rank, *_ = line.split()
        ranks.setdefault(query_id, {})[doc_id] = int(rank)
    lines = tied = against = repeated = 0
    for query_id, scores in read_run(path).items():
        of_query = [ranks[query_id][doc_id] for doc_id in scores]
        lines += len(scores)
        tied += len(scores) - len(set(scores.values()))
        repeated += len(of_query) - len(set(of_query))
        highest = of_query[0]
        for place in of_query[1:]:
            against += place < highest
            highest = max(highest, place)
    return Ranks(lines, tied, against, repeated)
