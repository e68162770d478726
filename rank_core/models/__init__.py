"""The zoo: every ranking system by name. A new one needs a file here and a line in `MODELS`; a
user's own is named `module:Class`."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from rank_core.errors import BadInput
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranking_system import RankingSystem
from rank_core.own_code import load, path_of
from rank_core.settings.config import Chat, Model, TrialConfig

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
    "late-interaction": "rank_core.models.late_interaction:ColBert",
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


def paper_of(kind: type[RankingSystem]) -> str:
    """The paper of a system without what is said of it: `Boytsov & Kolter 2021`."""
    return kind.paper.partition(" (")[0]


def citations() -> dict[str, str]:
    """{paper: title, venue and arXiv number}, as the classes of `MODELS` cite them."""
    kinds = [model_class(name) for name in MODELS]
    return {paper_of(kind): kind.citation for kind in kinds if kind.citation}


def _is_model(value: object) -> bool:
    """True for a class that ranks; false for the two base classes."""
    from rank_core.models.ranker import Ranker

    bases = (Ranker, ListRanker)
    return isinstance(value, type) and issubclass(value, bases) and value not in bases


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
    unread |= {f"chat.{field.name}" for field in dataclasses.fields(Chat)} - {*kind.reads}
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
