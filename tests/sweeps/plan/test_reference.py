"""The references that ship: what their files say, their plans without data, their twins."""

import gzip
import math
import re

import ir_datasets
import ir_measures
import pandas as pd
import pytest

from rank_core.data.load import COLLECTIONS, is_prepared
from rank_core.data.made.longembed import NAMES as LONGEMBED
from rank_core.data.made.msmarco_far_relevant import NAME as FAR_RELEVANT
from rank_core.data.named import NAMED, Recipe
from rank_core.data.transforms.expression import base_of
from sweeps.__main__ import main
from sweeps.launch import published_plan as planned
from sweeps.plan.reference import reference_file, references
from sweeps.plan.toml_sweep import read_toml_sweep
from sweeps.plan.twin import twin
from tests.e2e.conftest import trials_of

REFERENCES = [
    *("boytsov2022", "bright-long", "cedr", "debiasing", "keyb", "lce", "mldr", "parade"),
    *("positional-bias", "zhang2021"),
]
OF_ROBUST04 = ["cedr", "keyb", "parade", "zhang2021"]


def test_all_are_here():
    assert references() == REFERENCES


@pytest.mark.parametrize("name", REFERENCES)
def test_a_file_has_known_collections_encoders_and_values_of_its_cells(name):
    experiment, _ = read_toml_sweep(reference_file(f"reference/{name}")[0])
    reference, grid = experiment.reference, experiment.grid(None, None)
    cells = [{**experiment.settings, **point} for point in (grid.baseline, *grid.points)]
    assert {*map(base_of, reference.collections)} <= set(COLLECTIONS)
    assert experiment.settings["collection"] in reference.collections
    assert {cell["model.backbone"] for cell in cells} == set(reference.encoders)
    assert reference.licence and reference.data and reference.disk and reference.meaning
    for own in reference.published:
        assert own.collection in reference.collections and all(0 < v < 1 for v in own.values)
        assert own.measure in experiment.settings["evaluation.measures"]
        assert sum(is_of(own, cell) for cell in cells) == 1


def is_of(own, cell):
    """True if a value is of this cell; whether its trials are trained depends on the sweep."""
    epochs = "training.num_epochs"
    return {n: v for n, v in own.settings.items() if n != epochs}.items() <= cell.items()


def of_file(name):
    return read_toml_sweep(reference_file(f"reference/{name}")[0])[0].reference


@pytest.mark.parametrize("name", [own for own in REFERENCES if own != "mldr"])
def test_collections_have_the_sizes_that_ir_datasets_counts(name):
    """Its package has the counts of every id, without the data."""
    sizes = of_file(name).collections
    assert sizes
    assert {*map(base_of, sizes)} - {*NAMED} <= {*LONGEMBED, FAR_RELEVANT}
    for collection, size in sizes.items():
        recipe = NAMED.get(base_of(collection), Recipe({}))
        for split, parts in recipe.splits.items():
            [part] = parts
            counts = ir_datasets.load(part.dataset_id).metadata()
            assert size.documents == counts["docs"]["count"]
            # A topic of Robust04, 672, has no relevant document.
            judged = counts["queries"]["count"] - collection.startswith("robust04")
            assert set(recipe.splits) <= {"pool", "train", "dev", "test"}
            assert getattr(size, "test" if split == "pool" else split) == judged


def test_published_values_are_those_of_their_pages():
    def values(name):
        return [(own.measure, tuple(own.values)) for own in of_file(name).published]

    # Capreolus, docs/reproduction/CEDR-KNRM.md and PARADE.md: two tables, and five environments.
    assert [measure for measure, _ in values("cedr")] == ["nDCG@20"] * 8
    assert all(len(own) == 2 for _, own in values("cedr"))
    assert min(value for _, own in values("cedr") for value in own) == 0.4845
    assert values("parade") == [
        ("nDCG@20", (0.5533, 0.5533, 0.5478, 0.5528, 0.5449)),
        ("P@20", (0.4851, 0.4851, 0.4783, 0.4783, 0.4739)),
        ("AP", (0.3687, 0.3687, 0.3666, 0.3722, 0.3626)),
    ]
    # luyug/Reranker README; FlagEmbedding issue 927; ModernBERT issue 193.
    assert values("lce") == [("RR@100", (0.434,))]
    # Printed tables, of which a reference has the rows of its cells and the columns of its sets.
    assert values("zhang2021") == [("nDCG@20", (v,)) for v in (0.4767, 0.5303, 0.449, 0.51)]
    assert values("keyb")[:2] == [("nDCG@20", (v,)) for v in (0.4678, 0.4803)]
    assert len(values("keyb")) == 9
    of_dl = [own for own in of_file("boytsov2022").published if own.collection != "robust04-title"]
    parade = {"model.name": "parade-avg", "model.backbone": "bert-base-uncased"}
    found = {own.collection: own.values for own in of_dl if parade.items() <= own.settings.items()}
    assert found == {
        "msmarco-doc": [0.656],
        "msmarco-doc-dl20": [0.617],
        "msmarco-doc-v2-dl21": [0.66],
        "robust04-desc": [0.534],
    }
    # Table 4 has a system before and after it is tuned, Table 2 one trained on other documents.
    electra = {"model.name": "maxp", "model.backbone": "google/electra-base-discriminator"}
    [before, after] = [
        own
        for own in of_file("positional-bias").published
        if own.collection == "msmarco-farrelevant" and electra.items() <= own.settings.items()
    ]
    epochs = [own.settings["training.num_epochs"] for own in (before, after)]
    assert (before.values, after.values, epochs) == ([0.328], [0.349], [0, 1])
    assert values("debiasing")[:3] == [("RR@100", (v,)) for v in (0.321, 0.316, 0.325)]
    assert values("mldr") == [("nDCG@10", (0.260,)), ("nDCG@10", (0.440,))]


@pytest.mark.parametrize("name", REFERENCES)
def test_a_twin_has_the_same_cells_within_the_small_encoder(name):
    experiment, _ = read_toml_sweep(reference_file(f"reference/{name}/twin")[0])
    small, flags = twin(experiment)
    before, after = experiment.grid(None, None), small.grid(None, None)
    points = [tuple(point.items()) for point in (after.baseline, *after.points)]
    assert len({*points}) == len(points) and flags == {"num_seeds": 2}
    # The small encoders are two: cells of further ones are equal.
    assert len(points) == 1 + len(before.points) or len(experiment.reference.encoders) > 2
    tested = experiment.settings.get("evaluation.test_on", ())
    assert len(small.settings.get("evaluation.test_on", ())) == min(3, len(tested))
    named = experiment.settings["collection"]
    assert small.settings["collection"] == named.replace(base_of(named), "python-docs")
    windows = [{**small.settings, **dict(point)}["chunking.window"] for point in points]
    assert min(windows) == 32 and max(windows) <= 112
    cells = [{**small.settings, **dict(point)} for point in points]
    for own in small.reference.published:
        assert own.differs and sum(is_of(own, cell) for cell in cells) == 1


@pytest.mark.parametrize("name", REFERENCES)
def test_a_dry_run_needs_no_data(name, own_cache, monkeypatch, capsys, tmp_path):
    def none(*names):
        raise AssertionError("reads data")

    monkeypatch.setattr("sweeps.plan.make_plan.load_inputs", none)
    words = ["--dry-run", "--storage", str(tmp_path / "s")]
    assert main(["run", f"reference/{name}", *words]) == 0
    text = capsys.readouterr().out
    assert "H100-hours" in text and "not here yet" in text and not (tmp_path / "s").exists()


def test_a_dry_run_counts_its_test_sets_and_its_own_settings(own_cache, capsys, monkeypatch):
    words = ["run", "reference/boytsov2022", "--dry-run"]
    assert main([*words, "evaluation.test_on="]) == 0
    without = capsys.readouterr().out
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "test set    msmarco-doc-v2-dl21: 57 queries over 11,959,635 documents" in text
    assert "test set" not in without and text.count("57 trials") == without.count("57 trials") == 1

    def scored(printed):  # billions of tokens at most, in evaluation
        [most] = re.findall(r"([\d.]+) G encoder tokens", printed)
        return float(most)

    # 102 of 5,338 queries are scored for the sets alone.
    assert scored(without) < scored(text) < 1.05 * scored(without)

    assert main(["run", "reference/keyb", "--dry-run"]) == 0
    # What the file sets is stronger than the profile's settings of a model: 4,096 tokens are 21
    # windows of 225 tokens with a stride of 200.
    assert "selector bm25 3 9" in " ".join(capsys.readouterr().out.split())


SMALL = """name = "small"
question = "?"
seeds = 4
baseline = { model.name = "firstp" }
points = [{ model.name = "maxp" }]
[base]
collection = "bright-pony-long"
model.backbone = "e"
chunking.window = 100
chunking.stride = 50
chunking.max_document_tokens = 200
chunking.max_query_tokens = 7
training.num_epochs = 2
training.batch_size = 10
evaluation.depth = 30
[reference.collections]
bright-pony-long = { documents = 20, train = 40, dev = 3, test = 5 }
[reference.encoders]
e = { tokens = 512, layers = 2, width = 4, parameters = 1e6 }
"""


def test_a_plan_from_published_sizes_by_hand(tmp_path, own_cache, capsys):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    assert main(["run", str(path), "--dry-run"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    [first] = (row for row in rows if row[:1] == ["FirstP"])
    [maxp] = (row for row in rows if row[:1] == ["MaxP"])
    # 2 epochs of 40 queries train on 160 documents; 20 candidates of 2 x 3 dev and 5 test queries
    # are scored. FirstP reads 100 + 7 + 3 tokens of each, MaxP three such windows.
    assert first[2:6] == ["4", "1", *f"{4 * 380 * 110 / 1e3:,.0f} K".split()]
    assert maxp[2:6] == ["4", "3", *f"{4 * 380 * 330 / 1e3:,.0f} K".split()]
    work = (160 * 3 / 0.33 + 220 / 0.38) * 110 * (2 * 1e6 + 4 * 2 * 4 * 110) / 989e12
    assert math.isclose(float(first[-1]), 4 * work / 3600, rel_tol=0.01)


def test_folds_share_the_queries_and_samples(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    experiment, _ = read_toml_sweep(path)
    size = experiment.reference.collections["bright-pony-long"]
    config = planned.TrialConfig().override({**experiment.settings, "evaluation.folds": 4})
    # 48 queries: each of 4 models trains on 24, 12 select and 12 test.
    assert planned._pairs(config, size) == (4 * 40, 4 * (2 * 12 + 12) * 20)
    config = config.override({"evaluation.max_dev_queries": 4, "evaluation.max_test_queries": 8})
    assert planned._pairs(config, size) == (4 * 40, 4 * (2 * 1 + 2) * 20)


def test_with_the_data_the_plan_is_the_ordinary_one(own_cache):
    assert not is_prepared("bright-pony-long")
    (own_cache / "collections" / "bright-pony-long-other").mkdir(parents=True)
    assert not is_prepared("bright-pony-long")
    (own_cache / "collections" / f"bright-pony-long-{'0a' * 8}").mkdir()
    assert is_prepared("bright-pony-long") and not is_prepared("bright-pony")


OPEN = "[reference.collections]"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("parameters = 1e6", "size = 1e6"), "tokens, layers, width, parameters"),
        (("documents = 20, ", ""), "documents, train, dev, test"),
        ((OPEN, f"[reference]\nlicense = 'x'\n{OPEN}"), "licence"),
        ((OPEN, f"[reference]\npublished = 3\n{OPEN}"), "list"),
    ],
)
def test_a_wrong_table_is_refused_with_its_file(tmp_path, capsys, change, named):
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace(*change))
    assert main(["run", str(path), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert str(path) in error and named in error


@pytest.mark.parametrize("name", ["reference/ced", "reference/cedr/small"])
def test_an_unknown_reference_is_refused(name, capsys):
    assert main(["run", name]) == 2
    assert "cedr" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("name", REFERENCES)
def test_a_twin_runs_to_its_table(name, tmp_path):
    storage = tmp_path / "s"
    words = ["--engine", "local", "--storage", str(storage), "--verbose"]
    assert main(["run", f"reference/{name}/twin", *words]) == 0
    tables = [*storage.glob("*/*/report/table.md")]  # of each test set, too
    assert any("not comparable: a twin" in table.read_text() for table in tables) or (
        name == "bright-long"
    )
    for table in tables:
        trials = trials_of(table.parents[1])
        # A made aggregator may rank all documents alike: its trials have collapsed, and ended.
        made = trials["cell"].str.startswith("parade-transformer-pretrained")
        assert {*trials[~made]["status"]} == {"done"}
        assert {*trials[made]["status"]} <= {"done", "collapsed"}
        for row in trials[trials["status"] == "done"].itertuples():
            own = storage / "trials" / f"{row.cell}-seed{row.seed}"
            for measure, (ours, theirs) in recomputed(own, table.parents[1] / "qrels").items():
                assert ours == theirs, (own.name, measure)


def recomputed(trial, qrels):
    """{split and measure: the values of a trial, and those of its runs by ir_measures}."""
    values = pd.read_parquet(trial / "per_query.parquet")
    found = {}
    for (split, measure), own in values.groupby(["split", "measure"]):
        judged = [*ir_measures.read_trec_qrels(str(qrels / f"{split}.qrels"))]
        with gzip.open(trial / f"{split}.run.gz", "rt") as run:
            ranked = [*ir_measures.read_trec_run(run.read())]
        rows = ir_measures.iter_calc([ir_measures.parse_measure(measure)], judged, ranked)
        theirs = {row.query_id: row.value for row in rows}
        ours = dict(zip(own["query_id"], own["value"], strict=True))
        found[split, measure] = ours, {query_id: theirs.get(query_id, 0.0) for query_id in ours}
    assert any(sum(ours.values()) for ours, _ in found.values())
    return found
