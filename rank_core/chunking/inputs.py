"""Inputs shared by the trials of a sweep (collection, backbone, tokens), and the name of a cell."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from rank_core.cache import loaded_once
from rank_core.checkpoints.weights import SWEEP, cell_trials, stored_cell, weights_file
from rank_core.chunking.token_store import TokenStore, open_token_store
from rank_core.data.folds import kept_together
from rank_core.data.load import load_collection
from rank_core.data.named import NAMED
from rank_core.data.named_files import named_digest
from rank_core.data.transforms.expression import base_of
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.encoders.embedder import library_backbone, position_steps
from rank_core.errors import BadInput
from rank_core.files import FileState, file_sha256, file_state, is_young
from rank_core.own_code import is_reference, meaning_hash
from rank_core.records import Collection
from rank_core.settings.config import TrialConfig


@dataclass(frozen=True, eq=False)
class Inputs:
    """A collection, a backbone and the collection's tokens, shared by all trials in a process."""

    collection: Collection
    backbone: Backbone
    tokens: TokenStore

    def query_tokens(self, split: str) -> TokenStore:
        """{query_id: token ids of the whole query} of a split."""
        return _query_tokens(self, split)


def load_inputs(collection_name: str, backbone_name: str) -> Inputs:
    """Collection, backbone and token store, loaded once per process, and again after their files
    have changed."""
    collection = load_collection(collection_name)
    try:
        backbone = resolve_backbone(backbone_name)
    except BadInput as problem:
        backbone = library_backbone(backbone_name, problem)
    return _loaded(collection_name, collection.content_hash, backbone)


@loaded_once(maxsize=8)
def _loaded(collection_name: str, content_hash: str, backbone: Backbone) -> Inputs:
    """`content_hash` stands for the content of the collection."""
    return _inputs(load_collection(collection_name), backbone)


@loaded_once(maxsize=64)
def _query_tokens(inputs: Inputs, split: str) -> TokenStore:
    collection = inputs.collection
    queries = collection.splits[split].queries
    return open_token_store(
        queries,
        content_hash=getattr(queries, "content_hash", f"{collection.content_hash} {split}"),
        tokenizer=load_tokenizer(inputs.backbone.folder),
        before=inputs.backbone.layout.before_query,
        what=f"{split} queries",
    )


def inputs_of(collection: Collection, base: Inputs) -> Inputs:
    """The inputs of a collection derived from that of `base`."""
    if collection.documents is base.collection.documents:
        return replace(base, collection=collection)
    return _inputs(collection, base.backbone)


def read_as(inputs: Inputs, backbone: Backbone) -> Inputs:
    """The inputs with texts tokenised as the layout of `backbone` says."""
    if backbone == inputs.backbone:
        return inputs
    return _inputs(inputs.collection, backbone)


def _inputs(collection: Collection, backbone: Backbone) -> Inputs:
    # Collections over the same documents (folds, topic fields) share their tokens.
    documents_hash = getattr(collection.documents, "content_hash", collection.content_hash)
    tokens = open_token_store(
        collection.documents,
        content_hash=documents_hash,
        tokenizer=load_tokenizer(backbone.folder),
        before=backbone.layout.before_text,
    )
    return Inputs(collection, backbone, tokens)


def cell_of(config: TrialConfig, inputs: Inputs) -> str:
    """The cell's name: model, window, stride and the fingerprint of all else, including the source
    of a user's model, loss and measures."""
    # Contents and not paths: the same files elsewhere are the same cell, and an edited file is
    # another one.
    fingerprint = config.fingerprint(
        collection_hash=inputs.collection.content_hash,
        backbone_hash=inputs.backbone.content_hash,
        contents=contents_of(config) | folds_of(config, inputs.collection),
    )
    chunking = config.chunking
    name = re.sub(r"[.:]", "-", config.model.name)
    return f"{name}-w{chunking.window}-s{chunking.stride}-{fingerprint}"


def folds_of(config: TrialConfig, collection: Collection) -> dict[str, str]:
    """The folds as a content, where queries of one text are kept together: the cells of other
    collections have the names that they had before."""
    pool = base_of(config.collection).partition("/")[0]
    published = pool in NAMED and NAMED[pool].is_pool
    if not config.evaluation.folds or config.evaluation.folds_file or published:
        return {}
    splits = collection.splits.values()
    queries = {query_id: text for own in splits for query_id, text in own.queries.items()}
    groups = {query_id: group for own in splits for query_id, group in own.groups.items()}
    apart = all(
        unit == groups.get(query_id, query_id)
        for query_id, unit in kept_together(queries, groups).items()
    )
    return {} if apart else {"evaluation.folds": f"{config.evaluation.folds}, texts together"}


def contents_of(config: TrialConfig) -> dict[str, str]:
    """{setting: hash of what it names} of files, further encoders and a user's own code."""
    settings = config.settings()
    sources = {
        setting: f"{settings[setting]} {'+'.join(map(meaning_hash, names))}"
        for setting, names in own_names(config).items()
    }
    return content_hashes(config) | sources


def own_names(config: TrialConfig) -> dict[str, tuple[str, ...]]:
    """{setting: its names `module:name` of a user's code}: model, loss, measures."""
    names = {
        "model.name": (config.model.name,),
        "training.loss": (config.training.loss,),
        "evaluation.measures": config.evaluation.measures,
    }
    own = {setting: tuple(filter(is_reference, given)) for setting, given in names.items()}
    return {setting: given for setting, given in own.items() if given}


FURTHER_ENCODERS = ("aggregator", "interaction", "selector_backbone")
"""Settings of `Model` that name encoders other than the backbone."""


def content_hashes(config: TrialConfig) -> dict[str, str]:
    """{setting: content hash} of everything else that a trial reads, so that a cell's name depends
    on contents and not on paths. Raises `BadInput` for a missing file."""
    training, folds_file = config.training, config.evaluation.folds_file
    # The settings of a whole sweep may name another one, whose cells take its place.
    start = "" if training.init_from.startswith(SWEEP) else training.init_from
    chained = stored_cell(start) or (Path(start).name if cell_trials(start) else "")
    named = {
        "training.init_from": [weights_file(start, seed=0)] if start and not chained else [],
        "training.teacher": [Path(training.teacher)] if training.teacher else [],
        "training.negatives_from": [Path(path) for path in training.negatives_from],
        "evaluation.folds_file": [Path(folds_file)] if folds_file else [],
    }
    files = {
        setting: "+".join(file_hash(setting, path) for path in paths)
        for setting, paths in named.items()
        if paths
    }
    if chained:  # that name covers all that affects the weights
        files["training.init_from"] = chained
    encoders = {name: getattr(config.model, name) for name in FURTHER_ENCODERS}
    return (
        files
        | _positions(config)
        | _rows(config)
        | {
            f"model.{name}": resolve_backbone(encoder).content_hash
            for name, encoder in encoders.items()
            if encoder
        }
    )


def _positions(config: TrialConfig) -> dict[str, str]:
    """How an embedding model's positions are read where that has changed: trials from before have
    other names."""
    name = config.model.name
    if name not in ("bi-encoder", "dense", "dense-cut"):
        return {}
    step, once = position_steps(config.model.backbone)
    changed = step != (once if name == "bi-encoder" else 1)
    return {"model.positions": f"multiples of {step}"} if changed else {}


def _rows(config: TrialConfig) -> dict[str, str]:
    """That a bi-encoder over a reranker reads its texts without the tokens around pairs: trials
    from before have other names."""
    if config.model.name != "bi-encoder":
        return {}
    changed = resolve_backbone(config.model.backbone).own_layout is not None
    return {"model.rows": "of single texts"} if changed else {}


def file_hash(setting: str, path: Path) -> str:
    """The hash of the content of a file that a setting names. Raises `BadInput` for a missing
    one."""
    if (digest := named_digest(path, "scoreddocs")) is not None:
        return digest
    if not path.is_file():
        raise BadInput(f"{setting} must name a file, but there is none at {path}")
    state = file_state(path)  # a file that changes within a process is read again
    return file_sha256(path)[:16] if is_young(state) else _hash_of(path, state)


@lru_cache(maxsize=64)
def _hash_of(path: Path, state: FileState) -> str:
    """The hash of a file, read once per process and again after a change."""
    return file_sha256(path)[:16]
