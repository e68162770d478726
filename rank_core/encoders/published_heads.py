"""The ranking head of a published reranker: what its checkpoint has between the encoder's vectors
and the score, as `AutoModelForSequenceClassification` of transformers computes it, or the modules
of sentence-transformers.

Two labels (old monoBERT) are one score, the difference of their logits. An activation that a model
card adds, such as a sigmoid, changes no ranking of single chunks and is not applied.
"""

import copy
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rank_core.encoders.any_kind import LabelScore, loader_of, vector_size
from rank_core.encoders.backbone_types import (
    ANY,
    OWN_FIRST_TOKEN,
    Backbone,
    backbone_type,
    type_of,
)
from rank_core.encoders.backbone_types import SPLIT_HEADS as KINDS
from rank_core.encoders.backbones import (
    RELEVANT,
    UNNAMED,
    decoder_score,
    label_rows,
    load_config,
    load_tokenizer,
    reads_whole,
    saved_with,
)
from rank_core.encoders.checkpoint import (
    CONFIG,
    LAYOUT_FILE,
    check_weights,
    foreign_architecture,
    open_model,
    read_json,
)
from rank_core.encoders.decoder_rerankers import score_row
from rank_core.encoders.module_chain import (
    ChainHead,
    load_chain_head,
    pair_layout,
    require_library,
    save_modules,
)
from rank_core.encoders.st_folder import Unread
from rank_core.encoders.t5_rerankers import (
    UNKNOWN,
    described_score,
    generated_answers,
    generates,
)
from rank_core.errors import BadInput

OTHER_TASKS = re.compile("entail|contradict|neutral|positive|negative|duplicate", re.IGNORECASE)
"""Labels of inference, sentiment and paraphrase."""


class PublishedHead(nn.Module):
    """score_X1 of row vectors x_XH: pooler, activation and classifier of a checkpoint, with the
    dropout that they have there."""

    def __init__(self, kind: str, model: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_layers(kind, model))
        self.reads_rows = kind in (*OWN_FIRST_TOKEN, "bert", "deberta-v2")
        self.true, self.false = label_rows(model.config)

    def forward(self, x_XH: Tensor) -> Tensor:
        """One score per vector."""
        first, *rest = self.layers
        x = first(x_XH.flatten(0, -2)[:, None] if self.reads_rows else x_XH.flatten(0, -2))
        for layer in rest:
            x = layer(x)
        score_N1 = x[:, self.true : self.true + 1]
        if self.false is not None:
            score_N1 = score_N1 - x[:, self.false : self.false + 1]
        return score_N1.unflatten(0, x_XH.shape[:-1])


def _layers(kind: str, model: Any) -> list[nn.Module]:
    """The modules that a kind's `ForSequenceClassification` applies, in order."""
    if kind in OWN_FIRST_TOKEN:
        return [model.classifier]
    if kind == "bert":
        return [model.bert.pooler, model.dropout, model.classifier]
    if kind == "albert":
        first = [model.albert.pooler, model.albert.pooler_activation]
        return [*first, model.dropout, model.classifier]
    if kind == "deberta-v2":
        return [model.pooler, model.dropout, model.classifier]
    if kind == "distilbert":
        return [model.pre_classifier, nn.ReLU(), model.dropout, model.classifier]
    return [model.head, model.drop, model.classifier]  # modernbert


@lru_cache(maxsize=16)
def head_problem(backbone: Backbone) -> str:
    """The reason why the trained head of a checkpoint cannot rank here; "" if it can."""
    config = load_config(backbone.name, backbone.folder)
    stated = read_json(backbone.folder / CONFIG, dict)
    if type_of(backbone.kind).loader in ("AutoModel", ANY.loader) and "auto_map" in stated:
        return "its head needs code of the checkpoint (auto_map), which is never run"
    saved, chain = saved_with(backbone.folder), backbone.chain
    if saved.damage or chain is not None:
        return saved.damage or (chain.unread if chain else "")
    score = decoder_score(backbone.name, backbone.folder, config)
    if generated_answers(config) or (score is not None and not score.classifies):
        return ""
    if saved.row_problem:
        return saved.row_problem
    if score is None and backbone.kind not in KINDS and not reads_whole(config):
        return f"heads of kind {backbone.kind} are not read"
    if config.num_labels > 2:
        return f"its head has {config.num_labels} labels; a ranking head has one, or two"
    labels = [str(label) for label in (config.id2label or {}).values()]
    if other := [label for label in labels if OTHER_TASKS.search(label)]:
        return f"its head is of another task: labels {', '.join(other)}"
    if config.num_labels == 2 and not any(map(RELEVANT.fullmatch, labels)):
        if named := [label for label in labels if not UNNAMED.fullmatch(label)]:
            return (
                f"none of its labels ({', '.join(named)}) is called relevant, yes or true; if its "
                "score is one of relevance, say so by id2label in config.json"
            )
    return _pair_problem(backbone) if score is None else ""


def _pair_problem(backbone: Backbone) -> str:
    """The reason why rows here are not the pairs that the tokenizer of a classifier writes, with
    which it was trained; "" if they are, and where a prompt or an export says how they are."""
    stated = (backbone.folder / LAYOUT_FILE).exists()
    if stated or saved_with(backbone.folder).query_prefix:
        return ""
    try:
        pairs = pair_layout(load_tokenizer(backbone.folder), backbone.num_segments)
    except Unread as reason:
        return str(reason)
    if pairs[:3] != backbone.layout[:3]:
        return "its tokenizer writes other special tokens around query and text than are read here"
    return ""


@lru_cache(maxsize=16)
def check_head(backbone: Backbone) -> None:
    """Raises `BadInput` where the weights of a checkpoint lack its trained head, or have it in
    other sizes: a classifier's by their headers, a chain's small ones by themselves."""
    if backbone.chain is not None:
        require_library(backbone.chain.pooling)
        _chain_head(backbone, 0.0)
    elif not type_of(backbone.kind).causal or is_read_whole(backbone):
        config = copy.deepcopy(load_config(backbone.name, backbone.folder))
        loader = loader_of(backbone.name, config, whole=True)
        check_weights(backbone.name, backbone.folder, loader, config)


def _chain_head(backbone: Backbone, dropout: float) -> ChainHead:
    assert backbone.chain is not None
    size = vector_size(load_config(backbone.name, backbone.folder))
    return load_chain_head(backbone.chain, size, dropout)


def sequence_classifier(backbone: Backbone, dropout: float) -> Any:
    """The whole checkpoint as transformers' `ForSequenceClassification`, in fp32; what it lacks of
    its head is drawn where it has no trained one. Raises `BadInput` where it has one and lacks
    weights of it."""
    config = copy.deepcopy(load_config(backbone.name, backbone.folder))
    for attribute in (*backbone_type(config).dropouts, *_HEAD_DROPOUTS):
        if hasattr(config, attribute):
            setattr(config, attribute, dropout)
    if not backbone.trained_head:
        config.num_labels = 1
        # CrossEncoder would put a sigmoid over the score.
        config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    model, missing = open_model(
        transformers.AutoModelForSequenceClassification, backbone.folder, config
    )
    if missing and backbone.trained_head:
        raise BadInput(
            f"the checkpoint of {backbone.name} lacks {missing[0]} of its "
            "trained head; copy or download it again, or draw a new head with model.head=new"
        )
    return model


_HEAD_DROPOUTS = (
    *("classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout"),
    *("pooler_dropout", "cls_dropout"),
)


def load_head(backbone: Backbone, dropout: float) -> nn.Module:
    """The trained head of a checkpoint, with the given dropout rate everywhere; a decoder's is a
    linear layer."""
    if backbone.chain is not None:
        return _chain_head(backbone, dropout)
    config = load_config(backbone.name, backbone.folder)
    if is_read_whole(backbone):
        return LabelScore(*label_rows(config))
    if (score := decoder_score(backbone.name, backbone.folder, config)) is None:
        return PublishedHead(backbone.kind, sequence_classifier(backbone, dropout))
    weight_1H = score_row(backbone.folder, score)
    head: nn.Linear = nn.utils.skip_init(nn.Linear, weight_1H.shape[1], 1)
    with torch.no_grad():
        head.weight.copy_(weight_1H)
        head.bias.zero_()
    return head


@lru_cache(maxsize=16)
def is_read_whole(backbone: Backbone) -> bool:
    """True for a checkpoint that is a classifier and is read whole, where its head is taken."""
    config = load_config(backbone.name, backbone.folder)
    if backbone.chain is not None or not reads_whole(config):
        return False
    return decoder_score(backbone.name, backbone.folder, config) is None


def unread_head(backbone: Backbone) -> str:
    """What a checkpoint adds to its encoder that is not read, behind a semicolon: a class that
    transformers does not have, or the decoder of a T5, with how it would be read; "" for all other
    backbones."""
    if backbone.problem:
        return ""
    if foreign := foreign_architecture(backbone.folder):
        return f"; it is a {foreign}, which transformers does not have: its encoder alone is read"
    config = load_config(backbone.name, backbone.folder)
    return f"; {UNKNOWN}" if generates(config) and not generated_answers(config) else ""


def generated_score(backbone: Backbone) -> str:
    """How others score a T5 reranker, in a sentence; "" for all other backbones."""
    config = load_config(backbone.name, backbone.folder)
    if not generated_answers(config):
        return ""
    return described_score(config, load_tokenizer(backbone.folder))


def new_head_problem(backbone: Backbone) -> str:
    """The reason why no classification head is drawn over a backbone; "" if it can be."""
    if type_of(backbone.kind).loader not in ("AutoModel", ANY.loader):
        return "ranksweep computes its encoder by code of its own, which no other server has"
    if backbone.kind not in KINDS:
        return f"known are those of {', '.join(KINDS)}, not of {backbone.kind}"
    if len(backbone.layout.suffix) != 1:
        return "its rows end in another way than those of a tokenizer's pairs"
    return ""


def new_head_pooling(backbone: Backbone) -> str:
    """The row pooling that the classification head of a backbone's architecture reads."""
    config = load_config(backbone.name, backbone.folder)
    return str(getattr(config, "classifier_pooling", "cls"))


def new_classifier(backbone: Backbone, dropout: float) -> PublishedHead:
    """The classification head of a backbone's architecture: its pooler from the checkpoint where
    that has one, the rest drawn from torch's generator."""
    return PublishedHead(backbone.kind, sequence_classifier(backbone, dropout))


def save_classifier(
    backbone: Backbone, encoder: nn.Module, head: PublishedHead, folder: Path
) -> None:
    """Writes encoder and head as one checkpoint that `AutoModelForSequenceClassification` and
    sentence-transformers' `CrossEncoder` read."""
    model = sequence_classifier(backbone, 0.0)
    with torch.no_grad():
        model.base_model.load_state_dict(encoder.state_dict(), strict=False)
        PublishedHead(backbone.kind, model).load_state_dict(head.state_dict())
    model.save_pretrained(folder)
    if backbone.trained_head:
        save_modules(saved_with(backbone.folder), folder)
