"""What an author still has to do for a model whose laws hold: facts of its class that are missing,
misspelt or more than it has."""

from collections.abc import Iterator
from difflib import get_close_matches

import torch
from transformers import AutoModel, BertConfig

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.shipped import TRAINED
from rank_core.models import MODELS, citations, model_class, paper_of, trains
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.models.ranking_system import GROUPS
from rank_core.settings.config import Model, TrialConfig


def over_bert_base(name: str, backbone: Backbone) -> Ranker:
    """A model over BERT-base without its pooler, on the device `meta`, so without any numbers."""
    kind = model_class(name)
    assert trains(kind)
    with torch.device("meta"):
        bert = AutoModel.from_config(BertConfig(), add_pooling_layer=False)
        return kind(bert, backbone, Model(name))


def num_parameters(model: Ranker) -> int:
    """The number of a model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def left_to_do(name: str) -> Iterator[str]:
    """A sentence for each fact of the model's class that its author should look at."""
    kind = model_class(name)
    assert trains(kind)
    if not vars(kind).get("__doc__"):
        yield "write a docstring: what it computes, and where it differs from its paper"
    if name in MODELS and paper_of(kind) not in citations():
        yield f"set `citation` to the title and venue of {kind.paper}"
    yield from _misspelt(kind)
    config = TrialConfig(model=Model(name, backbone=TRAINED))
    backbone = resolve_backbone(TRAINED)
    groups = build_model(config, backbone, init_seed=1).learning_rate_groups()
    for part in kind.rates_read(config.model):
        if not groups[part]:
            yield (
                f"leave {part!r} out of `rates`: it has no such parameters, and a sweep of "
                f"training.{part}_learning_rate would change nothing"
            )


def _misspelt(kind: type[Ranker]) -> Iterator[str]:
    """Attributes of the class that no base class has and that are nearly a fact's name."""
    facts = [fact for group in GROUPS.values() for fact in group.__annotations__]
    own = [base for base in kind.__mro__ if issubclass(base, Ranker) and base is not Ranker]
    for attribute in dict.fromkeys(name for base in own for name in vars(base)):
        near = get_close_matches(attribute, facts, n=1, cutoff=0.8)
        if near and not hasattr(Ranker, attribute):
            yield f"`{attribute}` is read by nothing: did you mean `{near[0]}`?"
