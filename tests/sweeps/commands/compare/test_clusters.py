"""Queries that are not alone: clusters of a file, of relevant documents and of a collection, and
queries that several collections share."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rank_core.data.groups import document_clusters, read_clusters
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.stats.compare import CellComparison
from ranksweep import compare, load
from sweeps.commands.compare.command import main, systems_of
from sweeps.commands.report import main as report
from sweeps.report.comparison import compare_runs
from sweeps.store.queries import QueryFacts
from sweeps.systems.clusters import Queries, query_keys
from sweeps.terminal.command_line import run_command
from tests.sweeps.commands.compare.test_collections import write_texts
from tests.sweeps.commands.compare.test_command import NUM_DOCUMENTS, write
from tests.sweeps.systems.test_load import FIVE, read_values, write_sweep, write_values

Q, SIZE = 40, 4  # queries, and queries of one document
CLUSTERS = {f"q{q}": f"c{q // SIZE}" for q in range(Q)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two systems of three runs; queries of one relevant document are hard or easy together."""
    folder = tmp_path_factory.mktemp("clustered")
    rng = np.random.default_rng(2)
    (folder / "q.qrels").write_text("".join(f"q{q} 0 d{q // SIZE} 1\n" for q in range(Q)))
    for system in "ab":
        hard = np.repeat(rng.normal(1, 1, Q // SIZE), SIZE)
        for number in (1, 2, 3):
            score_QD = rng.normal(0, 1, (Q, NUM_DOCUMENTS))
            score_QD[range(Q), np.arange(Q) // SIZE] += hard
            write(folder / f"{system}.{number}.run", score_QD)
    lines = [f"{query_id}\t{cluster}" for query_id, cluster in CLUSTERS.items()]
    (folder / "lines.tsv").write_text("\n".join(lines))
    (folder / "named.tsv").write_text("\n".join(["query_id\tcluster", *lines]))
    pd.DataFrame(CLUSTERS.items(), columns=["qid", "cluster"]).to_csv(folder / "c.csv", index=False)
    rows = ({"query_id": q, "text": f"t {q}", "group": c} for q, c in CLUSTERS.items())
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def compared(runs: Path, clusters: object = "") -> pd.Series:
    systems = {name: f"{runs}/{name}.*.run" for name in "ab"}
    found = compare(systems, runs / "q.qrels", measures="RR@10", clusters=clusters)
    return found.frame.iloc[1]


@pytest.mark.parametrize("file", ["lines.tsv", "named.tsv", "c.csv", "queries.jsonl"])
def test_a_file_of_any_kind_names_the_clusters(runs: Path, file: str) -> None:
    assert read_clusters(runs / file) == CLUSTERS


def test_all_ways_to_name_the_clusters_agree(runs: Path) -> None:
    """The standard error over queries is that of the cluster totals, by hand from the values."""
    ways = ["auto", runs / "c.csv", CLUSTERS, pd.read_csv(runs / "c.csv")]
    alone, *found = (compared(runs, way) for way in ("", *ways))
    for one in found:
        assert one.equals(found[0])
        assert one["delta"] == pytest.approx(alone["delta"], rel=1e-12)
        assert (one["wins"], one["losses"]) == (alone["wins"], alone["losses"])
    systems = {name: f"{runs}/{name}.*.run" for name in "ab"}
    found_runs = compare_runs(
        systems_of([f"{n}={path}" for n, path in systems.items()]),
        runs / "q.qrels",
        measures=["RR@10"],
    )
    values = found_runs.sweep.scores.rename(columns={"cell": "system"})
    of = values.groupby(["system", "query_id"])["value"].mean().unstack("system")
    total_G = (of["b"] - of["a"] - alone["delta"]).groupby(CLUSTERS).sum()
    G = Q // SIZE
    V_q = G / (G - 1) * float((total_G**2).sum()) / Q**2
    assert found[0]["se_queries"] == pytest.approx(np.sqrt(V_q), rel=1e-9)
    assert found[0]["se_queries"] > 1.2 * alone["se_queries"]


def test_terminal_page_and_results_say_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"a={runs}/a.*.run", f"b={runs}/b.*.run", "--qrels", f"{runs}/q.qrels"]
    given += ["--measures", "RR@10", "--out", f"{tmp_path}/out"]
    assert main(given) == 0
    plain = " ".join(capsys.readouterr().out.split())
    warned = (
        r"40 of 40 queries of q.qrels share a relevant document with another one \(10 clusters\)"
    )
    assert re.search(
        rf"{warned}.* up to \d\d% larger \(design effect \d\.\d\d\): --clusters", plain
    )
    assert "clusters" not in json.loads((tmp_path / "out/results.json").read_text())
    assert main([*given, "--clusters", "auto", "--all-pairs", "--verbose"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"10 clusters of 40 queries of \S+/q.qrels; baseline a\.", text)
    assert "independent" not in text
    results = json.loads((tmp_path / "out/results.json").read_text())
    counts = {"RR@10": {"num_queries": 40, "num_clusters": 10, "equal_clusters": 10.0}}
    assert results["clusters"] == {"source": "shared relevant documents", "measures": counts}
    assert "and over 10 clusters of 40 queries" in results["caption"]
    assert results["comparisons"][0]["num_queries"] == 40


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q0\tx\nq0\ty", "query 'q0' has two"),
        ("q0\tx", "has none of 39 of 40 queries, such as 'q1'"),
        ("\n".join(f"q{q}\tx" for q in range(Q)), "has all 40 queries in one"),
        ("q0,x", "a line must be"),
        ('{"query_id": "q0"}', "a line must be"),
    ],
)
def test_bad_files(runs: Path, tmp_path: Path, lines: str, message: str) -> None:
    file = tmp_path / "bad.tsv"
    file.write_text(lines)
    with pytest.raises(BadInput, match=message):
        compared(runs, file)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere.tsv", "clusters of queries must be a file, and nowhere.tsv is not one"),
        ("group", "--clusters group needs queries with the field group"),
        ({"q0": 1}, "has none of 39 of 40 queries"),
        (3, "clusters must be {query_id: cluster}, a data frame"),
        (pd.DataFrame({"query_id": ["q0"]}), "must have the columns query_id and cluster"),
    ],
)
def test_bad_clusters(runs: Path, given: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        compared(runs, given)


def test_a_report_says_as_how_many_equal_clusters_unequal_ones_count(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for large, said in ((4, False), (10, True)):  # of 40
        names = ["x"] * large + ["y"] * large + [f"c{q}" for q in range(2 * large, Q)]
        lines = (f"q{at}\t{name}\n" for at, name in enumerate(names))
        (tmp_path / "unequal.tsv").write_text("".join(lines))
        given = [f"a={runs}/a.*.run", f"b={runs}/b.*.run", "--qrels", f"{runs}/q.qrels"]
        assert main([*given, "--verbose", "--clusters", f"{tmp_path}/unequal.tsv"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert ("As their sizes differ, they count as about 6 clusters of one size" in text) == said


def test_a_bad_file_ends_the_command_with_code_2(runs: Path) -> None:
    given = [f"a={runs}/a.*.run", f"b={runs}/b.*.run", "--qrels", f"{runs}/q.qrels"]
    assert run_command(lambda: main([*given, "--clusters", f"{runs}/none.tsv"])) == 2


def test_clusters_of_shared_documents_are_connected_through_others() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"a": 1, "b": 2}, "q3": {"b": 1, "c": 0}, "q4": {"c": 1}}
    found = document_clusters(qrels | {"q5": {"a": 0}})
    assert found["q1"] == found["q2"] == found["q3"] != found["q4"]
    assert found["q5"] not in {found["q1"], found["q4"]}


def test_a_stored_sweep_has_its_clusters_only_when_asked(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", kinds=FIVE[:2], num_queries=30)
    ids = sorted(read_values(folder)["query_id"].unique())
    groups = {query_id: str(at // 5) for at, query_id in enumerate(ids)}
    write_texts(folder, str, group=groups)
    plain, own = (load(folder, clusters=way)._analysis for way in ("", "group"))
    assert len(plain.cell_scores.tested["nDCG@10"].query_ids) == 30
    assert len(own.cell_scores.tested["nDCG@10"].query_ids) == 6
    assert own.sweep.clusters.source == "groups of the collection"
    pair, other = own.primary[0], plain.primary[0]
    assert pair.num_queries == 30
    assert pair.delta == pytest.approx(other.delta)
    assert pair.se_queries != other.se_queries
    with pytest.raises(BadInput, match="--clusters auto needs judgments"):
        load(folder, clusters="auto")


def test_a_report_of_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With judgments in the folder; a report without the option is the sweep's own again."""
    folder = write_sweep(tmp_path / "sweep", kinds=FIVE[:2], num_queries=30)
    ids = sorted(read_values(folder)["query_id"].unique())
    lines = [f"{query_id} 0 d{at // 3} 1\n" for at, query_id in enumerate(ids)]
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.qrels").write_text("".join(lines))
    texts = []
    for way in ((), ("--clusters", "auto"), ("--clusters", "none")):
        assert report([str(folder), *way, "--verbose"]) == 0
        texts.append(" ".join(capsys.readouterr().out.split()))
    assert "30 of 30 queries share a relevant document with another one (10 clusters)" in texts[0]
    assert "over 10 clusters of 30 queries (shared relevant documents)" in texts[1]
    assert texts[2] == texts[0]


def on_two(tmp_path: Path, **texts: Callable[[str], str]) -> tuple[CellComparison, list[pd.Series]]:
    """The comparison of the mean over two sweeps on collections of 20 queries with the same ids,
    and the differences of every query on each of them."""
    differences = []
    for name, power in (("one", 1), ("two", 2)):
        folder = write_sweep(
            tmp_path / name,
            kinds=FIVE[:2],
            num_queries=20,
            collection={"name": name},
        )
        if texts:
            write_texts(folder, texts[name])
        write_values(folder, read_values(folder).assign(value=lambda own: own["value"] ** power))  # noqa: B023
        values = read_values(folder).query("measure == 'nDCG@10' and split == 'test'")
        of = values.groupby(["cell", "query_id"])["value"].mean().unstack("cell")
        differences.append(of.iloc[:, 1] - of.iloc[:, 0])
    found = compare_runs(systems_of([f"{tmp_path}/one", f"{tmp_path}/two"])).analysis
    return next(pair for pair in found.comparisons if pair.measure == "mean nDCG@10"), differences


def test_collections_with_the_same_ids_are_paired(tmp_path: Path) -> None:
    """The standard error is that of the mean of both differences of each query."""
    mean, (one, other) = on_two(tmp_path)
    own = (one + other) / 2
    assert mean.delta == pytest.approx(own.mean())
    assert mean.se_queries == pytest.approx(own.std() / np.sqrt(20), rel=1e-9)
    assert mean.num_queries == 20
    assert mean.wins + mean.ties + mean.losses == 40  # counted in each collection


def test_texts_say_more_than_ids(tmp_path: Path) -> None:
    """Of other texts they are independent."""
    mean, parts = on_two(tmp_path, one=lambda q: f"{q} of one", two=lambda q: f"{q} of two")
    independent = np.hypot(*(own.std() / np.sqrt(20) for own in parts)) / 2
    assert mean.se_queries == pytest.approx(independent, rel=1e-9)
    assert mean.num_queries == 40


def test_queries_of_one_text_are_paired_whatever_their_ids(tmp_path: Path) -> None:
    """Case and white space do not count."""
    mean, _ = on_two(tmp_path, one=lambda q: f"{q} text", two=lambda q: f" {q.upper()}  Text")
    assert mean.num_queries == 20


def test_queries_of_one_text_in_a_collection_stay_two() -> None:
    facts = {name: QueryFacts({"a": "x", "b": "x", "c": "y"}) for name in ("one", "two")}
    keys = query_keys({name: Queries(own) for name, own in facts.items()})
    assert keys["one"]["c"] == keys["two"]["c"]
    assert len({*keys["one"].values(), *keys["two"].values()}) == 5
    assert query_keys({"one": Queries(facts["one"]), "two": Queries()}) == {}


def test_several_collections_of_runs_from_python(runs: Path, tmp_path: Path) -> None:
    """As the command does it, with {set} in the path of a run."""
    for name in ("x", "y"):
        (tmp_path / name).symlink_to(runs)
    qrels = {name: f"{tmp_path}/{name}/q.qrels" for name in ("x", "y")}
    given = [f"{one}={tmp_path}/{{set}}/{one}.*.run" for one in "ab"]
    by_command = compare_runs(
        systems_of(given, sets=["x", "y"]), qrels, measures=["RR@10"], command=""
    )
    systems = {one: f"{tmp_path}/{{set}}/{one}.*.run" for one in "ab"}
    found = compare(systems, qrels, measures="RR@10")
    assert found.frame["measure"].tolist()[:3] == ["mean RR@10", "x RR@10", "y RR@10"]
    own = by_command.analysis.comparisons
    assert found.frame["p_both"].dropna().tolist() == [pair.p_both for pair in own]
    paths = {one: [tmp_path / "{set}" / f"{one}.{i}.run" for i in (1, 2, 3)] for one in "ab"}
    held = {
        one: [{name: read_run(tmp_path / name / file.name) for name in qrels} for file in files]
        for one, files in paths.items()
    }
    for other in (paths, held):
        assert compare(other, qrels, measures="RR@10").frame.equals(found.frame)
    with pytest.raises(BadInput, match="in Python systems="):
        compare(systems, runs / "q.qrels")
