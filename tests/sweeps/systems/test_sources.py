"""Systems from anything: every kind of source gives the values that were written into it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from sweeps.commands.compare.command import main, systems_of
from sweeps.findings.analysis import analyse
from sweeps.report.comparison import RunComparison, compare_runs
from sweeps.store.sweep_file import own_digest
from sweeps.systems.load import load_sweep
from sweeps.systems.sources import measure_key, training_runs
from tests.sweeps.systems.test_load import write_sweep

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


LONG = ["query_id", "measure", "value"]


def wide(rows):
    """A row per query, a column per measure."""
    pivoted = rows.pivot(index="query_id", columns="measure", values="value")
    return pivoted[list(MEASURES)].reset_index()


def with_mean(rows, name):
    """As gdeval.pl prints it: runid, topic, a column per measure, the means at the end."""
    table = wide(rows).rename(columns={"query_id": "topic"})
    means = {measure: table[measure].mean().round(5) for measure in MEASURES}
    last = pd.DataFrame([{"topic": name, **means}])
    return pd.concat([table, last], ignore_index=True).assign(runid="x")


def two_splits(rows):
    return pd.concat([rows.assign(split="test"), rows.assign(split="dev", value=0.5)])


def of_mlflow(table):
    return {"columns": [*table.columns], "data": table.to_numpy().tolist()}


NAMES = {"query_id": "qid", "measure": "Metric"}
WRITERS = {
    "csv": lambda rows, path: rows[LONG].to_csv(path, index=False),
    "tsv.gz": lambda rows, path: rows.rename(columns=NAMES).to_csv(path, sep="\t"),
    "wide.csv": lambda rows, path: wide(rows).assign(query="what is it?").to_csv(path),
    "parquet": lambda rows, path: two_splits(rows).to_parquet(path),
    "trec_eval": lambda rows, path: path.write_text(
        _of_tool(rows, "{t}\t{q}\t{v:6.4f}\n") + "runid                 \tall\tx\n"
    ),
    "ir_measures": lambda rows, path: path.write_text(_of_tool(rows, "{q}\t{m}\t{v:.4f}\n")),
    "json": lambda rows, path: path.write_text(json.dumps(of_mlflow(wide(rows)))),
    "records.json": lambda rows, path: rows[LONG].to_json(path, orient="records"),
    "jsonl": lambda rows, path: rows[LONG].to_json(path, orient="records", lines=True),
    "index.parquet": lambda rows, path: wide(rows).set_index("query_id").to_parquet(path),
    "gdeval.csv": lambda rows, path: with_mean(rows, "amean").to_csv(path, index=False),
    "mean.csv": lambda rows, path: with_mean(rows, "Mean").to_csv(path, index=False),
}
"""{form of a file with a run's values: what writes it}."""


def compared(*arguments: str, **settings) -> RunComparison:
    return compare_runs(systems_of(arguments), **settings)


@pytest.fixture
def all_csv(values: pd.DataFrame, tmp_path: Path) -> str:
    """One table of all systems and seeds."""
    values.to_csv(tmp_path / "all.csv", index=False)
    return str(tmp_path / "all.csv")


def same(found: RunComparison, values: pd.DataFrame) -> None:
    """The comparison has these values and no others."""
    assert found.sweep.measures == MEASURES
    for measure in MEASURES:
        matrix = found.analysis.cell_scores.plain[measure]
        assert matrix.cells == SYSTEMS and set(matrix.seeds.values()) == {SEEDS}
        for system in SYSTEMS:
            rows = values[(values["system"] == system) & (values["measure"] == measure)]
            expected = rows.pivot(index="seed", columns="query_id", values="value")
            assert list(expected.columns) == list(matrix.query_ids)
            assert np.array_equal(matrix.scores[system], expected.to_numpy())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_per_run_of_any_kind_gives_its_values(values, tmp_path, kind):
    for (system, seed), rows in values.groupby(["system", "seed"]):
        WRITERS[kind](rows, tmp_path / f"{system}.{seed}.{kind}")
    found = compared(*(f"{one}={tmp_path}/{one}.*" for one in SYSTEMS))
    same(found, values)
    note = "all 10 runs: Only the rows of split test are read, not those of dev."
    assert [one for one in found.sweep.notes if "split" in one] == [note] * (kind == "parquet")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("ndcg_cut_10", "nDCG@10"), ("ndcg_cut.10", "nDCG@10"), ("map", "AP"), ("P_5", "P@5")),
        *(("recip_rank", "RR"), ("iprec_at_recall_0.10", "IPrec@0.1"), ("nDCG@10", "nDCG@10")),
        *((name, name) for name in ("ndcg_cut_10_std", "P_10,foo", "recall_10x", "ndcg_cut_10,20")),
    ],
)
def test_a_name_of_trec_eval_is_read_to_its_end(name, key):
    assert measure_key(name) == key


def test_rows_without_a_split_beside_some_of_test_are_named(values, tmp_path):
    split = np.where(values["query_id"].str.endswith("1"), None, "test")
    values.assign(split=split).to_csv(tmp_path / "all.csv", index=False)
    found = compared(*(f"{tmp_path}/all.csv:{one}" for one in SYSTEMS))
    assert "not those of (empty)." in found.sweep.notes[0]


def test_one_table_of_all_systems_and_seeds_is_taken_apart(values, all_csv: str) -> None:
    chosen = compared(f"maxp={all_csv}:maxp", f"other={all_csv}:firstp")
    assert chosen.analysis.comparisons[0].system == "other"
    with pytest.raises(BadInput, match=r"unknown system of .*all\.csv 'max'; did you mean maxp"):
        compared(f"a={all_csv}:max", f"{all_csv}:firstp")
    with pytest.raises(BadInput, match=r"one\.csv names no systems, so .*one\.csv:max is none of"):
        own = values[values["system"] == "maxp"].drop(columns=["system"])
        own.to_csv(Path(all_csv).with_name("one.csv"), index=False)
        compared(f"a={Path(all_csv).with_name('one.csv')}:max", f"{all_csv}:firstp")
    with pytest.raises(BadInput, match=r"all\.csv holds 2 systems \(firstp, maxp\)"):
        compared(f"a={all_csv}", f"b={all_csv}:maxp")


def test_data_frames_of_values_are_sources_whatever_type_their_ids_have(values) -> None:
    systems = {
        system: [
            rows[rows["seed"] == seed].drop(columns=["system", "seed"]).astype({"query_id": int})
            for seed in SEEDS
        ]
        for system, rows in values.groupby("system")
    }
    same(compare_runs(systems), values)


@pytest.mark.parametrize("kept", [False, True])
def test_the_ids_of_a_data_frame_may_be_its_index(values, kept) -> None:
    systems = {
        system: [
            wide(rows[rows["seed"] == seed]).set_index("query_id", drop=not kept) for seed in SEEDS
        ]
        for system, rows in values.groupby("system")
    }
    same(compare_runs(systems), values)


def test_the_cells_of_sweeps_are_systems(tmp_path: Path) -> None:
    folder, other = tmp_path / "one", tmp_path / "two"
    write_sweep(folder, num_queries=40)
    write_sweep(other, num_queries=40, effect=0.05)
    report = analyse(load_sweep(folder)).comparisons
    found = compared(str(folder)).analysis.comparisons
    assert [(one.delta, one.p_both) for one in found] == [(one.delta, one.p_both) for one in report]
    label = "MaxP 64/64"
    across = compared(f"A={folder}:{label}", f"B={other}:{label}")
    assert across.seeds == {"A": (1, 2, 3), "B": (1, 2, 3)}
    with pytest.raises(BadInput, match=r"named once, got 'A' twice.* A=DIR:LABEL"):
        compared(f"A={folder}:{label}", f"A={other}:{label}")
    with pytest.raises(BadInput, match=r"unknown system of .* 'MaxP'"):
        compared(f"{folder}:MaxP", str(other))


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["woods", "woods-b"], ["woods", "woods-b"]),
        (["a/woods", "b/woods", "c/woods"], ["a/woods", "b/woods", "c/woods"]),
    ],
)
def test_cells_of_one_label_have_the_names_of_their_sweeps(folders, names, tmp_path: Path) -> None:
    for number, folder in enumerate(folders):
        write_sweep(tmp_path / folder, num_queries=40, effect=0.05 * number)
    paths = [str(tmp_path / folder) for folder in folders]
    shared, *labels = [*compared(paths[0]).seeds]  # FirstP has the same trials in all
    found = compared(*paths)
    assert [*found.seeds] == [shared, *(f"{one} ({name})" for name in names for one in labels)]
    chosen = [f"{path}:{labels[0]}" for path in paths]
    assert [*compared(*chosen).seeds] == [f"{labels[0]} ({name})" for name in names]
    asked = compared(*(f"S{n}={text}" for n, text in enumerate(chosen)))
    assert [*asked.seeds] == [f"S{n}" for n in range(len(paths))]


def test_trials_that_sweeps_share_are_one_system(tmp_path: Path, capsys) -> None:
    """Whatever its label there is; a further seed of it counts."""
    one, two = tmp_path / "one", tmp_path / "two"
    write_sweep(one, num_queries=40)
    shutil.copytree(one, two)
    file = two / "sweep.json"
    content = json.loads(file.read_text())
    content["cells"][1]["label"] = "another name"
    content["checksum"] = own_digest({k: v for k, v in content.items() if k != "checksum"})
    file.write_text(json.dumps(content))
    found, expected = compared(str(one), str(two)), compared(str(one))
    said = capsys.readouterr().err
    assert f"{two}:another name has the trials of " in said and "shown once" in said
    assert found.seeds == expected.seeds
    assert found.analysis.comparisons == expected.analysis.comparisons
    label = next(iter(expected.seeds))
    named = compared(f"A={one}:{label}", f"B={two}:another name")
    assert [*named.seeds] == ["A", "B"]  # as asked for


@pytest.mark.usefixtures("no_figures")
def test_a_written_comparison_is_a_source_again(values, all_csv, tmp_path: Path, capsys) -> None:
    assert main([all_csv, "--out", f"{tmp_path}/out"]) == 0
    first = capsys.readouterr().out
    assert main([f"{tmp_path}/out"]) == 0
    assert first.startswith(capsys.readouterr().out)
    same(compared(f"{tmp_path}/out"), values)


def test_judged_queries_without_values_count_0_and_unknown_ones_are_refused(
    values, tmp_path: Path
) -> None:
    lacking = values[(values["system"] != "maxp") | (values["query_id"] != "301")]
    lacking.to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(BadInput, match=r"301.*--qrels"):
        compared(f"{tmp_path}/all.csv")
    judged = [f"{query} 0 d 1\n" for query in sorted(values["query_id"].unique())[:30]]
    (tmp_path / "qrels").write_text("".join(judged))
    found = compared(f"{tmp_path}/all.csv", qrels=tmp_path / "qrels")
    matrix = found.analysis.cell_scores.plain["AP"]
    assert len(matrix.query_ids) == 30 and not matrix.scores["maxp"][:, 0].any()
    notes = " ".join(found.sweep.notes)
    assert "1 judged query without a result, counted as 0" in notes and "excluded" in notes


def test_tables_of_many_measures_show_the_first_and_say_so(values, tmp_path: Path) -> None:
    one = values[values["measure"] == "AP"]
    names = [f"P@{cut}" for cut in (1, 3, 5, 10, 20, 50, 100)]
    pd.concat([one.assign(measure=name) for name in names]).to_csv(tmp_path / "all.csv")
    found = compared(f"{tmp_path}/all.csv")
    assert found.sweep.measures == tuple(names[:4])
    assert list(found.sweep.notes) == ["Measures not shown (--measures): P@20, P@50 and P@100."]
    assert compared(f"{tmp_path}/all.csv", measures=["P_50"]).sweep.measures == ("P@50",)
    with pytest.raises(BadInput, match=r"unknown measure of .* 'P@7'.*Known: P@1"):
        compared(f"{tmp_path}/all.csv", measures=["P@7"])


GOOD = "query_id,measure,value\nq1,AP,.5\nq2,AP,.1\n"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("some words of\nno kind at all\n", "bad:1: "),
        ("", "bad "),
        (GOOD.replace("\nq", "\nx"), "good.csv and "),
        (GOOD + "\nq3,AP,nan\n", "bad:5: "),
        (GOOD + "q2,AP,.3\n", "bad:4: AP of query 'q2'"),
        ("query_id,text\nq1,word\n", "bad:2: "),
        ("qid,seed,measure,value\nq1,one,AP,.5\n", "bad:2: a seed"),
        ("map\tq1\t0.5\nmap\tq2\tx\n", "bad:2: "),
        ("[" * 100_000, "bad must be one JSON list"),
        ('[{"qid": "q1", "measure": "AP", "value": 1, "split": []}]', "bad, row 0: "),
        ('{"qid": "q1", "measure": "AP", "value": 1}', "bad lacks 1 of 2 queries"),
        ('{"AP": {"q1": 0.5, "q2": 0.1}}', "bad: not a table in JSON"),
        ('[{"qid": "q1", "AP": 0.5, "AP": 0.9}]', "bad must be one JSON list"),
        ('{"qid": "q1", "AP": 1}\n{"qid": "q2", "AP": 1, "AP": 0}\n', "bad:2: "),
        ("q1\td3\t1\nq1\td7\t2\nq2\td3\t1\n", "bad:1: found 'q1\\td3\\t1'; three columns"),
        (
            "query_id,measure,value\nq1,AP,0,5\nq2,AP,0,1\n",
            "bad:2: a line must have 3 columns, found 4 (a decimal",
        ),
        ("query_id,measure,value\nq1,AP,0.5,\nq2,AP,0.1,\n", "bad:2: a line must have 3 columns"),
        ("qid,map,AP\nq1,.5,.4\nq2,.1,.2\n", "bad:2: AP of query 'q1' occurs twice, under two"),
        (GOOD + "q1,map,.4\nq2,map,.2\n", "bad:4: map of query 'q1' occurs twice, under two"),
        ("qid,query_id,AP\nq1,q1,.5\nq2,q3,.2\n", "bad: query_id and qid are both names"),
        ("qid,measure,metric,value\nq1,AP,RR,.5\nq2,AP,AP,.2\n", "bad: measure and metric are"),
        ("qid,model,AP\nq1,a,.5\nq2,b,.2\n", "bad: model has 2 values and is not read"),
        ("qid,measure,k,value\nq1,nDCG,10,.5\nq2,nDCG,10,.2\n", "bad: k is not read; the name"),
        (GOOD + "q3,AP,.5,.6\n", "bad:4: "),
        ("query_id,measure,value,value\nq1,AP,.5,.4\n", "bad:1: "),
        ("query_id,AP\nq1,\nq2,.5\n", "bad:2: "),
        ("qid,RR,AP\nq1,.5,n/a\nq2,.1,.5\n", "bad:2: a value must be a finite number, found 'n/a'"),
        (
            "qid,RR,mine\nq1,.5,n/a\nq2,.1,.5\n",
            "bad:2: a value must be a finite number, found 'n/a'",
        ),
        ("qid,RR,nDCG@10\nq1,.5,46.4%\nq2,.1,9%\n", "bad:2: a value must be a finite number"),
        ("qid;RR\nq1;0,5\nq2;,1\n", "found '0,5'; write decimals with a point"),
        ("\n\n" + GOOD + "q2,AP,.3\n", "bad:6: AP of query 'q2'"),
        (
            "qid,docno,similarity\nq1,a,.5\nq1,b,.1\n",
            "bad: a run needs the column score, also where",
        ),
        ("map\tall\t0.5\nRprec\tall\t0.4\n", "bad:1: there are means over all queries alone"),
        ("PAR1 and no more", "bad "),
        ("q1 Q0 d1 1 2.5 tag\n", "--qrels"),
    ],
)
def test_what_is_no_source_is_refused_with_its_file_and_line(tmp_path, content, named) -> None:
    (tmp_path / "bad").write_text(content)
    (tmp_path / "good.csv").write_text(GOOD)
    with pytest.raises(BadInput) as error:
        compared(f"{tmp_path}/good.csv", f"{tmp_path}/bad")
    assert named in str(error.value)


def test_the_measures_of_a_table_are_looked_for_once(tmp_path: Path) -> None:
    """Their number and that of the values would be multiplied."""
    (tmp_path / "good.csv").write_text(GOOD)
    [[run]] = training_runs(f"{tmp_path}/good.csv").values()
    assert run.measures == ("AP",) and run.measures is run.measures


def test_a_message_lists_few_of_many_systems(tmp_path: Path) -> None:
    rows = "".join(f"s{number},q1,.5\n" for number in range(500))
    (tmp_path / "many.csv").write_text(f"system,query_id,AP\n{rows}")
    with pytest.raises(BadInput, match=r"holds 500 systems \(s0, .*, s9, \.\.\.\); one of them"):
        compared(f"A={tmp_path}/many.csv", f"B={tmp_path}/many.csv:s1")


def test_a_query_that_is_called_mean_stays_a_query(tmp_path: Path) -> None:
    for name, value in (("a", 0.9), ("b", 0.2)):
        rows = f"query_id,AP\nq1,.5\nq2,.1\nmean,{value}\n"
        (tmp_path / f"{name}.csv").write_text(rows)
    found = compared(f"{tmp_path}/a.csv", f"{tmp_path}/b.csv")
    assert [*found.analysis.cell_scores.plain["AP"].query_ids] == ["mean", "q1", "q2"]


MEAN_LIKE = ("all", "amean", "mean", "average", "avg")
WRITTEN = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    ".parquet": lambda frame, path: frame.to_parquet(path),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("name", MEAN_LIKE)
def test_a_row_is_of_means_only_where_its_values_are(name, kind, tmp_path: Path) -> None:
    queries = {"q1": 0.5, "q2": 0.1, name: 0.9}
    frame = pd.DataFrame(
        [(q, "AP", v) for q, v in queries.items()], columns=["qid", "measure", "value"]
    )
    rows = [frame, frame[:2], pd.DataFrame([(name, "AP", 0.3)], columns=frame.columns)]
    for of_query, parts in ((True, rows[:1]), (False, rows[1:])):
        WRITTEN[kind](pd.concat(parts), path := tmp_path / f"values{kind}")
        [run] = training_runs(path)[""]
        assert {*run.values["query_id"]} == ({*queries} if of_query else {"q1", "q2"})
        assert (name in run.note) == of_query


PRINTED = """runid                 \tall\tSTANDARD
relstring             \t301\t'0000011000'
map                   \t301\t0.5
num_ret               \t301\t10
relstring             \tall\t'11'
map                   \tall\t0.2
num_ret               \tall\t20
num_q                 \tall\t2
map                   \tall\t0.35
num_ret               \tall\t30
"""


def test_what_trec_eval_prints_of_all_measures_is_read_without_texts(tmp_path: Path) -> None:
    (tmp_path / "printed").write_text(PRINTED)
    [run] = training_runs(tmp_path / "printed")[""]
    found = run.values[run.values["measure"] == "AP"].set_index("query_id")["value"]
    assert found.to_dict() == {"301": 0.5, "all": 0.2}
    assert run.note.startswith("Lines whose value is a text are not read: relstring.")


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
        WRITERS["csv"](rows, tmp_path / "per_query.csv")
        client.log_artifact(run.info.run_id, str(tmp_path / "per_query.csv"))
        client.set_terminated(run.info.run_id)
        ids.setdefault(system, []).append(f"runs:/{run.info.run_id}")
    client.create_run(experiment, run_name="still running")
    same(compare_runs(systems_of(["mlflow:team/one"], tracking_uri=uri), tracking_uri=uri), values)
    words = [f"{system}={','.join(own)}" for system, own in ids.items()]
    same(compare_runs(systems_of(words), tracking_uri=uri), values)
    assert main([*words, "--tracking-uri", uri, "--out", f"{tmp_path}/out"]) == 0
    same(compared(f"{tmp_path}/out"), values)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    same(compared("mlflow:team/one"), values)
    for source, law in (
        ("mlflow:team/on", "unknown experiment 'team/on'; did you mean team/one"),
        ("runs:/00000000000000000000000000000000", "MLflow does not have it"),
    ):
        with pytest.raises(BadInput, match=law):
            compared(f"A={source}", f"B={ids['maxp'][0]}")
    (tmp_path / "no.db").write_text(99 * "no database ")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/no.db")
    with pytest.raises(BadInput, match=r"runs:/1: MLflow .*not a database"):
        compared("A=runs:/1", "B=runs:/2")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(BadInput, match="needs --tracking-uri"):
        compared("A=mlflow:team/one", "B=mlflow:team/two")


def written(path, measure, factor, form):
    """A table of eight values, in one of the forms that tools write."""
    rows = [(f"q{i}", round(0.1 * i * factor, 4)) for i in range(1, 9)]
    if form == "long":
        lines = ["query_id,measure,value", *(f"{q},{measure},{v}" for q, v in rows)]
    elif form == "wide":
        lines = [f"qid\t{measure}", *(f"{q}\t{v}" for q, v in rows)]
    else:  # ir_measures -q
        lines = [f"{q}\t{measure}\t{v}" for q, v in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("form", ["long", "wide", "tool"])
@pytest.mark.parametrize(
    ("measure", "factor", "cause"),
    [("nDCG@10", 100, "percent"), ("AP", -1, "from 0 to 1"), ("NumRet", -3, "must be 0 or more")],
)
def test_a_value_that_its_measure_cannot_have_is_refused_by_file_and_line(
    tmp_path, form, measure, factor, cause
):
    good = written(tmp_path / "a.tsv", measure, 1, form)
    bad = written(tmp_path / "b.tsv", measure, factor, form)
    line = 1 if form == "tool" else 2
    with pytest.raises(BadInput, match=rf"b\.tsv:{line}: .*{measure}.*{cause}"):
        compare_runs(systems_of([good, bad]))


@pytest.mark.parametrize(("factor", "says"), [(100, True), (0.01, True), (3, False)])
def test_two_scales_of_a_measure_without_bounds_are_said(tmp_path, factor, says):
    sizes = {"a.csv": 1, "b.csv": factor}
    paths = [written(tmp_path / name, "mine", size, "long") for name, size in sizes.items()]
    notes = " ".join(compare_runs(systems_of(paths)).sweep.notes)
    assert ("Check the scales of mine" in notes) == says


def mteb_task(folder: Path, model: str, task: str, scores: object, revision: str = "r1") -> Path:
    """A task's file as mteb writes it, beside the facts of the model."""
    place = folder / model.replace("/", "__") / revision
    place.mkdir(parents=True, exist_ok=True)
    (place / "model_meta.json").write_text(json.dumps({"name": model, "revision": revision}))
    content = {
        "dataset_revision": "x",
        "task_name": task,
        "mteb_version": "2.1.0",
        "scores": scores,
    }
    (place / f"{task}.json").write_text(json.dumps(content))
    return place


def test_the_tasks_of_mteb_are_queries_and_their_models_systems(tmp_path: Path) -> None:
    two = [{"hf_subset": name, "main_score": score} for name, score in (("en", 0.5), ("de", 0.25))]
    for model, score in (("org/a", 0.5), ("org/b", 0.75)):
        mteb_task(tmp_path, model, "NFCorpus", {"test": [{"main_score": score}]})
        place = mteb_task(tmp_path, model, "MIRACL", {"dev": two, "test": [{"main_score": 0.75}]})
    held = training_runs(str(tmp_path))
    [run] = held["org/b"]
    assert run.deterministic and run.values is not None
    assert {*run.values.itertuples(index=False, name=None)} == {
        ("NFCorpus", "main_score", 0.75),
        ("MIRACL", "main_score", 0.5),
    }
    assert [*held] == ["org/a", "org/b"]
    assert [*training_runs(str(place))] == [*training_runs(str(place.parent))] == ["org/b"]
    mteb_task(tmp_path, "org/b", "NFCorpus", {"test": [{"main_score": 0.5}]}, "r2")
    assert [*training_runs(str(tmp_path))] == ["org/a", "org/b@r1", "org/b@r2"]
    for scores in (
        *({"test": [{"main_score": value}]} for value in (None, float("nan"), True, "0.5")),
        *({"test": []}, {"test": {}}, {"test": ["main_score"]}, {}),
    ):
        mteb_task(tmp_path, "org/a", "NFCorpus", scores)
        with pytest.raises(BadInput, match=r"NFCorpus\.json: .* must have a finite main_score"):
            training_runs(str(tmp_path))
    mteb_task(tmp_path, "org/a", "NFCorpus", {"test": [{"main_score": 0.5}]})
    [copy] = tmp_path.glob("org__a/r1/NFCorpus.json")
    shutil.copy(copy, copy.with_name("NFCorpus-again.json"))
    with pytest.raises(BadInput, match="two files of the task NFCorpus"):
        training_runs(str(tmp_path))
