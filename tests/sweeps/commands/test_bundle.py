"""`bundle` and `verify`: whatever number is changed by hand, and whatever a stranger sends."""

import gzip
import json
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rank_core.data.trec import read_qrels, write_qrels
from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.commands.bundle.archive import SUMS, unpack, write_zip
from sweeps.commands.bundle.contents import qrels_mode
from sweeps.commands.bundle.differences import differences
from sweeps.commands.bundle.verify import Verdict, verify
from sweeps.store.scores import write_dataset
from tests.sweeps.report.ranked_sweep import CELLS, SEEDS, write_ranked_sweep

ROOT = Path(__file__).parents[3]
FIRSTP, MAXP = (cell for cell, _, _ in CELLS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of version 0.2's layout, over somebody's own collection."""
    folder = write_ranked_sweep(
        tmp_path_factory.mktemp("finished") / "woods",
        collection={"name": "/srv/woods|fields(uri=doc_id)", "first_stage": "BM25"},
    )
    trials = pd.read_parquet(folder / "trials.parquet")
    trials.assign(eval_seconds=1.0).to_parquet(folder / "trials.parquet")
    (folder / "per_query.parquet").unlink()
    write_dataset(folder, [f"{cell}-seed{seed}" for cell, _, _ in CELLS for seed in SEEDS])
    return folder


def made(sweep: Path, *words: str) -> Path:
    """Its bundle."""
    out = sweep.parent / f"{len(list(sweep.parent.iterdir()))}.zip"
    assert main(["bundle", str(sweep), "--to", str(out), *words]) == 0
    return out


@pytest.fixture(scope="module")
def bundle(finished: Path) -> Path:
    return made(finished, "--qrels", "include", "--author", "A. Nother", "--license", "CC-BY-4.0")


@pytest.fixture(scope="module")
def hashed(finished: Path) -> Path:
    return made(finished)


Change = Callable[[Path], None]


def changed(bundle: Path, folder: Path, *changes: Change) -> Verdict:
    """The verdict on a bundle with changes by hand, and checksums that fit them."""
    unpack(bundle, folder)
    for change in changes:
        change(folder)
    (folder / SUMS).unlink()
    out = folder.with_suffix(".zip")
    write_zip(out, folder)
    return verify(out)


def replaced(name: str, pattern: str, text: str) -> Change:
    """The first match of a pattern in a file becomes another text."""

    def change(folder: Path) -> None:
        content, number = re.subn(pattern, text, (folder / name).read_text(), count=1)
        assert number == 1, (name, pattern)
        (folder / name).write_text(content)

    return change


def swapped_scores(name: str) -> Change:
    """The first document of the first query becomes its last."""

    def change(folder: Path) -> None:
        lines = gzip.decompress((folder / name).read_bytes()).decode().splitlines()
        fields = lines[0].split()
        lines[0] = " ".join([*fields[:4], "-99", fields[5]])
        (folder / name).write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))

    return change


def value_set(name: str, column: str, value: float) -> Change:
    def change(folder: Path) -> None:
        table = pd.read_parquet(folder / name)
        table[column] = table[column].astype(float)
        table.loc[7, column] = value
        table.to_parquet(folder / name, index=False)

    return change


def named(verdict: Verdict, file: str) -> list[str]:
    return [str(one) for one in verdict.wrong if one.file.startswith(file)]


def test_an_untouched_bundle_matches_and_is_the_same_bytes_again(
    finished: Path, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = made(finished, "--qrels", "include", "--author", "A. Nother", "--license", "CC-BY-4.0")
    assert again.read_bytes() == bundle.read_bytes()
    assert "folder of your documents: /srv/woods\n" in capsys.readouterr().out
    assert main(["verify", str(bundle)]) == 0
    out = capsys.readouterr().out
    assert "wrong" not in out and "not checked" not in out and "720 per-query values" in out
    assert main(["bundle", str(finished), "--to", str(bundle)]) == 2, "an old bundle stays"


def test_it_holds_all_that_its_metadata_names(bundle: Path, tmp_path: Path) -> None:
    unpack(bundle, tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")
             if path.is_file()}  # fmt: skip
    graph = {
        one["@id"]: one
        for one in json.loads((tmp_path / "ro-crate-metadata.json").read_text())["@graph"]
    }
    root, descriptor = graph["./"], graph["ro-crate-metadata.json"]
    assert descriptor["conformsTo"]["@id"] == "https://w3id.org/ro/crate/1.1"
    assert descriptor["about"] == {"@id": "./"} and descriptor["@type"] == "CreativeWork"
    assert root["@type"] == "Dataset" and root["name"] and root["description"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", root["datePublished"])
    assert graph[root["license"]["@id"]]["name"] == "CC-BY-4.0"
    assert {one["@id"] for one in root["hasPart"]} == names - {"ro-crate-metadata.json", SUMS}
    assert all(graph[one["@id"]]["@type"] == "File" for one in root["hasPart"])
    assert "A. Nother" in (tmp_path / "CITATION.cff").read_text()
    for name in ("sweep.json", "trials.parquet", "first_stage/test.run.gz", "qrels/test.qrels",
                 f"runs/{MAXP}-seed1/dev.run.gz", f"per_query.parquet/{MAXP}-seed1.parquet",
                 "report/index.html", "report/results.json"):  # fmt: skip
        assert (tmp_path / "sweep" / name).is_file(), name
    sums = subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=tmp_path, check=False)
    assert sums.returncode == 0


REPORT = "sweep/report/"


def test_every_number_of_the_report_that_is_changed_is_found(bundle: Path, tmp_path: Path) -> None:
    """Each in its file, by the name of its row and column; nothing else."""
    verdict = changed(
        bundle,
        tmp_path / "a",
        replaced(f"{REPORT}table.md", r"(MaxP 40/20 \| 3/3 \| )\D*0\.\d{3}", r"\g<1>0.777"),
        replaced(f"{REPORT}table.tex", r"(MaxP 40/20 & 3/3 & )\D*0\.\d{3}", r"\g<1>0.777"),
        replaced(f"{REPORT}table.csv", r"(MaxP 40/20.*?nDCG@10),0\.\d+", r"\g<1>,0.777"),
        replaced(f"{REPORT}comparisons.csv", r"0\.\d{6,}", "0.7777777"),
        replaced(f"{REPORT}results.json", r'"p_both": [\d.e-]+', '"p_both": 0.777'),
        replaced(f"{REPORT}index.html", r"(<td>MaxP 40/20</td><td>.*?)0\.\d{3}", r"\g<1>0.777"),
        replaced(f"{REPORT}queries.html", r"0\.\d{3}", "0.777"),
        replaced(f"{REPORT}plots/forest.svg", r'y="\d+\.\d+', 'y="7.77'),
    )
    assert len(verdict.wrong) == 8, list(map(str, verdict.wrong))
    assert all(one.stated != one.own and "7" in one.stated for one in verdict.wrong)
    for file in ("table.md", "table.tex", "index.html"):
        [text] = named(verdict, REPORT + file)
        assert "MaxP 40/20" in text and "nDCG@10" in text and "0.777" in text, text
    [text] = named(verdict, REPORT + "table.csv")
    assert "MaxP 40/20" in text and "nDCG@10" in text and "mean" in text
    [text] = named(verdict, REPORT + "results.json")
    assert "comparisons[" in text and "p_both" in text and "states 0.777" in text


def test_every_number_below_the_report_that_is_changed_is_found(
    bundle: Path, tmp_path: Path
) -> None:
    trial = f"{MAXP}-seed2"
    verdict = changed(
        bundle,
        tmp_path / "a",
        swapped_scores(f"sweep/runs/{trial}/test.run.gz"),
        value_set(f"sweep/per_query.parquet/{FIRSTP}-seed1.parquet", "value", 0.4321),
        value_set(f"sweep/interpolated/{FIRSTP}-seed3.min-max.parquet", "alpha", 0.77),
        replaced(f"sweep/runs/{FIRSTP}-seed2/config.json", "firstp", "maxp"),
        replaced(f"sweep/runs/{FIRSTP}-seed3/result.json", r'"ties": 1', '"ties": 2'),
    )
    of_values = named(verdict, "sweep/per_query.parquet")
    assert any(FIRSTP in text and "query" in text and "0.4321" in text for text in of_values)
    assert any(MAXP in text and "seed 2, test, query test-0, nDCG@10" in text for text in of_values)
    assert any("alpha" in text and "0.77" in text for text in named(verdict, "sweep/interpolated"))
    assert named(verdict, f"sweep/runs/{trial}/test.run.gz"), "its trial's own checksum"
    assert named(verdict, f"sweep/runs/{FIRSTP}-seed2/config.json")
    assert named(verdict, f"sweep/runs/{FIRSTP}-seed3/result.json")
    assert "model.name" in " ".join(named(verdict, "sweep/sweep.json"))


def test_a_changed_judgment_changes_values_of_every_trial(bundle: Path, tmp_path: Path) -> None:
    def change(folder: Path) -> None:
        path = folder / "sweep/qrels/test.qrels"
        qrels = read_qrels(path)
        qrels["test-3"] = {"d0": 1}
        write_qrels(path, qrels)

    verdict = changed(bundle, tmp_path / "a", change)
    found = " ".join(named(verdict, "sweep/per_query.parquet"))
    assert all(f"{cell}, seed {seed}, test, query test-3" in found for cell, *_ in CELLS
               for seed in SEEDS)  # fmt: skip


def test_of_another_version_the_numbers_are_compared_and_not_the_words(
    bundle: Path, tmp_path: Path
) -> None:
    other = replaced("bundle.json", r'"ranksweep": "[^"]*"', '"ranksweep": "99.0"')
    words = replaced(f"{REPORT}results.json", '"question": "Which', '"question": "Which one')
    page = replaced(f"{REPORT}index.html", "Which", "Which one")
    verdict = changed(bundle, tmp_path / "a", other, words, page)
    assert not verdict.wrong and "ranksweep 99.0" in " ".join(verdict.unchecked)
    number = replaced(f"{REPORT}results.json", r'"delta": [-\d.e]+', '"delta": 0.777')
    verdict = changed(bundle, tmp_path / "b", other, words, page, number)
    assert [one.stated for one in verdict.wrong] == ["0.777"]


def test_what_the_checksums_alone_know_is_found(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(bundle, tmp_path / "a")
    (tmp_path / "a/sweep/report/table.tex").unlink()
    (tmp_path / "a/more.txt").write_text("one file too many")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in sorted((tmp_path / "a").rglob("*")):
            archive.write(path, path.relative_to(tmp_path / "a"))  # folders as well, as zip -r
    assert main(["verify", str(tmp_path / "a.zip")]) == 3
    out = capsys.readouterr().out
    assert "more.txt: SHA-256: states none" in out and "report/table.tex" in out


def test_judgments_that_are_only_hashed_are_nowhere_in_the_bundle(
    finished: Path, hashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(hashed, tmp_path / "a")
    assert not list(tmp_path.rglob("*.qrels")) and not list(tmp_path.rglob("shown_texts.json"))
    judged = read_qrels(finished / "qrels/test.qrels")
    page = (tmp_path / "a/sweep/report/queries.html").read_text()
    assert "d0" in page and not re.search(r"<td>d\d+</td><td>1</td>", page), "of nobody's relevance"
    assert "+BM25" in page or "+BM25" in (tmp_path / "a/sweep/report/index.html").read_text()

    capsys.readouterr()
    assert main(["verify", str(hashed)]) == 0
    out = capsys.readouterr().out
    assert "not checked per-query values" in out and "everything that was checked matches" in out
    own = tmp_path / "own.qrels"  # in another order, with a query that nobody ran
    whole = judged | read_qrels(finished / "qrels/dev.qrels") | {"further": {"d1": 1}}
    write_qrels(own, {one: whole[one] for one in sorted(whole, reverse=True)})
    assert main(["verify", str(hashed), "--qrels", str(own)]) == 0
    out = capsys.readouterr().out
    assert (
        "not checked" not in out and "720 per-query values" in out and "everything matches" in out
    )
    assert main(["verify", str(hashed), "--qrels", str(finished / "qrels/test.qrels")]) == 2
    assert "dev queries are missing" in capsys.readouterr().err
    lines = own.with_suffix(".jsonl")
    rows = [
        {"q": q, "d": d, "relevance": g}
        for q, of_query in whole.items()
        for d, g in of_query.items()
    ]
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    fields = "q=query_id,d=doc_id"
    assert main(["verify", str(hashed), "--qrels", str(lines), "--fields", fields]) == 0
    assert "not checked" not in capsys.readouterr().out
    whole["test-3"] = {"d0": 3}
    write_qrels(own, whole)
    assert main(["verify", str(hashed), "--qrels", str(own)]) == 2
    assert "30 test queries have another SHA-256" in capsys.readouterr().err


NO_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "ray", "transformers", "mlflow", "optuna"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
from sweeps.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_machine_without_torch_and_ray_bundles_and_verifies(
    finished: Path, bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "again.zip"
    for words in (["bundle", finished, "--to", out], ["verify", bundle]):
        command = [sys.executable, "-c", NO_TORCH, *map(str, words)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


def hostile(folder: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    out = folder / "hostile.zip"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
    return out


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("../outside", b"")], "inside the bundle"),
        ([("/etc/outside", b"")], "inside the bundle"),
        ([("a\\..\\outside", b"")], "inside the bundle"),
        ([("a//b", b"")], "inside the bundle"),
        ([(link("sweep"), b"/etc")], "plain files"),
        ([("zeros.json", bytes(2**25))], "too many for its size"),
        ([("zeros.run.gz", gzip.compress(bytes(2**25)))], "too many for its size"),
        ([("bundle.json", b"{}"), ("bundle.json", b"{}")], "every file once"),
        ([("a", b""), ("a/b", b"")], "as `bundle` wrote it"),
        ([("table.parquet", b"none")], "cannot be read"),
        ([("bundle.json", b"[" * 100_000)], "bundle.json cannot be read"),
        ([], "bundle.json cannot be read"),
    ],
)
def test_a_hostile_file_gets_one_message_and_writes_nothing(
    entries: list[tuple[str | zipfile.ZipInfo, bytes]],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", str(hostile(tmp_path, *entries))]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ") and words in err
    assert err.count("hostile.zip") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.zip"]


def test_no_name_of_a_cell_leads_out_of_the_folder(bundle: Path, tmp_path: Path) -> None:
    def change(folder: Path) -> None:
        path = folder / "sweep/sweep.json"
        path.write_text(path.read_text().replace(MAXP, "../../../outside"))

    with pytest.raises(BadInput, match="must be plain"):
        changed(bundle, tmp_path / "a", change)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_zip_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.zip"
    file.write_bytes(content)
    assert main(["verify", str(file)]) == 2
    assert "must be a zip file" in capsys.readouterr().err
    assert main(["bundle", str(tmp_path), "--to", str(file)]) == 2
    assert f"{file} exists" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "none.zip")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("collection", "wanted", "expected"),
    [
        ("python-docs", "", "include"),
        ("python-docs|debias(seed=2)", "hash", "hash"),
        ("{folder}", "", "hash"),
        ("{folder}|fields(uri=doc_id)", "include", "include"),
        ("my_pkg.data:notes", "include", "include"),
        ("robust04-title/fold2", "", "hash"),
        ("ir:beir/nfcorpus/test", "", "hash"),
        ("beir/nfcorpus/test", "include", "refused"),
        ("msmarco-doc", "include", "refused"),
    ],
)
def test_the_collection_decides_about_its_judgments(
    collection: str, wanted: str, expected: str, tmp_path: Path
) -> None:
    name = collection.format(folder=tmp_path)
    if expected == "refused":
        with pytest.raises(BadInput, match="licence"):
            qrels_mode(name, wanted)
    else:
        assert qrels_mode(name, wanted) == expected


def test_another_processor_s_last_digits_are_no_difference() -> None:
    def found(name: str, stated: str, own: str) -> list[str]:
        return [str(one) for one in differences(name, stated.encode(), own.encode(), figures=True)]

    assert not found("a.json", '{"p": 0.12345678901}', '{"p": 0.12345678902}')
    assert found("a.json", '{"p": 1e-9}', '{"p": 2e-9}')
    assert found("a.json", '{"done": 1}', '{"done": true}')
    assert not found("a.csv", "system,p\nA,0.10000000001\n", "system,p\nA,0.1\n")
    assert found("a.csv", "system,p\nA,0.1\n", "system,p\nA,0.1\nB,0.2\n")
    assert found("a.md", "| A | 0.1230 |", "| A | 0.123 |"), "what is shown is exact"
    assert not found("a.svg", '<path d="M 1.00001 2"/>', '<path d="M 1 2"/>')
    assert found("a.svg", '<path d="M 1.1 2"/>', '<path d="M 1 2"/>')
