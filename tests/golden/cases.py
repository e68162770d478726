"""What is frozen: each case makes inputs with planted values in the working directory, runs
commands on them as a user does, and returns the texts that a user gets.

`quickstart` has every file of a report. Other cases leave out tables that say the same again.
"""

import io
import zipfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sweeps.__main__ import main
from tests.golden.frozen import Texts, words_of_page
from tests.sweeps.launch.test_confirmation import CONFIRMS
from tests.sweeps.report.chunk_sweep import write_chunk_sweep
from tests.sweeps.report.ranked_sweep import write_ranked_sweep
from tests.sweeps.report.test_search import race
from tests.sweeps.systems.test_load import FIVE, NAMES, read_values, write_sweep, write_values


def ran(*words: str) -> str:
    """What a command printed; it must succeed."""
    with redirect_stdout(io.StringIO()) as out:
        code = main([*words])
    assert code == 0, out.getvalue()
    return out.getvalue()


def written(folder: Path, *without: str) -> Texts:
    """The text files of a report, the pages as their words."""
    texts = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix != ".parquet" and path.name not in without:
            text = path.read_text("utf-8")
            page = path.suffix == ".html"
            texts[f"{path.stem}.txt" if page else path.name] = words_of_page(text) if page else text
    return texts


def reported(sweep: Path, *without: str) -> Texts:
    """The report of a sweep and what its command printed."""
    printed = ran("report", str(sweep))
    return {"terminal.txt": printed} | written(sweep / "report", *without)


def reported_in_full(sweep: Path) -> Texts:
    """The same, with what `--verbose` adds."""
    return reported(sweep) | {"verbose.txt": ran("report", str(sweep), "--verbose")}


CSV = ("comparisons.csv", "table.csv")


QUICKSTART = (
    ("firstp-w40-s40-0", "FirstP 40", "firstp"),
    ("maxp-w40-s20-1", "MaxP 40/20", "maxp"),
    ("maxp-w40-s40-2", "MaxP 40/40", "maxp"),
)


def quickstart(folder: Path) -> Path:
    """Three systems with three seeds, runs, judgments and a first stage: all parts of a report."""
    return write_ranked_sweep(folder, cells=QUICKSTART)


def confirmation(folder: Path) -> Path:
    """The winner of a sweep with new seeds."""
    facts: dict[str, Any] = {"confirms": CONFIRMS | {"cell": "maxp-w64-s48-000000000001"}}
    facts |= {"kinds": [FIVE[0], FIVE[2]], "seeds": (4, 5, 6)}
    return write_sweep(folder, num_queries=30, effect=0.2, **facts)


def race_with_eliminated(folder: Path) -> Path:
    """Two configurations were eliminated and one lost a trial. An eliminated one is the best on
    dev, and must not be the winner."""
    fates = {(position, seed): "planned" for position in (1, 2) for seed in (3, 4, 5)}
    fates |= {(3, 3): "failed", (3, 4): "planned", (3, 5): "planned"}
    facts: dict[str, Any] = {"seeds": (1, 2, 3, 4, 5), "fates": fates, "search": race()}
    write_sweep(folder, effect=0.08, num_queries=30, **facts)
    table = read_values(folder)
    table.loc[(table["split"] == "dev") & (table["cell"] == NAMES[1]), "value"] = 0.9
    write_values(folder, table)
    return folder


def damaged(folder: Path) -> Path:
    """Trials that failed, diverged, collapsed, run and wait; two seeds of what remains."""
    fates = {(1, 2): "failed", (2, 1): "collapsed", (3, 1): "diverged", (4, 2): "running"}
    return write_sweep(folder, seeds=(1, 2), num_queries=30, fates=fates)


def figures(folder: Path) -> Path:
    """Window by stride with learning curves: every figure. A seed collapsed."""
    return write_sweep(folder, num_queries=30, effect=0.08, log=True, fates={(2, 1): "collapsed"})


def figures_shown(sweep: Path) -> Texts:
    """The page's words, captions among them, and the names of the figures."""
    ran("report", str(sweep))
    page = words_of_page((sweep / "report" / "index.html").read_text("utf-8"))
    names = sorted(path.name for path in (sweep / "report" / "plots").iterdir())
    return {"index.txt": page, "plots.txt": "\n".join([*names, ""])}


def serving(folder: Path) -> Path:
    """All aggregations of the chunk scores of two windows, and the one to serve."""
    question = "Which window, stride and aggregation for the reranker that I have?"
    facts: dict[str, Any] = {"sweep": "serving", "question": question, "measures": ("nDCG@10",)}
    kinds = [("maxp", 160, 160), ("maxp", 80, 40)]
    return write_chunk_sweep(folder, kinds=kinds, num_queries=12, trained=False, **facts)


def derive(folder: Path) -> Path:
    """Chunk scores of FirstP and MaxP with two seeds."""
    return write_chunk_sweep(folder, kinds=[("firstp", 80, 80), ("maxp", 80, 40)], seeds=(1, 2))


def derived(sweep: Path) -> Texts:
    """Other aggregations of its chunk scores."""
    return {"terminal.txt": ran("derive", str(sweep))} | written(sweep / "report")


def collections(folder: Path) -> Path:
    """Sweeps of the same systems on three collections; a run of one is lost."""
    for name, size, fates in (("one", 30, {}), ("two", 20, {(1, 2): "failed"}), ("three", 25, {})):
        facts: dict[str, Any] = {"collection": {"name": name}, "measures": ("nDCG@10",)}
        write_sweep(
            folder / name, kinds=FIVE[:3], num_queries=size, effect=0.4, fates=fates, **facts
        )
    return folder


def compared(folder: Path, words: Sequence[str], *without: str) -> Texts:
    """What `compare` prints and writes."""
    printed = ran("compare", *words, "--out", str(folder / "out"))
    return {"terminal.txt": printed} | written(folder / "out", *without)


def sweeps_compared(folder: Path) -> Texts:
    """All sweeps in a folder."""
    return compared(folder, [str(folder / name) for name in ("one", "two", "three")], *CSV)


def runs(folder: Path) -> Path:
    """Judgments and runs: two systems with three runs each, one with a single run."""
    rng = np.random.default_rng(1)
    names = {f"q{number}": [f"d{doc}" for doc in range(12)] for number in range(20)}
    judged = [f"{q} 0 {d} {1 + (d == 'd0')}\n" for q, docs in names.items() for d in docs[:3]]
    folder.mkdir()
    (folder / "qrels.txt").write_text("".join(judged))
    for system, skill, count in (("firstp", 0.7, 3), ("maxp", 2.0, 3), ("bm25", 0.0, 1)):
        for number in range(1, count + 1):
            lines = [
                f"{q} Q0 {d} 1 {rng.normal() + skill * (d in docs[:3]):.4f} tag\n"
                for q, docs in names.items()
                for d in docs
            ]
            (folder / f"{system}.{number}.run").write_text("".join(lines))
    return folder


def runs_compared(folder: Path) -> Texts:
    """The systems, and all pairs of them."""
    systems = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "bm25")]
    words = ["--qrels", f"{folder}/qrels.txt", "--measures", "nDCG@10", "RR@10", "--all-pairs"]
    words = [*systems, *words]
    return compared(folder, words) | {"verbose.txt": ran("compare", *words, "--verbose")}


def bundle(folder: Path) -> Path:
    """A finished sweep on somebody's own collection."""
    facts = {"name": "/srv/woods|fields(uri=doc_id)", "first_stage": "BM25"}
    return write_ranked_sweep(folder, num_queries=12, collection=facts)


def bundled(sweep: Path) -> Texts:
    """What `bundle` and `verify` print, the files of the bundle and its manifest."""
    out = sweep.with_suffix(".zip")
    printed = ran("bundle", str(sweep), "--to", str(out), "--qrels", "include")
    printed += ran("verify", str(out))
    with zipfile.ZipFile(out) as packed:
        texts = {"terminal.txt": printed, "files.txt": "\n".join([*packed.namelist(), ""])}
        [name] = [name for name in packed.namelist() if name.endswith("bundle.json")]
        return texts | {"bundle.json": packed.read(name).decode()}


class Case(NamedTuple):
    """What a user has, made in a new folder, and what the user gets of it."""

    make: Callable[[Path], Path]
    read: Callable[[Path], Texts]
    draws: bool = False  # figures, which take seconds


CASES = {
    case.make.__name__: case
    for case in (
        Case(quickstart, reported_in_full),
        Case(confirmation, lambda sweep: reported(sweep, *CSV)),
        Case(race_with_eliminated, lambda sweep: reported(sweep, *CSV)),
        Case(damaged, lambda sweep: reported(sweep, *CSV, "results.json")),
        Case(figures, figures_shown, draws=True),
        Case(serving, lambda sweep: reported(sweep, *CSV, "table.tex")),
        Case(derive, derived),
        Case(collections, sweeps_compared),
        Case(runs, runs_compared),
        Case(bundle, bundled),
    )
}
