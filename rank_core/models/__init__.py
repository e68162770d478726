"""Every ranking system by name. Adding one: a file here and a line in `MODELS`."""

import dataclasses

import torch
from safetensors.torch import load_file

from rank_core.backbones import Backbone, load_encoder
from rank_core.chunks import chunk_spans
from rank_core.cls_only import only_cls
from rank_core.config import Model, TrialConfig
from rank_core.errors import BadInput, unknown
from rank_core.models.parade import ParadeAttn, ParadeAvg, ParadeMax, ParadeTransformer
from rank_core.models.passage_scores import AvgP, FirstP, MaxP, SumP
from rank_core.models.ranker import Ranker
from rank_core.tiny import RANKING_HEAD

MODELS: dict[str, type[Ranker]] = {
    "firstp": FirstP,
    "maxp": MaxP,
    "sump": SumP,
    "avgp": AvgP,
    "parade-avg": ParadeAvg,
    "parade-max": ParadeMax,
    "parade-attn": ParadeAttn,
    "parade-transformer": ParadeTransformer,
}

__all__ = ["MODELS", "Ranker", "build_model", "check_model", "model_class"]


def model_class(name: str) -> type[Ranker]:
    """The entry of `MODELS` called `name`."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]


def check_model(config: TrialConfig, backbone: Backbone) -> None:
    """Refuses settings that the model ignores and windows that the backbone cannot read."""
    model, chunking = model_class(config.model.name), config.chunking
    _check_options(config)
    limit = backbone.max_window(chunking.max_query_tokens)
    if chunking.window > limit:
        raise BadInput(
            f"chunking.window <= {limit} must hold for backbone {backbone.name} "
            f"({backbone.max_input_tokens} positions less {chunking.max_query_tokens} query tokens "
            f"and 3 special tokens), got chunking.window={chunking.window}"
        )
    most = len(chunk_spans(chunking.max_document_tokens, chunking.window, chunking.stride))
    most = min(most, chunking.max_chunks or most)
    if model.max_chunks is not None and most > model.max_chunks:
        raise BadInput(
            f"model {config.model.name} reads at most {model.max_chunks} chunks of a document, got "
            f"up to {most}; lower chunking.max_chunks or raise chunking.stride"
        )
    if not model.first_chunk_only:
        return
    if chunking.stride != chunking.window:
        raise BadInput(
            f"chunking.stride has no effect with model {config.model.name}, which reads the first "
            f"chunk only; set it to chunking.window={chunking.window}, got {chunking.stride}"
        )
    if chunking.max_chunks or chunking.overflow != "first":
        raise BadInput(
            "chunking.max_chunks and chunking.overflow have no effect with model "
            f"{config.model.name}, which reads the first chunk only; leave them at their defaults"
        )


def _check_options(config: TrialConfig) -> None:
    """Refuses an optional setting of `Model` that the model does not heed."""
    heeded = model_class(config.model.name).options
    for field in dataclasses.fields(Model):
        value = getattr(config.model, field.name)
        if field.metadata.get("added") and value != field.default and field.name not in heeded:
            known = ", ".join(f"model.{name}" for name in heeded) or "none"
            raise BadInput(
                f"model.{field.name} has no effect with model {config.model.name}, got {value!r}; "
                f"the optional settings it heeds: {known}"
            )


def build_model(config: TrialConfig, backbone: Backbone, *, init_seed: int) -> Ranker:
    """The ranker of `config` on the CPU: pretrained encoder, new parts drawn from `init_seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        encoder = load_encoder(backbone, config.model.dropout)
        kind = model_class(config.model.name)
        if not kind.reads_tokens:
            only_cls(encoder)
        model = kind(encoder, backbone, config.model)
    # A backbone that was trained to rank passages brings its head along, as the papers continue
    # from a whole ranker that was trained on MS MARCO.
    if (backbone.folder / RANKING_HEAD).exists():
        model.head.load_state_dict(load_file(backbone.folder / RANKING_HEAD))
    return model
