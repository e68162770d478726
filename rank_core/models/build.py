"""Construction of the ranking system that a trial's settings name."""

from dataclasses import replace
from functools import lru_cache

import torch
from safetensors.torch import load_file

from rank_core.checkpoints.weights import (
    STORED,
    SWEEP,
    WEIGHTS,
    cell_trials,
    saved_shapes,
    stored_cell,
    weights_file,
)
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_as_it_is, load_encoder
from rank_core.encoders.cls_only import only_cls
from rank_core.encoders.lora import add_adapters
from rank_core.encoders.published_heads import is_read_whole, unread_head
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.models import model_class, trains
from rank_core.models.ranker import Ranker, uses_checkpoint_head
from rank_core.settings.config import Model, TrialConfig


def build_model(config: TrialConfig, backbone: Backbone, *, init_seed: int) -> Ranker:
    """The ranker of `config` on the CPU: pretrained encoder, other parameters drawn from
    `init_seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        kind = model_class(config.model.name)
        assert trains(kind)
        own_head = uses_checkpoint_head(kind, backbone, config.model.head)
        if own_head and is_read_whole(backbone):
            encoder = load_as_it_is(backbone, config.model.dropout, whole=True)
        else:
            encoder = load_encoder(backbone, config.model.dropout)
        training = config.training
        adapted = training.lora_rank and training.num_epochs
        cls_alone = not kind.reads_tokens and kind.pooling_of(config.model, backbone) == "cls"
        if cls_alone and not adapted:
            only_cls(encoder)
        model = kind(encoder, backbone, config.model)
        if adapted:  # after the model, which may have copied layers of the encoder
            add_adapters(
                encoder,
                training.lora_rank,
                alpha=training.lora_alpha or 2 * training.lora_rank,
                dropout=training.lora_dropout,
                targets=training.lora_targets,
            )
    # A backbone trained on passage ranking (MS MARCO) comes with its head, as in the papers. A head
    # of another shape starts at random.
    if config.model.head != "new" and (backbone.folder / RANKING_HEAD).exists():
        trained = load_file(backbone.folder / RANKING_HEAD)
        own = model.head.state_dict()
        if {n: w.shape for n, w in own.items()} == {n: w.shape for n, w in trained.items()}:
            model.head.load_state_dict(trained)
    return model


def is_deterministic(config: TrialConfig, backbone: Backbone) -> bool:
    """True where every seed gives the same run: nothing is trained, and all seeds have the same
    weights, of a checkpoint or of one trained model."""
    kind = model_class(config.model.name)
    if not trains(kind):
        return kind.deterministic
    start = config.training.init_from
    trained = config.training.num_epochs or stored_cell(start) or cell_trials(start)
    return not (trained or kind.reads_by_seed or undefined_weights(config, backbone))


def require_weights(config: TrialConfig, backbone: Backbone) -> None:
    """Raises `BadInput` where nothing is trained and a weight would be drawn at random: such a
    model ranks at random."""
    if not model_class(config.model.name).trains or config.training.num_epochs:
        return
    if undefined := undefined_weights(config, backbone):
        parts = " and ".join(dict.fromkeys(name.partition(".")[0] for name in undefined))
        new = " (model.head=new)" if config.model.head == "new" else ""
        start = config.training.init_from
        lacks = f", which {start} does not have" if start else ""
        other = "weights that have it" if start else "training.init_from"
        raise BadInput(
            f"model {config.model.name} over backbone {backbone.name} would rank at random: "
            f"nothing is trained (training.num_epochs=0), and its {parts} would be drawn{new}"
            f"{lacks}. Train it, start from {other}, or name a backbone with a trained head and a "
            f"model that takes it (maxp){unread_head(backbone)}"
        )


def undefined_weights(config: TrialConfig, backbone: Backbone) -> tuple[str, ...]:
    """The names of the weights that would be drawn at random in a trial that trains nothing:
    neither the backbone nor `training.init_from` has them."""
    drawn = drawn_weights(config.model, backbone)
    start = config.training.init_from
    if not (start and drawn):
        return tuple(drawn)
    if start.startswith((STORED, SWEEP)):  # of the same model, trained by this sweep or another
        return ()
    chained = [folder / WEIGHTS for folder in cell_trials(start).values()]
    paths = [path for path in chained if path.is_file()] or [weights_file(start, config.seed)]
    saved = [saved_shapes(path) for path in paths]
    return tuple(n for n, shape in drawn.items() if any(own.get(n) != shape for own in saved))


@lru_cache(maxsize=16)
def drawn_weights(settings: Model, backbone: Backbone) -> dict[str, tuple[int, ...]]:
    """{name: shape} of the weights that differ between two seeds before any training."""
    kind = model_class(settings.name)
    assert trains(kind)
    ours = kind.__module__.startswith("rank_core.")
    if ours and uses_checkpoint_head(kind, backbone, settings.head):
        return {}  # every weight is the checkpoint's, which may be large
    config = replace(TrialConfig().override({"training.num_epochs": 0}), model=settings)
    first, second = (build_model(config, backbone, init_seed=seed).state_dict() for seed in (1, 2))
    return {n: tuple(w.shape) for n, w in first.items() if not torch.equal(w, second[n])}
