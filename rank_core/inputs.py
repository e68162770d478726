"""What the trials of a sweep share: collection, backbone, tokens; and the name of a cell."""

from dataclasses import dataclass
from functools import lru_cache

from rank_core.backbones import Backbone, load_tokenizer, resolve_backbone
from rank_core.config import TrialConfig
from rank_core.data import Collection, load_collection
from rank_core.token_store import TokenStore, open_token_store


@dataclass(frozen=True, eq=False)
class Inputs:
    """What all trials of a sweep share in one process."""

    collection: Collection
    backbone: Backbone
    tokens: TokenStore


@lru_cache(maxsize=2)
def load_inputs(collection_name: str, backbone_name: str) -> Inputs:
    """Collection, backbone and token store; read once per process."""
    collection = load_collection(collection_name)
    backbone = resolve_backbone(backbone_name)
    tokens = open_token_store(
        collection.documents,
        content_hash=collection.content_hash,
        tokenizer=load_tokenizer(backbone.folder),
    )
    return Inputs(collection, backbone, tokens)


def cell_of(config: TrialConfig, inputs: Inputs) -> str:
    """The cell's name: model, window, stride and the fingerprint of everything else."""
    fingerprint = config.fingerprint(
        collection_hash=inputs.collection.content_hash,
        backbone_hash=inputs.backbone.content_hash,
    )
    chunking = config.chunking
    return f"{config.model.name}-w{chunking.window}-s{chunking.stride}-{fingerprint}"
