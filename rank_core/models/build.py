"""Construction of the ranking system that a trial's settings name."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_encoder
from rank_core.encoders.cls_only import only_cls
from rank_core.encoders.tiny import RANKING_HEAD
from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranker import Ranker
from rank_core.settings.config import TrialConfig


def build_model(config: TrialConfig, backbone: Backbone, *, init_seed: int) -> Ranker:
    """The ranker of `config` on the CPU: pretrained encoder, other parameters drawn from
    `init_seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        encoder = load_encoder(backbone, config.model.dropout)
        kind = model_class(config.model.name)
        assert issubclass(kind, Ranker)
        if not kind.reads_tokens and backbone.row_pooling(config.model.pool) == "cls":
            only_cls(encoder)
        model = kind(encoder, backbone, config.model)
    # A backbone trained on passage ranking (MS MARCO) comes with its head, as in the papers. A head
    # of another shape starts at random.
    if (backbone.folder / RANKING_HEAD).exists():
        trained = load_file(backbone.folder / RANKING_HEAD)
        own = model.head.state_dict()
        if {n: w.shape for n, w in own.items()} == {n: w.shape for n, w in trained.items()}:
            model.head.load_state_dict(trained)
    return model


def is_deterministic(config: TrialConfig, backbone: Backbone) -> bool:
    """True where every seed gives the same run: nothing is trained, and no weight is random."""
    kind = model_class(config.model.name)
    if issubclass(kind, ListRanker):
        return kind.deterministic
    if config.training.num_epochs or config.training.init_from:
        return False
    first, second = (build_model(config, backbone, init_seed=seed).state_dict() for seed in (1, 2))
    return all(torch.equal(first[name], second[name]) for name in first)


def list_ranker(config: TrialConfig, workdir: Path) -> ListRanker:
    """The system without trained weights that the settings name, with its files in `workdir`."""
    kind = model_class(config.model.name)
    assert issubclass(kind, ListRanker)
    return kind(config, workdir)
