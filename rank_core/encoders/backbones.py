"""Pretrained encoders: their files, properties and loading. A backbone is `tiny`, a folder with a
Hugging Face checkpoint, or a Hugging Face id."""

import contextlib
import copy
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoTokenizer

from rank_core.encoders import tiny
from rank_core.encoders.alibi import AlibiConfig, load_alibi
from rank_core.encoders.attention import use_own_attention
from rank_core.encoders.backbone_types import (
    Backbone,
    backbone_type,
    kind_of,
    marks_of,
    max_input_tokens,
)
from rank_core.errors import BadInput

VOCABULARY_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
HUB_TIMEOUT = 5  # seconds
CHECKPOINT_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
PICKLED = "pytorch_model*.bin"


@lru_cache(maxsize=16)
def resolve_backbone(name: str) -> Backbone:
    """The backbone called `name`. An embedded one is built on first use; a Hugging Face id is
    downloaded. Raises `BadInput` if it cannot be had or cannot be a backbone."""
    folder = _folder(name)
    config = _config(name, folder)
    kind = backbone_type(name, config)
    marks = marks_of(name, kind, load_tokenizer(folder))
    if kind.positions == "after-padding" and marks.pad_id != config.pad_token_id:
        raise BadInput(
            f"backbone {name}: config and tokenizer disagree about the padding token "
            f"({config.pad_token_id} and {marks.pad_id}), after which a {config.model_type} "
            "numbers its positions"
        )
    return Backbone(
        name=name,
        kind=kind_of(config),
        folder=folder,
        content_hash=_content_hash(folder),
        max_input_tokens=max_input_tokens(kind, config),
        num_segments=(getattr(config, "type_vocab_size", 0) or 0) if kind.segments else 0,
        cls_id=marks.cls_id,
        sep_id=marks.sep_id,
        pad_id=marks.pad_id,
        pooling=kind.pooling,
    )


@lru_cache(maxsize=4)
def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a backbone's folder."""
    # Without files, transformers would make up a tokenizer of five tokens.
    if not any((folder / name).exists() for name in VOCABULARY_FILES):
        raise BadInput(
            f"{folder} has no tokenizer; a backbone folder needs one of "
            f"{', '.join(VOCABULARY_FILES)}"
        )
    return AutoTokenizer.from_pretrained(folder)


def load_encoder(backbone: Backbone, dropout: float) -> nn.Module:
    """The pretrained encoder in fp32, with the given dropout rate everywhere and no pooler. Raises
    `BadInput` for missing weights."""
    # A copy, because transformers writes the attention implementation into it.
    config = copy.deepcopy(_config(backbone.name, backbone.folder))
    kind = backbone_type(backbone.name, config)
    if kind.loader == "AlibiEncoder":
        return load_alibi(backbone.folder, AlibiConfig.of(kind_of(config), config), dropout)
    for attribute in kind.dropouts:
        setattr(config, attribute, dropout)
    config.use_cache = False  # nothing is generated
    extra = {"add_pooling_layer": False} if kind.pooler else {}
    loader = _loader(kind.loader)
    attention = "sdpa" if kind.attention == "plain" else kind.attention
    with _quietly():
        model, report = loader.from_pretrained(
            backbone.folder,
            config=config,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
            **extra,
        )
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise BadInput(
            f"the checkpoint of {backbone.name} lacks {len(missing)} weights of its encoder, the "
            f"first is {missing[0]}"
        )
    if kind.loader == "QueryGlobalLongformer":
        model.sep_id = backbone.sep_id
    for name in kind.fixed:
        model.get_parameter(name).requires_grad_(False)
    use_own_attention(model, plain=kind.attention == "plain")
    return model


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without transformers' progress bars and its tables of unused heads."""
    logging = transformers.utils.logging
    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _loader(name: str) -> Any:
    """The class that loads a kind of checkpoint; rare ones are imported on use."""
    if name == "RowwiseBigBird":
        from rank_core.encoders.big_bird import RowwiseBigBird

        return RowwiseBigBird
    if name == "QueryGlobalLongformer":
        from rank_core.encoders.longformer import QueryGlobalLongformer

        return QueryGlobalLongformer
    return getattr(transformers, name)


@lru_cache(maxsize=16)
def _config(name: str, folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"backbone {name} is no Hugging Face checkpoint (config.json, weights, tokenizer): "
            f"{str(error).splitlines()[0]}"
        ) from None


def _folder(name: str) -> Path:
    if name in tiny.SHIPPED:
        return tiny.SHIPPED[name]
    if name in tiny.NAMES:
        return tiny.tiny_folder(name)
    if Path(name).is_dir():
        return Path(name).resolve()
    if name.startswith((".", "/", "~")):
        raise BadInput(
            f"there is no folder {name}; a backbone is `tiny`, a folder or a Hugging Face id"
        )
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    cached = _cached_snapshot(name)
    if cached is not None:
        return cached
    try:
        # A hub that accepts connections without answering would block the download for minutes.
        info = HfApi().model_info(name, timeout=HUB_TIMEOUT)
        files = [file.rfilename for file in info.siblings or ()]
        # Old repositories have only pickled weights, which transformers loads as data.
        weights = () if any(f.endswith(".safetensors") for f in files) else (PICKLED,)
        return Path(snapshot_download(name, allow_patterns=[*CHECKPOINT_FILES, *weights]))
    except Exception as error:  # whatever it is, the remedy is the same
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"backbone {name!r} is not a folder, is not in the Hugging Face cache, and could not "
            f"be downloaded ({reason}). Remedy: on a machine with network run `hf download {name} "
            "--local-dir DIR`, copy DIR here and pass --backbone DIR; or use --backbone tiny"
        ) from None


def _cached_snapshot(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    patterns = [*CHECKPOINT_FILES, PICKLED]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
    except HFValidationError as error:
        raise BadInput(f"a backbone is `tiny`, a folder or a Hugging Face id: {error}") from None
    except OSError:
        return None


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    safe = any(folder.glob("*.safetensors"))
    patterns = CHECKPOINT_FILES if safe else (*CHECKPOINT_FILES, PICKLED)
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
