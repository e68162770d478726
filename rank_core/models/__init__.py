"""Every ranking system by name. Adding one: a file here and a line in `MODELS`."""

import dataclasses
from pathlib import Path

import torch
from safetensors.torch import load_file

from rank_core.chunking.chunks import chunk_spans
from rank_core.encoders.backbones import Backbone, load_encoder
from rank_core.encoders.cpu.cls_only import only_cls
from rank_core.encoders.tiny import RANKING_HEAD
from rank_core.errors import BadInput, unknown
from rank_core.models.bi_encoder import BiEncoder
from rank_core.models.birch import Birch
from rank_core.models.interaction.cedr import CedrDrmm, CedrKnrm, CedrPacrr
from rank_core.models.interaction.co_pacrr import CoPacrr
from rank_core.models.interaction.deeprank import DeepRank
from rank_core.models.interaction.neural_model1 import NeuralModel1
from rank_core.models.interaction.tk import TK
from rank_core.models.interaction.tkl import TKL
from rank_core.models.interaction.word_vectors import WordVectorRanker
from rank_core.models.key_blocks.idcm import Idcm
from rank_core.models.key_blocks.keyb import KeyB, KeyBParade
from rank_core.models.key_blocks.qds import QdsTransformer
from rank_core.models.late_interaction import LateInteraction
from rank_core.models.lists.bm25_rm3 import Bm25Rm3
from rank_core.models.lists.list_ranker import FirstStage, ListRanker, RandomOrder
from rank_core.models.lists.rankgpt import RankGPT
from rank_core.models.longp import LongP
from rank_core.models.mores import Mores
from rank_core.models.parade.avg_cls import AvgCls
from rank_core.models.parade.cnn import ParadeCnn
from rank_core.models.parade.parade import ParadeAttn, ParadeAvg, ParadeMax
from rank_core.models.parade.pretrained import ParadePretrained, ParadeWithQuery
from rank_core.models.parade.transformer import ParadeTransformer, ParadeTransformerL3
from rank_core.models.passage_scores import AvgP, FirstP, KMaxAvgP, MaxP, SumP, check_keeps
from rank_core.models.randp import RandP
from rank_core.models.ranker import Ranker
from rank_core.models.row_vectors import pooling_of
from rank_core.settings.config import Chat, Model, TrialConfig
from rank_core.settings.training import check_training

MODELS: dict[str, type[Ranker] | type[ListRanker]] = {
    "bm25": FirstStage,
    "bm25-rm3": Bm25Rm3,
    "random": RandomOrder,
    "rankgpt": RankGPT,
    "firstp": FirstP,
    "maxp": MaxP,
    "sump": SumP,
    "avgp": AvgP,
    "avg-cls": AvgCls,
    "kmax-avgp": KMaxAvgP,
    "randp": RandP,
    "birch": Birch,
    "parade-avg": ParadeAvg,
    "parade-max": ParadeMax,
    "parade-attn": ParadeAttn,
    "parade-cnn": ParadeCnn,
    "parade-transformer": ParadeTransformer,
    "parade-transformer-l3": ParadeTransformerL3,
    "parade-transformer-pretrained": ParadePretrained,
    "parade-transformer-query": ParadeWithQuery,
    "parade-late-interaction": LateInteraction,
    "longp": LongP,
    "bi-encoder": BiEncoder,
    "mores": Mores,
    "cedr-knrm": CedrKnrm,
    "cedr-drmm": CedrDrmm,
    "cedr-pacrr": CedrPacrr,
    "neural-model1": NeuralModel1,
    "tk": TK,
    "tkl": TKL,
    "co-pacrr": CoPacrr,
    "deeprank": DeepRank,
    "keyb": KeyB,
    "keyb-parade": KeyBParade,
    "idcm": Idcm,
    "qds": QdsTransformer,
}

__all__ = [
    "MODELS",
    "ListRanker",
    "Ranker",
    "build_model",
    "check_model",
    "is_deterministic",
    "list_ranker",
    "model_class",
]


def model_class(name: str) -> type[Ranker] | type[ListRanker]:
    """The entry of `MODELS` called `name`."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]


def check_model(config: TrialConfig, backbone: Backbone) -> None:
    """Refuses settings that the model ignores and windows that the backbone cannot read."""
    model, chunking = model_class(config.model.name), config.chunking
    _check_options(config)
    if issubclass(model, ListRanker):
        return
    check_keeps(config)
    check_training(
        config.training, config.model.name, one_chunk_is_firstp=model.one_chunk_is_firstp
    )
    pooling_of(config.model, backbone)
    model.check(config, backbone)
    limit = backbone.max_window(chunking.max_query_tokens)
    if chunking.window > limit and not issubclass(model, WordVectorRanker):
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
    if not model.first_chunk_only or config.training.unit == "passage":
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
    """Refuses optional settings that the model does not heed."""
    if config.chat != Chat() and config.model.name != "rankgpt":
        raise BadInput(f"chat.* has no effect with model {config.model.name}, only with rankgpt")
    heeded = model_class(config.model.name).options
    if config.training.interaction_learning_rate and "interaction" not in heeded:
        raise BadInput(
            f"training.interaction_learning_rate has no effect with model {config.model.name}, "
            "which has no encoder over query and chunk; leave it at 0"
        )
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
        assert issubclass(kind, Ranker)
        if not kind.reads_tokens and pooling_of(config.model, backbone) == "cls":
            only_cls(encoder)
        model = kind(encoder, backbone, config.model)
    # A backbone that was trained to rank passages brings its head along, as the papers continue
    # from a whole ranker that was trained on MS MARCO.
    # A head of another shape (over other features than a row's vector) starts afresh.
    if (backbone.folder / RANKING_HEAD).exists():
        trained = load_file(backbone.folder / RANKING_HEAD)
        own = model.head.state_dict()
        if {n: w.shape for n, w in own.items()} == {n: w.shape for n, w in trained.items()}:
            model.head.load_state_dict(trained)
    return model


def is_deterministic(config: TrialConfig, backbone: Backbone) -> bool:
    """True where every seed gives the same run: no weights of ours, or none that are drawn and no
    training."""
    kind = model_class(config.model.name)
    if issubclass(kind, ListRanker):
        return kind.deterministic
    if config.training.num_epochs or config.training.init_from:
        return False
    first, second = (build_model(config, backbone, init_seed=seed).state_dict() for seed in (1, 2))
    return all(torch.equal(first[name], second[name]) for name in first)


def list_ranker(config: TrialConfig, workdir: Path) -> ListRanker:
    """The system without weights that the settings name; what it has to keep goes to `workdir`."""
    kind = model_class(config.model.name)
    assert issubclass(kind, ListRanker)
    return kind(config, workdir)
