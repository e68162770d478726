"""`ranksweep verify FILE.zip`: every number of a bundle, recomputed from its runs and judgments."""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from rank_core.data.named_files import named_qrels
from rank_core.data.readers.records import Fields, parse_fields
from rank_core.data.trec import read_run
from rank_core.errors import BadInput, shown
from rank_core.evaluate import per_query
from rank_core.files import write_json
from rank_core.records import Qrels
from sweeps.commands.bundle.archive import files_of, unpack, wrong_sums
from sweeps.commands.bundle.contents import (
    SPLITS,
    SWEEP,
    Manifest,
    put_qrels,
    read_judgments,
    read_manifest,
    report_of,
)
from sweeps.commands.bundle.crate import described
from sweeps.commands.bundle.differences import (
    ABSOLUTE,
    FIGURES,
    RELATIVE,
    Difference,
    close,
    differences,
    is_number,
)
from sweeps.plan.command_line import Parser
from sweeps.plan.terminal import numbered, say
from sweeps.report.interpolation import digest_file
from sweeps.report.load import read_trials, score_table
from sweeps.store.checksums import RESULT, SCORES, DamagedTrial, Result, read_result, seal
from sweeps.store.scores import SCORE_COLUMNS, TEXTS, as_categories
from sweeps.store.sweep_file import INTERPOLATED, SweepFile, read_sweep_file
from sweeps.store.trial_status import USED

MISMATCH = 3  # exit code; 1 is an error of the program itself
NAMED = 5  # differences of one file in the output
KEYS = ["cell", "seed", "split", "query_id", "measure"]
PLAIN = re.compile(r"[A-Za-z0-9._+-]+")


@dataclass
class Verdict:
    """The result of `verify`: the parts that were compared, those that were not and why, and the
    differences."""

    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    wrong: list[Difference] = field(default_factory=list)

    def add(self, what: str, wrong: Iterable[Difference]) -> None:
        """Add the differences of one comparison."""
        self.checked.append(what)
        self.wrong += wrong


def main(argv: Sequence[str]) -> int:
    """Check a bundle on any machine: its checksums; every per-query value against runs and
    judgments; every number of results.json, tables, pages and figures against these values, by the
    program that makes a report. Exit code 0: everything matches; 3: the listed values do not. If
    the bundle has only the hash of its judgments, name those of dev and test with --qrels, as files
    or `ir:ID`; without them the per-query values are not checked."""
    parser = Parser("ranksweep verify", main.__doc__)
    parser.add_argument("bundle", metavar="FILE.zip", type=Path, help="as `bundle` wrote it")
    parser.add_argument("--qrels", nargs="+", default=[], metavar="FILE", help="the judgments")
    parser.add_argument("--fields", metavar="THEIRS=OURS,...", help="field names of --qrels")
    given = parser.parse_args(argv)
    fields = parse_fields(given.fields) if given.fields else {}
    verdict = verify(given.bundle, given.qrels, fields)
    for text in verdict.checked:
        say(f"checked     {text}")
    for text in verdict.unchecked:
        say(f"not checked {text}")
    for file, of_file in groupby(verdict.wrong, lambda difference: difference.file):
        some = list(of_file)
        for difference in some[:NAMED]:
            say(f"wrong       {difference}")
        if len(some) > NAMED:
            say(f"wrong       {file}: and {len(some) - NAMED} more")
    if verdict.wrong:
        say(f"{given.bundle}: {numbered(len(verdict.wrong), 'number')} or texts do not match")
        return MISMATCH
    checked = " that was checked" if verdict.unchecked else ""
    say(f"{given.bundle}: everything{checked} matches")
    return 0


def verify(bundle: Path, qrels: Sequence[str] = (), fields: Fields | None = None) -> Verdict:
    """The verdict on a bundle. Raises `BadInput` for another file or other judgments."""
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unpack(bundle, folder)
        try:
            manifest = read_manifest(folder)
            sums = [
                Difference(file, "SHA-256", stated, own) for file, stated, own in wrong_sums(folder)
            ]
            verdict.add(f"SHA-256 of {len(files_of(folder))} files", sums)
            _verify(folder, manifest, _judgments(qrels, fields), verdict)
        except DamagedTrial as error:
            raise BadInput(f"{bundle}: {error.text}") from None
        except BadInput as error:
            text = str(error).replace(f"{folder}/", "")
            if not verdict.wrong:
                raise BadInput(f"{bundle}: {text}") from None
            verdict.unchecked.append(f"the parts after this error: {text}")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError) as error:
            raise BadInput(f"{bundle} is not as `bundle` wrote it: {error!r}") from None
    return verdict


def _verify(folder: Path, manifest: Manifest, qrels: Qrels, verdict: Verdict) -> None:
    """Compare each layer with the layer below it, the report with recomputed values."""
    if "ranksweep" not in manifest.other_versions():
        verdict.add("README, CITATION.cff and RO-Crate metadata", _description(folder, manifest))
    place = folder / SWEEP
    sweep = read_sweep_file(place)
    if strange := [cell.cell for cell in sweep.cells if not PLAIN.fullmatch(cell.cell)]:
        raise BadInput(f"a cell's name must be plain, got {shown(strange[0])}")
    trials = read_trials(place / "trials.parquet", sweep)
    stated = score_table(place, trials, sweep)
    _give_qrels(place, manifest, qrels, stated)
    judged = read_judgments(place)
    what = "settings, costs and checksums of trials"
    verdict.add(what, _trials(place, sweep, trials, read_again=bool(judged)))
    values = _recomputed(place, stated, judged)
    if judged:
        what = f"{len(values):,} per-query values against runs and judgments"
        verdict.add(what, _values(f"{SWEEP}/{SCORES}", stated, values))
        verdict.add("means of trials", _means(place, values))
        (place / INTERPOLATED).is_dir() and shutil.move(place / INTERPOLATED, folder / "stated")
    else:
        verdict.unchecked.append(
            "per-query values against runs, rows with the first stage: the bundle has only the "
            "hash of its judgments; name them with --qrels FILE"
        )
    report = report_of(place, manifest, values)
    if judged:
        verdict.add("values of rows with the first stage", _derived(folder / "stated", place))
    _compare_report(place / "report", report, manifest, verdict)


def _description(folder: Path, manifest: Manifest) -> Iterator[Difference]:
    files = files_of(folder)
    for name, text in described(folder, manifest, files).items():
        stated = (folder / name).read_bytes() if name in files else b""
        yield from differences(name, stated, text.encode(), figures=True)


def _trials(
    place: Path, sweep: SweepFile, trials: pd.DataFrame, *, read_again: bool
) -> Iterator[Difference]:
    """Changed files of trials, and settings and costs in tables that differ from the trial's. With
    `read_again` a changed trial gets new checksums, so that its runs can be read."""
    settings = {cell.cell: cell.settings for cell in sweep.cells}
    for row in trials.to_dict("records"):
        name = f"{row['cell']}-seed{row['seed']}"
        trial, file = place / "runs" / name, f"{SWEEP}/runs/{name}"
        if row["status"] not in USED:
            continue
        content = json.loads((trial / RESULT).read_bytes())
        result = Result(content, content.pop("files", {}))
        try:
            read_result(trial)
            changed = False
        except DamagedTrial:
            yield Difference(f"{file}/{RESULT}", "", "a checksum", "another one")
            changed = True
        for known, facts in result.files.items():
            scores = place / SCORES / f"{name}.parquet"
            path = scores if known == SCORES else trial / known
            if path.is_file() and (digest := digest_file(path)) != facts["sha256"]:
                yield Difference(f"{file}/{known}", "SHA-256", facts["sha256"], digest)
                changed = True
        if changed and read_again:
            content.pop("checksum", None)
            write_json(trial / RESULT, content)
            seal(trial)
        config = json.loads((trial / "config.json").read_bytes())
        for key, value in settings[row["cell"]].items():
            if config.get(key) != value:
                yield Difference(f"{SWEEP}/sweep.json", f"{row['cell']}, {key}", str(value),
                                 str(config.get(key)))  # fmt: skip
        shared = (result.facts | config).items()
        for key, value in ((key, value) for key, value in shared if key in row):
            if not _equal(row[key], value):
                place_of = f"{row['cell']}, seed {row['seed']}, {key}"
                yield Difference(f"{SWEEP}/trials.parquet", place_of, str(row[key]), str(value))


def _equal(stated: object, own: object) -> bool:
    numbers = isinstance(stated, int | float) and isinstance(own, int | float)
    return close(stated, own) if numbers else str(stated) == str(own)  # type: ignore[arg-type]


def _judgments(names: Sequence[str], fields: Fields | None) -> Qrels:
    judgments: Qrels = {}
    for name in names:
        for query_id, grades in named_qrels(name, fields).items():
            judgments.setdefault(query_id, {}).update(grades)
    return judgments


def _give_qrels(place: Path, manifest: Manifest, judgments: Qrels, values: pd.DataFrame) -> None:
    """Write the judgments of `--qrels` into the folder; refuse those with another hash."""
    if manifest.qrels == "include" or not judgments:
        return
    notes = {path: path.read_text() for path in sorted((place / "qrels").glob("*.sha256"))}
    queries = {split: set(part) for split, part in
               values.groupby("split", observed=True)["query_id"].unique().items()}  # fmt: skip
    put_qrels(place, {split: {q: judgments[q] for q in queries.get(split, ()) if q in judgments}
                      for split in SPLITS})  # fmt: skip
    for path, note in notes.items():
        if path.read_text() != note:
            split = path.name.partition(".")[0]
            of_split = queries.get(split, set())
            wrong = "have another SHA-256" if of_split & judgments.keys() else "are missing"
            raise BadInput(
                "--qrels must name the judgments of dev and test; those of the bundle's "
                f"{len(of_split)} {split} queries {wrong}"
            )


def _recomputed(place: Path, stated: pd.DataFrame, judged: Mapping[str, Qrels]) -> pd.DataFrame:
    """The stated per-query values with those of judged splits computed from runs, in their order;
    values that are not stated come last."""
    tables = []
    for (cell, seed), part in stated.groupby(["cell", "seed"], observed=True, sort=False):
        for split in judged:
            run = place / "runs" / f"{cell}-seed{seed}" / f"{split}.run.gz"
            if not (measures := sorted(set(part.loc[part["split"] == split, "measure"]))):
                continue
            values = per_query(judged[split], read_run(run), measures)
            tables.append(values.assign(cell=cell, seed=seed, split=split))
    if not tables:
        return stated
    own = pd.concat(tables, ignore_index=True)[list(SCORE_COLUMNS)]
    kept = stated[~stated["split"].isin(list(judged))]
    plain = stated.astype(dict.fromkeys(TEXTS, str))[KEYS]
    ordered = plain.merge(own, on=KEYS, how="left")
    more = own.merge(plain, on=KEYS, how="left", indicator=True)
    more = more[more.pop("_merge") == "left_only"]
    whole = pd.concat([kept, ordered.dropna(subset="value"), more], ignore_index=True)
    return as_categories(whole[list(SCORE_COLUMNS)])


def _values(file: str, stated: pd.DataFrame, own: pd.DataFrame) -> Iterator[Difference]:
    """The values that differ between two tables or are in one alone, likewise `alpha`."""
    columns = [name for name in ("value", "alpha") if name in own and name in stated]
    tables = [table.astype(dict.fromkeys(TEXTS, str))[[*KEYS, *columns]] for table in (stated, own)]
    both = tables[0].merge(tables[1], on=KEYS, how="outer", suffixes=("", "_own"), sort=False)
    for column in columns:
        left, right = both[column], both[f"{column}_own"]
        same = np.isclose(left, right, rtol=RELATIVE, atol=ABSOLUTE)
        for row in both[~same].to_dict("records"):
            where = "{cell}, seed {seed}, {split}, query {query_id}, {measure}".format(**row)
            where += ", alpha" if column == "alpha" else ""
            values = ["none" if math.isnan(row[name]) else repr(row[name])
                     for name in (column, f"{column}_own")]  # fmt: skip
            yield Difference(file, where, *values)


def _means(place: Path, values: pd.DataFrame) -> Iterator[Difference]:
    """Means in results of trials that differ from the means of their values."""
    means = values.groupby(["cell", "seed", "split", "measure"], observed=True)["value"].mean()
    for (cell, seed, split, measure), mean in means.items():
        name = f"{cell}-seed{seed}"
        stated = read_result(place / "runs" / name).facts.get(split, {}).get(measure)
        if stated is not None and not close(stated, mean):
            file = f"{SWEEP}/runs/{name}/{RESULT}"
            yield Difference(file, f"{split}, {measure}", repr(stated), repr(mean))


def _derived(stated: Path, place: Path) -> Iterator[Difference]:
    """The values that differ in trials interpolated with the first stage."""
    folders = stated, place / INTERPOLATED
    for name in sorted({path.name for folder in folders for path in folder.glob("*")}):
        file = f"{SWEEP}/{INTERPOLATED}/{name}"
        here = [(folder / name).is_file() for folder in folders]
        if all(here):
            yield from _values(file, *(pd.read_parquet(folder / name) for folder in folders))
        else:
            yield Difference(file, "", *("a file" if exists else "no file" for exists in here))


def _compare_report(
    folder: Path, report: Mapping[str, bytes], manifest: Manifest, verdict: Verdict
) -> None:
    """Compare every file of a report that the installed versions can reproduce."""
    others = manifest.other_versions()
    stated = {name: folder / name for name in files_of(folder)}
    names = {*stated, *report}
    if "matplotlib" in others:
        verdict.unchecked.append(f"figures: drawn by matplotlib {others['matplotlib']}")
        names = {name for name in names if not name.endswith(FIGURES)}
    if "ranksweep" in others:
        words = f"pages, md and tex: written by ranksweep {others['ranksweep']}, whose texts differ"
        verdict.unchecked.append(words)
        names = {name for name in names if name.endswith((".json", ".csv"))}
    wrong: list[Difference] = []
    for name in sorted(names):
        file = f"{SWEEP}/report/{name}"
        if name in stated and name in report:
            content = stated[name].read_bytes()
            wrong += differences(file, content, report[name], figures="matplotlib" not in others)
        else:
            files = ("a file", "no file") if name in stated else ("no file", "a file")
            wrong.append(Difference(file, "", *files))
    if "ranksweep" in others:
        wrong = [pair for pair in wrong if is_number(pair.stated) and is_number(pair.own)]
    verdict.add(f"{len(names)} files of the report, from these values", wrong)
    if wrong and others:
        listed = ", ".join(f"{name} {version}" for name, version in others.items())
        verdict.unchecked.append(
            f"whether {listed}, the versions of the report, would give these numbers"
        )
