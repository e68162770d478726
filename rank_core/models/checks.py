"""The checks of a model's settings, before anything is loaded."""

from typing import TYPE_CHECKING

from rank_core.chunking.chunks import num_chunks
from rank_core.encoders.backbone_types import Backbone, type_of
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput, unknown
from rank_core.models import (
    chunk_pooling_models,
    model_class,
    trains,
    unread_settings,
    usual_settings,
)
from rank_core.settings.config import TrialConfig, runtime_of
from rank_core.settings.training import INT8, check_training

if TYPE_CHECKING:
    from rank_core.models.ranker import Ranker


def check_model(config: TrialConfig, backbone: Backbone) -> None:
    """Raises `BadInput` for settings that the model ignores and windows that exceed the
    backbone."""
    model, chunking, name = model_class(config.model.name), config.chunking, config.model.name
    if model.trains and backbone.problem:
        raise BadInput(backbone.problem)
    if model.trains:  # first: no choice of windows changes it
        from rank_core.models.build import require_weights

        require_weights(config, backbone)
    own = config.settings()
    usual = usual_settings(config)
    for setting in unread_settings(config):
        if own[setting] != usual[setting]:
            window = "chunking.window=" if setting == "chunking.stride" else ""
            known = ", ".join(f"model.{option}" for option in model.optional_settings()) or "none"
            raise BadInput(
                f"{setting} has no effect with model {name}; set it to {window}{usual[setting]!r}, "
                f"got {own[setting]!r} (optional settings of {name}: {known})"
            )
    if runtime_of(config) != "torch" or config.training.precision == INT8:
        from rank_core.models.runtimes import check_runtime

        check_runtime(config, backbone)
    if not trains(model):
        model.check(config, backbone)
        return
    if config.evaluation.keep_chunk_scores and (
        not model.keeps_chunk_scores or config.model.quirks
    ):
        raise BadInput(
            "evaluation.keep_chunk_scores needs a model that pools chunk scores "
            f"({', '.join(chunk_pooling_models())}, without quirks), got {name}"
        )
    backbone = model.rows_over(backbone)
    _check_gaps(config, backbone, model)
    _check_head(config, backbone, model)
    _check_adapters(config, backbone, model)
    check_training(config.training, name, one_chunk_is_firstp=model.one_chunk_is_firstp)
    backbone.row_pooling(config.model.pool)
    for quirk in config.model.quirks:
        if quirk not in model.QUIRKS:
            raise unknown(f"quirk of model {name}", quirk, model.QUIRKS)
    model.check(config, backbone)
    limit = backbone.max_window(chunking.max_query_tokens)
    if chunking.window > limit and model.limited_window:
        raise BadInput(
            f"chunking.window <= {limit} must hold for backbone {backbone.name} "
            f"({backbone.max_input_tokens} positions less {chunking.max_query_tokens} query tokens "
            f"and 3 special tokens), got chunking.window={chunking.window}"
        )
    most = num_chunks(chunking.max_document_tokens, chunking.window, chunking.stride)
    most = min(most, chunking.max_chunks or most)
    if model.max_chunks is not None and model.reads_windows() and most > model.max_chunks:
        raise BadInput(
            f"model {name} reads at most {model.max_chunks} chunks per document, got up to {most}; "
            "lower chunking.max_chunks or raise chunking.stride"
        )


def _check_gaps(config: TrialConfig, backbone: Backbone, model: "type[Ranker]") -> None:
    """Rejects rows without special tokens for models that read those places."""
    if backbone.layout.has_gaps and (config.model.quirks or not model.scores_chunks):
        raise BadInput(
            f"the tokenizer of backbone {backbone.name} writes no token before the query, between "
            "query and text or at the end, as a reranker's: a model that scores chunks reads such "
            f"rows (maxp), without quirks, got {config.model.name}"
        )


def _check_head(config: TrialConfig, backbone: Backbone, model: "type[Ranker]") -> None:
    """Rejects heads that cannot be used, and another pooling than a trained head's; a ranking head
    may learn to read another."""
    from rank_core.models.ranker import draws_classifier, uses_checkpoint_head

    own = backbone.head_pooling
    if draws_classifier(backbone, config.model.head):
        _check_new_classifier(config, backbone, model)
        return
    if not uses_checkpoint_head(model, backbone, config.model.head):
        head = (backbone.folder / RANKING_HEAD).exists() and config.model.head != "new"
        trained = config.training.num_epochs or config.training.init_from
        if trained or not head or not model.scores_chunks:
            return
        own = own or backbone.pooling
    if config.model.pool not in ("", own):
        raise BadInput(
            f"model.pool must be {own}, which the trained head of backbone {backbone.name} reads, "
            f"got {config.model.pool}; or draw a new one with model.head=new"
        )


def _check_new_classifier(config: TrialConfig, backbone: Backbone, model: "type[Ranker]") -> None:
    """Rejects a classification head for models and architectures without one."""
    from rank_core.encoders import published_heads as heads

    if not model.scores_chunks:
        raise BadInput(
            f"model.head=classifier is the head of a model that scores chunks; {model.label} "
            "combines their vectors: leave out model.head"
        )
    if problem := heads.new_head_problem(backbone):
        raise BadInput(
            f"backbone {backbone.name} has no classification head that is drawn here: {problem}. "
            "Leave out model.head"
        )
    if config.model.pool not in ("", own := heads.new_head_pooling(backbone)):
        raise BadInput(
            f"model.pool must be {own}, which the classification head of backbone {backbone.name} "
            f"reads, got {config.model.pool}; or leave out model.head"
        )


def _check_adapters(config: TrialConfig, backbone: Backbone, model: "type[Ranker]") -> None:
    """Rejects adapters where they are not installed, and where no encoder takes them."""
    if not config.training.lora_rank:
        return
    from rank_core.encoders.lora import require_peft

    require_peft()
    if type_of(backbone.kind).loader == "AlibiEncoder":
        problem = f"backbone {backbone.name} is computed by ranksweep's own code"
    elif model.no_adapters:
        problem = f"model {config.model.name} {model.no_adapters}"
    else:
        if config.training.lora_targets:
            _check_targets(config.training.lora_targets, backbone)
        return
    raise BadInput(f"training.lora_rank has no effect here: {problem}")


def _check_targets(targets: tuple[str, ...], backbone: Backbone) -> None:
    """Rejects names of layers that the encoder lacks, from its configuration alone."""
    from rank_core.encoders.backbones import without_weights
    from rank_core.encoders.lora import check_targets

    check_targets(without_weights(backbone), targets)
