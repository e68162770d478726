"""The pages of a board: `index.html` with a table of tied ranks for each measure of each set of
judgments, and a page for every system."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from urllib.parse import quote

import numpy as np

from rank_core.stats.clusters import clustered
from rank_core.stats.matrix import ScoreMatrix, proven_copies
from rank_core.stats.ranks import Ranks, rank_intervals
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.commands.board.submissions import FAILED, BoardSystem, Submission
from sweeps.report.clusters import sharing_found
from sweeps.report.html import Section, render
from sweeps.report.table import Table, TableCell, TableRow, table, table_row
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.clusters import NONE, Clusters, check_clusters, clusters_from
from sweeps.terminal.notation import MISSING, level_text, names_text, number
from sweeps.terminal.text import duration, numbered

ALPHA = 0.05
SYSTEMS = "systems"  # folder of the systems' pages
RULE = (
    "A system is better than another where the difference is significant for new queries and new "
    "training runs (Holm over all ordered pairs). The rank of a system lies between 1 + the number "
    "of better systems and K − the number of worse ones of K: all intervals of a table hold at "
    f"once at {level_text(ALPHA)}. The systems of a group are statistically indistinguishable; two "
    "of different groups may be tied as well if their intervals overlap."
)


@dataclass(frozen=True)
class BoardEntry:
    """A system of a submission."""

    bundle: Submission
    system: BoardSystem

    @property
    def key(self) -> str:
        """Its name among all systems."""
        return f"{self.bundle.name}\n{self.system.row}"

    @property
    def page(self) -> str:
        """The file of its page, "" for a row that is not a configuration."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.key).strip("-").lower()[:60]
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:8]
        return f"{SYSTEMS}/{name}-{digest}.html" if self.system.settings else ""


@dataclass(frozen=True)
class JointTable:
    """The submissions with the same judgments: the runs of all, on queries that they share."""

    title: str
    bundles: Sequence[Submission]
    clusters: Clusters | None = None  # of the queries

    @property
    def entries(self) -> list[BoardEntry]:
        """The systems of all bundles."""
        return [BoardEntry(bundle, system) for bundle in self.bundles for system in bundle.systems]

    @property
    def measures(self) -> list[str]:
        """The measures that any system has, the primary one of the first bundle first."""
        names = (measure for entry in self.entries for measure in entry.system.scores)
        return list(dict.fromkeys([self.bundles[0].primary, *names]))

    @cached_property
    def copies(self) -> Mapping[str, str]:
        """{a system: one that it equals in every run and value}, which stands for both."""
        every = self.entries
        shared = [m for m in self.measures if all(m in entry.system.scores for entry in every)]
        return proven_copies([self._matrix(m, every) for m in shared], [own.key for own in every])

    def _matrix(self, measure: str, entries: Sequence[BoardEntry]) -> ScoreMatrix:
        return ScoreMatrix(
            measure,
            tuple(entry.key for entry in entries),
            self.bundles[0].queries,
            {entry.key: entry.system.seeds for entry in entries},
            {entry.key: entry.system.scores[measure] for entry in entries},
        )

    @cached_property
    def by_measure(self) -> Mapping[str, tuple[ScoreMatrix, Ranks]]:
        """{measure: all systems in one matrix, and their ranks}."""
        joined = {}
        for measure in self.measures:
            own = (entry for entry in self.entries if entry.key not in self.copies)
            having = [entry for entry in own if measure in entry.system.scores]
            entries = without_copies(having, measure)
            matrix = self._matrix(measure, entries)
            if self.clusters:
                matrix = clustered(matrix, self.clusters.of[self.title])
            fixed = [entry.key for entry in entries if entry.system.deterministic]
            joined[measure] = matrix, rank_intervals(matrix, alpha=ALPHA, deterministic=fixed)
        return joined

    @property
    def primary(self) -> Ranks:
        """The ranks on the primary measure."""
        return self.by_measure[self.measures[0]][1]

    def named(self, keys: Iterable[str]) -> list[BoardEntry]:
        """The systems of these names."""
        return list(map({entry.key: entry for entry in self.entries}.__getitem__, keys))


def without_copies(entries: Iterable[BoardEntry], measure: str) -> list[BoardEntry]:
    """The systems, with a first stage that several bundles share on the measure once."""
    kept: dict[object, BoardEntry] = {}
    for entry in entries:
        shared = entry.system.row == FIRST_STAGE
        kept.setdefault(entry.system.scores[measure].tobytes() if shared else entry.key, entry)
    return list(kept.values())


def joint_tables(bundles: Iterable[Submission], clusters: str = "") -> list[JointTable]:
    """The verified submissions by their judgments; a title that occurs twice has their hash.
    `clusters` of their queries are as in a report: with "" those of the sweeps' commands."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Submission]] = {}
    for bundle in bundles:
        if bundle.systems:
            key = bundle.judgments, bundle.split, bundle.queries
            groups.setdefault(key, []).append(bundle)
    titles = [f"{own[0].collection}, {own[0].split}" for own in groups.values()]
    twice = Counter(titles)
    named = {
        f"{title}, judgments {key[0][:8]}" if twice[title] > 1 else title: own
        for title, (key, own) in zip(titles, groups.items(), strict=True)
    }
    return [
        JointTable(title, own, _clusters(title, own, clusters))
        for title, own in sorted(named.items())
    ]


def _clusters(title: str, bundles: Sequence[Submission], given: str) -> Clusters | None:
    """The clusters of a table's queries; without `given` those that all of its sweeps have."""
    if given not in ("", NONE):
        found = clusters_from(given, {title: bundles[0].known})
        check_clusters(found, {title: bundles[0].queries})
        return found
    own = bundles[0].known.facts.cluster
    alike = own and all(bundle.known.facts.cluster == own for bundle in bundles)
    return Clusters("those of the sweeps", {title: own}) if alike and not given else None


def site(bundles: Sequence[Submission], link: str, clusters: str = "") -> dict[str, bytes]:
    """{file: content} of a board. `link` leads to the folder of the bundles, from the pages'."""
    board = joint_tables(bundles, clusters)
    pages = {"index.html": _index(bundles, board, link)}
    for joint in board:
        for entry in joint.entries:
            if entry.page:
                pages[entry.page] = _system_page(entry, joint, link)
    return {name: text.encode() for name, text in pages.items()}


def _index(bundles: Sequence[Submission], board: Sequence[JointTable], link: str) -> str:
    states = Counter(bundle.state for bundle in bundles)
    sections = [part for joint in board for part in _sections(joint, board, link)]
    return render(
        "board.html",
        title="Which systems are statistically indistinguishable?",
        answer=_answer(board),
        notes=[*map(_leaders, board), *[RULE] * bool(board)],
        facts=[numbered(len(bundles), "bundle"), *(f"{states[name]} {name}" for name in states)],
        sections=[*sections, Section("Bundles", tables=[_bundles(bundles, link)])],
    )


def _answer(board: Sequence[JointTable]) -> str:
    """The collections in which one system is better than all others on the primary measure."""
    if not board:
        return "No bundle could be verified."
    ahead = [
        own.title
        for own in board
        if len(own.primary.intervals) > 1 and len(own.primary.groups[0]) == 1
    ]
    if not ahead:
        where = f" in any of {len(board)} tables" * (len(board) > 1)
        return f"No system is better than all others{where}."
    where = names_text(ahead)
    return f"One system is better than all others in {len(ahead)} of {len(board)} tables: {where}."


def _leaders(joint: JointTable) -> str:
    """The first group of the primary measure, in a sentence."""
    ranks = joint.primary
    if not ranks.groups:
        return f"{joint.title}: no system has {LEAST_SEEDS} training runs."
    names = [entry.system.label for entry in joint.named(ranks.groups[0])]
    if len(ranks.intervals) == 1:
        few = f"no other system has {LEAST_SEEDS} training runs"
        return f"{joint.title}: only {names[0]} has a rank; {few}."
    words = "is better than all others" if len(names) == 1 else "share the first group"
    of = numbered(len(ranks.intervals), "system")
    return f"{joint.title}: of {of} {names_text(names)} {words} on {ranks.measure}."


def _sections(joint: JointTable, board: Sequence[JointTable], link: str) -> list[Section]:
    """A table for every measure; those behind the first are folded."""
    bundle = joint.bundles[0]
    matrix, _ = joint.by_measure[joint.measures[0]]
    own = joint.clusters
    size = f"{len(matrix.query_ids)} clusters ({own.source}) of " if own else ""
    note = (
        f"{size}{len(bundle.queries)} queries, {numbered(len(joint.bundles), 'bundle')}; "
        f"judgments {bundle.judgments[:12]} (SHA-256)."
    )
    if any(own.bundles[0].collection == bundle.collection for own in board if own is not joint):
        note += (
            " Another table has a collection of this name and other judgments or queries: values "
            "of the two cannot be compared."
        )
    for copy, first in zip(*map(joint.named, (joint.copies, joint.copies.values())), strict=True):
        if copy.system.row != FIRST_STAGE:
            note += (
                f" {copy.system.label} of {copy.bundle.name} equals {first.system.label} of "
                f"{first.bundle.name} in every run and query and is listed once."
            )
    if own is None and (sharing := bundle.known.sharing):
        note += f" {sharing_found(matrix, sharing, combinations(matrix.cells, 2))[1]}"
    parts = []
    for at, measure in enumerate(joint.measures):
        shown = replace(_ranking(joint, measure, link), caption="" if at else note)
        parts.append(Section(f"{joint.title}: {measure}", tables=[shown], is_folded=at > 0))
    return parts


def _ranking(joint: JointTable, measure: str, link: str) -> Table:
    """The systems in their groups, by their means."""
    _, ranks = joint.by_measure[measure]
    heading = ("system", "rank", "", measure, "runs", "time per run", "bundle")
    groups = {f"Group {n}": group for n, group in enumerate(ranks.groups, start=1)}
    if ranks.unranked:
        groups[f"Without a rank: fewer than {LEAST_SEEDS} training runs"] = ranks.unranked
    rows = [
        _row(entry, measure, ranks, group, link)
        for group, keys in groups.items()
        for entry in joint.named(keys)
    ]
    return table(heading, rows, "lrcrrrl")


def _row(entry: BoardEntry, measure: str, ranks: Ranks, group: str, link: str) -> TableRow:
    system = entry.system
    K = len(ranks.intervals)
    low, high = ranks.intervals.get(entry.key, (0, 0))
    bar = (round(100 * (low - 1) / K, 2), round(100 * (high - low + 1) / K, 2)) if low else ()
    return table_row(
        TableCell(system.label, link=entry.page),
        _rank(ranks, entry.key),
        TableCell("", bar=bar),
        _mean(system, measure),
        MISSING if system.deterministic else str(len(system.seeds)),
        MISSING if math.isnan(system.seconds) else duration(system.seconds),
        TableCell(entry.bundle.name, link=_link(link, entry.bundle)),
        group=group,
    )


def _rank(ranks: Ranks, key: str) -> str:
    low, high = ranks.intervals.get(key, (MISSING, MISSING))
    return str(low) if low == high else f"{low}–{high}"


def _mean(system: BoardSystem, measure: str) -> TableCell:
    """The mean, and the standard deviation of the means of the runs."""
    means = system.scores[measure].mean(axis=1)
    note = f"± {number(float(np.std(means, ddof=1)))}" if len(means) > 1 else ""
    return TableCell(number(float(means.mean())), note=note)


def _link(link: str, bundle: Submission) -> str:
    return f"{link}/{quote(bundle.name)}"


def _bundles(bundles: Sequence[Submission], link: str) -> Table:
    """Every bundle with the outcome of its verification."""

    def row(bundle: Submission) -> TableRow:
        version = dict(bundle.versions).get("ranksweep", "")
        words = f"{bundle.state}: {bundle.reason}" if bundle.reason else bundle.state
        return table_row(
            TableCell(bundle.name, link=_link(link, bundle)),
            *(bundle.by or MISSING, bundle.commit or MISSING, version or MISSING),
            TableCell(words, face="lost" if bundle.state == FAILED else ""),
            bundle.headline or MISSING,
        )

    heading = ("bundle", "submitted by", "commit", "ranksweep", "verification", "its sweep")
    words = (
        "Verified: every per-query value was computed again from the runs and judgments in the "
        "bundle (ranksweep verify FILE). No table has a value of another bundle."
    )
    return table(heading, map(row, bundles), "llllll", caption=words)


def _system_page(entry: BoardEntry, joint: JointTable, link: str) -> str:
    bundle, system = entry.bundle, entry.system
    up = link if "://" in link else f"../{link}"
    heading = ("measure", "rank", "of", "mean", *(f"seed {seed}" for seed in system.seeds))
    rows: list[list[str | TableCell]] = []
    for measure, values in system.scores.items():
        _, ranks = joint.by_measure[measure]
        means = (number(float(mean)) for mean in values.mean(axis=1))
        of = str(len(ranks.intervals))
        rows.append([measure, _rank(ranks, entry.key), of, _mean(system, measure), *means])
    cost = [] if math.isnan(system.seconds) else [("time per run", duration(system.seconds))]
    about = [("submitted by", bundle.by), ("commit", bundle.commit), ("SHA-256", bundle.sha256)]
    about.append(("judgments", bundle.judgments))
    return render(
        "page.html",
        title=system.label,
        answer=", ".join(f"{name} = {value}" for name, value in system.swept) or system.row,
        notes=[
            f"Its sweep: {bundle.headline}",
            *(f"{verdict}: {text}" for verdict, text in bundle.checks),
        ],
        facts=[joint.title, bundle.question],
        sections=[
            Section(tables=[table(heading, rows)], link=("../index.html", "All systems")),
            Section(
                "Bundle", link=(_link(up, bundle), bundle.name), values=[a for a in about if a[1]]
            ),
            Section("Command", code=bundle.command, values=[*cost, *bundle.versions]),
            Section("Settings", values=system.settings, is_folded=True),
        ],
    )
