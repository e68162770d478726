"""`board`: bundles from anyone as a page of tied ranks; nothing unverified enters a table."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rank_core.data.trec import read_qrels, write_qrels
from rank_core.errors import BadInput
from rank_core.stats.clusters import clustered
from rank_core.stats.ranks import rank_intervals
from sweeps.__main__ import main
from sweeps.commands.board import command
from sweeps.commands.board.command import EDIT
from sweeps.commands.board.pages import joint_tables
from sweeps.commands.board.pages import site as pages_of
from sweeps.commands.board.submissions import FAILED, UNVERIFIED, VERIFIED, submissions
from sweeps.commands.bundle import SUMS, unpack, write_zip
from sweeps.store.queries import QueryFacts
from tests.sweeps.report.chunk_sweep import write_chunk_sweep
from tests.sweeps.report.ranked_sweep import write_ranked_sweep
from tests.sweeps.systems.test_load import redescribe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here")]
EVIL = '<script>alert("x")</script>'


def bundled(sweep: Path, to: Path, *words: str) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    assert main(["bundle", str(sweep), "--to", str(to), *words]) == 0
    return to


def changed(bundle: Path, to: Path, pattern: str, text: str, file: str) -> None:
    """A copy with another text in a file; its checksums fit."""
    folder = to.with_suffix("")
    folder.mkdir(parents=True)
    unpack(bundle, folder)
    (folder / SUMS).unlink()
    content, number = re.subn(pattern, lambda _: text, (folder / file).read_text(), count=1)
    assert number == 1
    (folder / file).write_text(content)
    write_zip(to, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, no_figures_here: None) -> Path:
    """Bundles: ann and bob on the same judgments, cy on others, an altered one of bob's, one whose
    judgments are hashed, a copy and no bundle at all. The sweeps of ann and bob differ in their
    models and in what their files say of them."""
    top = tmp_path_factory.mktemp("board")
    write_ranked_sweep(top / "ann", strengths=(0.4, 3.0))
    cells = (("avgp-w40-s40-0", f"AvgP {EVIL}", "avgp"),)
    said = {"question": EVIL, "command": EVIL, "tags": {"git.sha": 40 * "a", "git.dirty": "True"}}
    write_ranked_sweep(top / "bob", cells=cells, strengths=(2.9,), **said)
    write_ranked_sweep(top / "cy", num_queries=31)
    folder = top / "bundles"
    include = ("--qrels", "include")
    bundled(top / "ann", folder / "ann" / "a.zip", *include)
    bob = bundled(top / "bob", folder / "bob" / "b #1.zip", *include, "--by", f"Bob {EVIL}")
    bundled(top / "cy", folder / "c.zip", *include)
    bundled(top / "ann", folder / "hashed.zip")
    shutil.copy(bob, folder / "z copy.zip")
    page = "sweep/report/table.md"
    changed(bob, folder / "altered.zip", r"0\.\d{3}", "0.999", page)
    (folder / "no.zip").write_bytes(b"no bundle")
    (folder / "link.zip").symlink_to(bob)
    return top


@pytest.fixture(scope="module")
def bundles(made: Path) -> list:
    return list(submissions(made / "bundles", {}))


class Page(HTMLParser):
    """The links and the text of a page, and every tag."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.tags, self.text = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def site(made: Path, bundles: list) -> Path:
    """The pages by the command, over bundles that are verified once for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "submissions", lambda *_: iter(bundles))
        assert main(["board", str(made / "bundles"), "--out", str(made / "site")]) == 3
    return made / "site"


def test_every_bundle_has_its_state_and_only_verified_ones_have_systems(bundles):
    states = {bundle.name: bundle.state for bundle in bundles}
    assert states == {"altered.zip": FAILED, "ann/a.zip": VERIFIED, "bob/b #1.zip": VERIFIED,
                      "c.zip": VERIFIED, "hashed.zip": UNVERIFIED, "link.zip": FAILED,
                      "no.zip": FAILED, "z copy.zip": FAILED}  # fmt: skip
    by_name = {bundle.name: bundle for bundle in bundles}
    assert re.search(r"report/table.md: line 4: states .*0\.999.*", by_name["altered.zip"].reason)
    assert by_name["z copy.zip"].reason == "a copy of bob/b #1.zip"
    assert all(bool(bundle.systems) == (bundle.state == VERIFIED) for bundle in bundles)
    assert not any(str(Path.cwd().anchor) + "tmp" in bundle.reason for bundle in bundles)


def test_bundles_of_the_same_judgments_share_one_test(bundles):
    """Both have the same queries and first stage; the third has judgments of its own."""
    other, joined = joint_tables(bundles)
    assert {len(own.bundles) for own in (other, joined)} == {1, 2}
    joined, other = sorted((other, joined), key=lambda own: -len(own.bundles))
    assert joined.title != other.title and joined.title.startswith("woods, test, judgments ")
    matrix, ranks = joined.by_measure["nDCG@10"]
    good_labels = ("MaxP 40/20", f"AvgP {EVIL}")
    names = {entry.system.label: entry.key for entry in joined.entries}
    assert len(joined.entries) == 5 + 3 and len(matrix.cells) == 7, "BM25 once"
    assert {values.shape for values in matrix.scores.values()} == {(3, 30), (1, 30)}
    good = {names[f"{label}{more}"] for label in good_labels for more in ("", " +BM25")}
    assert set(ranks.groups[0]) == good and len(good) == 4
    assert {ranks.intervals[key] for key in good} == {(1, 4)}
    assert all(low >= 5 for key, (low, _) in ranks.intervals.items() if key not in good)
    fixed = [entry.key for entry in joined.entries if entry.system.deterministic]
    assert ranks == rank_intervals(matrix, deterministic=[c for c in fixed if c in matrix.cells])
    # The first stage stands once where bundles have other measures, too.
    first, second = joined.bundles
    fewer = [replace(s, scores={"nDCG@10": s.scores["nDCG@10"]}) for s in second.systems]
    joint = replace(joined, bundles=(first, replace(second, systems=fewer)))
    assert len(joint.by_measure["nDCG@10"][0].cells) == 7


def test_ranks_over_clusters_are_those_of_the_clustered_matrix(bundles, tmp_path):
    """Of a file, of shared documents, or of the commands of all sweeps; a warning without them."""
    _, joined = sorted(joint_tables(bundles), key=lambda own: len(own.bundles))
    of = {query_id: f"c{number // 10}" for number, query_id in enumerate(joined.bundles[0].queries)}
    rows = [f"{query_id}\t{cluster}" for query_id, cluster in of.items()]
    (tmp_path / "c.tsv").write_text("\n".join(rows))
    alike = [bundle for bundle in bundles if bundle in joined.bundles]
    [found] = joint_tables(alike, f"{tmp_path}/c.tsv")
    matrix, ranks = found.by_measure["nDCG@10"]
    plain, _ = joined.by_measure["nDCG@10"]
    assert len(matrix.query_ids) == 3 and matrix.num_queries == 30
    fixed = [entry.key for entry in joined.entries if entry.system.deterministic]
    fixed = [cell for cell in fixed if cell in plain.cells]
    assert ranks == rank_intervals(clustered(plain, of), deterministic=fixed)
    assert ranks != rank_intervals(plain, deterministic=fixed)
    page = pages_of(alike, "..", f"{tmp_path}/c.tsv")["index.html"].decode()
    assert "3 clusters (" in page and "share a relevant document" not in page
    said = replace(alike[0].known, facts=QueryFacts(cluster=of))
    [own] = joint_tables([replace(bundle, known=said) for bundle in alike])
    assert own.by_measure["nDCG@10"][1] == ranks
    [mixed] = joint_tables([alike[0], replace(alike[1], known=said)])
    assert mixed.clusters is None
    with pytest.raises(BadInput, match="has none of 1 of 31 queries"):
        joint_tables(bundles, f"{tmp_path}/c.tsv")
    assert main(["board", str(tmp_path), "--out", f"{tmp_path}/out", "--clusters", "no.tsv"]) == 2


def test_a_system_of_two_bundles_enters_a_table_once(bundles):
    first, other = (bundle for bundle in bundles if bundle.judgments and len(bundle.queries) == 30)
    [alone] = joint_tables([first])
    again = replace(other, systems=[replace(own, label="again") for own in first.systems])
    [twice] = joint_tables([first, again])
    assert [*twice.copies.values()] == [entry.key for entry in alone.entries]
    assert twice.by_measure["nDCG@10"][1] == alone.by_measure["nDCG@10"][1]
    page = pages_of([first, again], "..")["index.html"].decode()
    assert f"again of {other.name} equals " in page and "is listed once" in page


def test_pages_show_groups_costs_and_what_failed_and_no_text_of_a_bundle_is_a_tag(site):
    paths = [site / "index.html", *(site / "systems").iterdir()]
    assert len(paths) == 1 + 2 + 1 + 2
    pages = {path: Page(path) for path in paths}
    for path, page in pages.items():
        assert page.tags.count("script") == 1 and page.tags.count("style") == 1, path
        for link in page.links:
            assert (path.parent / link.replace("%20", " ").replace("%23", "#")).exists(), link
    [of_bob] = [page for path, page in pages.items() if "avgp" in path.name]
    for text in (f"AvgP {EVIL}", "model.name", "ranksweep", "checked: ", "seed 3", "1–4"):
        assert text in of_bob.text, text
    index = pages[site / "index.html"]
    for text in ("Group 1", "Group 2", "1–4", "bob/b #1.zip", "Bob ", "aaaaaaaaaa, with changes",
                 "3 s", "a copy of bob/b #1.zip", "--qrels"):  # fmt: skip
        assert text in index.text, text
    assert "0.999" in index.text, "the first difference"
    assert "other judgments" in index.text
    tables = index.text.partition("Bundles\n")[0]
    assert "altered.zip" not in tables and "hashed.zip" not in tables


def test_named_judgments_let_hashed_bundles_in_and_a_page_is_the_same_again(made, tmp_path, capsys):
    folder = tmp_path / "bundles"
    folder.mkdir()
    shutil.copy(made / "bundles" / "hashed.zip", folder)
    files = ",".join(str(made / "ann" / "qrels" / f"{split}.qrels") for split in ("dev", "test"))
    out = tmp_path / "site"
    words = ["board", str(folder), "--out", str(out), "--link", "https://example.org/b/"]
    assert main([*words, "--qrels", f"woods={files}"]) == 0
    assert "https://example.org/b/hashed.zip" in Page(out / "index.html").links
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    assert len(before) == 1 + 2
    (out / "CNAME").write_text("not ours")
    (out / "systems" / "old.html").write_text("of a bundle that is gone")
    assert main([*words, "--qrels", f"woods={files}"]) == 0
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before, "the same bytes"
    assert (out / "CNAME").exists()
    (folder / "hashed.zip").rename(folder / "hashed.ZIP")
    capsys.readouterr()
    assert main([*words, "--qrels", f"woods={files}", "--qrels", f"wood={files}"]) == 0
    said = capsys.readouterr().out
    assert "verified      hashed.ZIP" in said
    assert "warning: --qrels wood: no verified bundle is of this collection" in said
    twice = [*words, "--qrels", f"woods={files}", "--qrels", f"woods={files.split(',')[0]}"]
    assert main(twice) == 2
    assert "--qrels names all files of woods at once" in capsys.readouterr().err
    wrong = tmp_path / "wrong.qrels"
    write_qrels(wrong, read_qrels(made / "cy" / "qrels" / "test.qrels"))
    assert main([*words, "--qrels", f"woods={wrong}"]) == 3
    assert "qrels" in capsys.readouterr().out and not [*(out / "systems").iterdir()]


def test_whatever_a_bundle_does_the_others_have_their_page(made, tmp_path, monkeypatch):
    """Its description has types that no command writes; and an error that nobody foresaw."""
    folder = tmp_path / "bundles"
    folder.mkdir()
    good = made / "bundles" / "c.zip"
    shutil.copy(good, folder)
    ann = shutil.copytree(made / "ann", tmp_path / "ann")
    redescribe(ann, tags={"git.sha": 7})
    bundled(ann, folder / "odd.zip", "--qrels", "include")
    assert [own.state for own in submissions(folder, {})] == [VERIFIED, FAILED]

    def fails(*_: object) -> Iterator[tuple[str, str]]:
        raise AssertionError("nobody foresaw it")

    monkeypatch.setattr("sweeps.commands.board.submissions.check_unpacked", fails)
    assert {own.state for own in submissions(folder, {})} == {FAILED}


@pytest.mark.parametrize(
    "words",
    [
        ["{empty}", "--out", "{empty}/site"],
        ["{empty}/none", "--out", "{empty}/site"],
        ["{empty}"],
        [],
        ["{empty}", "--out", "{empty}/site", "--qrels", "woods"],
    ],
)
def test_a_wrong_or_empty_folder_writes_nothing(words, tmp_path, capsys):
    assert main(["board", *(word.format(empty=tmp_path) for word in words)]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not [*tmp_path.iterdir()]


def test_the_workflow_is_one_of_github(capsys):
    """Its structure, that a pull request has no right to write, and that names of files are no
    part of a shell's text."""
    assert main(["board", "--workflow"]) == 0
    text = capsys.readouterr().out
    flow = yaml.load(text, yaml.BaseLoader)
    assert set(flow) == {"name", "on", "permissions", "env", "jobs"}
    assert flow["permissions"] == {"contents": "read"} and "pull_request_target" not in flow["on"]
    for job in flow["jobs"].values():
        assert {"runs-on", "steps", "if"} <= set(job)
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "${{" not in step.get("run", "")
    assert "permissions" not in flow["jobs"]["verify"]
    runs = [s["run"] for job in flow["jobs"].values() for s in job["steps"] if "run" in s]
    commands = [line.strip() for run in runs for line in run.splitlines() if "ranksweep " in line]
    assert commands[0].endswith("xargs -0 -r -n 1 ranksweep verify") and len(commands) == 3


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ({"url": "https://h/ranksweep", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}},
         f"git+https://h/ranksweep@{'a' * 40}"),
        ({"url": "https://h/ranksweep.whl", "archive_info": {"hashes": {"sha256": "b" * 64}}},
         f"https://h/ranksweep.whl#sha256={'b' * 64}"),
        ({"url": "https://h/ranksweep.whl", "archive_info": {}}, EDIT),
        ({"url": "file:///home/me/ranksweep", "dir_info": {"editable": True}}, EDIT),
        (None, EDIT),  # by its name, from an index
    ],
)  # fmt: skip
def test_the_workflow_installs_from_an_address_and_never_by_name(
    origin, address, monkeypatch, capsys
):
    text = origin and json.dumps(origin)
    installed = SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(command, "distribution", lambda name: installed)
    assert main(["board", "--workflow"]) == 0
    flow = yaml.load(capsys.readouterr().out, yaml.BaseLoader)
    assert flow["env"]["RANKSWEEP"] == address


def test_rows_of_chunk_scores_are_on_a_board_where_their_judgments_are_named(
    tmp_path, no_figures_here, capsys
):
    about = {"name": "woods", "content_hash": 16 * "a", "first_stage": "BM25"}
    kinds = [("maxp", 80, 40), ("maxp", 40, 40)]
    sweep = write_chunk_sweep(
        tmp_path / "serving", kinds=kinds, num_queries=12, trained=False, collection=about
    )
    folder = tmp_path / "bundles"
    bundled(sweep, folder / "serving.zip", "--qrels", "hash")
    words = ["board", str(folder), "--out", str(tmp_path / "site")]
    assert main(words) == 0
    assert "not verified  serving.zip: it has the hash of its judgments alone" in (
        capsys.readouterr().out
    )
    files = ",".join(str(sweep / "qrels" / f"{split}.qrels") for split in ("dev", "test"))
    assert main([*words, "--qrels", f"woods={files}"]) == 0
    assert "MaxP 80/40" in (tmp_path / "site" / "index.html").read_text()
