"""Pretrained encoders: where their files are, what they accept, how they are loaded.

A backbone is `tiny`, a folder with a Hugging Face checkpoint, or a Hugging Face id.
"""

import copy
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from rank_core.errors import BadInput
from rank_core.tiny import tiny_folder

# These number positions from pad_token_id + 1, so their tables hold fewer usable positions.
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "longformer")
# These build a pooler that ranking does not use unless they are told not to.
OPTIONAL_POOLER = (
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "albert",
    "longformer",
    "big_bird",
)
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
)
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


@dataclass(frozen=True)
class Backbone:
    """An encoder's files and the facts chunking needs."""

    name: str
    folder: Path
    content_hash: str
    max_input_tokens: int  # with query and special tokens
    num_segments: int  # how many values token_type_ids may take; 0: the encoder has none
    cls_id: int
    sep_id: int
    pad_id: int

    def max_window(self, max_query_tokens: int) -> int:
        """The longest chunk that fits beside a full query: [CLS] query [SEP] chunk [SEP]."""
        return self.max_input_tokens - max_query_tokens - 3


@lru_cache(maxsize=16)
def resolve_backbone(name: str) -> Backbone:
    """The backbone called `name`; `tiny` is trained on first use, ids come from the hub."""
    folder = _folder(name)
    config = _config(name, folder)
    limit: int = getattr(config, "max_position_embeddings", 512)
    if config.model_type in OFFSET_POSITIONS:
        limit -= config.pad_token_id + 1
    tokenizer = load_tokenizer(folder)
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BadInput(f"a backbone must mark inputs with [CLS] and [SEP] tokens; {name} has none")
    return Backbone(
        name=name,
        folder=folder,
        content_hash=_content_hash(folder),
        max_input_tokens=limit,
        num_segments=getattr(config, "type_vocab_size", 0) or 0,
        cls_id=tokenizer.cls_token_id,
        sep_id=tokenizer.sep_token_id,
        pad_id=tokenizer.pad_token_id or 0,
    )


@lru_cache(maxsize=4)
def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a backbone's folder."""
    # transformers makes up a tokenizer of five tokens where there are no files.
    if not any((folder / name).exists() for name in VOCABULARY_FILES):
        raise BadInput(
            f"a backbone folder must hold its tokenizer, one of {', '.join(VOCABULARY_FILES)}; "
            f"{folder} has none"
        )
    return AutoTokenizer.from_pretrained(folder)


def load_encoder(backbone: Backbone, dropout: float) -> nn.Module:
    """The pretrained encoder in fp32 with the given dropout everywhere, without unused pooler."""
    # A fresh copy: transformers writes the attention implementation into the object it is given.
    config = copy.deepcopy(_config(backbone.name, backbone.folder))
    for attribute in DROPOUTS:
        if hasattr(config, attribute):
            setattr(config, attribute, dropout)
    extra = {"add_pooling_layer": False} if config.model_type in OPTIONAL_POOLER else {}
    # Hundreds of trials would each draw a bar for a load of milliseconds.
    transformers.utils.logging.disable_progress_bar()
    model: nn.Module = AutoModel.from_pretrained(
        backbone.folder, config=config, dtype=torch.float32, **extra
    )
    return model


@lru_cache(maxsize=16)
def _config(name: str, folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"a backbone folder must hold a Hugging Face checkpoint (config.json, weights, "
            f"tokenizer); {name}: {str(error).splitlines()[0]}"
        ) from None


def _folder(name: str) -> Path:
    if name == "tiny":
        return tiny_folder()
    if Path(name).is_dir():
        return Path(name).resolve()
    if name.startswith((".", "/", "~")):
        raise BadInput(f"a backbone is `tiny`, a folder or a Hugging Face id; no folder {name}")
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    cached = _cached_snapshot(name)
    if cached is not None:
        return cached
    try:
        # A hub that accepts connections and never answers would hold the download for minutes.
        HfApi().repo_info(name, timeout=HUB_TIMEOUT)
        return Path(snapshot_download(name, allow_patterns=list(CHECKPOINT_FILES)))
    except Exception as error:  # whatever the hub client raises, the remedy is the same
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"backbone {name!r} is no folder, is not in the Hugging Face cache, and could not be "
            f"downloaded ({reason}). Remedy: on a machine with network run `hf download {name} "
            "--local-dir DIR`, copy DIR here and pass --backbone DIR; or use --backbone tiny"
        ) from None


def _cached_snapshot(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    patterns = list(CHECKPOINT_FILES)
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
    except HFValidationError as error:
        raise BadInput(f"a backbone is `tiny`, a folder or a Hugging Face id: {error}") from None
    except OSError:
        return None


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for pattern in CHECKPOINT_FILES for path in folder.glob(pattern)):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
