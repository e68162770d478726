"""What a trial reads of its settings: two configurations that differ in nothing else are the same
cell, and differ by the noise of their seeds alone."""

from collections.abc import Mapping
from typing import Any

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.hub import default_encoder
from rank_core.encoders.shipped import RANKING_HEAD, SETTINGS, SHIPPED, TRAINED
from rank_core.models import WITHOUT_TRAINING, model_class, trains, unread_settings
from rank_core.models.ranker import draws_classifier, uses_checkpoint_head
from rank_core.own_code import is_reference
from rank_core.settings.config import AUTO, TrialConfig, runtime_of, setting_types
from rank_core.settings.training import LAST_EPOCH, MARGIN_LOSSES

RATES = ("backbone", "head", "aggregator", "interaction")


def configured(settings: Mapping[str, Any]) -> TrialConfig:
    """The configuration with these settings, and for the others the defaults of its encoder."""
    config = with_encoder(TrialConfig().override(settings))
    usual = encoder_defaults(config.model.backbone)
    return config.override({name: v for name, v in usual.items() if name not in settings})


def encoder_defaults(backbone: str) -> Mapping[str, Any]:
    """The settings that a shipped encoder has in place of the usual defaults."""
    return SETTINGS if backbone in SHIPPED else {}


def with_encoder(config: TrialConfig) -> TrialConfig:
    """The configuration with the name of an encoder in place of `auto`: the shipped one where the
    model reads none and tokens are only counted, else the default over its collection."""
    if config.model.backbone != AUTO:
        return config
    unread = "model.backbone" in ignored_settings(config)
    name = TRAINED if unread else default_encoder(config.collection)
    return config.override({"model.backbone": name})


def ignored_settings(config: TrialConfig) -> tuple[str, ...]:
    """The settings without effect on a trial of this configuration, in declaration order."""
    unread = unread_settings(config) | _ignored(config)
    kind, untrained = model_class(config.model.name), not config.training.num_epochs
    lists = not kind.trains

    def is_ignored(name: str) -> bool:
        section, _, leaf = name.rpartition(".")
        if section == "training" and untrained and leaf not in WITHOUT_TRAINING:
            return True
        return name in unread or (lists and section in ("chunking", "training"))

    return tuple(name for name in setting_types() if is_ignored(name) and name not in kind.reads)


def _ignored(config: TrialConfig) -> set[str]:
    """The settings that the model could read and this configuration does not."""
    kind, training = model_class(config.model.name), config.training
    lists, untrained = not kind.trains, not training.num_epochs
    passages, one_epoch = training.unit == "passage", training.num_epochs == 1
    # The only epoch is the last one, whose schedule warms up everything.
    by_last_epoch = one_epoch and training.schedule.endswith(LAST_EPOCH)
    first_chunk = kind.first_chunk_only and not passages
    ignored = {
        "model.backbone": lists,
        "model.dropout": lists or untrained,
        "chunking.overflow": not config.chunking.max_chunks,
        "training.margin": not (training.loss in MARGIN_LOSSES or is_reference(training.loss)),
        "training.teacher": not training.teacher,
        "training.passage_keep": not passages,
        "training.chunk_dropout": passages or first_chunk,
        "training.warmup_backbone": not training.warmup or by_last_epoch,
        "training.epoch_decay": one_epoch,
        "training.reset_optimizer": one_epoch,
        "training.lora_alpha": not training.lora_rank,
        "training.lora_dropout": not training.lora_rank,
        "training.lora_targets": not training.lora_rank,
        "evaluation.batch_tokens": lists,
        "evaluation.test_alpha": not config.evaluation.test_on,
        "evaluation.runtime": lists or not untrained,
        "evaluation.keep_chunk_scores": not kind.keeps_chunk_scores,
        "evaluation.keep_selected_blocks": not kind.selects_blocks(config.model),
    }
    if trains(kind):
        read = kind.rates_read(config.model)
        # The rate of the interaction is the aggregator's where it has none of its own.
        shared = "interaction" in read and not training.interaction_learning_rate
        read = (*read, "aggregator") if shared else read
        ignored |= {f"training.{part}_learning_rate": part not in read for part in RATES}
        ignored |= {"training.precision": kind.in_fp32}
    return {name for name, without in ignored.items() if without}


def effective_settings(config: TrialConfig, backbone: Backbone) -> dict[str, Any]:
    """{setting: its meaning} of those that a trial reads, without its seed: equal for
    configurations that are computed alike, such as `model.k` 0 and the model's default."""
    config = _of_one_epoch(config)
    settings, training = config.settings(), config.training
    ignored = {*ignored_settings(config), "seed"}
    meant: dict[str, Any] = {
        "training.depth": training.depth or config.evaluation.depth,
        "training.interaction_learning_rate": training.interaction_learning_rate
        or training.aggregator_learning_rate,
        "evaluation.runtime": runtime_of(config),
        "training.lora_alpha": training.lora_alpha or 2.0 * training.lora_rank,
    }
    kind = model_class(config.model.name)
    if trains(kind):
        trained = uses_checkpoint_head(kind, backbone, config.model.head)
        drawn = draws_classifier(backbone, config.model.head)
        shipped = config.model.head != "new" and (backbone.folder / RANKING_HEAD).exists()
        meant |= {
            "model.k": config.model.k or kind.DEFAULT_K,
            "model.pool": kind.pooling_of(config.model, backbone),
            "model.head": "classifier" if drawn else "checkpoint" if trained or shipped else "new",
        }
    meant |= kind.stated_settings(config.model, backbone)
    return {name: v for name, v in (settings | meant).items() if name not in ignored}


def _of_one_epoch(config: TrialConfig) -> TrialConfig:
    """The configuration with the name of a schedule that equals its own in a single epoch."""
    training = config.training
    if training.num_epochs != 1:
        return config
    if training.schedule == "inverse-epoch":
        return config.override({"training.schedule": "constant"})
    if not training.schedule.endswith(LAST_EPOCH):
        return config
    # In the last epoch the backbone warms up too.
    one_cycle = training.schedule.removesuffix(LAST_EPOCH)
    return config.override({"training.schedule": one_cycle, "training.warmup_backbone": True})
