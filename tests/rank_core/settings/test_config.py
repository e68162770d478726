"""Settings: changed only by `override`, checked, distinguished by the fingerprint."""

import dataclasses

import pytest

from rank_core.errors import BadInput
from rank_core.settings import config as config_module
from rank_core.settings.config import (
    Evaluation,
    Model,
    Training,
    TrialConfig,
    parse_setting,
    setting_types,
)
from rank_core.settings.training import check_training

CHOSEN = {  # where not any value is allowed
    "model.name": "sump",
    "model.head": "new",
    "model.maxsim": "window",
    "model.stored": "int8",
    "chunking.overflow": "first-last-sampled",
    "training.schedule": "linear",
    "training.loss": "ranknet",
    "training.unit": "passage",
    "training.labels": "first-stage",
    "training.keep_weights": "none",
    "training.precision": "bf16",
    "evaluation.evidence": "no",
    "evaluation.runtime": "torch",
    "evaluation.test_alpha": "own",
    "chat.protocol": "anthropic",
    "chat.base_url": "http://127.0.0.1:8000/v1",
    "chat.key_variable": "ANOTHER_KEY",
}


def other(name, value):
    """Another value of a setting."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 3 if isinstance(value, int) else value / 2 or 0.5
    return CHOSEN.get(name, (*value, "another") if isinstance(value, tuple) else "another")


OTHER = {name: other(name, value) for name, value in TrialConfig().settings().items()}
NO_PART_OF_A_CELL = {"seed", *config_module.NO_PART_OF_A_CELL}
NAMED_BY_CONTENT = {"collection", "model.backbone"}


NEEDS = {"evaluation.folds_file": {"evaluation.folds": 5}}
"""{setting: the others without which it is refused}."""


def changed(name):
    """The default settings, with those that a setting needs, and these with another value of it."""
    base = TrialConfig().override(NEEDS.get(name, {}))
    return base, base.override({name: OTHER[name]})


def fingerprint(config, collection_hash="c", backbone_hash="b"):
    return config.fingerprint(collection_hash=collection_hash, backbone_hash=backbone_hash)


def test_the_table_of_other_values_covers_every_setting():
    assert list(OTHER) == list(setting_types())
    assert TrialConfig().override(OTHER).settings() == OTHER
    assert all(OTHER[name] != value for name, value in TrialConfig().settings().items())


def test_override_changes_a_copy_and_leaves_the_rest():
    base = TrialConfig()
    changed = base.override({"chunking.window": 75, "chunking.stride": 50, "seed": 4})
    assert (changed.chunking.window, changed.chunking.stride, changed.seed) == (75, 50, 4)
    assert base == TrialConfig()
    assert changed.training == base.training and changed.chunking.max_query_tokens == 32
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.chunking.window = 3


@pytest.mark.parametrize("name", sorted(set(OTHER) - NO_PART_OF_A_CELL - NAMED_BY_CONTENT))
def test_a_setting_that_can_change_numbers_names_another_cell(name):
    base, other = changed(name)
    assert fingerprint(other) != fingerprint(base)


@pytest.mark.parametrize("name", sorted(NO_PART_OF_A_CELL | NAMED_BY_CONTENT))
def test_a_setting_that_changes_no_number_keeps_the_cell(name):
    base, other = changed(name)
    assert fingerprint(other) == fingerprint(base)


def test_the_contents_of_collection_and_backbone_name_another_cell():
    config = TrialConfig()
    three = {
        fingerprint(config),
        fingerprint(config, collection_hash="x"),
        fingerprint(config, backbone_hash="x"),
    }
    assert len(three) == 3
    assert all(len(name) == 12 and int(name, 16) >= 0 for name in three)


def test_the_name_of_a_cell_outlives_settings_that_are_added():
    """The name changes with `NUMERICS_VERSION` or an old default alone, or finished trials would be
    trained again."""
    assert fingerprint(TrialConfig()) == "c46dba4a432c"


def test_a_new_version_of_a_models_numbers_renames_its_cells_alone(monkeypatch):
    configs = [TrialConfig(model=Model(name)) for name in ("cedr-pacrr", "cedr-knrm")]
    before = [fingerprint(config) for config in configs]
    monkeypatch.setitem(config_module.MODEL_NUMERICS, "cedr-pacrr", 99)
    after = [fingerprint(config) for config in configs]
    assert after[0] != before[0] and after[1] == before[1]


def test_files_that_training_reads_count_by_content():
    for name, value in (("training.init_from", "a"), ("training.negatives_from", ("a", "b"))):
        moved = "c" if isinstance(value, str) else ("c", "d")
        here, there = (TrialConfig().override({name: v}) for v in (value, moved))
        names = [
            {
                config.fingerprint(collection_hash="c", backbone_hash="b", contents={name: content})
                for config in (here, there)
            }
            for content in ("1", "2")
        ]
        assert [len(cells) for cells in names] == [1, 1] and names[0] != names[1]
        streams = {
            config.training_hash(backbone_hash="b", contents={name: "1"})
            for config in (here, there)
        }
        assert len(streams) == 1


@pytest.mark.parametrize(
    ("settings", "law"),
    [
        ({"loss": "margin-mse"}, "margin-mse needs training.teacher"),
        ({"loss": "teacher-kl"}, "teacher-kl needs training.teacher"),
        ({"negatives_share": 0.95}, "negatives_share .* training.teacher"),
        ({"teacher": "t.run"}, "training.teacher"),
        ({"unit": "passage", "chunk_dropout": 0.5}, "chunk_dropout has no effect with .*passage"),
        ({"passage_keep": 0.5}, "passage_keep needs training.unit=passage"),
        (
            {"schedule": "inverse-epoch", "reset_optimizer": True},
            "inverse-epoch .* training.reset_optimizer",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, law):
    with pytest.raises(BadInput, match=law):
        check_training(Training(**settings), "maxp", one_chunk_is_firstp=True)
    check_training(Training(), "maxp", one_chunk_is_firstp=True)


@pytest.mark.parametrize(("window", "advised"), [(0, False), (-5, False), (60, True)])
def test_a_stride_is_advised_only_where_one_can_hold(window, advised):
    with pytest.raises(BadInput, match=r"chunking\.stride <= chunking\.window must") as refused:
        TrialConfig().override({"chunking.window": window, "chunking.stride": 70})
    assert (f"such as chunking.stride={window}" in str(refused.value)) == advised


def test_only_a_model_that_scores_passages_is_trained_on_passages():
    training = Training(unit="passage")
    check_training(training, "maxp", one_chunk_is_firstp=True)
    with pytest.raises(BadInput, match="scores single passages, got parade-transformer"):
        check_training(training, "parade-transformer", one_chunk_is_firstp=False)


def test_training_reads_a_fraction_of_a_documents_chunks():
    assert Training().share_read(5) == Training(chunk_dropout=0.5).share_read(1) == 1
    assert Training(chunk_dropout=0.75).share_read(5) == pytest.approx((1 + 0.25 * 4) / 5)
    assert Training(unit="passage").share_read(11) == pytest.approx(2 / 11)


@pytest.mark.parametrize(
    "same",
    [
        TrialConfig(training=Training(margin=1)),  # an int where a float is meant
        TrialConfig(evaluation=Evaluation(measures=["nDCG@10", "RR@10"])),  # type: ignore[arg-type]
        TrialConfig().override({"training.margin": 1, "training.batch_size": 16.0}),
        TrialConfig().override({}),
    ],
)
def test_equal_settings_name_the_same_cell_however_they_were_written(same):
    assert fingerprint(same) == fingerprint(TrialConfig())


def test_random_streams_depend_only_on_settings_of_the_trained_model():
    def streams(config: TrialConfig) -> str:
        return config.training_hash(backbone_hash="b")

    for name in OTHER:
        base, other = changed(name)
        moved = streams(other) != streams(base)
        # A backbone counts by its content: another name for it changes nothing.
        still = ("model.backbone", *NO_PART_OF_A_CELL, "training.paired_seeds")
        shapes = name.startswith(("model.", "chunking.", "training.")) and name not in still
        assert moved == shapes, name
    assert TrialConfig().training_hash(backbone_hash="c") != streams(TrialConfig())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("chunking.window", "200", 200),
        ("training.margin", "0.5", 0.5),
        ("training.margin", "2", 2.0),
        ("training.backbone_learning_rate", "3e-5", 3e-5),
        ("training.paired_seeds", "True", True),
        ("training.paired_seeds", "no", False),
        ("training.paired_seeds", "0", False),
        ("model.name", "sump", "sump"),
        ("evaluation.measures", "AP,nDCG@20", ("AP", "nDCG@20")),
        (
            "evaluation.measures",
            "AP(rel=2,judged_only=True),RR",
            ("AP(rel=2,judged_only=True)", "RR"),
        ),
    ],
)
def test_a_text_is_parsed_to_the_type_of_its_setting(name, text, value):
    parsed = parse_setting(name, text)
    assert parsed == value and type(parsed) is type(value)
    assert TrialConfig().override({name: parsed}).settings()[name] == value


REFUSED = {
    "chunking.stride": (0, 151),
    "chunking.window": (-1, "wide", "150.5", 150.5, True, None),
    "chunking.max_chunks": (-1,),
    "chunking.max_document_tokens": (0,),
    "chunking.max_query_tokens": (0,),
    "chunking.overflow": ("last",),
    "model.dropout": (1.0, -0.1, "nan", ""),
    "training.num_epochs": (-1,),
    "training.batch_size": (0,),
    "training.micro_batch_tokens": (-1,),
    "training.backbone_learning_rate": (0,),
    "training.head_learning_rate": (-1e-5, "inf"),
    "training.weight_decay": (-1,),
    "training.warmup": (1.1,),
    "training.schedule": ("cosine",),
    "training.epoch_decay": (0, 1.1),
    "training.epoch_steps": (-1,),
    "training.negatives": (0,),
    "training.loss": ("margin",),
    "training.unit": ("chunk",),
    "training.labels": ("clicks",),
    "training.passage_keep": (1.5,),
    "training.chunk_dropout": (1,),
    "training.depth": (-1,),
    "training.negatives_below": (-1,),
    "training.warmup_backbone": ("some",),
    "training.precision": ("fp8",),
    "training.paired_seeds": ("maybe",),
    "evaluation.measures": ((),),
    "evaluation.depth": (0,),
    "evaluation.batch_tokens": (-1,),
    "evaluation.folds": (-1, 1, 2),
    "evaluation.max_dev_queries": (-1,),
    "chunking.windw": (75,),
    "seeds": (1,),
}


@pytest.mark.parametrize(
    ("name", "value"), [(n, v) for n, values in REFUSED.items() for v in values]
)
def test_a_value_that_breaks_a_rule_is_refused_by_the_name_of_its_setting(name, value):
    with pytest.raises(BadInput) as refused:
        TrialConfig().override({name: value})
    assert name in str(refused.value)
    if isinstance(value, str):
        with pytest.raises(BadInput):
            TrialConfig().override({name: parse_setting(name, value)})


MOST = {
    "training.num_epochs": 1_000_000,
    "training.batch_size": 100_000,
    "training.negatives": 1_000,
    "training.lora_rank": 10_000,
}
"""Counts of which a trial holds or computes as many things as they say, whatever its data."""


@pytest.mark.parametrize("name", MOST)
def test_counts_that_decide_memory_or_time_have_a_bound(name):
    assert TrialConfig().override({name: MOST[name]}).settings()[name] == MOST[name]
    with pytest.raises(BadInput, match=rf"{name} <= {MOST[name]:,} must hold, got {name}="):
        TrialConfig().override({name: MOST[name] + 1})
