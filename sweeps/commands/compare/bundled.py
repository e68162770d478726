"""A comparison as one file that anyone can check: `bundle DIR` of the folder of `compare --out`.

inputs/           the files of runs or values, the judgments, and clusters if they are a file
comparison.json   which file is which run, and how they are tested
report/           made from these alone
bundle.json, SHA256SUMS, as in the bundle of a sweep
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from rank_core.errors import BadInput, shown
from rank_core.files import file_sha256, write_json
from rank_core.parsing import parsed_json
from sweeps.commands import bundle as sweeps_bundle
from sweeps.commands.bundle import COMPARISON, Manifest, Verdict
from sweeps.report.comparison import RunComparison, compare_runs
from sweeps.report.comparison_files import all_pairs, comparison_files
from sweeps.report.query_page import QUERY_PAGE
from sweeps.report.ranks import rank_rows
from sweeps.store.records import SCORES
from sweeps.store.test_options import TestOptions

FILE, INPUTS, REPORT, FORMAT = COMPARISON, "inputs", "report", 1
CLUSTERS = ("", "auto", "group")  # other than a file
OPTIONS = ("baselines", "deterministic", "measures", "digits")


@dataclass(frozen=True)
class Compared:
    """The inputs and options of a comparison: the content of its `comparison.json`."""

    command: str
    systems: Mapping[str, Mapping[str, Mapping[str, str]]]  # {system: {run: {query set: file}}}
    qrels: Mapping[str, str]  # {query set: file}
    tests: Mapping[str, Any]
    options: Mapping[str, Any]  # of `compare_runs`
    compact: bool
    ranks: bool
    all_pairs: bool
    sums: Mapping[str, str]  # {file: SHA-256}
    format: int = FORMAT

    @property
    def files(self) -> list[str]:
        """All files, once each: of runs or values, judgments, clusters."""
        runs = (run.values() for system in self.systems.values() for run in system.values())
        named = [*(file for run in runs for file in run), *self.qrels.values()]
        clusters = self.tests["clusters"]
        return list(dict.fromkeys([*named, *([] if clusters in CLUSTERS else [clusters])]))

    def with_files(self, names: Mapping[str, str]) -> "Compared":
        """The same with other paths of its files."""
        systems = {
            name: {run: {s: names[file] for s, file in on.items()} for run, on in runs.items()}
            for name, runs in self.systems.items()
        }
        qrels = {name: names[file] for name, file in self.qrels.items()}
        clusters = self.tests["clusters"]
        tests = {**self.tests, "clusters": names.get(clusters, clusters)}
        sums = {names[file]: digest for file, digest in self.sums.items()}
        return replace(self, systems=systems, qrels=qrels, tests=tests, sums=sums)


def write_inputs(
    comparison: RunComparison, folder: Path, qrels: Mapping[str, Path], **facts: Any
) -> None:
    """Writes what `bundle` needs into the folder of a comparison."""
    systems: dict[str, dict[str, dict[str, str]]] = {}
    for run in comparison.runs:
        places = {query_set: str(part.where) for query_set, part in run.on.items()}
        systems.setdefault(run.system, {})[str(run.seed)] = places
    judged = {name: str(path) for name, path in qrels.items()}
    about = Compared(systems=systems, qrels=judged, sums={}, **facts)
    sums = {file: file_sha256(Path(file)) for file in about.files if Path(file).is_file()}
    write_json(folder / FILE, asdict(replace(about, sums=sums)))


def read_inputs(folder: Path) -> Compared:
    """The inputs and options in a folder. Raises `BadInput` for another version's."""
    path = folder / FILE
    content = parsed_json(path.read_bytes(), path)
    if content["format"] != FORMAT:
        raise BadInput(f"{FILE} has format {content['format']}, of another ranksweep")
    return Compared(**content)


def stage(folder: Path, source: Path, about: Manifest) -> None:
    """Fills `folder` with the contents of the bundle of a comparison. Raises `BadInput` for inputs
    that are no files here, or were changed since."""
    given = read_inputs(source)
    names: dict[str, str] = {}
    for number, file in enumerate(given.files):
        path = Path(file)
        if not path.is_file():
            raise BadInput(
                f"{file}, an input of {source}, is no file here: bundle a comparison of files of "
                "runs or values, in the folder where it was made (a sweep has its own bundle)"
            )
        if file_sha256(path) != given.sums.get(file):
            raise BadInput(f"{file} was changed after the comparison in {source}: compare again")
        names[file] = f"{INPUTS}/{number:03d}/{path.name}"
        (folder / names[file]).parent.mkdir(parents=True)
        shutil.copyfile(path, folder / names[file])
    staged = given.with_files(names)
    write_json(folder / FILE, asdict(staged))
    for name, content in _report(folder, staged, about).items():
        (folder / REPORT / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / REPORT / name).write_bytes(content)
    if about.qrels == "hash":
        for file in {*staged.qrels.values()}:
            (folder / file).unlink()


def verdicts(folder: Path, qrels: Sequence[str]) -> Iterator[Verdict]:
    """The verdicts of `verify` on an unpacked bundle of a comparison."""
    about, staged = sweeps_bundle.manifest(folder), read_inputs(folder)
    held = sweeps_bundle.files_of(folder)
    yield "checked", f"SHA-256 of {len(held)} files"
    for file, stated, actual in sweeps_bundle.wrong_sums(folder):
        yield "wrong", f"{file}: SHA-256: states {stated}, is {actual}"
    hashed = {*staged.qrels.values()} if about.qrels == "hash" else set()
    inputs = {*staged.files}
    for file in sorted(inputs):
        parts = PurePosixPath(file).parts
        if parts[0] != INPUTS or ".." in parts or file not in {*held, *hashed}:
            raise BadInput(f"{FILE} names {shown(file)}, which is not in it")
    if staged.options.keys() != {*OPTIONS}:
        raise BadInput(f"{FILE} must have the options {', '.join(OPTIONS)}")
    for file in sorted({*held} - inputs - {FILE, sweeps_bundle.MANIFEST}):
        if not file.startswith(f"{REPORT}/"):
            yield "wrong", f"{file}: a bundle of this comparison has no such file"
    for file in sorted(inputs - hashed):
        if (actual := file_sha256(folder / file)) != staged.sums[file]:
            yield "wrong", f"{file}: {FILE} states {staged.sums[file]}, is {actual}"
            return
    if hashed and not qrels:
        yield "not checked", f"the report: {sweeps_bundle.BY_QRELS}"
        return
    _give(folder, staged, sorted(hashed), qrels)
    if unknown := sweeps_bundle.not_recomputed(staged.options["measures"]):
        yield "not checked", f"the report, with {unknown[0]} in it: --measure runs its module"
    elif about.ranksweep != sweeps_bundle.installed():
        yield "not checked", f"the report: written by ranksweep {about.ranksweep}, install that one"
    else:
        made = _report(folder, staged, about)
        yield from sweeps_bundle.compared(folder / REPORT, made, about, REPORT)


def _give(folder: Path, staged: Compared, hashed: Sequence[str], qrels: Sequence[str]) -> None:
    """Puts the judgments of `--qrels` where the bundle has only their hash."""
    if qrels and not hashed:
        raise BadInput("--qrels has no effect: this bundle has its judgments, or needs none")
    of_sum = {file_sha256(Path(name)): name for name in qrels if Path(name).is_file()}
    for file in hashed:
        if (name := of_sum.get(staged.sums[file])) is None:
            raise BadInput(f"--qrels must name the file whose SHA-256 is {staged.sums[file]}")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(name, folder / file)


def _report(folder: Path, staged: Compared, about: Manifest) -> dict[str, bytes]:
    """{file: contents} of the report on the staged files; of judgments that are only hashed no page
    shows any."""
    with chdir(folder):  # so that every file has the same path on every machine
        comparison = compare_runs(
            {
                name: [_source(run) for run in runs.values()]
                for name, runs in staged.systems.items()
            },
            {name: Path(file) for name, file in staged.qrels.items()} or None,
            TestOptions(**staged.tests),
            command=staged.command,
            **staged.options,
        )
        pairs = all_pairs(comparison.analysis) if staged.all_pairs else []
        ranks = rank_rows(comparison.analysis) if staged.ranks else []
        files = comparison_files(comparison, pairs, ranks, compact=staged.compact)
    left_out = {SCORES} | ({QUERY_PAGE} if about.qrels == "hash" else set())
    return {name: content for name, content in files.items() if name not in left_out}


def _source(on: Mapping[str, str]) -> str | dict[str, str]:
    """A run as `compare_runs` takes it: a file, or one for each query set."""
    return on[""] if on.keys() == {""} else dict(on)
