"""Profiles: every setting exists and is obeyed, quirks are real, and what a paper says is there."""

import math
from dataclasses import replace

import numpy as np
import pytest
from ir_measures import Qrel, ScoredDoc

from rank_core.errors import BadInput
from rank_core.evaluate import parse_measure
from rank_core.models import MODELS, model_class
from rank_core.models.checks import check_model
from rank_core.settings.config import Chunking, TrialConfig, setting_types
from rank_core.training.optimizer import Timetable, rate_factor
from rank_core.training.train import num_training_steps
from sweeps.plan.profiles import PROFILES, profile, profile_settings

WORD, OTHER = 5, 6  # of the fixture's vocabulary
every_profile = pytest.mark.parametrize("name", sorted(PROFILES))


def config_of(name, model=""):
    return TrialConfig().override(profile_settings(name, model))


@every_profile
def test_a_profile_is_made_of_known_settings_of_their_types(name):
    types = setting_types()
    for setting, value in profile_settings(name).items():
        assert setting in types and setting not in ("collection", "seed", "model.backbone"), setting
        assert isinstance(value, types[setting] if types[setting] != tuple[str, ...] else tuple)
    for measure in config_of(name).evaluation.measures:
        parse_measure(measure)


@every_profile
def test_rates_of_a_profile_stay_above_zero(name):
    training = config_of(name).training
    num_queries = 200
    steps = num_training_steps(training, num_queries)
    groups = training.epoch_steps * training.batch_size or num_queries
    timetable = Timetable(steps, training.batch_size, groups)
    factors = [rate_factor(training, timetable, step) for step in range(steps)]
    assert 0 < min(factors) and max(factors) == 1


@pytest.mark.parametrize(
    ("name", "model"), [(name, model) for name in PROFILES for model in PROFILES[name].quirks]
)
def test_a_quirk_of_a_profile_is_one_that_the_model_has(name, model, backbone):
    assert model in MODELS
    small = Chunking(window=96, stride=96, max_document_tokens=200)
    quirks = profile(name).quirks[model]
    config = replace(TrialConfig(), chunking=small).override(
        {"model.name": model, "model.quirks": quirks}
    )
    check_model(config, backbone)
    with pytest.raises(BadInput, match="quirk"):
        check_model(config.override({"model.quirks": (*quirks, "none-such")}), backbone)


def test_clean_is_the_defaults_and_has_no_quirk():
    assert config_of("clean") == TrialConfig()
    assert not profile("clean").quirks
    assert "elementwise-attention" in profile("boytsov2022").quirks["parade-attn"]


def test_the_aggregators_of_2022_are_those_of_the_older_profile_alone():
    changed = ("parade-transformer-pretrained", "parade-transformer-query")
    old, new = (profile(f"boytsov{year}").quirks for year in (2022, 2025))
    # Late interaction is of the later paper alone.
    differing = {model for model in old | new if old.get(model) != new.get(model)}
    assert differing == {*changed, "parade-late-interaction"}
    assert old["parade-transformer-l3"] == new["parade-transformer"] == ("unmasked-chunks",)
    assert "parade-late-interaction" not in {*old, *profile("boytsov2022").of_models}
    assert model_class("parade-late-interaction").paper in profile("boytsov2025").source
    for model in changed:
        assert (old[model], new[model]) == (("unmasked-chunks", "sequence-2022"), new["maxp"])


PAPERS = {"cedr2019": "cedr-knrm", "parade2020": "parade-transformer", "keyb2022": "keyb"}
MODELS_OF = [(name, model) for name in PROFILES for model in PROFILES[name].of_models]


@pytest.mark.parametrize(
    ("name", "model"), MODELS_OF + [(name, PAPERS.get(name, "maxp")) for name in PROFILES]
)
def test_a_profile_is_accepted_by_models_of_its_paper(name, model, backbone):
    config = config_of(name, model).override({"model.name": model})
    check_model(config, replace(backbone, max_input_tokens=512))


def test_keyb_reads_documents_to_their_end(backbone):
    # A word of the query behind token 1431, the default end of a document.
    text = np.full(2000, OTHER, dtype=np.int32)
    text[1900] = WORD
    documents = {"long": text, "other": np.full(50, OTHER, dtype=np.int32)}
    config = config_of("keyb2022").override({"model.name": "keyb"})
    reader = model_class("keyb").reader(config, replace(backbone, max_input_tokens=512), documents)
    [chunk] = reader.chunks(np.array([WORD], dtype=np.int32), "long")
    assert WORD in chunk.text and len(chunk) == 512


def test_keyb_parade_reads_five_passages_of_key_blocks(backbone):
    model = "keyb-parade"
    config = config_of("keyb2022", model).override({"model.name": model})
    documents = {"long": np.full(1400, OTHER, dtype=np.int32)}
    reader = model_class(model).reader(config, replace(backbone, max_input_tokens=512), documents)
    assert reader.passages(32).budget == 1025
    sizes = [len(chunk.text) for chunk in reader.chunks(np.array([WORD], dtype=np.int32), "long")]
    assert sizes == [225] * 5, "1,025 of 1,400 tokens"


def test_measures_of_cedr_are_those_of_gdeval():
    # Grades 2 and 1 in the wrong order: gains 2^rel - 1, discount log2(1 + rank).
    qrels = [Qrel("1", "a", 2), Qrel("1", "b", 1)]
    run = [ScoredDoc("1", "b", 2.0), ScoredDoc("1", "a", 1.0)]
    [_, measure, _] = map(parse_measure, config_of("cedr2019").evaluation.measures)
    expected = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    assert measure.calc_aggregate(qrels, run) == pytest.approx(expected, abs=1e-5)


def test_cedr_cuts_a_document_as_its_code_does(backbone):
    config = config_of("cedr2019").override({"model.name": "cedr-knrm"})
    documents = {n: np.zeros(n, dtype=np.int32) for n in (450, 489, 490, 800, 900)}
    reader = model_class("cedr-knrm").reader(config, backbone, documents)
    query = np.zeros(20, dtype=np.int32)
    cuts = {n: [len(chunk.text) for chunk in reader.chunks(query, n)] for n in documents}
    assert cuts == {450: [450], 489: [489], 490: [245] * 2, 800: [400] * 2, 900: [400] * 2}


def test_zhang_2021_trains_36_times_256_batches_of_passages():
    training = config_of("zhang2021").training
    assert num_training_steps(training, 150) == 36 * 256
    assert training.unit == "passage" and training.passage_keep == 0.1
    timetable = Timetable(36 * 256, 16, 256 * 16)
    # After 8 iterations of warm-up the rate of iteration i is 1 / (1 + 0.1 i).
    factors = [rate_factor(training, timetable, i * 256) for i in (7, 8, 35)]
    assert factors == pytest.approx([(7 * 256 + 1) / (8 * 256), 1 / 1.8, 1 / 4.5])
    assert rate_factor(training, timetable, 0, warms_up=False) == 1


def test_the_reference_of_boytsov_2022_starts_anew_in_each_epoch():
    training = replace(config_of("boytsov2022").training, num_epochs=2)
    timetable = Timetable(20, 16, 160)
    factors = [rate_factor(training, timetable, step) for step in range(20)]
    assert factors == pytest.approx([0.5, *[1] * 9, 0.5 * 0.95, *[0.95] * 9])
