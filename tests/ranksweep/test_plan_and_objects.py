"""Collections of frames, classes of a notebook, and plans as frames."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from optuna.samplers import TPESampler

import ranksweep
from docs.tools import flags_module
from rank_core.data.load import load_collection
from rank_core.data.written import folder_of
from rank_core.errors import BadInput
from rank_core.models.passage_scores import MaxP
from ranksweep import flags
from ranksweep.by_value import reference_of

TEXTS = {f"d{n}": f"the tree number{n} has leaves and a river" * (1 + 5 * n) for n in range(12)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])


def split_of(name, first, grade=1):
    queries = {f"{name}{n}": f"number{n} tree" for n in range(first, first + 4)}
    qrels = {query: {f"d{n}": grade} for n, query in enumerate(queries, start=first)}
    return {"queries": queries, "qrels": qrels}


def frames_of(split):
    qrels = [(q, d, grade) for q, own in split["qrels"].items() for d, grade in own.items()]
    return {
        "queries": pd.DataFrame(split["queries"].items(), columns=["query_id", "text"]),
        "qrels": pd.DataFrame(qrels, columns=["query_id", "doc_id", "relevance"]),
    }


def collection(form=lambda split: split, documents=TEXTS, grade=1):
    splits = {"train": split_of("a", 0), "dev": split_of("b", 4), "test": split_of("c", 8, grade)}
    named = {name: form(split) for name, split in splits.items()}
    return ranksweep.Collection.of(documents, named, name="trees")


def test_a_collection_is_its_contents_whatever_their_form():
    frame = pd.DataFrame(TEXTS.items(), columns=["doc_id", "text"])
    dataset = SimpleNamespace(column_names=["doc_id", "text"], to_pandas=lambda: frame)
    plain = collection()
    for documents in (frame, dataset):
        assert collection(frames_of, documents).content_hash == plain.content_hash
    assert collection(grade=2).content_hash != plain.content_hash
    assert folder_of(plain) == folder_of(collection(frames_of, frame))
    read = load_collection(folder_of(plain))
    assert read.name == "trees" and dict(read.documents) == TEXTS
    for name, split in plain.splits.items():
        assert dict(read.splits[name].queries) == split.queries
        assert {q: dict(own) for q, own in read.splits[name].qrels.items()} == split.qrels


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({}, "train, dev or test, got none"),
        ({"tset": split_of("a", 0)}, "did you mean test"),
        ({"test": {"queries": {}}}, "it lacks qrels"),
        ({"test": {**split_of("a", 0), "qrel": {}}}, "unknown part of test"),
    ],
)
def test_a_collection_without_its_parts_is_refused(splits, message):
    with pytest.raises(BadInput, match=message):
        ranksweep.Collection.of(TEXTS, splits)


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "/", "a/b", "../a", "a|debias", "a ", "a\0", "a\n", "a" * 201]
)
def test_a_name_that_no_folder_can_have_is_refused(name, tmp_path):
    for field in ("name", "first_stage")[: 1 + bool(name)]:
        with pytest.raises(BadInput, match=f"the {field} of a Collection must be a file name"):
            ranksweep.plan("seeds", collection=replace(collection(), **{field: name}))
    assert not (tmp_path / "cache").exists()


def test_a_collection_that_was_read_from_files_is_given_by_its_name():
    read = load_collection(folder_of(collection()))
    with pytest.raises(BadInput, match="'trees' was read from files: give its name or its folder"):
        ranksweep.plan("seeds", collection=read)


def test_candidates_are_read_back_in_rank_order_with_their_scores():
    scores = {"d1": np.float64(0.1) + 0.2, "d0": np.float64(1), "d2": -2.5}
    split = {name: split_of(name, n) for n, name in enumerate(("train", "dev", "test"))}
    named = {
        n: own | {"candidates": dict.fromkeys(own["qrels"], scores)} for n, own in split.items()
    }
    made = ranksweep.Collection.of(TEXTS, named, first_stage="BM25 tuned")
    raw = {
        n: replace(own, candidates=dict.fromkeys(own.qrels, scores))
        for n, own in made.splits.items()
    }
    read = load_collection(folder_of(replace(made, splits=raw)))
    assert read.first_stage == "BM25 tuned"
    for own in read.splits.values():
        assert [[*one.items()] for one in own.candidates.values()] == [
            [("d0", 1.0), ("d1", 0.1 + 0.2), ("d2", -2.5)]
        ] * 4


def test_a_frame_alone_is_no_collection():
    with pytest.raises(BadInput, match=r"Collection.of\(documents="):
        ranksweep.run("seeds", collection=pd.DataFrame())


def made(factor, more=None):
    def helper(value):
        return value * factor

    class Mine(MaxP):
        """A model of a notebook."""

        label = "Mine"

        def unused(self):
            return helper(2), more

    return Mine


def test_a_class_of_a_notebook_has_a_name_by_its_source_and_all_it_uses():
    name = reference_of(made(3), "model")
    assert name == reference_of(made(3), "model") != reference_of(made(4), "model")
    code = f"from rank_core.own_code import load; print(load('model', {name!r}).unused(None))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "(6, None)\n", done.stderr  # a later process, by the cache
    assert reference_of(MaxP, "model") == "rank_core.models.passage_scores:MaxP"


USES_SETS = """
from enum import Enum

from rank_core.own_code import meaning_hash
from ranksweep.by_value import reference_of

WORDS = {"a", "b", "c", "d", "e"}
FROZEN = frozenset(WORDS)
NESTED = {"left": [WORDS, ("x", FROZEN)], "right": {FROZEN, frozenset("pqrst")}}
ROWS = ("x", FROZEN)


def helper():
    return WORDS


class Kind(Enum):
    ONE = "one"


class Settings:
    def __init__(self):
        self.words, self.kind = WORDS, Kind.ONE


MEMBER = Kind.ONE
INSTANCE = Settings()
CALLED = {"helper": helper, "kind": Kind}


class Mine:
    def score(self):
        return USED


name = reference_of(Mine, "model")
print(name, meaning_hash(name))
"""


@pytest.mark.parametrize(
    "used", ["WORDS", "FROZEN", "NESTED", "ROWS", "MEMBER", "INSTANCE", "CALLED"]
)
def test_a_class_names_its_trials_alike_in_every_process_and_cache(used, tmp_path):
    for folder in ("1", "2"):  # a kernel has another file for the same cell each time
        (tmp_path / f"code{folder}").mkdir()
        text = USES_SETS.replace("USED", used)
        (tmp_path / f"code{folder}" / "script.py").write_text(text, encoding="utf-8")
    names = [
        subprocess.run(
            [sys.executable, tmp_path / f"code{seed}" / "script.py"],
            env=os.environ | {"PYTHONHASHSEED": seed, "RANKSWEEP_CACHE": f"{tmp_path}/{seed}"},
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert names[0] == names[1] and names[0].startswith("notebook_Mine_")


def test_what_cannot_be_sent_by_value_says_what_to_do():
    with pytest.raises(BadInput, match=r"cannot be pickled: .*put it into a \.py file"):
        reference_of(made(3, threading.Lock()), "model")


def test_a_plan_is_frames(backbone_folder, tmp_path):
    planned = ranksweep.plan(
        "seeds",
        collection=collection(),
        backbone=backbone_folder,
        model=made(3),
        seeds=2,
        engine="local",
        storage=tmp_path / "results",
        machines="4xL4@10",
    )
    label = planned.cells["cell"].iloc[1]
    assert label.startswith("Mine") and planned.cells["to_run"].tolist() == [2, 2]
    assert planned.cells["hours"].sum() == pytest.approx(planned.cost["hours"].sum())
    assert planned.cost["price"].iloc[0] == pytest.approx(10 * planned.cost["hours"].iloc[0])
    assert {"collection", "trials"} <= {*planned.lines["about"]} and label in repr(planned)
    printed = " ".join(repr(planned).split())
    for line in planned.lines.itertuples():
        assert " ".join(f"{line.about} {line.text}".split()) in printed
    assert not (tmp_path / "results").exists()


def test_a_sampler_of_optuna_is_a_search(backbone_folder, tmp_path):
    planned = ranksweep.plan(
        "window_stride",
        collection=collection(),
        backbone=backbone_folder,
        search=TPESampler(n_ei_candidates=8, seed=3),
        num_configs=2,
        engine="local",
        storage=tmp_path / "results",
        machines="4xL4@10",
    )
    assert "TPESampler(n_ei_candidates=8): up to 2" in " ".join(planned.lines["text"])


def test_keywords_are_the_flags_of_the_command():
    assert flags_module.text() == open(flags.__file__, encoding="utf-8").read()


def test_tab_shows_what_is_public():
    assert dir(ranksweep) == sorted(ranksweep.__all__)


@pytest.mark.slow
def test_callbacks_are_told_of_trials(backbone_folder, tmp_path, capsys):
    heard, curves = [], {}

    class Told:
        def started(self, name, config):
            heard.append(("started", config.seed))

        def reported(self, name, metrics, step):
            curves.setdefault(name, []).append((step, {*metrics}))

        def finished(self, name, config):
            heard.append(("finished", config.seed))
            raise ValueError("a callback ends no sweep")

    sweep = ranksweep.run(
        "seeds",
        collection=collection(),
        backbone=backbone_folder,
        seeds=1,
        engine="local",
        smoke_test=True,
        storage=tmp_path / "results",
        tracking_uri="none",
        callbacks=Told(),
    )
    assert heard == [("started", 1), ("finished", 1)] * 2
    assert len(curves) == 2  # of trials
    for points in curves.values():
        steps = [step for step, _ in points]
        assert steps == sorted({*steps})
        assert "train/loss" in points[0][1] and "dev/ndcg_cut_10" in points[-1][1]
    assert sweep.best and not sweep.findings.empty
    with pytest.raises(BadInput, match="a method started"):
        ranksweep.run("seeds", callbacks=object())
