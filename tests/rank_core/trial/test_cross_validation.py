"""Folds: trained and tested queries, errors, and a whole trial over them."""

import json
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.data.load import load_collection
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.records import Collection, Split
from rank_core.training.train import CurvePoint
from rank_core.trial.cross_validation import KEEPING, check_folds, deal, load_folds, parts_of
from rank_core.trial.trial import Progress, TrialResult, run_trial, trial_streams

FOLDS = 3
SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def config(small_trial):
    return small_trial.override({"evaluation.folds": FOLDS, "training.max_steps": 2})


@pytest.fixture(scope="module")
def whole(collection_folder):
    return load_collection(str(collection_folder))


@pytest.fixture(scope="module")
def done(config, tmp_path_factory):
    """(folder, progress, result) of a trial over three folds."""
    folder = tmp_path_factory.mktemp("trials") / "folds"
    *progress, result = run_trial(config, folder)
    assert isinstance(result, TrialResult)
    return folder, progress, result


def members(collection):
    return {name: set(collection.splits[name].queries) for name in SPLITS}


def tiny(name="c", queries=(), documents=None, splits=("train", "test")):
    """A collection of the given queries, one after the other in the splits."""
    of_split = {split: {} for split in splits}
    for number, (query_id, text) in enumerate(queries):
        of_split[splits[number % len(splits)]][query_id] = text
    made = {
        split: Split(texts, {q: {"d1": 1, "gone": 1} for q in texts}, {q: {} for q in texts})
        for split, texts in of_split.items()
    }
    return Collection(name, "hash", documents or {"d1": "text"}, made)


@pytest.mark.parametrize("num_folds", [3, 5, 11])
def test_every_query_is_tested_once_validated_once_and_otherwise_trained_on(whole, num_folds):
    dealt = deal(replace(whole, language="de"), num_folds)
    assert {fold.language for fold in dealt} == {"de"}
    folds = [members(fold) for fold in dealt]
    everything = set().union(*members(whole).values())
    for fold in folds:
        assert set().union(*fold.values()) == everything
        assert sum(map(len, fold.values())) == len(everything) == 24
        assert 24 // num_folds <= len(fold["test"]) <= -(-24 // num_folds)
    for split, times in (("test", 1), ("dev", 1), ("train", num_folds - 2)):
        counts = Counter(query_id for fold in folds for query_id in fold[split])
        assert set(counts.values()) == {times} and set(counts) == everything
    assert Counter(map(frozenset, (fold["dev"] for fold in folds))) == Counter(
        map(frozenset, (fold["test"] for fold in folds))
    )


def test_folds_depend_only_on_query_ids():
    queries = [(f"q{n}", f"text {n}") for n in range(10)]
    first = [members(fold) for fold in deal(tiny("c", queries, splits=SPLITS), FOLDS)]
    # Other texts, another order, other splits, another name: the same folds.
    others = [(query_id, f"other {query_id}") for query_id, _ in reversed(queries)]
    second = [members(fold) for fold in deal(tiny("d", others, splits=("test",)), FOLDS)]
    assert first == second
    in_order = [sorted(fold["test"]) for fold in first]
    assert in_order != [[f"q{n}" for n in range(k, 10, FOLDS)] for k in range(FOLDS)]


def test_training_sees_no_judgment_of_a_document_that_has_no_text():
    for fold in deal(tiny(queries=[(f"q{n}", f"text {n}") for n in range(6)]), FOLDS):
        assert set(map(tuple, fold.splits["train"].qrels.values())) == {("d1",)}
        assert set(map(tuple, fold.splits["test"].qrels.values())) == {("d1", "gone")}


def test_each_fold_has_a_content_hash_of_its_own(whole):
    hashes = [fold.content_hash for folds in (3, 4) for fold in deal(whole, folds)]
    assert len(set(hashes)) == 7 and whole.content_hash not in hashes
    assert [fold.name for fold in deal(whole, 3)] == ["woods/fold1", "woods/fold2", "woods/fold3"]
    assert deal(whole, 11)[0].name == "woods/fold01"


def test_a_query_of_two_splits_and_too_few_queries_are_refused():
    collection = tiny(queries=[("a", "x"), ("b", "y")])
    twice = replace(collection, splits={**collection.splits, "dev": collection.splits["train"]})
    with pytest.raises(BadInput, match="query 'a' of split dev is in another split"):
        deal(twice, FOLDS)
    with pytest.raises(BadInput, match="folds=3 exceeds the 2 judged queries of c"):
        deal(collection, FOLDS)


def test_a_transform_of_training_data_reaches_no_tested_query(config):
    names = (config.collection, f"{config.collection}|deep(rate=0.3,seed=1)")
    plain, few = (load_folds(name, config.model.backbone, FOLDS) for name in names)
    for one, other in zip(plain, few, strict=True):
        assert one.collection.splits["test"].qrels == other.collection.splits["test"].qrels
        kept, before = (len(part.collection.splits["train"].queries) for part in (other, one))
        assert 0 < kept < before


def test_files_of_a_single_model_or_of_tested_queries_are_refused(config, small_trial, tmp_path):
    for name, value in KEEPING.items():
        with pytest.raises(BadInput, match=rf"^{name} needs a single model"):
            check_folds(config.override({name: value}))
    check_folds(config.override({"training.keep_weights": "best"}))  # which keeps nothing
    for collection, refused in ((config.collection, True), ("python-docs", False)):
        folder = tmp_path / str(refused)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"collection": collection}))
        for name, value in (
            ("init_from", str(folder)),
            ("init_from", str(folder / "weights.safetensors")),
            ("teacher", str(folder / "train.run.gz")),
            ("negatives_from", ("elsewhere.run", str(folder / "train.run.gz"))),
        ):
            asked = config.override({f"training.{name}": value})
            if refused:
                with pytest.raises(BadInput, match=rf"training.{name} must not come from a trial"):
                    check_folds(asked)
            else:
                check_folds(asked)


def test_folds_have_streams_of_their_own_and_paired_cells_share_those(config):
    streams = [vars(trial_streams(config, "b", fold=fold)) for fold in range(FOLDS + 1)]
    assert len({seed for fold in streams for seed in fold.values()}) == 4 * (FOLDS + 1)
    pairs = []
    for window in (40, 41):
        settings = {"training.paired_seeds": True, "chunking.window": window}
        pairs.append(vars(trial_streams(config.override(settings), "b", fold=2)))
    assert {name for name in pairs[0] if pairs[0][name] == pairs[1][name]} == {"order", "negatives"}


def test_one_trial_tests_every_query_once_and_keeps_the_values_of_each_fold(done, config, whole):
    folder, _, result = done
    everything = set().union(*members(whole).values())
    table = pd.read_parquet(folder / "per_query.parquet")
    assert list(table.columns) == ["cell", "seed", "split", "query_id", "measure", "value"]
    folds = pd.read_parquet(folder / "folds.parquet")
    assert list(folds.columns) == ["fold", "split", "query_id", "measure", "value", "best_step"]
    key = ["split", "query_id", "measure"]
    both = table.merge(folds, on=key, suffixes=("", "_of_fold"), validate="one_to_one")
    assert len(both) == len(table) == len(folds) == 2 * 24 * 2
    assert (both.value == both.value_of_fold).all() and set(folds.best_step) <= {1, 2}
    inputs = load_inputs(config.collection, config.model.backbone)
    for number, part in enumerate(parts_of(config, inputs), start=1):
        for split in ("dev", "test"):
            of_fold = folds[(folds.fold == number) & (folds.split == split)]
            assert set(of_fold.query_id) == members(part.collection)[split]
    for split, means in (("dev", result.dev), ("test", result.test)):
        assert set(read_run(folder / f"{split}.run.gz")) == everything
        of_split = table[table.split == split]
        assert means == pytest.approx(of_split.groupby("measure").value.mean().to_dict())
    workers = [vars(row) for row in result.workers]
    written = json.loads((folder / "result.json").read_text())
    assert written == vars(result) | {"workers": workers}


def test_progress_counts_the_steps_of_all_folds(done):
    _, progress, _ = done
    assert all(isinstance(news, Progress) and news.num_steps == 2 * FOLDS for news in progress)
    points = [point for news in progress for point in news.curve]
    assert all(isinstance(point, CurvePoint) for point in points)
    assert [point.step for point in points] == [1, 2, 3, 4, 5, 6]
    assert [news.step for news in progress if news.dev] == [2, 4, 6]


def test_systems_without_weights_are_tested_on_every_query_too(config, tmp_path):
    *progress, result = run_trial(config.override({"model.name": "bm25"}), tmp_path)
    assert [(news.step, news.num_steps) for news in progress] == [(n, 6) for n in range(1, 7)]
    assert result.test == pytest.approx(result.dev) and result.padding_share == 0
    assert len(read_run(tmp_path / "test.run.gz")) == 24
