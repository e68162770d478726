"""The arguments of every public name: a value of any kind is taken as the plain value that it
means, or refused in a sentence that names the argument."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import rank_core
import ranksweep
from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from rank_core.stats.matrix import score_matrix
from tests.ranksweep.doors import (
    BETTER,
    QRELS,
    QRELS_FRAME,
    QRELS_ROWS,
    QUERIES,
    RUN,
    RUN_FRAME,
    STRANGE,
    TEXTS,
    VALUES,
    Door,
    Unprintable,
    called,
    doors,
)
from tests.sweeps.conftest import no_figures

__all__ = ["no_figures"]


class Reached(Exception):
    """The arguments were taken; what would follow takes minutes."""


@pytest.fixture(scope="module")
def every_door(small_trial, backbone, tmp_path_factory) -> Iterator[dict[str, Door]]:
    def reached(*_: object) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        found = doors(tmp_path_factory.mktemp("doors"), small_trial, backbone)
        patch.setattr("sweeps.launch.sweep.run_sweep", reached)
        patch.setattr("rank_core.trial.trial.load_inputs", reached)
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield found


def outcome(door: Door, argument: str, value: object) -> str:
    """Empty for a result or a refusal, else the error."""
    try:
        called(door, {argument: value})
    except (BadInput, Reached):
        return ""
    except BaseException as error:
        return " ".join(traceback.format_exception_only(error))[:150].strip()
    return ""


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_no_value_of_any_kind_ends_in_a_bare_error(every_door) -> None:
    bare = [
        f"{name}({argument}={kind}): {found}"
        for name, door in every_door.items()
        for argument in door.plain
        for kind, make in STRANGE.items()
        if (found := outcome(door, argument, make()))
    ]
    assert not bare, "\n".join([f"{len(bare)} bare errors", *bare])


@pytest.mark.parametrize("value", [object(), Unprintable(), b"x", 1 + 2j, print, [object()]])
def test_what_has_no_meaning_is_refused_by_the_name_of_its_argument(every_door, value) -> None:
    for name, door in every_door.items():
        for argument in door.plain:
            # Arguments of a value alone stand for a setting or for an item.
            named = {"value": "chunking.window|collection", "documents": "document"}
            with pytest.raises(BadInput, match=named.get(argument, argument)) as refusal:
                called(door, {argument: value})
            assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 500, name


def scored(run: dict[Any, dict[Any, Any]]) -> list[ir_measures.ScoredDoc]:
    return [ir_measures.ScoredDoc(q, d, s) for q, own in run.items() for d, s in own.items()]


RUNS = {
    "whole numbers": {q: {d: int(s) for d, s in own.items()} for q, own in RUN.items()},
    "single precision": {q: {d: np.float32(s) for d, s in own.items()} for q, own in RUN.items()},
    "another order": {q: dict(reversed(own.items())) for q, own in RUN.items()},
    "ids of NumPy": {np.str_(q): {np.str_(d): s for d, s in o.items()} for q, o in RUN.items()},
    "frame": RUN_FRAME,
    "PyTerrier": RUN_FRAME.set_axis(["qid", "docno", "score"], axis=1),
    "table of Arrow": pa.Table.from_pandas(RUN_FRAME),
    "records": scored(RUN),
    "generator of records": lambda: iter(scored(RUN)),
    "Series of queries": {q: pd.Series(own) for q, own in RUN.items()},
}
JUDGMENTS = {
    "floats": {q: {d: float(g) for d, g in own.items()} for q, own in QRELS.items()},
    "NumPy": {q: {d: np.int8(g) for d, g in own.items()} for q, own in QRELS.items()},
    "frame": QRELS_FRAME,
    "PyTerrier": QRELS_FRAME.set_axis(["qid", "docno", "label"], axis=1),
    "table of Arrow": pa.Table.from_pandas(QRELS_FRAME),
    "records": [ir_measures.Qrel(*row) for row in QRELS_ROWS],
    "generator of records": lambda: (ir_measures.Qrel(*row) for row in QRELS_ROWS),
}


def made(value: Any) -> Any:
    return value() if callable(value) else value


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_in_any_form_is_the_run(every_door, kind: str) -> None:
    measures = ["nDCG@10", "RR"]
    expected = rank_core.per_query(QRELS, RUN, measures)
    pd.testing.assert_frame_equal(rank_core.per_query(QRELS, made(RUNS[kind]), measures), expected)
    assert rank_core.mixture(BETTER, made(RUNS[kind])).at(0.3) == rank_core.mixture(BETTER, RUN).at(
        0.3
    )
    assert rank_core.mixture(made(RUNS[kind]), BETTER).at(0.3) == rank_core.mixture(RUN, BETTER).at(
        0.3
    )
    rerank = every_door["Reranker.rerank"].function
    found = rerank(made(RUNS[kind]), QUERIES, TEXTS, depth=1)
    expected = rerank(RUN, QUERIES, TEXTS, depth=1)
    assert found == expected
    assert {query: [*own] for query, own in found.items()} == {q: [*expected[q]] for q in expected}
    of_runs = [
        ranksweep.compare({"A": made(one), "B": BETTER}, QRELS, measures="RR").frame
        for one in (RUN, RUNS[kind])
    ]
    pd.testing.assert_frame_equal(*of_runs)


@pytest.mark.parametrize("kind", JUDGMENTS)
def test_judgments_in_any_form_are_the_judgments(kind: str) -> None:
    judged = [made(JUDGMENTS[kind]) for _ in range(3)]
    expected = rank_core.per_query(QRELS, RUN, ["RR"])
    pd.testing.assert_frame_equal(rank_core.per_query(judged[0], RUN, ["RR"]), expected)
    dev = rank_core.mixture(RUN, BETTER)
    assert rank_core.choose_alpha(dev, judged[1], "RR") == rank_core.choose_alpha(dev, QRELS, "RR")
    of_kinds = [
        ranksweep.compare({"A": RUN, "B": BETTER}, one, measures="RR").frame
        for one in (QRELS, judged[2])
    ]
    pd.testing.assert_frame_equal(*of_kinds)


def test_whole_numbers_are_ids(every_door) -> None:
    run, texts = {7: {1: 2.0, np.int64(2): 1.0}}, {1: "amber birch", 2: "cedar"}
    plain = {"7": {"1": 2.0, "2": 1.0}}, {"1": "amber birch", "2": "cedar"}
    pd.testing.assert_frame_equal(
        rank_core.per_query({7: {2: 1}}, run, ["RR"]),
        rank_core.per_query({"7": {"2": 1}}, plain[0], ["RR"]),
    )
    rerank, rank = (every_door[f"Reranker.{name}"].function for name in ("rerank", "rank"))
    assert rerank(run, {7: "amber"}, texts) == rerank(plain[0], {"7": "amber"}, plain[1])
    by_number, by_text = rank("amber", texts), rank("amber", plain[1])
    assert [(str(doc_id), score) for doc_id, score in by_number] == by_text
    assert all(one.doc_id in texts for one in by_number), "ids come back as they were given"
    with pytest.raises(BadInput, match="'1' is given twice, as a text and as a number"):
        rank("amber", {1: "x", "1": "y"})


PLACES = {
    "tuple": tuple,
    "generator": iter,
    "array": np.array,
    "Series": pd.Series,
    "Index": pd.Index,
    "array of Arrow": pa.array,
    "by number": lambda items: dict(enumerate(items)),
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_list_of_texts_in_any_form_is_the_list(every_door, kind: str) -> None:
    rank, make = every_door["Reranker.rank"].function, PLACES[kind]
    texts, scores = [*TEXTS.values()], [3.0, 1.0, 2.0]
    assert rank("amber", make(texts)) == rank("amber", texts)
    assert rank("amber", texts, first_stage=make(scores)) == rank(
        "amber", texts, first_stage=scores
    )


def test_texts_with_labels_are_taken_by_label(every_door) -> None:
    rank, rerank = (every_door[f"Reranker.{name}"].function for name in ("rank", "rerank"))
    frame = pd.DataFrame(TEXTS.items(), columns=["docno", "text"])
    expected = rank("amber", TEXTS)
    for documents in (pd.Series(TEXTS), frame, pa.Table.from_pandas(frame)):
        assert rank("amber", documents) == expected
        assert rerank(RUN, pd.Series(QUERIES), documents) == rerank(RUN, QUERIES, TEXTS)
    queries = pd.DataFrame(QUERIES.items(), columns=["qid", "query"])
    assert rerank(RUN, queries, frame) == rerank(RUN, QUERIES, TEXTS)
    with pytest.raises(BadInput, match="must have doc_id, found"):
        rank("amber", pd.DataFrame({"x": ["amber"]}))
    with pytest.raises(BadInput, match="a label for each"):
        rank("amber", pd.Series(["x", "y"], index=["a", "a"]))
    with pytest.raises(BadInput, match="the form of the documents"):
        rank("amber", pd.Series(TEXTS), first_stage=[1.0, 2.0, 3.0])


def test_two_series_are_paired_by_their_labels_and_never_by_place(small_trial, backbone) -> None:
    from rank_core.export.folder import ExportedModel
    from rank_core.export.reranker import Reranker
    from rank_core.models.build import build_model
    from rank_core.ranking.interpolation import FirstStageMix

    model = build_model(small_trial, backbone, init_seed=1).eval()
    mixed = Reranker(
        ExportedModel(model, small_trial, backbone, first_stage=FirstStageMix(0.5)), "cpu", "fp32"
    )
    texts, scores = pd.Series(TEXTS), pd.Series({"d3": 9.0, "d1": 1.0, "d2": 2.0})
    expected = mixed.rank("amber", TEXTS, first_stage=scores.to_dict())
    assert mixed.rank("amber", texts, first_stage=scores) == expected
    assert mixed.rank("amber", texts, first_stage=scores.sort_index()) == expected


@pytest.fixture
def words(monkeypatch) -> list[list[str]]:
    """The command lines of the sweeps that Python starts."""
    started: list[list[str]] = []

    def launched(experiment: object, argv: list[str], **_: object) -> None:
        started.append(argv)
        raise Reached

    monkeypatch.setattr("ranksweep.api.launch", launched)
    return started


@pytest.mark.parametrize(
    ("plain", "others"),
    [
        ({"seeds": 3}, [np.int64(3), 3.0, pa.scalar(3), np.array(3)]),
        (
            {"seeds": [1, 2]},
            [(1, 2), range(1, 3), np.array([1, 2]), pd.Series([1, 2]), pa.array([1, 2])],
        ),
        ({"collection": "woods"}, [Path("woods"), np.str_("woods")]),
        ({"alpha": 0.5}, [np.float32(0.5), pa.scalar(0.5)]),
        ({"num_workers": 2}, [np.int8(2), 2.0]),
        ({"smoke_test": True}, [np.bool_(True)]),
        ({"settings": {"chunking.window": 75}}, [{"chunking.window": np.int64(75)}]),
        (
            {"settings": {"chunking.window": [75, 150]}},
            [{"chunking.window": np.array([75, 150])}, {"chunking.window": pd.Series([75, 150])}],
        ),
        ({"settings": {"training.teacher": "t.run"}}, [{"training.teacher": Path("t.run")}]),
    ],
)  # fmt: skip
def test_a_sweep_starts_by_the_plain_meaning(words, plain, others) -> None:
    [name] = plain
    for value in (plain[name], *others):
        with pytest.raises(Reached):
            ranksweep.run("window_stride", **{name: value})
    assert all(one == words[0] for one in words), words


def test_names_numbers_and_paths_in_any_form(every_door, tmp_path, collection_folder) -> None:
    systems = {"A": RUN, "B": BETTER}
    expected = ranksweep.compare(systems, QRELS, measures=["RR", "AP"], baseline="B").frame
    for changed in (
        {"baseline": np.str_("B"), "measures": pd.Series(["RR", "AP"])},
        {"baseline": ["B"], "measures": np.array(["RR", "AP"]), "alpha": np.float64(0.05)},
        {"baseline": pa.array(["B"]), "measures": iter(["RR", "AP"]), "digits": np.int64(3)},
    ):
        own = {"baseline": "B", "measures": ["RR", "AP"], **changed}
        pd.testing.assert_frame_equal(ranksweep.compare(systems, QRELS, **own).frame, expected)
    frame = ranksweep.compare(systems, QRELS, baseline=None).frame
    pd.testing.assert_frame_equal(frame, ranksweep.compare(systems, QRELS).frame)
    collection = rank_core.load_collection(Path(collection_folder))
    assert collection.content_hash == rank_core.load_collection(str(collection_folder)).content_hash
    folder = every_door["Reranker.load"].plain["folder"]
    ranked = every_door["Reranker.rank"].function("amber", TEXTS)
    for device, precision in (("cpu", "FP32"), (torch.device("cpu"), "fp32")):
        model = rank_core.Reranker.load(str(folder), device=device, precision=precision)
        assert model.rank("amber", TEXTS) == ranked
    plain = TrialConfig().override({"chunking.window": 80, "training.teacher": "a/b"})
    given = {"chunking.window": np.int64(80), "training.teacher": Path("a/b")}
    assert plain == TrialConfig().override(given) and plain.settings() == plain.settings()
    of_arrow = score_matrix(pa.Table.from_pandas(VALUES), measure="RR", cells=pd.Index(["a", "b"]))
    assert rank_core.compare_cells(of_arrow, baseline="a") == rank_core.compare_cells(
        score_matrix(VALUES, measure="RR", cells=["a", "b"]), baseline="a", deterministic=set()
    )


def test_a_list_of_frames_holds_systems_by_their_names_or_places() -> None:
    better = pd.DataFrame(
        [(q, d, s) for q, own in BETTER.items() for d, s in own.items()],
        columns=["query_id", "doc_id", "score"],
    )
    plain = ranksweep.compare({"system 1": RUN, "system 2": BETTER}, QRELS, measures="RR").frame
    for listed in ([RUN_FRAME, better], [RUN, better], (scored(RUN), pa.Table.from_pandas(better))):
        found = ranksweep.compare(listed, QRELS, measures="RR").frame
        pd.testing.assert_frame_equal(found, plain)
    values = VALUES.drop(columns="split").rename(columns={"cell": "system"})
    frames = [own for _, own in values.groupby("system")]
    pd.testing.assert_frame_equal(ranksweep.compare(frames).frame, ranksweep.compare(values).frame)
    with pytest.raises(BadInput, match="name a system once, got 'a' twice"):
        ranksweep.compare([frames[0], frames[0]])


@pytest.mark.parametrize("empty", [{"A": [], "B": RUN}, {"A": (), "B": RUN}, {" ": RUN, "B": RUN}])
def test_a_system_without_runs_or_without_a_name_is_refused(empty) -> None:
    with pytest.raises(BadInput, match=r"an empty list of runs|must have a letter or a digit"):
        ranksweep.compare(empty, QRELS)


NAN = float("nan")


@pytest.mark.parametrize(
    ("door", "changed", "sentence"),
    [
        ("mixture", {"run": {"q1": {"d1": NAN}}}, "run, .*must be a finite number, found nan"),
        ("mixture", {"first_stage": {"q1": {"d1": NAN}}}, "first_stage, .*finite number"),
        ("per_query", {"run": {"q1": {"d1": NAN}}}, "run, .*finite number, found nan"),
        ("per_query", {"qrels": {"q1": {"d1": NAN}}}, "qrels, .*whole number, found nan"),
        ("per_query", {"run": {NAN: {"d1": 1.0}}}, "run: query_id must be a string .* found nan"),
        ("Reranker.rerank", {"run": {"q1": {"d1": NAN}}}, "run, .*finite number, found nan"),
        ("Reranker.rerank", {"depth": True}, "depth must be a whole number, got True"),
        ("Reranker.rank", {"top": -1}, "top >= 0 must hold, got -1"),
        ("Reranker.rank", {"query": NAN}, "query must be a text, got nan"),
        ("Reranker.load", {"precision": "fp8"}, "unknown precision 'fp8'.*fp16"),
        ("ranksweep.run", {"seeds": 2, "num_seeds": 3}, "seeds are given twice"),
        ("ranksweep.run", {"seeds": "1,2"}, "seeds must be a number of seeds or a list"),
        ("ranksweep.run", {"seeds": True}, "seeds must be a number"),
        ("ranksweep.run", {"seeds": [1, NAN]}, r"seeds\[1\] must be a whole number, got nan"),
        ("ranksweep.run", {"smoke_test": "no"}, "smoke_test must be True or False, got 'no'"),
        ("ranksweep.run", {"settings": {"--alpha": 0.5}}, "unknown setting '--alpha'"),
        ("ranksweep.run", {"settings": {"chunking.window": None}}, "window must be .*got None"),
        ("ranksweep.compare", {"digits": 99}, "1 <= digits <= 6 must hold, got 99"),
        ("ranksweep.compare", {"margin": float("inf")}, "margin must be a finite number, got inf"),
        ("ranksweep.compare", {"margin": 3}, "0 < margin <= 1 must hold"),
        ("ranksweep.compare", {"alpha": 1}, "0 < alpha < 1 must hold"),
        ("ranksweep.compare", {"baseline": ["A", "A"]}, "baseline must name each once, got 'A'"),
        ("ranksweep.compare", {"systems": "a.run"}, "systems must be {name: its runs"),
        ("ranksweep.compare", {"systems": {"A": None, "B": RUN}}, "a run of 'A' must be"),
        ("score_matrix", {"per_query": VALUES.assign(seed="x")}, "needs whole numbers as seeds"),
        ("Model", {"dropout": "0.1"}, "model.dropout must be a number, got '0.1'"),
    ],
)
def test_what_would_change_a_meaning_is_refused(every_door, door, changed, sentence) -> None:
    with pytest.raises(BadInput, match=sentence):
        called(every_door[door], changed)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:3", "CPU!", "meta", torch.device("cuda", 0)])
def test_a_device_that_is_not_here_is_one_sentence(every_door, device) -> None:
    with pytest.raises(BadInput, match="device must be a device that PyTorch has here, got"):
        called(every_door["Reranker.load"], {"device": device})


GRADED = [2**32 + 1, 2**40, 10**8, -(2**32)]
ODD_IDS = ["a\0b", "a\nb", "\x1b[31mred", "a\tb", "\ufeffq"]


@pytest.mark.parametrize("grade", GRADED)
def test_a_grade_that_no_file_may_have_is_refused_in_dictionaries(grade):
    run, qrels = {"q": {"a": 1.0, "b": 0.5}}, {"q": {"a": grade, "b": 1}}
    for door in (
        lambda: ranksweep.measure(run, qrels, ["nDCG@10"]),
        lambda: ranksweep.per_query(qrels, run, ["nDCG@10"]),
    ):
        with pytest.raises(BadInput, match="relevance must be between"):
            door()


@pytest.mark.parametrize("name", ODD_IDS)
@pytest.mark.parametrize("place", ["query", "document", "judged query", "judged document"])
def test_an_id_with_control_characters_is_refused_in_dictionaries(name, place):
    run, qrels = {"q": {"a": 1.0}, "r": {"a": 1.0}}, {"q": {"a": 1}, "r": {"b": 1}}
    table = qrels if place.startswith("judged") else run
    if place.endswith("query"):
        table[name] = table.pop("q")
    else:
        table["q"] = {name: next(iter(table["q"].values()))}
    for door in (
        lambda: ranksweep.measure(run, qrels, ["RR"]),
        lambda: ranksweep.per_query(qrels, run, ["RR"]),
        lambda: ranksweep.compare({"A": run, "B": {**run, "r": {"b": 1.0}}}, qrels, measures="RR"),
    ):
        with pytest.raises(BadInput, match="control characters"):
            door()
