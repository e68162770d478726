"""`bundle` and `verify`: the same bytes again, and whatever number is changed by hand."""

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rank_core.data.trec import read_qrels, write_qrels
from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.commands.bundle import SUMS, first_difference, qrels_mode, unpack, write_zip
from sweeps.commands.bundling import verify
from sweeps.report.figures import figures
from sweeps.store.records import own_digest, sealed
from sweeps.store.sweep_file import read_sweep_file
from tests.sweeps.report import ranked_sweep
from tests.sweeps.report.chunk_sweep import write_chunk_sweep
from tests.sweeps.report.ranked_sweep import CELLS, SEEDS, write_ranked_sweep
from tests.sweeps.systems.test_load import redescribe

pytestmark = pytest.mark.usefixtures("no_figures_here")
FIRSTP, MAXP = (cell for cell, _, _ in CELLS)
INCLUDED = ("--qrels", "include")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, no_figures_here: None) -> Path:
    """A finished sweep over somebody's own collection."""
    return write_ranked_sweep(
        tmp_path_factory.mktemp("finished") / "woods",
        collection={"name": "/srv/woods|fields(uri=doc_id)", "first_stage": "BM25"},
    )


def made(sweep: Path, *words: str) -> Path:
    """Its bundle."""
    out = sweep.parent / f"{len(list(sweep.parent.iterdir()))}.zip"
    assert main(["bundle", str(sweep), "--to", str(out), *words]) == 0
    return out


@pytest.fixture(scope="module")
def bundle(finished: Path) -> Path:
    return made(finished, *INCLUDED)


@pytest.fixture(scope="module")
def hashed(finished: Path) -> Path:
    return made(finished)


def unpacked(bundle: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    unpack(bundle, folder)
    return folder


def verified(folder: Path) -> int:
    """The exit code of `verify` for a changed bundle whose checksums fit."""
    (folder / SUMS).unlink(missing_ok=True)
    write_zip(folder.with_suffix(".zip"), folder)
    return main(["verify", str(folder.with_suffix(".zip"))])


def test_an_untouched_bundle_matches_and_is_the_same_bytes_again(
    finished, bundle, tmp_path, capsys
):
    assert made(finished, *INCLUDED).read_bytes() == bundle.read_bytes()
    assert "folder of your documents: /srv/woods\n" in capsys.readouterr().out
    assert main(["verify", str(bundle)]) == 0
    out = capsys.readouterr().out
    assert "wrong" not in out and "not checked" not in out and "720 per-query values" in out
    assert main(["bundle", str(finished), "--to", str(bundle)]) == 2, "an old bundle stays"
    unpacked(bundle, tmp_path)
    for name in ("sweep.json", "first_stage/test.run.gz", "qrels/test.qrels",
                 f"trials/{MAXP}-seed1/dev.run.gz", f"trials/{MAXP}-seed1/per_query.parquet",
                 "report/index.html", "report/results.json"):  # fmt: skip
        assert (tmp_path / "sweep" / name).is_file(), name
    sums = subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=tmp_path, check=False)
    assert sums.returncode == 0


Change = Callable[[Path], None]


def replaced(name: str, pattern: str, text: str) -> Change:
    """The first match of a pattern in a file becomes another text."""

    def change(folder: Path) -> None:
        content, number = re.subn(pattern, text, (folder / name).read_text(), count=1)
        assert number == 1, (name, pattern)
        (folder / name).write_text(content)

    return change


def swapped_scores(folder: Path) -> None:
    """The first document of the first query becomes its last; the trial's own checksums fit."""
    trial = folder / f"sweep/trials/{MAXP}-seed2"
    lines = gzip.decompress((trial / "test.run.gz").read_bytes()).decode().splitlines()
    fields = lines[0].split()
    lines[0] = " ".join([*fields[:4], "-99", fields[5]])
    (trial / "test.run.gz").write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    sealed(trial)


def one_value(folder: Path) -> None:
    path = folder / f"sweep/trials/{FIRSTP}-seed1/per_query.parquet"
    table = pd.read_parquet(path)
    table.loc[7, "value"] = 0.4321
    table.to_parquet(path, index=False)
    sealed(path.parent)


def one_judgment(folder: Path) -> None:
    path = folder / "sweep/qrels/test.qrels"
    write_qrels(path, read_qrels(path) | {"test-3": {"d0": 1}})


def file_outside(folder: Path) -> None:
    """A trial's result names a file that is none of its own."""
    path = folder / f"sweep/trials/{FIRSTP}-seed1/result.json"
    result = json.loads(path.read_text())
    del result["checksum"]
    result["files"]["../../../../../etc/hostname"] = {"bytes": 5, "sha256": 64 * "0"}
    path.write_text(json.dumps(result | {"checksum": own_digest(result)}))


def foreign_trial(folder: Path) -> None:
    """Another cell's results, well sealed."""
    trials = folder / "sweep/trials"
    shutil.copytree(trials / f"{FIRSTP}-seed1", trials / "cafecafecafe-seed1")
    sealed(trials / "cafecafecafe-seed1")


def added(name: str) -> Change:
    """A file more."""
    return lambda folder: (folder / name).write_text("<script>alert(1)</script>") and None


def removed(name: str) -> Change:
    """A file less."""
    return lambda folder: (folder / name).unlink()


REPORT = "sweep/report/"
CHANGES: dict[str, list[tuple[Change, str]]] = {
    "report": [
        (replaced(f"{REPORT}table.md", r"0\.\d{3}", "0.777"), "table.md: line"),
        (replaced(f"{REPORT}table.tex", r"0\.\d{3}", "0.777"), "table.tex: line"),
        (replaced(f"{REPORT}table.csv", r"0\.\d{6,}", "0.7777777"), "table.csv: line"),
        (replaced(f"{REPORT}comparisons.csv", r"0\.\d{6,}", "0.77"), "comparisons.csv"),
        (replaced(f"{REPORT}results.json", r'"p_both": [\d.e-]+', '"p_both": 7'), '"p_both": 7'),
        (replaced(f"{REPORT}index.html", r"(<td>.*?)0\.\d{3}", r"\g<1>0.777"), "index.html"),
    ],
    "values": [
        (swapped_scores, f"{MAXP}-seed2/per_query.parquet: test, query test-0, "),
        (one_value, f"{FIRSTP}-seed1/per_query.parquet"),
        (one_judgment, f"{FIRSTP}-seed2/per_query.parquet: test, query test-3"),
    ],
    "a file": [(file_outside, "etc/hostname does not exist")],
    "more files": [
        (added("more.html"), "more.html: a bundle of this sweep has no such file"),
        (added("sweep/index.html"), "sweep/index.html: a bundle of this sweep has no such file"),
        (added(f"{REPORT}own.html"), "own.html: the report of these values has no such file"),
        (added(f"sweep/trials/{FIRSTP}-seed1/x.html"), "x.html: a bundle of this sweep has no"),
        (foreign_trial, "cafecafecafe-seed1/result.json: a bundle of this sweep has no such file"),
    ],
    "no record": [(removed("sweep/test_access.jsonl"), "test_access.jsonl: no record of the look")],
    "another record": [
        (
            replaced("sweep/test_access.jsonl", r'"hash": "\w+"', '"hash": "0"'),
            "no record of the look",
        )
    ],
    "settings": [
        (
            replaced(f"sweep/trials/{FIRSTP}-seed2/config.json", "firstp", "maxp"),
            f"{FIRSTP}-seed2: config.json",
        )
    ],
    "result": [
        (
            replaced(f"sweep/trials/{FIRSTP}-seed3/result.json", r'"ties": 1', '"ties": 2'),
            f"{FIRSTP}-seed3: result.json",
        )
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_is_found_although_the_checksums_fit(name, bundle, tmp_path, capsys):
    folder = unpacked(bundle, tmp_path / "a")
    for change, _ in CHANGES[name]:
        change(folder)
    assert verified(folder) == 3
    wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]
    for _, found in CHANGES[name]:
        assert any(found in line for line in wrong), (found, wrong)


def test_what_the_checksums_alone_know_is_found(bundle, tmp_path, capsys):
    folder = unpacked(bundle, tmp_path / "a")
    (folder / "sweep/report/queries.html").unlink()
    (folder / "more\x1b[2J.txt").write_text("one file too many")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))  # folders as well, as zip -r
    assert main(["verify", str(tmp_path / "a.zip")]) == 3
    out = capsys.readouterr().out
    assert "more\\x1b[2J.txt: SHA-256: states none" in out and "report/queries.html" in out


def with_settings(finished: Path, to: Path) -> Path:
    """A copy of the sweep whose trials have the settings that their labels tell."""
    sweep = Path(shutil.copytree(finished, to))
    for (cell, _, model), stride in zip(CELLS, (40, 20), strict=True):
        own = {"model.name": model, "chunking.window": 40, "chunking.stride": stride}
        for seed in SEEDS:
            trial = sweep / "trials" / f"{cell}-seed{seed}"
            (trial / "config.json").write_text(json.dumps(own))
            sealed(trial)
    return sweep


def test_trials_that_the_table_lacks_are_named(finished, tmp_path, capsys):
    sweep = with_settings(finished, tmp_path / "woods")
    redescribe(sweep, seeds=SEEDS[:-1])
    for trial in (sweep / "trials").iterdir():  # what no bundle needs
        (trial / "chunk_scores.parquet").write_bytes(b"large")
        sealed(trial)
    bundle = made(sweep)
    assert not [name for name in zipfile.ZipFile(bundle).namelist() if "chunk_scores" in name]
    assert main(["verify", str(bundle)]) == 0
    assert (
        f"not checked trials that are not in the table: {FIRSTP}-seed3" in capsys.readouterr().out
    )


def test_labels_of_other_trials_are_found(finished, tmp_path, capsys):
    """Forged before `bundle`, its checksum adapted."""
    sweep = with_settings(finished, tmp_path / "woods")
    first, second = read_sweep_file(sweep).cells
    cells = (replace(first, label=second.label), replace(second, label=first.label))
    redescribe(sweep, cells=cells)
    assert main(["verify", str(made(sweep))]) == 3
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]
    assert len(found) == 2 and all(
        map(str.__contains__, found, [f"{FIRSTP} is FirstP 40", f"{MAXP} is MaxP"])
    ), found


def test_the_report_of_another_version_is_not_compared(bundle, tmp_path, capsys):
    folder = unpacked(bundle, tmp_path / "a")
    replaced("bundle.json", r'"ranksweep": "[^"]*"', '"ranksweep": "99.0"')(folder)
    replaced(f"{REPORT}index.html", "Which", "Which one")(folder)
    assert verified(folder) == 0
    assert "not checked the report: written by ranksweep 99.0" in capsys.readouterr().out


@pytest.mark.slow
def test_a_hashed_bundle_matches_where_queries_share_relevant_documents(finished, tmp_path, capsys):
    """Without the judgments nobody can count them again; with them the report does."""
    sweep = shutil.copytree(finished, tmp_path / "woods")
    path = sweep / "qrels/test.qrels"
    write_qrels(path, {name: {f"pair-{n // 2}": 1} for n, name in enumerate(read_qrels(path))})
    assert main(["report", str(sweep)]) == 0
    words = "share a relevant document with"
    assert words in (sweep / "report/index.html").read_text()
    hashed = made(sweep)
    assert main(["verify", str(hashed)]) == 0
    page = unpacked(hashed, tmp_path / "a") / "sweep/report/index.html"
    assert words not in page.read_text()


@pytest.mark.slow
def test_judgments_that_are_only_hashed_are_nowhere_in_the_bundle(
    finished, hashed, tmp_path, capsys
):
    unpacked(hashed, tmp_path / "a")
    assert not list(tmp_path.rglob("*.qrels")) and not list(tmp_path.rglob("shown_texts.json"))
    page = (tmp_path / "a/sweep/report/queries.html").read_text()
    assert "d0" in page and not re.search(r"<td>d\d+</td><td>1</td>", page), "of nobody's relevance"

    capsys.readouterr()
    assert main(["verify", str(hashed)]) == 0
    assert "not checked per-query values" in capsys.readouterr().out
    whole = {"further": {"d1": 1}}  # in another order, with a query that nobody ran
    for split in ("test", "dev"):
        whole |= read_qrels(finished / f"qrels/{split}.qrels")
    own = tmp_path / "own.qrels"
    write_qrels(own, {one: whole[one] for one in sorted(whole, reverse=True)})
    rows = [{"q": q, "d": d, "relevance": g} for q, of in whole.items() for d, g in of.items()]
    (tmp_path / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    named = ["--fields", "q=query_id,d=doc_id"]
    for words in ([str(own)], [str(tmp_path / "own.jsonl"), *named]):
        assert main(["verify", str(hashed), "--qrels", *words]) == 0
        out = capsys.readouterr().out
        assert "not checked" not in out and "720 per-query values" in out
    assert main(["verify", str(hashed), "--qrels", str(finished / "qrels/test.qrels")]) == 2
    assert "dev.qrels" in capsys.readouterr().err
    write_qrels(own, whole | {"test-3": {"d0": 3}})
    assert main(["verify", str(hashed), "--qrels", str(own)]) == 2
    assert "test.qrels" in capsys.readouterr().err


def test_no_name_of_a_cell_leads_out_of_the_folder(bundle, tmp_path, capsys):
    folder = unpacked(bundle, tmp_path / "a")
    path = folder / "sweep/sweep.json"
    content = json.loads(path.read_text().replace(MAXP, "../../../outside"))
    del content["checksum"]
    path.write_text(json.dumps(content | {"checksum": own_digest(content)}))
    assert verified(folder) == 2
    assert "outside" in capsys.readouterr().err


def zipped(entries: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(
                zipfile.ZipInfo(name), content
            )  # the time is no part of the test's name
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"no zip", b"PK\x03\x04 cut short"),
        *(zipped({}), zipped({"bundle.json": b"[" * 100_000}), zipped({"bundle.json": b"{}"})),
        *(zipped({"../outside": b""}), zipped({"a": b"", "a/b": b""}), zipped({"a": b"", "": b""})),
    ],
)
def test_a_foreign_file_gets_one_message_and_writes_nothing(content, tmp_path, capsys):
    (tmp_path / "a.zip").write_bytes(content)
    assert main(["verify", str(tmp_path / "a.zip")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "a.zip" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("entries", [{}, {"mine/bundle.json": b"{}", "mine/sweep/sweep.json": b""}])
def test_a_zip_file_that_is_no_bundle_is_said_to_lack_its_sweep(entries, tmp_path, capsys):
    (tmp_path / "a.zip").write_bytes(zipped(entries))
    assert main(["verify", str(tmp_path / "a.zip")]) == 2
    assert "as `bundle` wrote it: there is no sweep/ at its top" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("collection", "wanted", "expected"),
    [
        ("python-docs", "", "include"),
        ("{folder}", "", "hash"),
        ("my_pkg.data:notes", "include", "include"),
        ("robust04-title/fold2", "", "hash"),
        ("beir/nfcorpus/test", "include", "refused"),
        ("msmarco-doc", "include", "refused"),
    ],
)
def test_the_collection_decides_about_its_judgments(collection, wanted, expected, tmp_path):
    name = collection.format(folder=tmp_path)
    if expected == "refused":
        with pytest.raises(BadInput, match="--qrels"):
            qrels_mode(name, wanted)
    else:
        assert qrels_mode(name, wanted) == expected


def test_another_processor_s_last_digits_are_no_difference():
    assert not first_difference("a.json", '{"p": 0.12345678901}', '{"p": 0.12345678902}')
    assert first_difference("a.json", '{"p": 1e-9}', '{"p": 2e-9}')
    assert first_difference("a.json", '{"done": 1}', '{"done": true}')
    assert not first_difference("a.csv", "system,p\nA,0.10000000001\n", "system,p\nA,0.1\n")
    assert first_difference("a.csv", "system,p\nA,0.1\n", "system,p\nA,0.1\nB,0.2\n")
    assert first_difference("a.md", "| A | 0.1230 |", "| A | 0.123 |"), "what is shown is exact"


PIXELS = b"\x89PNG another figure"


@pytest.mark.long
@pytest.mark.slow
def test_another_figure_is_found_although_the_checksums_fit(finished, tmp_path, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.report.files.figures", figures)
        bundle = made(finished, *INCLUDED)
        assert main(["verify", str(bundle)]) == 0
        assert "figures, drawn again" in capsys.readouterr().out
        for number, (name, old, new) in enumerate(
            [
                ("plots/forest.svg", "</svg>", "<script>1</script></svg>"),
                ("plots/forest.png", "", ""),
                ("index.html", "</svg>", "<script>1</script></svg>"),
            ]
        ):
            folder = unpacked(bundle, tmp_path / str(number))
            path = folder / REPORT / name
            if old:
                path.write_text(path.read_text().replace(old, new, 1))
            else:
                path.write_bytes(PIXELS)
            assert verified(folder) == 3
            assert f"{name}: is not the figure of these values" in capsys.readouterr().out
            replaced("bundle.json", r'"matplotlib": "[^"]*"', '"matplotlib": "1.0"')(folder)
            assert verified(folder) == 0
            assert "not checked figures drawn by matplotlib 1.0" in capsys.readouterr().out
            path.unlink()
            assert verified(folder) == 3


def test_judgments_of_other_queries_are_refused(bundle, hashed, tmp_path, capsys):
    (tmp_path / "other.qrels").write_text("elsewhere 0 d1 1\n")
    for one in (bundle, hashed):
        assert main(["verify", str(one), "--qrels", str(tmp_path / "other.qrels")]) == 2
        assert "judges none of the bundle's queries" in capsys.readouterr().err


MEASURE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
def first(grades, ranked):
    return float(grades.get(ranked[0], 0) > 0)
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A folder with bundles of measures of somebody's own, and beside them the module, which leaves
    a mark when it runs; the names of the measures."""
    (tmp_path / "w").mkdir()
    names = ("visiting_measure:first", "second_visiting_measure:first")
    for name in names:
        (tmp_path / "w" / f"{name.partition(':')[0]}.py").write_text(MEASURE)
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setattr(sys, "path", [*sys.path])

    def forget():
        for name in names:
            sys.modules.pop(name.partition(":")[0], None)
        sys.path[:] = [path for path in sys.path if path != str(tmp_path / "w")]
        (tmp_path / "w" / "ran").unlink(missing_ok=True)

    sys.path.append(str(tmp_path / "w"))
    for name in names:
        measures = ("nDCG@10", name)
        monkeypatch.setattr(ranked_sweep, "MEASURES", measures)
        sweep = write_ranked_sweep(tmp_path / name, measures=measures, primary=name)
        to = f"{name.partition(':')[0]}.zip"
        assert main(["bundle", str(sweep), "--to", to, *INCLUDED]) == 0
    forget()
    yield tmp_path / "w", names
    forget()


@pytest.mark.slow
def test_the_module_of_a_measure_runs_only_where_the_caller_names_it(measured, capsys):
    folder, names = measured
    for name in names:
        bundle = f"{name.partition(':')[0]}.zip"
        assert main(["verify", bundle]) == 0
        said = capsys.readouterr().out
        assert f"{name}: not recomputed" in said.replace("'", "") and f"--measure {name}" in said
        assert not (folder / "ran").exists()
        assert main(["verify", bundle, "--measure", name]) == 0
        said = capsys.readouterr().out
        assert "not recomputed" not in said and "files of the report" in said
        assert (folder / "ran").exists()
        (folder / "ran").unlink()
    assert main(["verify", bundle, "--measure", names[0]]) == 2
    assert "must be one of its measures" in capsys.readouterr().err


def test_a_comparison_runs_no_module_of_a_bundle(measured, capsys):
    folder, names = measured
    bundle = f"{names[0].partition(':')[0]}.zip"
    assert main(["compare", bundle, "--ranks"]) == 0
    said = capsys.readouterr()
    assert f"note: {bundle}: not checked: " in said.err and "Ranks, nDCG@10" in said.out
    assert not (folder / "ran").exists()


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path):
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"sweep/zeros-{number}", bytes(1 << 20))
    with pytest.raises(BadInput, match=r"unpacks to 3,145,728 bytes, more than .* --max-mib 2"):
        verify([str(bomb), "--max-mib", "2"])
    with pytest.raises(BadInput, match=r"--max-mib.* must be a whole number"):
        verify([str(bomb), "--max-mib", "-1"])


def long_line(path: Path) -> None:
    path.write_bytes(gzip.compress(bytes(3 << 20), mtime=0))


def many_rows(path: Path) -> None:
    table = pa.Table.from_pandas(pd.concat(1000 * [pd.read_parquet(path)]))
    pq.write_table(table, path, compression="zstd")


@pytest.mark.parametrize(
    ("name", "change"), [("test.run.gz", long_line), ("per_query.parquet", many_rows)]
)
def test_a_bomb_within_a_file_is_refused_by_the_same_limit(bundle, tmp_path, name, change, capsys):
    """The zip file is sealed again and small unpacked; the file in it is not."""
    folder = unpacked(bundle, tmp_path / "a")
    [path, *_] = sorted(folder.glob(f"sweep/trials/*/{name}"))
    change(path)
    sealed(path.parent)
    (folder / SUMS).unlink()
    write_zip(tmp_path / "a.zip", folder)
    assert main(["verify", str(tmp_path / "a.zip"), "--max-mib", "2"]) in (2, 3)
    said = "".join(capsys.readouterr())
    assert "unpacks to" in said and name in said, said


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, no_figures_here: None) -> Path:
    """A finished sweep whose rows are computed from the chunk scores of its trials."""
    return write_chunk_sweep(
        tmp_path_factory.mktemp("serving") / "woods",
        kinds=[("maxp", 80, 40), ("maxp", 40, 40)],
        num_queries=12,
        trained=False,
        collection={"name": "/srv/woods", "content_hash": 16 * "a", "first_stage": "BM25"},
    )


@pytest.mark.slow
def test_rows_of_chunk_scores_are_computed_again(serving, tmp_path, capsys):
    path = made(serving, *INCLUDED)
    assert main(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert "wrong" not in out and "not checked" not in out and "files of the report" in out
    folder = unpacked(path, tmp_path / "changed")
    [table, *_] = sorted(folder.rglob("chunk_scores.parquet"))
    scores = pd.read_parquet(table)
    scores.assign(score=scores["score"].iloc[::-1].array).to_parquet(table, index=False)
    assert verified(folder) == 3
    assert f"{table.parent.name}: chunk_scores.parquet" in capsys.readouterr().out


@pytest.mark.slow
def test_rows_of_chunk_scores_need_the_judgments_that_are_hashed(serving, capsys):
    path = made(serving, "--qrels", "hash")
    assert main(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert "not checked the report: its rows are those of chunk scores" in out
    assert main(["verify", str(path), "--qrels", *map(str, serving.glob("qrels/*.qrels"))]) == 0
    out = capsys.readouterr().out
    assert "wrong" not in out and "not checked" not in out and "files of the report" in out
