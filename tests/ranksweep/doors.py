"""The public callables with plain arguments, and values of every kind to put in their places."""

import datetime
import decimal
import fractions
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyarrow as pa
import torch

import rank_core
import ranksweep
from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.export.folder import write_model
from rank_core.models.build import build_model
from rank_core.records import Split
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.stats.matrix import score_matrix
from ranksweep.results import Sweep
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

RUN = {"q1": {"d1": 3.0, "d2": 2.0, "d3": 1.0}, "q2": {"d2": 2.0, "d3": 1.0}}
BETTER = {"q1": {"d2": 3.0, "d1": 2.0, "d3": 1.0}, "q2": {"d3": 2.0, "d2": 1.0}}
QRELS = {"q1": {"d1": 0, "d2": 1}, "q2": {"d3": 2}}
QUERIES = {"q1": "amber", "q2": "heron"}
TEXTS = {"d1": "amber birch", "d2": "cedar heron meadow", "d3": "slate thorn"}
RUN_ROWS = [(q, d, score) for q, own in RUN.items() for d, score in own.items()]
QRELS_ROWS = [(q, d, grade) for q, own in QRELS.items() for d, grade in own.items()]
RUN_FRAME = pd.DataFrame(RUN_ROWS, columns=["query_id", "doc_id", "score"])
QRELS_FRAME = pd.DataFrame(QRELS_ROWS, columns=["query_id", "doc_id", "relevance"])
VALUES = pd.DataFrame(
    {
        "cell": ["a"] * 4 + ["b"] * 4,
        "seed": [1, 1, 2, 2] * 2,
        "split": "test",
        "query_id": ["q1", "q2"] * 4,
        "measure": "RR",
        "value": [0.1, 0.5, 0.2, 0.4, 0.3, 0.7, 0.5, 0.6],
    }
)


class Unprintable:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


STRANGE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "np.bool_": lambda: np.bool_(True),
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "10**30": lambda: 10**30,
    "2.5": lambda: 2.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: -float("inf"),
    "1e400 as a decimal": lambda: decimal.Decimal("1e400"),
    "complex": lambda: 1 + 2j,
    "fraction": lambda: fractions.Fraction(1, 3),
    "decimal NaN": lambda: decimal.Decimal("NaN"),
    "np.int64": lambda: np.int64(3),
    "np.float32": lambda: np.float32(0.5),
    "np.nan": lambda: np.float64("nan"),
    "np.str_": lambda: np.str_("x"),
    "pd.NA": lambda: pd.NA,
    "pd.NaT": lambda: pd.NaT,
    "empty text": lambda: "",
    "blank text": lambda: " ",
    "text": lambda: "x",
    "no": lambda: "no",
    "FP32": lambda: "FP32",
    "cuda": lambda: "cuda",
    "NUL": lambda: "a\0b",
    "half a surrogate": lambda: "\ud800",
    "long text": lambda: "x" * 5000,
    "option": lambda: "--alpha",
    "bytes": lambda: b"x",
    "bytearray": lambda: bytearray(b"x"),
    "Path": lambda: Path("x"),
    "Path of nothing": lambda: Path(""),
    "[]": list,
    "()": tuple,
    "{}": dict,
    "set()": set,
    "[None]": lambda: [None],
    "[1, 2]": lambda: [1, 2],
    "[nan]": lambda: [float("nan")],
    "list of strings": lambda: ["x", "y"],
    "the same twice": lambda: ["x", "x"],
    "list of lists": lambda: [["x"], ["y"]],
    "list of bytes": lambda: [b"x"],
    "tuple of texts": lambda: ("x", "y"),
    "set of texts": lambda: {"x"},
    "dict of numbers": lambda: {"q1": 1, "d1": 2.0},
    "dict of texts": lambda: {"q1": "x"},
    "dict of None": lambda: {"q1": None},
    "dict of dicts": lambda: {"q1": {"d1": 1, "d2": 2}},
    "dict of dicts of NaN": lambda: {"q1": {"d1": float("nan"), "d2": 1.0}},
    "dict of dicts of texts": lambda: {"q1": {"d1": "x"}},
    "dict of ints": lambda: {1: {2: 3}},
    "dict of NaN ids": lambda: {float("nan"): {"d1": 1.0}},
    "{None: None}": lambda: {None: None},
    "tuples as ids": lambda: {("q", 1): {"d1": 1.0}},
    "options": lambda: {"--alpha": 0.5},
    "generator": lambda: (x for x in ["x", "y"]),
    "iterator": lambda: iter([1, 2]),
    "range": lambda: range(1, 3),
    "object()": object,
    "Unprintable": Unprintable,
    "type": lambda: int,
    "function": lambda: lambda: 0,
    "date": lambda: datetime.date(2024, 1, 1),
    "array": lambda: np.array([1, 2]),
    "array of NaN": lambda: np.array([np.nan, 1.0]),
    "array of texts": lambda: np.array(["x", "y"]),
    "array of two axes": lambda: np.ones((2, 2)),
    "array without axes": lambda: np.array(3),
    "tensor": lambda: torch.ones(2),
    "DataFrame": lambda: pd.DataFrame({"x": [1, 2]}),
    "DataFrame of nothing": pd.DataFrame,
    "DataFrame of a run": RUN_FRAME.copy,
    "DataFrame of judgments": QRELS_FRAME.copy,
    "DataFrame with equal columns": lambda: pd.DataFrame([[1, 2]], columns=["x", "x"]),
    "list of frames": lambda: [RUN_FRAME, RUN_FRAME],
    "Series": lambda: pd.Series([1.0, 2.0], index=["d1", "d2"]),
    "Series of texts": lambda: pd.Series(["x", "y"]),
    "Series of NaN": lambda: pd.Series([np.nan, 1.0]),
    "Series with equal labels": lambda: pd.Series(["x", "y"], index=["a", "a"]),
    "Series of nothing": lambda: pd.Series([], dtype=object),
    "Index": lambda: pd.Index(["x", "y"]),
    "pa.table": lambda: pa.table({"x": [1, 2]}),
    "pa.table of a run": lambda: pa.Table.from_pandas(RUN_FRAME),
    "pa.array": lambda: pa.array([1, 2]),
    "pa.array with null": lambda: pa.array(["x", None]),
    "pa.scalar": lambda: pa.scalar(3),
    "ScoredDocs": lambda: [ir_measures.ScoredDoc("q1", "d1", 1.0)],
    "Qrels": lambda: [ir_measures.Qrel("q1", "d1", 1)],
    "ScoredDocs of NaN": lambda: [ir_measures.ScoredDoc("q1", "d1", float("nan"))],
}
"""{name: a value that a caller might pass}."""


@dataclass(frozen=True)
class Door:
    """A public callable with plain arguments."""

    function: Callable[..., Any]
    plain: dict[str, Any] = field(default_factory=dict)


def called(door: Door, changed: dict[str, Any]) -> Any:
    """What a call gives, of a generator its first item."""
    found = door.function(**door.plain | changed)
    return next(found, None) if isinstance(found, Iterator) else found


def doors(folder: Path, config: TrialConfig, backbone: Any) -> dict[str, Door]:
    """{name: door}; writes a model, a sweep, a run and judgments to `folder`."""
    save_weights(folder, build_model(config, backbone, init_seed=1).state_dict())
    write_model(folder / "model", config, folder / WEIGHTS)
    reranker = rank_core.Reranker.load(folder / "model")
    sweep = write_ranked_sweep(folder / "window_stride" / "woods")
    (folder / "run").write_text("q1 Q0 d1 1 2.0 t\nq1 Q0 d2 2 1.0 t\n")
    (folder / "qrels").write_text("q1 0 d1 1\n")
    loaded = ranksweep.load(sweep)
    assert isinstance(loaded, Sweep)
    systems = {"A": RUN, "B": BETTER}
    compared = ranksweep.compare(systems, QRELS, measures="RR")
    mixed = rank_core.mixture(RUN, BETTER)
    matrix = score_matrix(VALUES, measure="RR", cells=["a", "b"])
    options = {
        "baseline": "a",
        "correction": "holm",
        "alpha": 0.05,
        "paired_seeds": False,
        "deterministic": (),
    }
    own = {
        "baseline": "A",
        "measures": "RR",
        "deterministic": (),
        "correction": "max-t",
        "alpha": 0.05,
        "correct_over": "measure",
        "margin": 0.01,
        "paired_seeds": False,
        "separate_runs": False,
        "ties": "trec_eval",
        "digits": 3,
        "tracking_uri": None,
    }
    model = {"device": "cpu", "precision": "fp32"}
    split = Split(QUERIES, QRELS, RUN)
    return {
        "ranksweep.run": Door(
            ranksweep.run,
            {
                "sweep": "window_stride",
                "collection": None,
                "backbone": None,
                "seeds": None,
                "settings": None,
                "num_seeds": None,
                "engine": None,
                "smoke_test": None,
                "storage": str(folder / "results"),
                "alpha": None,
                "num_workers": None,
                "max_gpu_hours": None,
                "tracking_uri": None,
                "name": None,
            },
        ),
        "ranksweep.load": Door(ranksweep.load, {"where": sweep, "interpolate": ""}),
        "ranksweep.compare": Door(ranksweep.compare, {"systems": systems, "qrels": QRELS, **own}),
        "ranksweep.measure": Door(
            ranksweep.measure,
            {"run": RUN, "qrels": QRELS, "measures": ["RR", "nDCG@10"], "ties": "trec_eval"},
        ),
        "Sweep.plot": Door(loaded.plot, {"name": "forest"}),
        "TestedTable.plot": Door(loaded.table().plot, {"name": "forest"}),
        "TestedTable.latex": Door(loaded.table().latex, {"label": "tab:x"}),
        "Comparison.save": Door(
            compared.save, {"folder": folder / "saved", "pairs": False, "compact": False}
        ),
        "Reranker.load": Door(
            rank_core.Reranker.load,
            {"folder": folder / "model", "trust_code": False, **model},
        ),
        "Reranker.serve": Door(
            rank_core.Reranker.serve,
            {"model": backbone.name, "setting": folder / "model" / "serving.json", **model},
        ),
        "Reranker.rank": Door(
            reranker.rank,
            {"query": "amber", "documents": TEXTS, "first_stage": None, "top": None},
        ),
        "Reranker.rank, list": Door(
            reranker.rank,
            {"query": "amber", "documents": [*TEXTS.values()], "first_stage": [1.0, 2.0, 3.0]},
        ),
        "Reranker.rerank": Door(
            reranker.rerank,
            {
                "run": RUN,
                "queries": QUERIES,
                "documents": TEXTS,
                "depth": None,
                "depth_only": False,
            },
        ),
        "load_collection": Door(rank_core.load_collection, {"name": config.collection}),
        "read_run": Door(rank_core.read_run, {"path": folder / "run"}),
        "read_qrels": Door(rank_core.read_qrels, {"path": folder / "qrels"}),
        "per_query": Door(
            rank_core.per_query, {"qrels": QRELS, "run": RUN, "measures": ["RR", "nDCG@10"]}
        ),
        "mixture": Door(
            rank_core.mixture, {"run": RUN, "first_stage": BETTER, "normalise": "min-max"}
        ),
        "Mixture.at": Door(mixed.at, {"alpha": 0.5}),
        "choose_alpha": Door(
            rank_core.choose_alpha, {"dev": mixed, "qrels": QRELS, "measure": "RR"}
        ),
        "rank_core.compare_cells": Door(rank_core.compare_cells, {"matrix": matrix, **options}),
        "CellComparison.significant": Door(
            rank_core.compare_cells(matrix, baseline="a")[0].significant, {"alpha": 0.05}
        ),
        "score_matrix": Door(
            score_matrix,
            {"per_query": VALUES, "measure": "RR", "cells": ["a", "b"], "may_agree": ()},
        ),
        "Split.subset": Door(split.subset, {"query_ids": ["q1"]}),
        "run_trial": Door(
            rank_core.run_trial, {"config": config, "workdir": folder / "t", "checkpoints": None}
        ),
        "TrialConfig": Door(
            TrialConfig,
            {
                "collection": "python-docs",
                "model": Model(),
                "chunking": Chunking(),
                "seed": 1,
            },
        ),
        "Model": Door(Model, {"name": "maxp", "dropout": 0.1, "k": 0, "quirks": ()}),
        "Chunking": Door(Chunking, {"window": 150, "stride": 75, "max_document_tokens": 1431}),
        "TrialConfig.override": Door(TrialConfig().override, {"settings": {"chunking.window": 75}}),
        "TrialConfig.override, a number": Door(
            lambda value: TrialConfig().override({"chunking.window": value}), {"value": 75}
        ),
        "TrialConfig.override, a text": Door(
            lambda value: TrialConfig().override({"collection": value}), {"value": "python-docs"}
        ),
        "ranksweep.run, a setting": Door(
            lambda value: ranksweep.run("window_stride", settings={"chunking.window": value}),
            {"value": 75},
        ),
    }
