"""Index terms by a tokenizer of subwords, such as a multilingual model's."""

import functools
import hashlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rank_core.bounds import check_growth
from rank_core.errors import BadInput, not_installed, shown
from rank_core.parsing import parsed_json

FILE = "tokenizer.json"


def subword_terms(name: str) -> Callable[[str], list[str]]:
    """A function from a white-space token to its subwords, in lower case. Special tokens are not
    added."""
    tokenizer = _opened(tokenizer_file(name))
    return lambda piece: list(tokenizer.encode(piece.lower(), add_special_tokens=False).tokens)


def content_hash(name: str) -> str:
    """16 hex digits over the tokenizer's file."""
    return hashlib.sha256(tokenizer_file(name).read_bytes()).hexdigest()[:16]


def tokenizer_file(name: str) -> Path:
    """The tokenizer.json of a folder, of that file itself, or of a Hugging Face id, which is
    downloaded once. Raises `BadInput` where there is none."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        if (path / FILE).is_file():
            return path / FILE
        raise BadInput(f"tokenizer {shown(name)}: the folder has no {FILE}")
    if os.path.isabs(path) or name.startswith(".") or name.count("/") > 1:
        raise BadInput(f"tokenizer {shown(name)} does not exist; name a folder with {FILE}")
    return _downloaded(name)


@functools.cache
def _downloaded(name: str) -> Path:
    _require("huggingface_hub")
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, FILE))
    except Exception as error:  # of the network, the disk or the hub
        reason = " ".join(str(error).split())
        raise BadInput(
            f"tokenizer {shown(name)} is neither a folder with {FILE} nor one that could be "
            f"downloaded from Hugging Face: {type(error).__name__} {shown(reason)}"
        ) from error


def _opened(path: Path) -> Any:
    _require("tokenizers")
    from tokenizers import Tokenizer

    try:
        content = parsed_json(path.read_bytes())
        check_growth(path, content if isinstance(content, dict) else {})
        tokenizer: Any = Tokenizer.from_file(str(path))
    except BadInput:
        raise
    except Exception as error:  # tokenizers raises nothing narrower
        raise BadInput(f"{path} is not a tokenizer: {shown(str(error))}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise not_installed(f"{package}, which subword terms need,", "serve")
