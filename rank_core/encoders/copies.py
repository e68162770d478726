"""Copies of weights in the form or the type of a fast path, made once and read many times.

They belong to the call that opens `kept`, not to the model: threads may score with one model, each
under its own copies, or under copies that they share and that nobody changes.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from torch import nn

Copies = Mapping[nn.Module, Any]
"""{encoder, or its stack of layers: copies of its weights}."""

_kept: ContextVar[Copies] = ContextVar("copies of weights", default=MappingProxyType({}))


@contextlib.contextmanager
def kept(copies: Copies) -> Iterator[None]:
    """Lets this thread read `copies` while the context is open, in which the weights must not
    change; an outer context's are read too."""
    before = _kept.set({**_kept.get(), **copies})
    try:
        yield
    finally:
        _kept.reset(before)


def copies_of(module: nn.Module) -> Any:
    """What this thread keeps of a module; None if nothing."""
    return _kept.get().get(module)
