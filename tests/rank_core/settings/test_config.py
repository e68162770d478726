"""Settings: changed only by `override`, checked, distinguished by the fingerprint."""

import dataclasses
import re

import pytest

from rank_core.errors import BadInput
from rank_core.settings import config as config_module
from rank_core.settings.config import (
    Chunking,
    Evaluation,
    Model,
    Training,
    TrialConfig,
    parse_setting,
    setting_types,
)
from rank_core.settings.training import check_training

OTHER = {
    "collection": "elsewhere",
    "model.name": "sump",
    "model.backbone": "bert-base-uncased",
    "model.dropout": 0.2,
    "model.aggregator": "minilm",
    "model.interaction": "minilm",
    "model.selector": "bm25",
    "model.selector_backbone": "minilm",
    "model.pool": "mean",
    "model.chunk_scores": "probability",
    "model.k": 3,
    "model.stage": "student",
    "model.quirks": ("some",),
    "chunking.window": 151,
    "chunking.stride": 74,
    "chunking.max_chunks": 4,
    "chunking.max_document_tokens": 1000,
    "chunking.max_query_tokens": 31,
    "chunking.overflow": "first-last-sampled",
    "training.num_epochs": 2,
    "training.epoch_steps": 32,
    "training.max_steps": 9,
    "training.batch_size": 8,
    "training.micro_batch_tokens": 2,
    "training.backbone_learning_rate": 2e-5,
    "training.head_learning_rate": 2e-4,
    "training.aggregator_learning_rate": 2e-4,
    "training.interaction_learning_rate": 3e-4,
    "training.weight_decay": 0.0,
    "training.schedule": "linear",
    "training.warmup": 0.1,
    "training.warmup_backbone": False,
    "training.epoch_decay": 0.95,
    "training.reset_optimizer": True,
    "training.loss": "ranknet",
    "training.negatives": 2,
    "training.margin": 2.0,
    "training.teacher": "teacher.run",
    "training.unit": "passage",
    "training.passage_keep": 0.3,
    "training.chunk_dropout": 0.5,
    "training.labels": "first-stage",
    "training.depth": 1000,
    "training.negatives_below": 10,
    "training.negatives_from": ("one.run", "two.run"),
    "training.init_from": "trial",
    "training.keep_weights": "none",
    "training.keep_run": True,
    "training.gradient_clip": 0.0,
    "training.validate_every": 7,
    "training.patience": 3,
    "training.precision": "bf16",
    "training.deterministic": True,
    "training.paired_seeds": True,
    "evaluation.measures": ("RR@10",),
    "evaluation.depth": 50,
    "evaluation.max_dev_queries": 5,
    "evaluation.max_test_queries": 5,
    "evaluation.batch_tokens": 2048,
    "evaluation.folds": 5,
    "evaluation.keep_chunk_scores": True,
    "chat.protocol": "anthropic",
    "chat.base_url": "http://127.0.0.1:8000/v1",
    "chat.model": "another",
    "chat.key_variable": "ANOTHER_KEY",
    "chat.max_words": 900,
    "chat.window": 15,
    "chat.step": 5,
    "chat.requests_per_minute": 60.0,
    "chat.input_price": 0.15,
    "chat.output_price": 0.6,
    "seed": 2,
}
NO_PART_OF_A_CELL = {"seed", *config_module.NO_PART_OF_A_CELL}
NAMED_BY_CONTENT = {"collection", "model.backbone"}


def fingerprint(config, collection_hash="c", backbone_hash="b"):
    return config.fingerprint(collection_hash=collection_hash, backbone_hash=backbone_hash)


def test_the_table_of_other_values_covers_every_setting():
    assert list(OTHER) == list(setting_types()) == list(TrialConfig().settings())
    changed = TrialConfig().override(OTHER).settings()
    assert changed == OTHER
    assert all(changed[name] != value for name, value in TrialConfig().settings().items())


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
    assert fingerprint(TrialConfig().override({name: OTHER[name]})) != fingerprint(TrialConfig())


@pytest.mark.parametrize("name", sorted(NO_PART_OF_A_CELL | NAMED_BY_CONTENT))
def test_a_setting_that_changes_no_number_keeps_the_cell(name):
    assert fingerprint(TrialConfig().override({name: OTHER[name]})) == fingerprint(TrialConfig())


def test_settings_of_device_memory_are_not_part_of_the_cell():
    """So that a trial can resume on a smaller GPU."""
    settings = {"evaluation.batch_tokens": 65_536, "training.micro_batch_tokens": 16_384}
    assert fingerprint(TrialConfig().override(settings)) == fingerprint(TrialConfig())


def test_the_contents_of_collection_and_backbone_name_another_cell():
    config = TrialConfig()
    three = {
        fingerprint(config),
        fingerprint(config, collection_hash="x"),
        fingerprint(config, backbone_hash="x"),
    }
    assert len(three) == 3
    assert all(len(name) == 12 and int(name, 16) >= 0 for name in three)


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
        ({"teacher": "t.run"}, "teacher needs training.loss=margin-mse, got .*pair"),
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

    for name, value in OTHER.items():
        moved = streams(TrialConfig().override({name: value})) != streams(TrialConfig())
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


@pytest.mark.parametrize(
    ("name", "text", "law"),
    [
        ("chunking.window", "150.5", "chunking.window must be a whole number, got '150.5'"),
        ("chunking.window", "wide", "chunking.window must be a whole number, got 'wide'"),
        ("model.dropout", "nan", "model.dropout must be a number, got nan"),
        ("model.dropout", "", "model.dropout must be a number, got ''"),
        ("training.paired_seeds", "maybe", "training.paired_seeds must be true or false"),
        ("chunking.windw", "75", "unknown setting 'chunking.windw'; did you mean chunking.window"),
    ],
)
def test_a_text_of_another_type_is_refused(name, text, law):
    with pytest.raises(BadInput, match=re.escape(law)):
        parse_setting(name, text)


@pytest.mark.parametrize(
    ("name", "stored", "value"),
    [
        ("evaluation.measures", ["AP"], ("AP",)),
        ("chunking.window", 200.0, 200),
        ("training.margin", 2, 2.0),
    ],
)
def test_a_value_from_json_becomes_one_of_its_settings_type(name, stored, value):
    taken = TrialConfig().override({name: stored}).settings()[name]
    assert taken == value and type(taken) is type(value)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("chunking.windw", "chunking.window"),
        ("training.learning_rats", "learning_rate"),
        ("seeds", "seed"),
        ("modle", "model"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(name, near):
    with pytest.raises(BadInput, match=f"unknown setting '{name}'; did you mean .*{near}") as error:
        TrialConfig().override({name: 1})
    assert "`ranksweep settings` lists all" in str(error.value)


@pytest.mark.parametrize(
    ("settings", "law"),
    [
        ({"chunking.stride": 0}, r"0 < chunking.stride <= chunking.window.*stride=0"),
        ({"chunking.stride": 151}, r"chunking.stride=151, chunking.window=150"),
        ({"chunking.window": -1}, r"chunking.window=-1"),
        ({"chunking.max_chunks": -1}, r"chunking.max_chunks >= 0 .*=-1"),
        ({"chunking.max_document_tokens": 0}, r"chunking.max_document_tokens > 0"),
        ({"chunking.max_query_tokens": 0}, r"chunking.max_query_tokens > 0"),
        ({"chunking.overflow": "last"}, r"'last'.*known: first, first-last-sampled"),
        ({"chunking.window": "wide"}, r"chunking.window must be a whole number, got 'wide'"),
        ({"chunking.window": "150.5"}, r"must be a whole number"),
        ({"chunking.window": 150.5}, r"must be a whole number"),
        ({"chunking.window": True}, r"must be a whole number"),
        ({"chunking.window": None}, r"must be a whole number"),
        ({"model.dropout": 1.0}, r"0 <= model.dropout < 1"),
        ({"model.dropout": -0.1}, r"model.dropout=-0.1"),
        ({"model.dropout": "nan"}, r"must be a number"),
        ({"training.num_epochs": -1}, r"training.num_epochs >= 0"),
        ({"training.batch_size": 0}, r"training.batch_size > 0"),
        ({"training.micro_batch_tokens": -1}, r"training.micro_batch_tokens >= 0"),
        ({"training.backbone_learning_rate": 0}, r"training.backbone_learning_rate > 0"),
        ({"training.head_learning_rate": -1e-5}, r"training.head_learning_rate > 0"),
        ({"training.head_learning_rate": "inf"}, r"training.head_learning_rate"),
        ({"training.weight_decay": -1}, r"training.weight_decay >= 0"),
        ({"training.warmup": 1.1}, r"0 <= training.warmup <= 1"),
        (
            {"training.schedule": "cosine"},
            r"'cosine'.*known: constant, inverse-epoch, linear, one-cycle, one-cycle-last-epoch",
        ),
        ({"training.epoch_decay": 0}, r"0 < training.epoch_decay <= 1 must hold, got 0"),
        ({"training.epoch_decay": 1.1}, r"0 < training.epoch_decay <= 1"),
        ({"training.epoch_steps": -1}, r"training.epoch_steps >= 0"),
        ({"training.negatives": 0}, r"training.negatives > 0"),
        ({"training.loss": "margin"}, r"training.loss 'margin'.*listwise-margin.*pairwise-margin"),
        ({"training.unit": "chunk"}, r"'chunk'.*known: document, passage"),
        ({"training.labels": "clicks"}, r"'clicks'.*known: first-stage, qrels"),
        ({"training.passage_keep": 1.5}, r"0 <= training.passage_keep <= 1"),
        ({"training.chunk_dropout": 1}, r"0 <= training.chunk_dropout < 1"),
        ({"training.depth": -1}, r"training.depth >= 0"),
        ({"training.negatives_below": -1}, r"training.negatives_below >= 0"),
        ({"training.warmup_backbone": "some"}, r"must be true or false"),
        ({"training.precision": "fp8"}, r"'fp8'.*known: auto, bf16, fp16, fp32"),
        ({"training.paired_seeds": "maybe"}, r"must be true or false, got 'maybe'"),
        ({"evaluation.measures": ()}, r"at least one measure"),
        ({"evaluation.depth": 0}, r"evaluation.depth > 0"),
        ({"evaluation.batch_tokens": -1}, r"evaluation.batch_tokens >= 0"),
        ({"evaluation.max_dev_queries": -1}, r"evaluation.max_dev_queries >= 0"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_invalid_value_is_refused_with_the_rule_and_the_value(settings, law):
    with pytest.raises(BadInput, match=law):
        TrialConfig().override(settings)


def test_settings_built_directly_are_checked_as_well():
    with pytest.raises(BadInput, match=r"0 < chunking.stride <= chunking.window"):
        Chunking(window=10, stride=20)
    with pytest.raises(BadInput, match=r"model.dropout < 1"):
        Model(dropout=2)
