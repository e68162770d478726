"""The zoo: every ranking system by name, and the checks of its settings. A new one needs a file
here and a line in `MODELS`; a user's own is named `module:Class`."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from rank_core.chunking.chunks import num_chunks
from rank_core.encoders.backbone_types import TYPES, Backbone
from rank_core.errors import BadInput, unknown
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranking_system import RankingSystem
from rank_core.own_code import load, path_of
from rank_core.settings.config import Chat, Model, TrialConfig, runtime_of
from rank_core.settings.training import INT8, check_training

if TYPE_CHECKING:
    from rank_core.models.ranker import Ranker

MODELS: dict[str, str] = {
    "bm25": "rank_core.models.list_rankers:FirstStageRun",
    "bm25-rm3": "rank_core.models.list_rankers:Bm25Rm3",
    "random": "rank_core.models.list_rankers:RandomOrder",
    "rankgpt": "rank_core.models.list_rankers:RankGPT",
    "firstp": "rank_core.models.passage_scores:FirstP",
    "maxp": "rank_core.models.passage_scores:MaxP",
    "sump": "rank_core.models.passage_scores:SumP",
    "avgp": "rank_core.models.passage_scores:AvgP",
    "avg-cls": "rank_core.models.parade:AvgCls",
    "kmax-avgp": "rank_core.models.passage_scores:KMaxAvgP",
    "randp": "rank_core.models.passage_scores:RandP",
    "birch": "rank_core.models.passage_scores:Birch",
    "parade-avg": "rank_core.models.parade:ParadeAvg",
    "parade-max": "rank_core.models.parade:ParadeMax",
    "parade-attn": "rank_core.models.parade:ParadeAttn",
    "parade-cnn": "rank_core.models.parade:ParadeCnn",
    "parade-transformer": "rank_core.models.parade:ParadeTransformer",
    "parade-transformer-l3": "rank_core.models.parade:ParadeTransformerL3",
    "parade-transformer-pretrained": "rank_core.models.parade:ParadePretrained",
    "parade-transformer-query": "rank_core.models.parade:ParadeWithQuery",
    "parade-late-interaction": "rank_core.models.parade:LateInteraction",
    "longp": "rank_core.models.passage_scores:LongP",
    "bi-encoder": "rank_core.models.bi_encoder:BiEncoder",
    "mores": "rank_core.models.mores:Mores",
    "cedr-knrm": "rank_core.models.cedr:CedrKnrm",
    "cedr-drmm": "rank_core.models.cedr:CedrDrmm",
    "cedr-pacrr": "rank_core.models.cedr:CedrPacrr",
    "neural-model1": "rank_core.models.cedr:NeuralModel1",
    "tk": "rank_core.models.word_vectors:TK",
    "tkl": "rank_core.models.word_vectors:TKL",
    "co-pacrr": "rank_core.models.word_vectors:CoPacrr",
    "deeprank": "rank_core.models.word_vectors:DeepRank",
    "keyb": "rank_core.models.keyb:KeyB",
    "keyb-parade": "rank_core.models.keyb:KeyBParade",
    "idcm": "rank_core.models.idcm:Idcm",
    "qds": "rank_core.models.qds:QdsTransformer",
    "dense": "rank_core.models.dense:DenseChunks",
    "dense-cut": "rank_core.models.dense:DenseDocument",
}
"""{name: module and class}, imported on first use: commands that train nothing load no torch.

Examples:
    >>> import ranksweep
    >>> ranksweep.MODELS["maxp"]
    'rank_core.models.passage_scores:MaxP'
"""

OF_RETRIEVAL = ("chunking.overlap", "chunking.snap", "chunking.title", "evaluation.evidence")
"""Settings that dense retrieval alone reads."""

WITHOUT_TRAINING = ("num_epochs", "init_from", "precision")
"""Settings of training that have an effect where training.num_epochs=0."""


def model_class(name: str) -> "type[Ranker] | type[ListRanker]":
    """The class of the model called `name`, or at `module:Class`. Raises `BadInput` for an unknown
    name and for a class without a label, paper or family."""
    path = path_of("model", name, MODELS)
    model: type[Ranker] | type[ListRanker] = load("model", path, _is_model)
    if name not in MODELS and not _is_model(model):
        raise BadInput(f"model {path} must be a subclass of Ranker or ListRanker, got {model!r}")
    if name not in MODELS and "label" not in vars(model) and hasattr(model, "label"):
        raise BadInput(f"model {path} must define its own label; it inherits {model.label!r}")
    for field in ("label", "paper", "family"):
        text = getattr(model, field, None)
        if not isinstance(text, str) or not text.strip():
            kind = path.partition(":")[2]
            raise BadInput(f"model {name}: {kind}.{field} must be a non-empty text, got {text!r}")
    return model


def trains(kind: type[RankingSystem]) -> "TypeGuard[type[Ranker]]":
    """True for a class with an encoder, weights and chunks."""
    return kind.trains


def chunk_pooling_models() -> tuple[str, ...]:
    """The names of the models whose score is one chunk score, or a sum or mean of chunk scores;
    those that read the first chunk alone at the end."""
    names = [name for name in MODELS if model_class(name).keeps_chunk_scores]
    return tuple(sorted(names, key=lambda name: model_class(name).first_chunk_only))


def _is_model(value: object) -> bool:
    """True for a class that ranks; false for the two base classes."""
    bases = (import_module("rank_core.models.ranker").Ranker, ListRanker)
    return isinstance(value, type) and issubclass(value, bases) and value not in bases


def check_model(config: TrialConfig, backbone: Backbone) -> None:
    """Raises `BadInput` for settings that the model ignores and windows that exceed the
    backbone."""
    model, chunking, name = model_class(config.model.name), config.chunking, config.model.name
    if model.trains and backbone.problem:
        raise BadInput(backbone.problem)
    if model.trains:  # first: no choice of windows changes it
        import_module("rank_core.models.build").require_weights(config, backbone)
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
        import_module("rank_core.models.runtimes").check_runtime(config, backbone)
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


def _check_head(config: TrialConfig, backbone: Backbone, model: "type[Ranker]") -> None:
    """Rejects heads that cannot be used, and another pooling than a trained head's; a ranking head
    may learn to read another."""
    module = import_module("rank_core.models.ranker")
    own = backbone.head_pooling
    if module.draws_classifier(backbone, config.model.head):
        _check_new_classifier(config, backbone, model)
        return
    if not module.uses_checkpoint_head(model, backbone, config.model.head):
        head = (backbone.folder / module.RANKING_HEAD).exists() and config.model.head != "new"
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
    heads = import_module("rank_core.encoders.published_heads")
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
    import_module("rank_core.encoders.lora").require_peft()
    if TYPES[backbone.kind].loader == "AlibiEncoder":
        problem = f"backbone {backbone.name} is computed by ranksweep's own code"
    elif model.family == "word vectors":
        problem = f"model {config.model.name} has no encoder"
    elif "stage" in model.options:
        problem = f"model {config.model.name} is trained in stages"
    else:
        if config.training.lora_targets:
            _check_targets(config.training.lora_targets, backbone)
        return
    raise BadInput(f"training.lora_rank has no effect here: {problem}")


def _check_targets(targets: tuple[str, ...], backbone: Backbone) -> None:
    """Rejects names of layers that the encoder lacks, from its configuration alone."""
    lora, backbones = (
        import_module(f"rank_core.encoders.{name}") for name in ("lora", "backbones")
    )
    lora.check_targets(backbones.without_weights(backbone), targets)


def usual_settings(config: TrialConfig) -> dict[str, Any]:
    """{setting: the value that it has where a model never reads it}: its default, and the window as
    the stride."""
    return {**_default_settings(), "chunking.stride": config.chunking.window}


@cache
def _default_settings() -> Mapping[str, Any]:
    return MappingProxyType(TrialConfig().settings())


def unread_settings(config: TrialConfig) -> set[str]:
    """The settings that the model never reads; another value than the usual one is refused."""
    kind = model_class(config.model.name)
    optional = {field.name for field in dataclasses.fields(Model) if field.metadata.get("added")}
    unread = {f"model.{name}" for name in optional - {*kind.optional_settings()}}
    if config.model.name != "rankgpt":
        unread |= {f"chat.{field.name}" for field in dataclasses.fields(Chat)}
    if "interaction" not in kind.options:
        unread.add("training.interaction_learning_rate")
    unread |= set(OF_RETRIEVAL) - {*kind.reads}
    if not trains(kind):
        return unread | ({"evaluation.runtime"} - {*kind.reads})
    if kind.first_chunk_only and config.training.unit != "passage":
        unread |= {"chunking.stride", "chunking.max_chunks", "chunking.overflow"}
    if not kind.overlapping_chunks:
        unread.add("chunking.stride")
    return unread | {*kind.unread}
