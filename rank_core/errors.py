"""Exceptions with a message for the user."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_LONG_WORD = re.compile(r"\S{300,}")  # longer than most paths
_SHOWN = 80


class BadInput(ValueError):
    """Input that breaks a rule: the message states the rule, the value and the known choices. Words
    longer than a path are shortened.

    Command lines print the message alone and exit with 2; nothing has been launched by then.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_LONG_WORD.sub(lambda word: _shortened(word[0]), message))


class Diverged(RuntimeError):
    """A loss or score is NaN or infinite; the trial is recorded, never dropped."""


OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What PyTorch's allocator, the CUDA runtime, NCCL, cuBLAS and cuDNN say of a GPU without room."""


class OutOfMemory(RuntimeError):
    """The smallest possible batch does not fit the GPU; another attempt would fail as well."""


def shown(value: object) -> str:
    """What was found, on one line however long or strange it is."""
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}...{text[-half:]}"


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """The error for a name that is in no registry, with the nearest known name first."""
    known = list(known)
    choices = sorted(known)
    leaves = {choice.rpartition(".")[2]: choice for choice in reversed(known)}
    meant = leaves | {choice: choice for choice in choices}  # window: chunking.window, not chat's
    near = get_close_matches(name[:_SHOWN], meant, n=1)
    hint = f"; did you mean {meant[near[0]]}?" if near else ""
    return BadInput(f"unknown {kind} {shown(name)}{hint}; known: {', '.join(choices)}")
