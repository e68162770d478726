"""Models that sentence-transformers (5.4 and later) saves as a chain of modules: a Transformer, the
Pooling of a row's vectors into one, and Dense, LayerNorm, Dropout and Normalize behind it, as
`st_folder` reads them.

All but rare poolings are computed here, and those by sentence-transformers' own module. A chain
that writes a score and cannot be read is refused by the name of its module: without it, the rest
would rank at random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from rank_core.encoders.backbone_types import ABSENT, POOLINGS, RowLayout
from rank_core.encoders.checkpoint import (
    CONFIG,
    MODULES,
    WEIGHTS_FILE,
    check_finite,
    check_whole,
    damaged,
    read_json,
)
from rank_core.encoders.saved_model import (
    LIBRARY,
    MODEL_SETTINGS,
    TRANSFORMER_SETTINGS,
    Module,
    SavedModel,
    Step,
)
from rank_core.encoders.st_folder import ACTIVATIONS, SCORES, VECTOR, Unread, module_settings
from rank_core.errors import BadInput, not_installed
from rank_core.files import write_json


def ranking_chain(saved: SavedModel, *, causal: bool) -> SavedModel | None:
    """A reranker whose modules are its head, with the reason where they are not computed here; None
    where they write no score, or where transformers' classifier or the output matrix of a decoder
    (`causal`) is all of its head."""
    kinds = [module.kind for module in saved.modules]
    rows = causal and kinds in (["Transformer", "LogitScore"], ["LogitScore"])
    if not saved.scores or kinds in ([], ["Transformer"]) or rows:
        return None
    problem = saved.damage or saved.problem(has_prompt=bool(saved.query_prefix))
    if not problem and SCORES not in {step.gives for step in saved.steps}:
        problem = f"none of its modules ({saved.described}) writes {SCORES}"
    return replace(saved, unread=problem, pooling="", steps=()) if problem else saved


class Dense(nn.Module):
    """activation(W x + b) of vectors x, with a residual connection if there is one."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        sizes = settings["in_features"], settings["out_features"]
        self.linear = nn.Linear(*sizes, bias=settings["bias"])
        self.activation = ACTIVATIONS[settings["activation_function"]]()
        self.adds, same = settings["use_residual"], sizes[0] == sizes[1]
        self.residual = nn.Linear(*sizes, bias=False) if self.adds and not same else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        out = self.activation(self.linear(x))
        return out + self.residual(x) if self.adds else out


class LayerNorm(nn.Module):
    """A layer norm, by the name that its weights have."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings["dimension"])

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        return self.norm(x)


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        return normalize(x, dim=-1)


class ModuleStack(nn.Module):
    """The modules behind a Pooling: from row vectors x_XH to what `gives` names, vectors or
    scores."""

    def __init__(
        self, folder: Path, steps: Sequence[Step], *, gives: str = VECTOR, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.steps, self.gives = steps, gives
        self.layers = nn.ModuleList(module_layer(folder, step, dropout) for step in steps)

    def forward(self, x_XH: Tensor) -> Tensor:
        """One vector, or one row of scores, per vector."""
        found = {VECTOR: x_XH}
        for step, layer in zip(self.steps, self.layers, strict=True):
            found[step.gives] = layer(found[step.takes])
        return found[self.gives]


class ChainHead(ModuleStack):
    """score_X1 of row vectors x_XH, by the modules behind a chain's Pooling. Two scores are one,
    the second minus the first."""

    def __init__(self, chain: SavedModel, dropout: float) -> None:
        super().__init__(chain.folder, chain.steps, gives=SCORES, dropout=dropout)
        self.chain = chain

    def forward(self, x_XH: Tensor) -> Tensor:
        """One score per vector."""
        score = super().forward(x_XH)
        return score if score.shape[-1] == 1 else score[..., 1:] - score[..., :1]


def module_layer(folder: Path, step: Step, dropout: float = 0.0) -> nn.Module:
    """A module with its weights, in fp32. Raises `BadInput` where they are missing or damaged."""
    settings = module_settings(folder, Module(step.kind, step.path))
    if step.kind == "Dropout":
        return nn.Dropout(dropout)
    if step.kind == "Normalize":
        return Normalize()
    layer = (Dense if step.kind == "Dense" else LayerNorm)(settings)
    path = folder / step.path / WEIGHTS_FILE
    if not path.exists():
        path = folder / step.path / "pytorch_model.bin"
    if not path.is_file():
        raise BadInput(
            f"{path.with_name(WEIGHTS_FILE)} is missing: it has the weights of a {step.kind}"
        )
    check_whole(path)
    check_finite(path)
    try:
        if path.name == WEIGHTS_FILE:
            weights = load_file(path)
        else:
            weights = torch.load(path, map_location="cpu", weights_only=True)
        layer.load_state_dict(weights)
    except Exception as error:  # of any kind, from a damaged pickle
        reason = (str(error).strip() or type(error).__name__).replace("\n", " ")
        raise damaged(path, f"does not hold the weights of a {step.kind} ({reason})") from None
    return layer.float()


def load_chain_head(chain: SavedModel, hidden_size: int, dropout: float) -> ChainHead:
    """The head of a chain over an encoder of `hidden_size`, in fp32. Raises `BadInput` for weights
    of other sizes, and for more than two scores."""
    head = ChainHead(chain, dropout)
    size = hidden_size * len(chain.pooling.split("+"))
    try:
        with torch.inference_mode():
            scores = head.eval()(torch.zeros(1, size)).shape[-1]
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise damaged(
            chain.folder / MODULES, f"names modules that do not fit each other ({reason})"
        ) from None
    if scores != 1:
        raise damaged(
            chain.folder / MODULES, f"gives {scores + 1} scores; a ranking head has one, or two"
        )
    return head.train()


def save_modules(source: SavedModel, folder: Path, head: ChainHead | None = None) -> None:
    """Writes the modules of `source`, with the weights of a trained head, beside an encoder and its
    tokenizer in `folder`, as sentence-transformers reads them; nothing without modules."""
    if not source.is_stated:
        return
    places = [{"path": "" if m.kind == "Transformer" else m.path} for m in source.modules]
    stated = zip(read_json(source.folder / MODULES, list), places, strict=True)
    write_json(folder / MODULES, [old | place for old, place in stated])
    copied = [(source.folder, MODEL_SETTINGS, folder)]
    copied += [(source.encoder, TRANSFORMER_SETTINGS, folder)]
    behind = [m.path for m in source.modules if m.path and m.kind != "Transformer"]
    copied += [(source.folder / path, CONFIG, folder / path) for path in behind]
    for place, name, to in copied:
        to.mkdir(parents=True, exist_ok=True)
        if (place / name).exists() and not (to / name).exists():
            write_json(to / name, read_json(place / name, dict))
    for step, layer in zip(head.chain.steps, head.layers, strict=True) if head else ():
        if state := {n: w.contiguous() for n, w in layer.state_dict().items()}:
            save_file(state, folder / step.path / WEIGHTS_FILE)


def require_library(pooling: str) -> None:
    """Raises `BadInput` for a pooling of sentence-transformers where that is not installed."""
    if pooling not in POOLINGS and find_spec(LIBRARY) is None:
        raise not_installed(
            f"sentence-transformers, which computes the pooling {pooling},", "serve"
        )


def marks_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that a tokenizer writes before and behind a single text."""
    row = tokenizer("a")
    ids, places = row["input_ids"], row.sequence_ids(0)
    first, last = places.index(0), len(places) - places[::-1].index(0)
    return tuple(ids[:first]), tuple(ids[last:])


def pair_layout(tokenizer: Any, num_segments: int) -> RowLayout:
    """The tokens that a tokenizer writes around the two texts of a pair, none where it writes none.
    Raises `Unread` where a row here cannot have them."""
    row = tokenizer("a", "a")
    ids, places = row["input_ids"], row.sequence_ids(0)
    if 0 not in places or 1 not in places:
        raise Unread("its tokenizer writes no pairs")
    query, text = places.index(0), places.index(1)
    ends = [len(places) - places[::-1].index(part) for part in (0, 1)]
    parts = (tuple(ids[:query]), tuple(ids[ends[0] : text]), tuple(ids[ends[1] :]))
    expected = [0] * text + [1] * (len(ids) - text)
    if num_segments > 1 and row.get("token_type_ids") != expected:
        raise Unread("its tokenizer does not mark the text as the second segment (token_type_ids)")
    prefix, middle, suffix = (part or (ABSENT,) for part in parts)
    return RowLayout(prefix, middle, suffix)
