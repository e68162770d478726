"""The benchmarks draw what they say, race as the library does, and keep their promises."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel

from rank_core.data.load import load_collection
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work
from rank_core.stats.design import Goal, Variances, planned_detectable
from rank_core.stats.family import Family
from rank_core.stats.racing import race_so_far
from tests.benchmarks import dev_rule, error_rates, racing, schedule, scoring, workload
from tests.benchmarks.msmarco_shape import Shape, document_lengths, write_shape
from tests.benchmarks.simulated_sweeps import R04, SHAPES, Kind, drawn_tables
from tests.sweeps.report.test_machines import SECOND, sweep_on


@pytest.mark.parametrize("shape", ["normal", "resampled", "exponential", "lognormal", "bimodal"])
def test_runs_of_every_shape_have_mean_0_and_deviation_1(shape):
    drawn = SHAPES[shape](np.random.default_rng(6), (400, 2000))
    assert (drawn.mean(), drawn.std()) == (pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.03))
    assert (abs((drawn**3).mean()) > 1) == (shape in ("exponential", "lognormal"))


def tables(num, num_systems, sd=0.01, seed=7):
    kind = error_rates.TABLE
    return drawn_tables(np.random.default_rng(seed), num, kind, 5, [sd] * num_systems, "normal")


def test_a_family_of_equals_is_decided_by_each_rule_and_power_is_that_of_the_planted_one():
    drawn = error_rates._family_decisions(tables(150, 18))
    holm, max_t, interval, *power = drawn.mean(axis=0)
    assert max(interval, holm, max_t) < 0.11
    assert power[1] > power[0] > 0.4


@pytest.mark.slow
def test_the_simulated_families_and_sets_are_decided_by_the_shipped_rule():
    found = error_rates._pair_tests(tables(200, 9, seed=8), 0)
    first = error_rates.first_step(found, pooled=True)
    near = np.flatnonzero(first.min(axis=1) < 0.15)  # its effective number is the smallest p's
    assert len(near) > 10
    for one in near:
        own, moderated, correlation, agree = (part[one] for part in found[:4])
        shipped = Family(own, moderated, correlation, bool(agree)).adjusted("max-t")
        assert first[one].min() == pytest.approx(shipped.min(), rel=0.15)
    assert 0 < found.agree.mean() < 1


@pytest.mark.slow
@pytest.mark.parametrize("S", [3, 5])
def test_simulated_families_over_a_deterministic_baseline_are_decided_by_the_shipped_rule(S):
    sd_K = [math.nan] + [0.003, 0.03] * 4
    drawn = drawn_tables(np.random.default_rng(3), 100, error_rates.TABLE, S, sd_K, "normal")
    found = error_rates._pair_tests(drawn, 0)
    first = error_rates.first_step(found, pooled=True)
    near = np.flatnonzero(first.min(axis=1) < 0.15)
    assert len(near) > 10
    assert found.apart[near].any() == found.agree[near].any() == (S == 3)
    for one in near:
        own, moderated, correlation, agree, apart = (part[one] for part in found[:5])
        family = Family(own, moderated, correlation, bool(agree), apart=bool(apart))
        assert first[one].min() == pytest.approx(family.adjusted("max-t").min(), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("K", "S"), [(4, 3), (17, 3), (4, 5), (17, 5)])
def test_the_power_of_a_family_is_that_of_drawn_tables_judged_by_its_rule(K, S):
    """Moderated tests, the pre-test of the seed variances, and both corrections are planned for."""
    kind, sd, num = Kind("drawn", 0.06, 0.05, 120), 0.01, 1500
    plan = Variances(math.sqrt(2) * kind.query, sd, kind.residual)
    goal = Goal(1.0, family_size=K, correlation=0.5)
    delta = planned_detectable(plan, goal, num_seeds=S, num_queries=kind.num_queries)
    tables = drawn_tables(np.random.default_rng(K), num, kind, S, [sd] * (K + 1), "normal")
    better = replace(tables, mean_NK=tables.mean_NK + delta * (np.arange(K + 1) == 1))
    found = error_rates.first_step(error_rates._pair_tests(better, 0), pooled=True)
    # Three standard errors.
    assert (found[:, 0] < 0.05).mean() == pytest.approx(0.8, abs=0.031)


def test_drawn_tables_have_the_variances_they_are_drawn_with():
    many, kind = tables(4000, 3), error_rates.TABLE
    assert np.cov(many.mean_NK.T) == pytest.approx(many.error_KK, abs=4e-6)
    query = kind.query**2 + kind.residual**2 / 5
    assert many.covariance_NKK.mean(axis=0) == pytest.approx(query * np.eye(3), abs=2e-4)
    noise = kind.residual**2 / kind.num_queries
    assert many.variance_seeds_NK.mean() == pytest.approx((0.01**2 + noise) / 5, rel=0.03)
    assert many.variance_error_NK.mean() == pytest.approx(noise / 5, rel=0.01)


def test_the_error_rates_are_the_same_again_and_written_as_json(tmp_path, capsys):
    file = tmp_path / "rates.json"
    arguments = ["--simulations", "40", "--only", "type-1", "--json", str(file)]
    codes = {error_rates.main(arguments)}
    first, shown = json.loads(file.read_text()), capsys.readouterr().out
    codes.add(error_rates.main(arguments))
    assert json.loads(file.read_text()) == first and capsys.readouterr().out == shown
    (section,) = first["sections"]
    assert len(section["rows"]) == 36 and len(codes) == 1
    assert shown.count("\n| ") == 38
    noise = 4 * math.sqrt(0.05 * 0.95 / 400)
    assert all(abs(row[6] - 0.045) < noise for row in section["rows"])
    assert all(0.4 < row[8] < 0.85 for row in section["rows"])  # of .80 with a known variance


def test_a_simulated_race_is_the_librarys_race():
    rng = np.random.default_rng(1)
    grids = racing.drawn(R04, rng, num=12, better=2, K=6, S=6)
    live_BK, trials_B = racing.raced(grids.run_BKS)
    names = tuple("ABCDEF")
    for run_KS, live_K, trials in zip(grids.run_BKS, live_BK, trials_B, strict=True):
        finished = {
            (name, seed): np.array([mean - 0.1, mean, mean + 0.1])
            for name, run_S in zip(names, run_KS, strict=True)
            for seed, mean in enumerate(run_S)
        }
        race = race_so_far(finished, configurations=names, seeds=range(6))
        assert race.live == tuple(np.array(names)[live_K])
        assert race.over and race.cost == pytest.approx(trials / 36)


def test_a_recorded_trial_counts_the_seconds_of_all_its_workers(tmp_path):
    alone = schedule.recorded(sweep_on(tmp_path / "alone", {}))
    group = schedule.recorded(sweep_on(tmp_path / "group", {}, {SECOND: [4]}))
    before, after = (one.hours[1] / one.hours[0] for one in (alone, group))
    assert after == pytest.approx(4 * before)


def test_rules_of_dev_stop_where_they_say():
    """Twenty queries in twenty blocks, by hand: the best has 10 in all; a checkpoint of zeros may
    still reach it until 10 are left, which 1 each cannot make more than 10."""
    half, zeros, ones = (np.full(20, value) for value in (0.5, 0.0, 1.0))
    assert dev_rule.bound(np.stack([half, zeros])) == (0, 30 / 40)
    assert dev_rule.bound(np.stack([half, ones])) == (1, 1.0)
    assert dev_rule.bound(np.stack([half, half])) == (0, 1.0)  # the earlier one of equals
    wave = np.tile([0.0, 0.2], 10)
    clearly = np.stack([half + wave, half - wave])
    chosen, scored = dev_rule.paired(clearly, alpha=0.01)
    assert chosen == 0 and 0.5 < scored < 1
    assert dev_rule.raced(clearly, alpha=0.01)[0] == 0
    last = np.stack([half, np.append(np.zeros(5), np.ones(15))])
    assert dev_rule.quarter(last) == (0, (2 * 5 + 15) / 40)  # wrong: 15 is more than 10


@pytest.mark.long
@pytest.mark.parametrize("section", ["indifference", "budgets", "ties"])
def test_the_shipped_seed_keeps_every_promise_of_racing(section, capsys):
    assert racing.main(["--only", section]) == 0
    assert "FAIL" not in capsys.readouterr().out


def test_a_made_collection_has_its_shape_and_the_same_bytes_again(tmp_path):
    shape = Shape(documents=60, train=30, dev=3, test=2, candidates=7)
    folder, again = write_shape(tmp_path / "first", shape), write_shape(tmp_path / "again", shape)
    collection = load_collection(str(folder))
    queries = {name: len(split.queries) for name, split in collection.splits.items()}
    assert (len(collection.documents), queries) == (60, {"train": 30, "dev": 3, "test": 2})
    train = collection.splits["train"]
    assert all(len(train.candidates[query_id]) == 7 for query_id in train.queries)
    found = [train.candidates[q].keys() >= judged.keys() for q, judged in train.qrels.items()]
    assert 0.5 < np.mean(found) < 1
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert path.read_bytes() == (again / path.relative_to(folder)).read_bytes()
    lengths = document_lengths(200_000)
    assert 1150 < lengths.mean() < 1250 and 650 < np.median(lengths) < 690


ENCODERS = ["tiny", "tiny-modernbert"]


@pytest.mark.parametrize("size", ENCODERS)
def test_the_products_of_an_encoder_are_those_that_torch_counts(size, tmp_path):
    folder = workload.random_backbone(tmp_path, ["one word and another"], size)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager")  # all are counted
    model.pooler = None
    length, num_tokens, own = 40, 120, workload.SIZES[size]
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.ones(num_tokens // length, length, dtype=torch.int64))
    last = own._replace(layers=2).flops(1, length) - own._replace(layers=1).flops(1, length)
    expected = own.flops(num_tokens, length) + num_tokens * (last - 4 * own.hidden**2)
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-3)  # rotary tables are small


@pytest.mark.slow
@pytest.mark.parametrize("size", ENCODERS)
def test_a_cross_encoder_of_our_weights_gives_our_scores(size, collection_folder):
    pytest.importorskip("sentence_transformers", reason="pip install -e '.[bench]'")
    work = workload.workload(str(collection_folder), size)
    pairs = scoring.Pairs(work, 2000, num_queries=2, depth=4)
    model = build_model(pairs.config, work.backbone, init_seed=0).eval()
    own = scoring.ours(model, pairs, None, Work())
    (peer,) = scoring.cross_encoders(model, work, [scoring.DEFAULTS]).values()
    assert own.std() > 1e-4
    assert peer(pairs) == pytest.approx(own, abs=1e-5)


def test_a_training_of_one_step_is_not_timed(capsys):
    from tests.benchmarks import training  # transformers' trainer, which brings in peft

    with pytest.raises(SystemExit):
        training.main(["--steps", "1"])
    assert "--steps must be at least 2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("size", ENCODERS)
def test_the_trainer_of_cross_encoders_trains_what_we_train(size, collection_folder):
    """Without dropout the loss of a first step over the same pairs is ours, also in fp32 after a
    training in bf16."""
    from tests.benchmarks import trainer

    if trainer.missing():
        pytest.skip("pip install -e '.[bench]'")
    from datasets import Dataset

    work = workload.workload(str(collection_folder), size)
    both = trainer.Training.of(work, num_pairs=8, steps=1, dropout=0.0)
    rows = both.pairs()
    assert [row["label"] for row in rows] == [1.0, 0.0] * 4
    _, [own] = trainer.ours(both, None, Work())
    dataset = Dataset.from_list(rows)
    _, rounded = trainer.theirs(both, dataset, bf16=True)
    _, loss = trainer.theirs(both, dataset, bf16=False)
    assert loss == pytest.approx(own, rel=1e-5)
    assert 1e-5 < abs(rounded / own - 1) < 0.02
