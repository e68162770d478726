"""`ranksweep verify FILE.zip`: every number of a bundle, recomputed from its runs and judgments."""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd

from rank_core.data.named_files import named_qrels
from rank_core.data.readers import Fields, parse_fields
from rank_core.data.trec import read_run
from rank_core.errors import BadInput, shown
from rank_core.evaluate import per_query
from rank_core.records import Qrels
from rank_core.settings.config import TrialConfig
from sweeps.commands.bundle import (
    FORMAT,
    MANIFEST,
    SPLITS,
    SWEEP,
    TRIAL_FILES,
    Manifest,
    files_of,
    installed,
    put_qrels,
    read_judgments,
    report_of,
    unpack,
    wrong_sums,
)
from sweeps.plan.command_line import Parser
from sweeps.plan.terminal import say
from sweeps.store.records import RESULT, SCORES, TRIALS, Records, State
from sweeps.store.scores import SCORE_COLUMNS, TEXTS, as_categories, read_scores
from sweeps.store.sweep_file import FILE, INTERPOLATED, SweepFile, find_sweep, read_sweep_file

MISMATCH = 3  # exit code; 1 is an error of the program itself
RELATIVE, ABSOLUTE = 1e-6, 1e-12
"""Tolerance of unrounded numbers: another processor may round the last digits differently. Rounded
numbers of tables and pages must be equal."""
EXACT = (".md", ".tex", ".html")
KEYS = ["cell", "seed", "split", "query_id", "measure"]
LONGEST = 160  # characters of a line in a message
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")
_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


def main(argv: Sequence[str]) -> int:
    """Check a bundle on any machine: its checksums; every per-query value against runs and
    judgments; results.json, tables and pages against these values, by the program that makes a
    report. Exit code 0: everything matches; 3: the first difference of each file is named. If the
    bundle has only the hash of its judgments, name those of dev and test with --qrels, as files or
    `ir:ID`; without them the per-query values are not checked. Judgments of --qrels are used in
    place of those in the bundle."""
    parser = Parser("ranksweep verify", main.__doc__)
    parser.add_argument("bundle", metavar="FILE.zip", type=Path, help="as `bundle` wrote it")
    parser.add_argument("--qrels", nargs="+", default=[], metavar="FILE", help="the judgments")
    parser.add_argument("--fields", metavar="THEIRS=OURS,...", help="field names of --qrels")
    given = parser.parse_args(argv)
    fields = parse_fields(given.fields) if given.fields else {}
    wrong = False
    for verdict, text in verify(given.bundle, given.qrels, fields):
        say(f"{verdict:<12}{text}")
        wrong = wrong or verdict == "wrong"
    say(f"{given.bundle}: {'not everything' if wrong else 'everything that was checked'} matches")
    return MISMATCH if wrong else 0


def verify(
    bundle: Path, qrels: Sequence[str] = (), fields: Fields | None = None
) -> Iterator[tuple[str, str]]:
    """(verdict, text): what was `checked`, what was `not checked` and why, and what is `wrong`.
    Raises `BadInput` for another file or other judgments."""
    with unpacked(bundle) as folder:
        yield from check_unpacked(folder, joined_judgments(qrels, fields))


@contextmanager
def unpacked(bundle: Path) -> Iterator[Path]:
    """Yields a temporary folder with a bundle's files. Errors while it is read become a `BadInput`
    that names the bundle."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unpack(bundle, folder)
        try:
            yield folder
        except BadInput as error:
            raise BadInput(f"{bundle}: {str(error).replace(f'{folder}/', '')}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError) as error:
            raise BadInput(f"{bundle} is not as `bundle` wrote it: {error!r}") from None


def check_unpacked(folder: Path, qrels: Qrels) -> Iterator[tuple[str, str]]:
    """The verdicts of `verify` on the files of a bundle; judgments it was given stay in the folder
    only where the bundle includes its own."""
    about = manifest(folder)
    yield "checked", f"SHA-256 of {len(files_of(folder))} files"
    for file, stated, own in wrong_sums(folder):
        yield "wrong", f"{file}: SHA-256: states {stated}, is {own}"
    yield from _verify(folder / SWEEP, about, qrels)


def manifest(folder: Path) -> Manifest:
    """The provenance of an unpacked bundle."""
    content = json.loads((folder / MANIFEST).read_bytes())
    if content["format"] != FORMAT:
        raise BadInput(f"{MANIFEST} has format {content['format']}, of another ranksweep")
    return Manifest(**content)


def joined_judgments(names: Sequence[str], fields: Fields | None = None) -> Qrels:
    """The judgments of files or `ir:ID`, put together."""
    judgments: Qrels = {}
    for name in names:
        for query_id, grades in named_qrels(name, fields).items():
            judgments.setdefault(query_id, {}).update(grades)
    return judgments


def _verify(folder: Path, about: Manifest, qrels: Qrels) -> Iterator[tuple[str, str]]:
    """Compare each layer with the layer below it, the report with recomputed values."""
    sweep, records = read_sweep_file(folder), find_sweep(str(folder))
    if outside := [cell.cell for cell in sweep.cells if Path(cell.cell).name != cell.cell]:
        raise BadInput(f"a cell's name must be plain, got {shown(outside[0])}")
    names = finished_trials(sweep, records)
    there = {path.name for path in (folder / TRIALS).iterdir()}
    lacking = sorted(({*sweep.trials} | there) - set(names))
    if lacking:
        yield "not checked", f"trials that the table lacks: {', '.join(lacking)}"
    states = records.states(names).values()
    if damage := [f"{s.name}: {d}" for s in states if (d := _damage(records, s))]:
        yield "wrong", f"{SWEEP}/{TRIALS}/{damage[0]}"
        return
    stated = read_scores(records, names)
    if qrels:
        _give_qrels(folder, about, qrels, stated)
    judged = read_judgments(folder)
    values = _recomputed(records, stated, judged)
    if judged:
        yield "checked", f"{len(values):,} per-query values against runs and judgments"
        yield from _wrong_values(stated, values)
        shutil.rmtree(folder / INTERPOLATED, ignore_errors=True)  # made again with the report
    else:
        yield (
            "not checked",
            "per-query values against runs, rows with the first stage: the bundle has only the "
            "hash of its judgments; name them with --qrels FILE",
        )
    if about.ranksweep != installed():
        yield "not checked", f"the report: written by ranksweep {about.ranksweep}, install that one"
        return
    for difference in _otherwise_described(records, sweep, names):
        yield "wrong", f"{SWEEP}/{FILE}: {difference}"
    report = report_of(folder, about, values)
    texts = sorted(name for name in report if Path(name).suffix not in (".png", ".svg"))
    yield "checked", f"{len(texts)} files of the report, from these values"
    for name in texts:
        path = folder / "report" / name
        content = path.read_bytes() if path.is_file() else b""
        if difference := first_difference(name, content.decode(), report[name].decode()):
            yield "wrong", f"{SWEEP}/report/{name}: {difference}"


def finished_trials(sweep: SweepFile, records: Records) -> list[str]:
    """The planned trials of an unpacked bundle that have a result."""
    names = [f"{cell.cell}-seed{seed}" for cell in sweep.cells for seed in sorted(sweep.seeds)]
    return [name for name in names if (records.trial_folder(name) / RESULT).is_file()]


def _damage(records: Records, state: State) -> str:
    """The damage of a trial, "" for none; a bundle has not all of its files."""
    files = () if state.damage else records.result(state.name).files
    left_out = {name for name in files if Path(name).name == name} - TRIAL_FILES
    return records.damage(state, thorough=True, may_lack=left_out)


def _otherwise_described(records: Records, sweep: SweepFile, names: Sequence[str]) -> Iterator[str]:
    """The labels of the description against the settings of its trials."""
    own, groups = {}, {cell.cell: cell.group for cell in sweep.cells}
    for name in names:
        cut = TrialConfig().override(json.loads(records.read(name, "config.json"))).chunking
        cell, stride = name.rpartition("-seed")[0], f"/{cut.stride}"
        windows = f"{cut.window}{'' if cut.stride == cut.window else stride}"
        own[cell] = f"{groups[cell]} {windows}"  # the usual label
    for one in sweep.cells:
        usual = own.get(one.cell, one.label)
        if one.label != usual and one.label in own.values():
            yield f"the label {shown(one.label)} is another cell's, {one.cell} is {usual}"


def _give_qrels(folder: Path, about: Manifest, given: Qrels, values: pd.DataFrame) -> None:
    """Write the judgments of `--qrels` into the folder. Refuse those with another hash than the
    bundle has. Queries that `--qrels` lacks keep those in the bundle."""
    included = read_judgments(folder) if about.qrels == "include" else {}
    judgments = {query: grades for part in included.values() for query, grades in part.items()}
    judgments |= given
    notes = {path: path.read_text() for path in sorted((folder / "qrels").glob("*.sha256"))}
    queries = values.groupby("split", observed=True)["query_id"].unique()
    own = {split: [q for q in queries.get(split, ()) if q in judgments] for split in SPLITS}
    put_qrels(folder, {split: {q: judgments[q] for q in ids} for split, ids in own.items()})
    for path, note in notes.items():
        if path.read_text() != note:
            raise BadInput(f"--qrels must name the judgments whose hash is qrels/{path.name}")


def _recomputed(
    records: Records, stated: pd.DataFrame, judged: Mapping[str, Qrels]
) -> pd.DataFrame:
    """The stated per-query values with those of judged splits computed from runs."""
    tables = [stated[~stated["split"].isin(list(judged))]]
    for (cell, seed), part in stated.groupby(["cell", "seed"], observed=True, sort=False):
        for split, qrels in judged.items():
            measures = sorted(set(part.loc[part["split"] == split, "measure"]))
            run = read_run(records.trial_folder(f"{cell}-seed{seed}") / f"{split}.run.gz")
            tables.append(per_query(qrels, run, measures).assign(cell=cell, seed=seed, split=split))
    plain = [table.astype(dict.fromkeys(TEXTS, str))[list(SCORE_COLUMNS)] for table in tables]
    whole = pd.concat(plain, ignore_index=True).set_index(KEYS)
    order = pd.MultiIndex.from_frame(stated.astype(dict.fromkeys(TEXTS, str))[KEYS])
    more = whole.index.difference(order, sort=False)
    return as_categories(whole.reindex(order.append(more)).reset_index()[list(SCORE_COLUMNS)])


def _wrong_values(stated: pd.DataFrame, own: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """The first value of each trial that differs."""
    tables = [table.astype(dict.fromkeys(TEXTS, str)) for table in (stated, own)]
    both = tables[0].merge(tables[1], on=KEYS, how="outer", suffixes=("", "_own"), sort=False)
    same = np.isclose(both["value"], both["value_own"], rtol=RELATIVE, atol=ABSOLUTE)
    for row in both[~same].drop_duplicates(["cell", "seed"]).to_dict("records"):
        trial = f"{SWEEP}/{TRIALS}/{row['cell']}-seed{row['seed']}/{SCORES}"
        place = f"{row['split']}, query {row['query_id']}, {row['measure']}"
        values = f"states {row['value']}, recomputed {row['value_own']}"
        yield "wrong", f"{trial}: {place}: {values}"


def first_difference(name: str, stated: str, own: str) -> str:
    """The first line in which two versions of a file of the report differ; "" where none does.
    Figures are left to the checksums."""
    lines = [_SVG.sub("", text).splitlines() for text in (stated, own)]
    for number, (left, right) in enumerate(zip_longest(*lines, fillvalue=""), start=1):
        if left != right and (name.endswith(EXACT) or not _nearly(left, right)):
            at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
            begin = max(0, at - LONGEST // 2)
            texts = [text[begin : begin + LONGEST].strip() for text in (left, right)]
            return f"line {number}: states {texts[0]!r}, recomputed {texts[1]!r}"
    return ""


def _nearly(stated: str, own: str) -> bool:
    """True if two lines differ in the last digits of unrounded numbers alone."""
    numbers = [[float(text) for text in _NUMBER.findall(line)] for line in (stated, own)]
    return _NUMBER.sub("#", stated) == _NUMBER.sub("#", own) and all(
        math.isclose(*pair, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        for pair in zip(*numbers, strict=True)
    )
