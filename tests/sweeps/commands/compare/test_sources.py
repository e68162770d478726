"""Systems from anything: every kind of source gives the values that were written into it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from sweeps.commands.compare.command import main, systems_of
from sweeps.commands.compare.runs import RunComparison, compare_runs
from sweeps.commands.compare.sources import measure_key
from sweeps.report.analysis import analyse
from sweeps.report.load import load_sweep
from tests.sweeps.report.test_load import write_sweep

MEASURES = ("nDCG@10", "AP")
TREC = {"nDCG@10": "ndcg_cut_10", "AP": "map"}
SYSTEMS, SEEDS, QUERIES = ("firstp", "maxp"), (1, 2, 3, 4, 5), 40


@pytest.fixture(scope="module")
def values() -> pd.DataFrame:
    """system, seed, query_id, measure, value of two systems with five training runs each."""
    rng = np.random.default_rng(4)
    hard_Q = rng.beta(2, 3, QUERIES)
    rows = []
    for place, system in enumerate(SYSTEMS):
        for seed in SEEDS:
            lift = 0.05 * place + rng.normal(0, 0.01)
            for measure in MEASURES:
                value_Q = np.clip(hard_Q + lift + rng.normal(0, 0.05, QUERIES), 0, 1).round(4)
                rows += [
                    (system, seed, str(301 + query), measure, value)
                    for query, value in enumerate(value_Q)
                ]
    return pd.DataFrame(rows, columns=["system", "seed", "query_id", "measure", "value"])


def _of_tool(rows: pd.DataFrame, line: str) -> str:
    """What a tool prints of one run, the means of all queries at the end."""
    means = rows.groupby("measure", sort=False)["value"].mean()
    lines = [(one.query_id, one.measure, one.value) for one in rows.itertuples()]
    lines += [("all", measure, value) for measure, value in means.items()]
    return "".join(line.format(q=q, m=m, t=f"{TREC[m]:<22}", v=v) for q, m, v in lines)


def csv_files(rows: pd.DataFrame, path: Path) -> None:
    rows[["query_id", "measure", "value"]].to_csv(path, index=False)


def tsv_files(rows: pd.DataFrame, path: Path) -> None:
    named = rows.rename(columns={"query_id": "qid", "measure": "Metric"})
    path.write_bytes(gzip.compress(named.to_csv(sep="\t").encode()))


def wide_files(rows: pd.DataFrame, path: Path) -> None:
    wide = rows.pivot(index="query_id", columns="measure", values="value")[list(MEASURES)]
    wide.reset_index().assign(query="what is it?").to_csv(path)


def parquet_files(rows: pd.DataFrame, path: Path) -> None:
    other = rows.assign(split="dev", value=0.5)
    pd.concat([rows.assign(split="test"), other]).to_parquet(path)


def trec_eval_files(rows: pd.DataFrame, path: Path) -> None:
    path.write_text(_of_tool(rows, "{t}\t{q}\t{v:6.4f}\n") + "runid                 \tall\tx\n")


def ir_measures_files(rows: pd.DataFrame, path: Path) -> None:
    path.write_text(_of_tool(rows, "{q}\t{m}\t{v:.4f}\n"))


def json_files(rows: pd.DataFrame, path: Path) -> None:
    wide = rows.pivot(index="query_id", columns="measure", values="value")[list(MEASURES)]
    table = wide.reset_index()
    path.write_text(json.dumps({"columns": [*table.columns], "data": table.to_numpy().tolist()}))


def json_lines_files(rows: pd.DataFrame, path: Path) -> None:
    rows[["query_id", "measure", "value"]].to_json(path, orient="records", lines=True)


PER_RUN: list[tuple[str, Callable[[pd.DataFrame, Path], None]]] = [
    ("csv", csv_files),
    ("tsv.gz", tsv_files),
    ("wide.csv", wide_files),
    ("parquet", parquet_files),
    ("trec_eval", trec_eval_files),
    ("ir_measures", ir_measures_files),
    ("json", json_files),
    ("jsonl", json_lines_files),
]


def compared(*arguments: str, **settings) -> RunComparison:
    return compare_runs(systems_of(arguments), **settings)


def same(found: RunComparison, values: pd.DataFrame) -> None:
    """The comparison has these values and no others."""
    assert found.sweep.measures == MEASURES
    for measure in MEASURES:
        matrix = found.analysis.matrices[measure]
        assert matrix.cells == SYSTEMS and set(matrix.seeds.values()) == {SEEDS}
        for system in SYSTEMS:
            rows = values[(values["system"] == system) & (values["measure"] == measure)]
            expected = rows.pivot(index="seed", columns="query_id", values="value")
            assert list(expected.columns) == list(matrix.query_ids)
            assert np.array_equal(matrix.scores[system], expected.to_numpy())


@pytest.mark.parametrize(("kind", "write"), PER_RUN)
def test_a_file_per_run_of_any_kind_gives_its_values(
    values: pd.DataFrame, tmp_path: Path, kind: str, write: Callable[[pd.DataFrame, Path], None]
) -> None:
    for (system, seed), rows in values.groupby(["system", "seed"]):
        write(rows, tmp_path / f"{system}.{seed}.{kind}")
    same(compared(*(f"{one}={tmp_path}/{one}.*" for one in SYSTEMS)), values)


def test_one_table_of_all_systems_and_seeds_is_taken_apart(values, tmp_path: Path) -> None:
    values.to_csv(tmp_path / "all.csv", index=False)
    same(compared(f"{tmp_path}/all.csv"), values)
    path = tmp_path / "all.csv"
    chosen = compared(f"maxp={path}:maxp", f"other={path}:firstp")
    assert chosen.analysis.comparisons[0].system == "other"
    with pytest.raises(BadInput, match=r"unknown system of .*all\.csv 'max'; did you mean maxp"):
        compared(f"a={path}:max", f"{path}:firstp")
    with pytest.raises(BadInput, match=r"all\.csv holds 2 systems \(firstp, maxp\)"):
        compared(f"a={path}", f"b={path}:maxp")


def test_the_perquery_table_of_pyterrier_is_a_table_per_seed(values, tmp_path: Path) -> None:
    """name, qid, measure, value, as `pt.Experiment(..., perquery=True)` gives it."""
    for seed, rows in values.groupby("seed"):
        named = rows.rename(columns={"system": "name", "query_id": "qid"}).drop(columns="seed")
        named.assign(measure=named["measure"].map(TREC)).to_csv(tmp_path / f"{seed}.csv")
    paths = [f"{tmp_path}/{seed}.csv" for seed in SEEDS]
    same(compared(*(f"{o}={','.join(f'{p}:{o}' for p in paths)}" for o in SYSTEMS)), values)


def test_data_frames_of_values_and_of_runs_are_sources(values: pd.DataFrame) -> None:
    systems = {
        system: [
            rows[rows["seed"] == seed].drop(columns=["system", "seed"]).astype({"query_id": int})
            for seed in SEEDS
        ]
        for system, rows in values.groupby("system")
    }
    same(compare_runs(systems), values)
    run = pd.DataFrame({"qid": [1, 1, 2], "docno": ["a", "b", "a"], "score": [2.0, 1.0, 1.0]})
    judged = pd.DataFrame({"qid": [1, 2], "docno": ["b", "a"], "label": [1, 1]})
    other = run.assign(score=-run["score"])
    for qrels in (judged, {"1": {"b": 1}, "2": {"a": 1}}):
        found = compare_runs({"A": [run], "B": [other]}, qrels, measures=["RR"])
        assert [one.delta for one in found.analysis.comparisons] == [0.25]


def test_a_run_and_what_ir_measures_prints_of_it_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ir_measures.__main__ import main_cli

    rng = np.random.default_rng(0)
    lines = [f"{q} 0 d{d} {rng.integers(0, 3)}\n" for q in range(30) for d in range(8)]
    (tmp_path / "qrels").write_text("".join(lines))
    for seed in (1, 2, 3):
        scores = rng.permutation(30 * 20).reshape(30, 20)
        run = [f"{q} Q0 d{d} 1 {scores[q, d]} x\n" for q in range(30) for d in range(20)]
        (tmp_path / f"{seed}.run").write_text("".join(run))
        words = [
            str(tmp_path / "qrels"),
            str(tmp_path / f"{seed}.run"),
            *MEASURES,
            "-q",
            "-p",
            "-1",
        ]
        monkeypatch.setattr("sys.argv", ["ir_measures", *words])
        main_cli()
        (tmp_path / f"{seed}.values").write_text(capsys.readouterr().out)
    found = compared(
        f"runs={tmp_path}/*.run", f"values={tmp_path}/*.values", qrels=tmp_path / "qrels"
    )
    assert set(found.sweep.measures) == set(MEASURES)
    assert {(one.delta, one.p_both) for one in found.analysis.comparisons} == {(0, 1)}


def test_the_cells_of_sweeps_are_systems(tmp_path: Path) -> None:
    folder, other = tmp_path / "one", tmp_path / "two"
    write_sweep(folder, num_queries=40)
    write_sweep(other, num_queries=40, effect=0.05)
    report = analyse(load_sweep(folder)).comparisons
    found = compared(str(folder)).analysis.comparisons
    assert [one.p_both_adjusted for one in found] == [one.p_both_adjusted for one in report]
    label = "MaxP 64/64"
    across = compared(f"A={folder}:{label}", f"B={other}:{label}")
    assert list(across.systems) == ["A", "B"] and set(across.systems["A"]) == {1, 2, 3}
    with pytest.raises(BadInput, match="named once, got 'FirstP' twice"):
        compared(str(folder), str(other))
    with pytest.raises(BadInput, match=r"unknown system of .* 'MaxP'"):
        compared(f"{folder}:MaxP", str(other))


def test_a_written_comparison_is_a_source_again(values, tmp_path: Path, capsys) -> None:
    values.to_csv(tmp_path / "all.csv", index=False)
    assert main([f"{tmp_path}/all.csv", "--out", f"{tmp_path}/out"]) == 0
    first = capsys.readouterr().out
    assert main([f"{tmp_path}/out"]) == 0
    assert first.startswith(capsys.readouterr().out)
    same(compared(f"{tmp_path}/out"), values)


def test_judged_queries_without_values_count_0_and_unknown_ones_are_refused(
    values, tmp_path: Path
) -> None:
    lacking = values[(values["system"] != "maxp") | (values["query_id"] != "301")]
    lacking.to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(BadInput, match="lacks 1 of 40 queries that others have: 301; with --qrels"):
        compared(f"{tmp_path}/all.csv")
    judged = [f"{query} 0 d 1\n" for query in sorted(values["query_id"].unique())[:30]]
    (tmp_path / "qrels").write_text("".join(judged))
    found = compared(f"{tmp_path}/all.csv", qrels=tmp_path / "qrels")
    matrix = found.analysis.matrices["AP"]
    assert len(matrix.query_ids) == 30 and not matrix.scores["maxp"][:, 0].any()
    notes = " ".join(found.measured.notes)
    assert "1 judged query without a result, counted as 0" in notes and "excluded" in notes


def test_tables_of_many_measures_show_the_first_and_say_so(values, tmp_path: Path) -> None:
    one = values[values["measure"] == "AP"]
    names = [f"P@{cut}" for cut in (1, 3, 5, 10, 20, 50, 100)]
    pd.concat([one.assign(measure=name) for name in names]).to_csv(tmp_path / "all.csv")
    found = compared(f"{tmp_path}/all.csv")
    assert found.sweep.measures == tuple(names[:4])
    assert found.measured.notes == ["Measures not shown (--measures): P@20, P@50 and P@100."]
    assert compared(f"{tmp_path}/all.csv", measures=["P_50"]).sweep.measures == ("P@50",)
    with pytest.raises(BadInput, match=r"unknown measure of .* 'P@7'.*Known: P@1"):
        compared(f"{tmp_path}/all.csv", measures=["P@7"])


def test_measures_have_one_spelling() -> None:
    names = {"ndcg_cut_10": "nDCG@10", "map": "AP", "P_5": "P@5", "recip_rank": "RR"}
    assert {name: measure_key(name) for name in names} == names
    assert [measure_key(name) for name in ("AP(rel=2)", "latency", "ndcg_cut")] == [
        "AP(rel=2)",
        "latency",
        "ndcg_cut",
    ]


GOOD = "query_id,measure,value\nq1,AP,.5\nq2,AP,.1\n"


@pytest.mark.parametrize(
    ("content", "law"),
    [
        ("some words of\nno kind at all\n", r"bad:1: a source must be a TREC run .*found: 'some"),
        ("system,map\nA,.5\n", r"bad:1: a source must be .*query_id, measure, value"),
        ("", "bad is empty"),
        (GOOD.replace("\nq", "\nx"), r"good\.csv and .*bad share no query id"),
        (GOOD + "q3,AP\n", r"bad:4: a line must have the 3 columns .*found 2: 'q3,AP'"),
        (GOOD + "q3,AP,x\n", "bad:4: a value must be a finite number, found 'x'"),
        (GOOD + "\nq3,AP,nan\n", "bad:5: a value must be a finite number"),
        (GOOD + "q2,AP,.3\n", "bad:4: AP of query 'q2' occurs twice"),
        (GOOD + ",AP,.3\n", "bad:4: a query must have an id"),
        ("query_id,text\nq1,word\n", "bad:2: a table must have the columns measure and value"),
        ("qid,seed,measure,value\nq1,one,AP,.5\n", "bad:2: a seed must be a whole number"),
        ("map\tq1\t0.5\nmap\tq2\tx\n", "bad:2: a value must be a finite number, found 'x'"),
        ("map\tq1\t0.5\nmap\tq1\t0.5\n", "bad:2: map of query 'q1' occurs twice"),
        ("map\tq1\t0.5\nmap q2\n", "bad:2: a line must have 3 columns"),
        ('{"columns": ["qid"], "data": 3}', "bad: not a table in JSON"),
        ("PAR1 and no more", "must be a whole Parquet file"),
        ("q1 Q0 d1 1 2.5 tag\n", "is a run and needs judgments: --qrels FILE"),
    ],
)
def test_what_is_no_source_is_refused_with_its_file_and_line(
    tmp_path: Path, content: str, law: str
) -> None:
    (tmp_path / "bad").write_text(content)
    (tmp_path / "good.csv").write_text(GOOD)
    with pytest.raises(BadInput, match=law):
        compared(f"{tmp_path}/good.csv", f"{tmp_path}/bad")


def test_the_same_file_twice_is_no_second_run(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(GOOD)
    path = f"{tmp_path}/good.csv"
    with pytest.raises(BadInput, match=r"A has .*good\.csv 2 times: a copy is not another"):
        compared(f"A={path},{path}", f"B={path}")


def test_values_that_are_a_copy_are_refused_by_their_files(values, tmp_path: Path) -> None:
    own = values[(values["system"] == "maxp") & (values["seed"] == values["seed"].min())]
    csv_files(own, tmp_path / "a")
    wide_files(own, tmp_path / "b")
    csv_files(own.assign(value=own["value"] / 2), tmp_path / "c")
    with pytest.raises(BadInput, match=r"/b has the content of .*/a"):
        compared(f"A={tmp_path}/[ab]", f"B={tmp_path}/c")


@pytest.mark.slow  # MLflow's imports and database
def test_mlflow_s_runs_are_sources(
    values: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.tracking.client import connect, ensure_experiment

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = connect(uri)
    experiment = ensure_experiment(client, "team/one", tmp_path / "artifacts")
    ids = {}
    for (system, seed), rows in values.groupby(["system", "seed"]):
        run = client.create_run(experiment, run_name=f"{system} #{seed}")
        csv_files(rows, tmp_path / "per_query.csv")
        client.log_artifact(run.info.run_id, str(tmp_path / "per_query.csv"))
        client.set_terminated(run.info.run_id)
        ids.setdefault(system, []).append(f"runs:/{run.info.run_id}")
    client.create_run(experiment, run_name="still running")
    same(compare_runs(systems_of(["mlflow:team/one"], tracking_uri=uri), tracking_uri=uri), values)
    words = [f"{system}={','.join(own)}" for system, own in ids.items()]
    same(compare_runs(systems_of(words), tracking_uri=uri), values)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    same(compared("firstp=mlflow:team/one:firstp", "maxp=mlflow:team/one:maxp"), values)
    for source, law in (
        ("mlflow:team/one:max", "unknown system of mlflow:team/one 'max'; did you mean maxp"),
        ("mlflow:team/on", "unknown experiment 'team/on'; did you mean team/one"),
        ("runs:/00000000000000000000000000000000", "MLflow does not have it"),
    ):
        with pytest.raises(BadInput, match=law):
            compared(f"A={source}", "B=mlflow:team/one:maxp")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(BadInput, match="needs --tracking-uri"):
        compared("A=mlflow:team/one:maxp", "B=mlflow:team/one:firstp")
