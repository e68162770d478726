"""Encoders and classifiers of the kinds without a line in `TYPES`, as transformers computes them.

A classifier is read whole: what its class does with token types, padding and the last token stays
its own, and the vector of a row is its logits, one for each label. Rows are padded where that
changes no vector, as a few rows show when the checkpoint is loaded; otherwise rows of one length
are computed together, or each row alone.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from rank_core.encoders.backbone_types import ABSENT, NO_TABLE, RowLayout
from rank_core.encoders.checkpoint import open_model
from rank_core.encoders.t5_rerankers import generated_answers
from rank_core.errors import BadInput

CLASSIFIER = transformers.AutoModelForSequenceClassification
PADDED, BY_LENGTH, ALONE = "padded", "by length", "alone"
"""The rows of a batch are padded; only rows of one length share a pass; each row has a pass."""
CHUNKED = ("mra", "reformer")
"""Kinds whose attention depends on the length of a batch beyond that of the rows looked at."""
SWITCHING = ("big_bird", "bigbird_pegasus")
"""Kinds whose attention a short batch changes for good: no two orders of batches give one score."""
SAMPLED = 16
"""Tokens of the rows that are looked at, at least."""
SAME = 1e-4
"""Of the largest element: rounding is far below, and an effect of padding far above."""
_LAYERS = re.compile("layerdrop|layer_drop|drop_path")


def loader_of(name: str, config: Any, *, whole: bool) -> Any:
    """The class of transformers that finds the class of a checkpoint. Raises `BadInput` where there
    is none."""
    encoders = transformers.AutoModelForTextEncoding, transformers.AutoModel
    answers = generated_answers(config)
    scoring = transformers.AutoModelForSeq2SeqLM if answers else CLASSIFIER
    for loader in (scoring,) if whole else encoders:
        if type(config) in loader._model_mapping:
            return loader
    what = "sequence classifier" if whole else "encoder"
    raise BadInput(f"backbone {name} is a {config.model_type}, of which transformers has no {what}")


def load_any(
    name: str, folder: Path, config: Any, dropout: float, *, whole: bool
) -> tuple[Any, list[str]]:
    """(model, missing weights): the whole classifier, or the encoder, in fp32, with the given
    dropout rate everywhere. `config` is changed."""
    for part in (config, config.get_text_config()):
        for key, value in vars(part).items():
            if "drop" in key and not _LAYERS.search(key) and type(value) in (int, float):
                setattr(part, key, dropout)
    config.use_cache = False
    loader = loader_of(name, config, whole=whole)
    attention = "sdpa" if _class_of(loader, config)._supports_sdpa else "eager"
    more = without_pooler(loader, config)
    return open_model(loader, folder, config, attn_implementation=attention, **more)


def _class_of(loader: Any, config: Any) -> Any:
    found = loader._model_mapping[type(config)]
    return found[0] if isinstance(found, tuple) else found


def without_pooler(loader: Any, config: Any) -> dict[str, bool]:
    """The argument by which an encoder is made without a pooler, which is unused here."""
    takes = inspect.signature(_class_of(loader, config).__init__).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def positions_of(config: Any, model: nn.Module) -> int:
    """The maximum number of tokens in a row, by the configuration and the tables of positions."""
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_seq_len")
    # A T5 may state the length that it was trained with, and has a bias for any distance.
    relative = getattr(text, "relative_attention_num_buckets", None) is not None
    limits = [getattr(text, n, None) for n in names if not (relative and n == "n_positions")]
    for name, part in model.named_modules():
        table = getattr(part, "weight", None)
        if name.rpartition(".")[2] in _TABLES and table is not None and table.dim() == 2:
            # With a padding token, positions start behind its number.
            padding = getattr(part, "padding_idx", None)
            limits.append(len(table) - (0 if padding is None else padding + 1))
    return min((int(limit) for limit in limits if limit and limit > 0), default=NO_TABLE)


_TABLES = ("position_embeddings", "embed_positions", "wpe", "positions_embed")


class TokenRows(NamedTuple):
    """What a model reads."""

    ids_CL: Tensor
    mask_CL: Tensor
    segments_CL: Tensor | None

    def of(self, rows: Sequence[int], length: int) -> "TokenRows":
        """Some rows, up to a length."""
        place_R = torch.tensor(rows, device=self.ids_CL.device)
        return TokenRows(*(None if part is None else part[place_R, :length] for part in self))  # type: ignore[arg-type]


class AsItIs:
    """The methods of a model of transformers that is read here as it is; `as_it_is` makes one."""

    packing: str  # PADDED, BY_LENGTH or ALONE
    whole: bool
    takes: frozenset[str]  # the names of its inputs

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        **_: Any,
    ) -> BaseModelOutput:
        """The vectors of rows padded at the end, with zeros at padding unless rows are padded; of
        a whole classifier one vector for each row (L = 1)."""
        mask_CL = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        rows = TokenRows(input_ids, mask_CL, token_type_ids)
        if self.packing == PADDED:
            layers = self.vectors(rows, output_hidden_states)
        else:
            layers = self.apart(rows, output_hidden_states)
        return BaseModelOutput(last_hidden_state=layers[-1], hidden_states=layers)

    def apart(self, rows: TokenRows, layers: bool) -> tuple[Tensor, ...]:
        """The vectors of rows that share no pass with longer ones."""
        num_rows, width = rows.ids_CL.shape
        order, parts = [], []
        for length, some in _passes(rows.mask_CL.sum(1).tolist(), alone=self.packing == ALONE):
            states = self.vectors(rows.of(some, length), layers)
            parts.append([_widened(x, 1 if self.whole else width) for x in states])
            order += some
        place_C = torch.tensor(order, device=rows.ids_CL.device).argsort()
        assert len(order) == num_rows
        return tuple(torch.cat(states)[place_C] for states in zip(*parts, strict=True))

    def vectors(self, rows: TokenRows, layers: bool) -> tuple[Tensor, ...]:
        """x_CLH of the last layer, or of embeddings and all `layers`; the logits (L = 1) of a whole
        classifier, and of the answers of one that generates them."""
        inputs = dict(zip(_INPUTS, rows, strict=True))
        answers = generated_answers(self.config) if self.whole else ()  # type: ignore[attr-defined]
        if answers:
            inputs["decoder_input_ids"] = self.first_step(len(rows.ids_CL))
        given = {name: x for name, x in inputs.items() if name in self.takes and x is not None}
        more = {"output_hidden_states": True} if layers else {}
        output = super().forward(**given, **more, return_dict=True)  # type: ignore[misc]
        if answers:
            return (output.logits[..., list(answers)],)
        if self.whole:
            return (output.logits[:, None],)
        return (*(output.hidden_states[:-1] if layers else ()), output.last_hidden_state)

    def first_step(self, num_rows: int) -> Tensor:
        """The token that a decoder starts with."""
        config = self.config  # type: ignore[attr-defined]
        start = config.decoder_start_token_id
        start = config.pad_token_id if start is None else start
        return torch.full((num_rows, 1), start, device=self.device)  # type: ignore[attr-defined]


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _passes(lengths: Sequence[int], *, alone: bool) -> Iterator[tuple[int, list[int]]]:
    """(length, rows) of every pass."""
    if alone:
        yield from ((length, [row]) for row, length in enumerate(lengths))
        return
    for length in sorted({*lengths}):
        yield length, [row for row, own in enumerate(lengths) if own == length]


def _widened(x_RLH: Tensor, width: int) -> Tensor:
    return nn.functional.pad(x_RLH, (0, 0, 0, width - x_RLH.shape[1]))


def as_it_is(
    name: str,
    model: Any,
    tokens: Sequence[int],
    layout: RowLayout,
    *,
    pad_id: int,
    segments: bool,
    whole: bool,
) -> Any:
    """A model of transformers that reads rows of `layout`, in the passes that they need, after a
    look at a few rows of `tokens`. Raises `BadInput` for one that needs more than a text, gives
    other vectors at every pass, or vectors of another size than its configuration says."""
    config = model.config.get_text_config()
    if getattr(config, "pad_token_id", None) is None and pad_id not in layout.suffix:
        model.config.pad_token_id = config.pad_token_id = pad_id
    takes = frozenset(inspect.signature(model.forward).parameters)
    own: Any = type(type(model).__name__, (AsItIs, type(model)), {})
    model.__class__ = own
    model.whole, model.packing, model.takes = whole, ALONE, takes
    rows = _sample(tokens, layout, pad_id, segments=segments)
    with torch.inference_mode():
        try:
            expected, again = _read(model, rows), _read(model, rows)
        except Exception as error:  # of any kind, of a model that wants another input
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadInput(
                f"backbone {name} is a {model.config.model_type}, which gives no vectors of texts "
                f"alone ({why})"
            ) from None
        if not whole and expected.shape[1] != rows.ids_CL.shape[1]:
            raise BadInput(
                f"backbone {name} is a {model.config.model_type}, which has no vector per token"
            )
        if not expected.isfinite().all():
            raise BadInput(
                f"backbone {name} is a {model.config.model_type}, whose vectors are not finite "
                "(NaN, infinite) in fp32"
            )
        if not whole and expected.shape[-1] != (size := vector_size(model.config)):
            raise BadInput(
                f"backbone {name} is a {model.config.model_type}, whose vectors have "
                f"{expected.shape[-1]} elements where its configuration says {size}"
            )
        if not _same(expected, again):
            raise BadInput(
                f"backbone {name} is a {model.config.model_type}, which gives other vectors each "
                "time for the same text"
            )
        tried = (BY_LENGTH,) if model.config.model_type in CHUNKED else (PADDED, BY_LENGTH)
        model.packing = next((p for p in tried if _agrees(model, p, rows)), ALONE)
    return model


def _sample(tokens: Sequence[int], layout: RowLayout, pad_id: int, *, segments: bool) -> TokenRows:
    """Three rows, two of one length."""
    query = list(tokens[:3])
    texts = [tokens[3:12], tokens[5:9], tokens[6:10]]
    before = [*layout.prefix, *query, *layout.middle]
    first = [[t for t in before if t != ABSENT]] * len(texts)
    second = [[t for t in [*text, *layout.suffix] if t != ABSENT] for text in texts]
    width = max(len(a) + len(b) for a, b in zip(first, second, strict=True))
    ids, mask, kinds = [], [], []
    for a, b in zip(first, second, strict=True):
        rest = width - len(a) - len(b)
        ids.append([*a, *b, *[pad_id] * rest])
        mask.append([1] * (width - rest) + [0] * rest)
        kinds.append([0] * len(a) + [1] * len(b) + [0] * rest)
    segments_CL = torch.tensor(kinds) if segments else None
    return TokenRows(torch.tensor(ids), torch.tensor(mask), segments_CL)


def _read(model: Any, rows: TokenRows) -> Tensor:
    x_CLH: Tensor = model(*rows).last_hidden_state
    return x_CLH if model.whole else x_CLH * rows.mask_CL[:, :, None]


def _agrees(model: Any, packing: str, rows: TokenRows) -> bool:
    """True if a model gives the same vectors in passes of that kind as for each row alone."""
    expected, model.packing = _read(model, rows), packing
    try:
        return _same(expected, _read(model, rows))
    except Exception:  # of any kind: without a token for padding, of other lengths than blocks
        return False
    finally:
        model.packing = ALONE


def _same(expected: Tensor, found: Tensor) -> bool:
    size = max(1.0, float(expected.abs().max()))
    return expected.shape == found.shape and float((expected - found).abs().max()) <= SAME * size


class LabelScore(nn.Module):
    """score_X1 of a whole classifier's logits x_XK: of the label that says relevant, minus the
    other of two."""

    def __init__(self, true: int, false: int | None) -> None:
        super().__init__()
        self.true, self.false = true, false

    def forward(self, x_XK: Tensor) -> Tensor:
        """One score per row."""
        score_X1 = x_XK[..., self.true : self.true + 1]
        return score_X1 if self.false is None else score_X1 - x_XK[..., self.false : self.false + 1]


def is_whole(encoder: nn.Module) -> bool:
    """True for a classifier that is read whole."""
    return isinstance(encoder, AsItIs) and encoder.whole


def head_names(encoder: nn.Module) -> frozenset[str]:
    """The names of a whole classifier's parameters that are not its encoder's."""
    if not is_whole(encoder):
        return frozenset()
    own = {id(p) for p in encoder.base_model.parameters()}  # type: ignore[union-attr]
    return frozenset(name for name, p in encoder.named_parameters() if id(p) not in own)


def vector_size(config: Any) -> int:
    """The size of an encoder's vectors."""
    return int(getattr(text_config(config), "hidden_size", 0))


def text_config(config: Any) -> Any:
    """The part of a configuration that is of texts; all of it where there are no parts."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config
