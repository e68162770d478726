"""Profiles: every setting exists and is obeyed, quirks are real, and what a paper says is there."""

from dataclasses import replace

import pytest

from rank_core.errors import BadInput
from rank_core.evaluate import parse_measure
from rank_core.models import MODELS, check_model
from rank_core.settings.config import Chunking, TrialConfig, setting_types
from rank_core.training.optimizer import Timetable, rate_factor
from rank_core.training.train import num_training_steps
from sweeps.plan.profiles import PROFILES, QUIRKS, profile_quirks, profile_settings

every_profile = pytest.mark.parametrize("name", sorted(PROFILES))


def config_of(name):
    return TrialConfig().override(profile_settings(name))


@every_profile
def test_a_profile_is_made_of_known_settings_of_their_types(name):
    types = setting_types()
    for setting, value in profile_settings(name).items():
        assert setting in types and setting not in ("collection", "seed", "model.backbone"), setting
        assert isinstance(value, types[setting] if types[setting] != tuple[str, ...] else tuple)
    assert config_of(name).settings() == TrialConfig().settings() | profile_settings(name)
    for measure in config_of(name).evaluation.measures:
        parse_measure(measure)


@every_profile
def test_a_profile_is_accepted_by_a_model_of_its_paper(name, backbone):
    models = {"cedr2019": "cedr-knrm", "parade2020": "parade-transformer", "keyb2022": "keyb"}
    config = config_of(name).override({"model.name": models.get(name, "maxp")})
    check_model(config, replace(backbone, max_input_tokens=512))


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
    ("profile", "model"), [(name, model) for name in QUIRKS for model in QUIRKS[name]]
)
def test_a_quirk_of_a_profile_is_one_that_the_model_has(profile, model, backbone):
    assert profile in PROFILES and model in MODELS
    small = Chunking(window=96, stride=96, max_document_tokens=200)
    quirks = profile_quirks(profile, model)
    config = replace(TrialConfig(), chunking=small).override(
        {"model.name": model, "model.quirks": quirks}
    )
    check_model(config, backbone)
    with pytest.raises(BadInput, match="quirk"):
        check_model(config.override({"model.quirks": (*quirks, "none-such")}), backbone)


def test_clean_is_the_defaults_and_has_no_quirk():
    assert config_of("clean") == TrialConfig()
    assert all(profile_quirks("clean", model) == () for model in MODELS)
    assert profile_quirks("boytsov2022", "cedr-knrm") == ()
    assert "elementwise-attention" in profile_quirks("boytsov2022", "parade-attn")


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


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="unknown profile 'boytsov'; did you mean boytsov20"):
        profile_settings("boytsov")
