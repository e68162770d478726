"""What a person and the report get to know of a plan."""

import json
import re
from dataclasses import replace

import pytest

from rank_core.checkpoints.weights import save_weights
from rank_core.data.trec import read_qrels, read_run
from rank_core.encoders.shipped import SETTINGS
from rank_core.evaluate import mean_values, per_query
from rank_core.models.build import build_model
from rank_core.ranking.scorer import evaluated_queries
from rank_core.trial.cross_validation import parts_of
from sweeps.far_relevant import EXPERIMENT as FAR_RELEVANT
from sweeps.forecast.forecast import Calibration, Forecast, TrialEstimate
from sweeps.launch.plan_text import forecast_text, plan_text
from sweeps.plan.description import description_of, own_baselines, write_description
from sweeps.plan.trial_cost import planned_tokens
from sweeps.search.race import EQUAL, race_price
from sweeps.store.sweep_file import parse_sweep_file, read_sweep_file
from sweeps.terminal.text import count

KNOWN = Forecast(
    trials={},
    **{"slots": 2, "units": 1.0, "unit": "core", "start_seconds": 10.0, "group_seconds": 0.0},
    **{"num_kinds": 2, "num_measured": 2, "seconds": 14.0},
    **{"device": "x86_64", "threads": 1},
)
SMALL = ("chunking.window=48,500", "chunking.stride=32", "--seeds", "1,2")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_the_plan_shows_cells_costs_and_what_is_left_out(plan_of):
    text = plan_text(plan_of(*SMALL), finished=0)
    assert "2 cells x 2 seeds = 4\n" in text
    assert "20 documents, queries train 8, dev 8, test 8; evaluated: dev 8, test 8" in text
    assert "inputs of up to 131 tokens" in text
    first, second = (line for line in text.splitlines() if line.startswith(("First", "MaxP")))
    assert first.endswith("1.0x  baseline")
    assert second.split()[:2] == ["MaxP", "48/32"] and "100%" in second
    assert "read: % of document tokens covered by at least one chunk; cost: encoder tokens" in text
    assert "tokens/doc: " in text and "max: " in text, "every column is explained"
    [left_out] = (line for line in text.splitlines() if line.startswith("excluded"))
    assert "chunking.window=500, chunking.stride=32: chunking.window <= 96" in left_out


def test_the_plan_counts_the_queries_that_are_cut(plan_of):
    assert "are cut" not in plan_text(plan_of(*SMALL), finished=0)
    text = plan_text(plan_of(*SMALL, "chunking.max_query_tokens=3"), finished=0)
    assert "queries     24 of 24 are cut at chunking.max_query_tokens=3\n" in text


def line_of(plan, name):
    [line] = (x for x in plan_text(plan, finished=0).splitlines() if x.startswith(f"{name} "))
    return line


def test_the_plan_names_the_settings_that_all_cells_share(plan_of):
    given = "training.loss=ranknet", "training.max_steps=9", "training.precision=fp32"
    text = plan_text(plan_of(*SMALL, *given), finished=0)
    fixed = text[text.index("fixed  ") : text.index("\nbaseline")]
    paragraphs = re.split(r"\n {12}(?=\w+: )", fixed)
    sections = {part.partition(":")[0].split()[-1]: part for part in paragraphs}
    assert [*sections] == ["model", "chunking", "training", "evaluation"]
    for said in ("loss=ranknet", "max_steps=9", "precision=fp32", "batch_size=16", "negatives=1"):
        assert said in sections["training"]
    assert "head_learning_rate=1e-4" in sections["training"] and "depth=" in sections["evaluation"]
    # Differs between cells, is at a default that no one misses, or is read by none of them.
    assert "window=" not in text.partition("trials  ")[0].replace("max_", "")
    assert "keep_weights" not in text and "margin=" not in text


def test_the_plan_has_the_tokens_of_training_and_evaluation_apart(plan_of, reranker_folder):
    plan = plan_of(*SMALL)
    first, last = (planned_tokens(c.config, c.inputs, c.chunks) for c in plan.cells)
    words = [f"{count(t.trained)} in training, {count(t.scored)} in" for t in (first, last)]
    assert all(word in line_of(plan, "tokens") for word in words)
    none = plan_of(*SMALL, "training.num_epochs=0", "--backbone", str(reranker_folder))
    assert "in training" not in line_of(none, "tokens") and "in all" in line_of(none, "tokens")


def test_the_plan_has_the_first_stage_on_dev(plan_of):
    plan = plan_of(*SMALL, "evaluation.max_dev_queries=5")
    collection, evaluation = plan.inputs.collection, plan.base.evaluation
    some = collection.splits["dev"].subset(evaluated_queries(collection, "dev", evaluation))
    value = mean_values(per_query(some.qrels, some.candidates, ["nDCG@10"]))["nDCG@10"]
    assert line_of(plan, "candidates") == f"candidates  from BM25: nDCG@10 {value:.3f} on dev"
    for language, name in (("en", "BM25"), ("de", "BM25 in German")):
        spoken = replace(collection, language=language)
        other = replace(plan, inputs=replace(plan.inputs, collection=spoken))
        assert line_of(other, "candidates").startswith(f"candidates  from {name}: nDCG@10 ")


@pytest.mark.parametrize("folds", ["0", "4"])
def test_the_plan_says_what_training_has_seen_of_test(plan_of, folds, reranker_folder):
    plan = plan_of(*SMALL, f"evaluation.folds={folds}")
    parts = [part.collection.splits for part in parts_of(plan.base, plan.inputs)]
    relevant = [
        {d for of in own[s].qrels.values() for d, grade in of.items() if grade > 0}
        for own in parts
        for s in ("train", "test")
    ]
    both = sum(len(a & b) for a, b in zip(relevant[::2], relevant[1::2], strict=True))
    numbers = f"({both} of {sum(map(len, relevant[1::2]))})"
    assert numbers in line_of(plan, "seen") and "split --group" in line_of(plan, "warning")
    as_it_is = "training.num_epochs=0", "--backbone", str(reranker_folder)
    none = plan_text(plan_of(*SMALL, *as_it_is), finished=0)
    assert "seen  " not in none, "nothing is trained"


def test_first_p_of_the_same_windows_stands_beside_a_longer_baseline(plan_of):
    def labels(*words):
        return [cell.label for cell in plan_of(*words).cells]

    pair = "chunking.window=32,48", "chunking.stride=32"
    assert labels(*pair) == ["FirstP 96", "FirstP 32", "FirstP 48", "MaxP 32", "MaxP 48/32"]
    plan = plan_of(*pair)
    assert "FirstP 32, FirstP 48" in line_of(plan, "baseline")
    assert own_baselines(plan) == {}
    # Cells of sweeps as they were: one window, windows up to the baseline's, the sweep's own.
    assert labels("chunking.window=48", "chunking.stride=32") == ["FirstP 96", "MaxP 48/32"]
    assert "windows of 48: " in line_of(plan_of(*SMALL), "baseline")
    for words in (["chunking.window=48,96", "chunking.stride=48"], []):
        assert [x for x in labels(*words) if x.startswith("FirstP")] == ["FirstP 96"]
        assert "\nbaseline " not in plan_text(plan_of(*words), finished=0)
    names = {cell.cell for cell in plan_of("chunking.window=48", "chunking.stride=32").cells}
    assert names <= {cell.cell for cell in plan.cells}
    drawn = plan_of(*pair, "--search", "random", "--num-configs", "2")
    assert len(drawn.cells) == 3 and len(plan_of(*pair, "--smoke-test").cells) == 3
    assert [c.label for c in plan_of(*pair, "--model", "firstp").cells].count("FirstP 32") == 1


def test_the_plan_names_the_defaults_of_an_embedded_backbone(plan_of):
    plan = plan_of(*SMALL)
    own = {"model.backbone": "tiny-docs", **SETTINGS, "model.dropout": 0.2}
    text = plan_text(replace(plan, base=plan.base.override(own)), finished=0)
    [line] = (line for line in text.splitlines() if line.startswith("backbone"))
    assert "its defaults: training.backbone_learning_rate=3e-4" in line
    assert "training.precision=fp32" in text
    assert "model.dropout" not in line


def test_the_plan_says_what_does_not_start_from_other_weights(plan_of, tmp_path):
    maxp = plan_of().cells[1]
    model = build_model(maxp.config, maxp.inputs.backbone, init_seed=0)
    save_weights(tmp_path / "start", model.learned_state())
    words = ("--init-from", str(tmp_path / "start"), "--model")
    text = plan_text(plan_of(*words, "parade-attn"), finished=0)
    expected = "training.init_from has no attention for parade-attn: each seed draws its own"
    assert expected in " ".join(text.split())
    assert "start   " not in plan_text(plan_of(*words, "maxp"), finished=0)


def test_a_zero_shot_cell_has_the_weights_of_its_start_or_is_left_out(plan_of, tmp_path):
    """Weights that the start lacks would be random; a single start is one run."""
    maxp = plan_of().cells[1]
    model = build_model(maxp.config, maxp.inputs.backbone, init_seed=0)
    save_weights(tmp_path / "start", model.learned_state())
    words = ("--init-from", str(tmp_path / "start"), "training.num_epochs=0", "--seeds", "1,2,3")
    names = "model.name=firstp,maxp,parade-attn,parade-transformer"
    plan = plan_of(*words, names, experiment=FAR_RELEVANT)
    kinds = [cell.config.model.name for cell in plan.cells]
    assert "maxp" in kinds and "firstp" in kinds
    assert not {"parade-attn", "parade-transformer"} & {*kinds}
    reasons = [item.reason for item in plan.removed]
    assert len(reasons) == 2 and all("would rank at random" in reason for reason in reasons)
    assert plan.num_trials == len(plan.cells)
    assert "so that each is one run" in line_of(plan, "start")


def test_the_plan_says_how_a_bi_encoder_makes_vectors(plan_of):
    plan = plan_of(*SMALL, "--model", "bi-encoder", "model.query_prompt=find: ")
    said = "pooling mean, cosine, prompts 'find: ' and ''; the folder says nothing of pooling"
    assert line_of(plan, "vectors") == f"vectors     {said} (no modules.json)"
    assert "vectors " not in plan_text(plan_of(*SMALL), finished=0)


def test_the_forecast_adds_up_cells_slots_and_start(plan_of):
    plan = plan_of(*SMALL)
    one = TrialEstimate(100.0, tokens=2e6, peak_bytes=700 * 2**20, trained=5e5)
    known = replace(KNOWN, trials={cell.cell: one for cell in plan.cells})
    text = forecast_text(list(plan.trials()), known, Calibration(0.0, 0.1, 0))
    first = next(line for line in text.splitlines() if line.startswith("First"))
    assert first.split()[2:] == ("2 4.0 M 1:40 (1:22-2:02) 0.0556 700.0 MiB".split())
    assert "estimate    3 min 30 s (95%: 2 min 54 s - 4 min 13 s) on 2 slots" in text
    assert "0.111 core-hours (0.0913-0.135), 8.0 M encoder tokens, 2.0 M in training" in text
    assert "measured    2 of 2 kinds of trial, a batch of each" in text and "calibrated" not in text
    assert "a group of workers" not in text and "at a load of" not in text
    usual = forecast_text(list(plan.trials()), replace(known, load=1.5), Calibration(0.0, 0.1, 0))
    assert "at a load of" not in usual
    busy = forecast_text(list(plan.trials()), replace(known, load=9.0), Calibration(0.0, 0.1, 0))
    assert "at a load of 9.0 for each core: other work slowed it" in busy
    # Four trials on two slots wait twice for a group.
    grouped = replace(known, group_seconds=20.0)
    text = forecast_text(list(plan.trials()), grouped, Calibration(0.0, 0.1, 0))
    assert "estimate    4 min 10 s" in text
    assert "of which a group of workers takes 20 s to start, for every trial" in text


def test_the_plan_of_a_large_grid_has_the_price_of_a_race(plan_of):
    """Seven cells, five seeds: at the least a race runs the baseline and one other with five, and
    five others with two."""
    grid = "chunking.window=32,40,48", "chunking.stride=32"
    plan = plan_of(*grid, "--seeds", "1,2,3,4,5")
    first, *others = (cell.cost for cell in plan.cells)
    assert len(others) == 6 and plan.num_trials == 35
    price = race_price(plan)
    assert price.trials == (5 + 5 + 5 * 2, 30)
    total = 5 * (first + sum(others))
    least = 5 * first + 2 * sum(others) + 3 * sum(others) / 6
    assert price.shares[0] == pytest.approx(least / total)
    assert price.shares[1] == pytest.approx((least + EQUAL * (total - least)) / total)
    line = line_of(plan, "race")
    assert line.startswith("race        --search race: 20 to 30 trials on average, ")
    one = TrialEstimate(3600.0, tokens=2e6, peak_bytes=700 * 2**20)
    known = replace(KNOWN, trials={cell.cell: one for cell in plan.cells})
    trials = list(plan.trials())
    text = forecast_text(trials, known, Calibration(0.0, 0.1, 0), race=price)
    low, high = (35 * share for share in price.shares)
    assert (
        f"\n            {low:.3g} to {high:.3g} core-hours on average with --search race\n" in text
    )
    assert "--search race" not in forecast_text(trials, known, Calibration(0.0, 0.1, 0))
    assert "\nrace " not in plan_text(plan, finished=1)


@pytest.mark.parametrize(
    "words",
    [
        ("chunking.window=32,40,48", "--seeds", "1,2,3"),  # clearly lower it is not
        ("chunking.window=32,40,48", "--seeds", "1,2"),  # a race needs three seeds
        ("chunking.window=32", "--seeds", "1,2,3,4,5,6,7,8"),  # of two configurations
        ("chunking.window=32,40,48", "--seeds", "1,2,3,4,5", "--search", "race"),
        ("chunking.window=32,40,48", "--seeds", "1,2,3,4,5", "--smoke-test"),
    ],
)
def test_no_race_is_proposed_where_it_saves_little_or_cannot_be(plan_of, words):
    assert "\nrace " not in plan_text(plan_of("chunking.stride=32", *words), finished=0)


def test_the_description_has_what_the_report_reads(plan_of, records):
    plan = plan_of(*SMALL, "training.paired_seeds=true")
    write_description(records, plan, description_of(plan, ["--seeds", "1,2"]))
    described = json.loads((records.folder / "sweep.json").read_text())
    assert described["schema_version"] == 3
    assert described["sweep"] == "window_stride" and described["question"].endswith("?")
    assert described["baseline"] == plan.cells[0].cell
    assert described["measures"] == ["nDCG@10", "RR@10"] and described["primary"] == "nDCG@10"
    assert described["split"] == "test"
    assert "correction" not in described and "confirms" not in described
    assert read_sweep_file(records) == parse_sweep_file(json.dumps(described).encode(), "x")
    assert described["seeds"] == [1, 2] and described["paired_seeds"] is True
    assert described["swept"] == ["chunking.window", "chunking.stride"]
    assert described["collection"]["num_documents"] == 20
    assert described["collection"]["num_queries"] == {"train": 8, "dev": 8, "test": 8}
    assert described["command"].endswith(" run window_stride --seeds 1,2")
    first, second = described["cells"]
    assert second["label"] == "MaxP 48/32" and second["group"] == "MaxP"
    assert second["settings"] == {
        "model.name": "maxp",
        "chunking.window": 48,
        "chunking.stride": 32,
    }
    assert 0 < first["coverage"] < second["coverage"] == 1
    assert not list(records.folder.rglob("*.unfinished"))


def test_the_first_stage_is_measured_on_its_own_order(plan_of):
    plan = plan_of(*SMALL)
    split = plan.inputs.collection.splits["test"]
    expected = mean_values(per_query(split.qrels, split.candidates, ["nDCG@10", "RR@10"]))
    found = description_of(plan, []).first_stage
    assert found == pytest.approx(expected) and 0 < found["nDCG@10"] < 1


def test_the_candidates_that_are_reranked_are_kept_with_their_scores(plan_of, records):
    plan = plan_of(*SMALL, "evaluation.max_test_queries=3", "evaluation.depth=4")
    description = description_of(plan, [])
    assert description.collection["first_stage"] == "BM25"
    write_description(records, plan, description)
    split = plan.inputs.collection.splits["test"]
    sample = evaluated_queries(plan.inputs.collection, "test", plan.base.evaluation)
    expected = {q: list(split.candidates[q].items())[:4] for q in sample}
    kept = read_run(records.folder / "first_stage" / "test.run.gz")
    assert {q: list(documents.items()) for q, documents in kept.items()} == expected
    before = (records.folder / "first_stage" / "dev.run.gz").read_bytes()
    write_description(records, plan, description)
    assert (records.folder / "first_stage" / "dev.run.gz").read_bytes() == before


def test_with_folds_all_queries_are_tested_described_and_judged(plan_of, records):
    plan = plan_of(*SMALL, "evaluation.folds=3")
    splits = plan.inputs.collection.splits.values()
    qrels = {query_id: judged for split in splits for query_id, judged in split.qrels.items()}
    run = {query_id: docs for split in splits for query_id, docs in split.candidates.items()}
    assert "evaluated: dev 24, test 24 over 3 folds" in plan_text(plan, finished=0)
    description = description_of(plan, [])
    expected = mean_values(per_query(qrels, run, ["nDCG@10", "RR@10"]))
    assert description.first_stage == pytest.approx(expected)
    write_description(records, plan, description)
    for name in ("dev", "test"):
        assert read_qrels(records.folder / "qrels" / f"{name}.qrels") == qrels
