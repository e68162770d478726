"""Every kind of encoder that can be a backbone, and what each needs: one literal table.

A kind is the `model_type` of a checkpoint's config.json, but for the encoders with attention biases
instead of positions (ALiBi), whose checkpoints call themselves "bert".
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput, unknown

POOLINGS = ("cls", "mean", "last")
"""The vector of a row: that of the first token, the mean of all real tokens, that of the last."""

NO_TABLE = 32_768
"""Tokens of a row for encoders whose positions are distances: only memory limits them."""

MASKED = ("hidden_dropout_prob", "attention_probs_dropout_prob")
MODERN = ("embedding_dropout", "attention_dropout", "mlp_dropout")


@dataclass(frozen=True)
class Backbone:
    """An encoder's files and the facts chunking needs."""

    name: str
    kind: str  # its row in the table of kinds
    folder: Path
    content_hash: str
    max_input_tokens: int  # with query and special tokens
    num_segments: int  # how many values token_type_ids may take; 0: the encoder has none
    cls_id: int
    sep_id: int
    pad_id: int
    pooling: str  # vector of a row unless the model asks for another: POOLINGS

    def max_window(self, max_query_tokens: int) -> int:
        """The longest chunk that fits beside a full query: [CLS] query [SEP] chunk [SEP]."""
        return self.max_input_tokens - max_query_tokens - 3

    def row_pooling(self, asked: str) -> str:
        """The row pooling that `model.pool` asks for; where it is empty, what suits the encoder."""
        pooling = asked or self.pooling
        if pooling not in POOLINGS:
            raise unknown("model.pool", pooling, POOLINGS)
        return pooling


@dataclass(frozen=True)
class BackboneType:
    """The facts that rows and rankers need of the encoders of one kind."""

    # table: as many tokens as `max_position_embeddings`; after-padding: positions are numbered from
    # pad_token_id + 1, so the table holds fewer; blocks: as table, in whole blocks; none: NO_TABLE.
    positions: str
    dropouts: tuple[str, ...]  # settings of its config that are dropout rates
    pooling: str = "cls"  # one of POOLINGS
    marks: str = "cls-sep"  # bos-eos: a row begins with bos and its parts end with eos
    segments: bool = False  # it takes token_type_ids
    # plain: ours on CPUs, torch's fused kernel elsewhere; sdpa: the fused kernel, which alone gives
    # numbers where padding attends to no token (windows); eager: transformers has no other.
    attention: str = "plain"
    pooler: bool = False  # it would build a pooler, which ranking does not use
    loader: str = "AutoModel"  # a class of transformers, or one of ours (backbones._loader)
    causal: bool = False  # a token sees the tokens before it only
    fixed: tuple[str, ...] = ()  # parameters that its own forward pass never learns


TYPES: dict[str, BackboneType] = {
    "albert": BackboneType("table", MASKED, segments=True, pooler=True),
    "bert": BackboneType("table", MASKED, segments=True, pooler=True),
    "big_bird": BackboneType(
        "blocks", MASKED, segments=True, attention="eager", loader="RowwiseBigBird"
    ),
    "camembert": BackboneType("after-padding", MASKED, segments=True, pooler=True),
    "deberta-v2": BackboneType("table", MASKED, segments=True, attention="eager"),
    "distilbert": BackboneType("table", ("dropout", "attention_dropout")),
    "electra": BackboneType("table", MASKED, segments=True),
    "eurobert": BackboneType("table", ("attention_dropout",), pooling="mean", marks="bos-eos"),
    "jina-bert": BackboneType("none", (), pooling="mean", segments=True, loader="AlibiEncoder"),
    "llama": BackboneType(
        "table", ("attention_dropout",), pooling="mean", marks="bos-eos", causal=True
    ),
    "longformer": BackboneType(
        "after-padding", MASKED, segments=True, attention="eager", loader="QueryGlobalLongformer"
    ),
    "longt5": BackboneType(
        "none",
        ("dropout_rate",),
        pooling="mean",
        marks="bos-eos",
        attention="eager",
        loader="LongT5EncoderModel",
    ),
    "modernbert": BackboneType("table", MODERN, attention="sdpa"),
    "mosaic-bert": BackboneType("none", (), segments=True, loader="AlibiEncoder"),
    "mpnet": BackboneType("after-padding", MASKED, attention="eager", pooler=True),
    "qwen3": BackboneType(
        "table",
        ("attention_dropout",),
        pooling="last",
        marks="bos-eos",
        attention="sdpa",
        causal=True,
    ),
    "roberta": BackboneType("after-padding", MASKED, segments=True, pooler=True),
    "roformer": BackboneType(
        "table",
        MASKED,
        segments=True,
        attention="eager",
        fixed=("encoder.embed_positions.weight",),
    ),
    "xlm-roberta": BackboneType("after-padding", MASKED, segments=True, pooler=True),
}


def kind_of(config: Any) -> str:
    """The name in `TYPES` of a checkpoint's configuration."""
    if config.model_type == "bert":
        # https://huggingface.co/mosaicml/mosaic-bert-base-seqlen-2048 and
        # https://huggingface.co/jinaai/jina-embeddings-v2-base-en: BERT by name only.
        if hasattr(config, "alibi_starting_size"):
            return "mosaic-bert"
        if getattr(config, "position_embedding_type", None) == "alibi":
            return "jina-bert"
    return str(config.model_type)


def backbone_type(name: str, config: Any) -> BackboneType:
    """The row of `TYPES` for the configuration of the backbone `name`."""
    kind = kind_of(config)
    if kind not in TYPES:
        raise unknown(f"model_type of backbone {name}", kind, TYPES)
    return TYPES[kind]


def max_input_tokens(kind: BackboneType, config: Any) -> int:
    """The most tokens of one row, with query and special tokens."""
    if kind.positions == "none":
        return NO_TABLE
    limit = int(config.max_position_embeddings)
    if kind.positions == "after-padding":
        return limit - config.pad_token_id - 1
    if kind.positions == "blocks":
        return limit - limit % int(config.block_size)
    return limit


@dataclass(frozen=True)
class Marks:
    """The token ids that every row has: first, after the query and at the end, and for padding."""

    cls_id: int
    sep_id: int
    pad_id: int


def marks_of(name: str, kind: BackboneType, tokenizer: Any) -> Marks:
    """The marks of the backbone `name`: decoders have neither [CLS] nor [SEP], so bos (or eos)
    begins a row there, eos ends its parts, and pads it where there is no padding token."""
    cls_id, sep_id, pad_id = (
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.pad_token_id,
    )
    if kind.marks == "bos-eos":
        eos_id = tokenizer.eos_token_id
        cls_id = _first(cls_id, tokenizer.bos_token_id, eos_id)
        sep_id = _first(sep_id, eos_id)
        pad_id = _first(pad_id, eos_id)
    if cls_id is None or sep_id is None:
        wanted = "a bos or an eos token" if kind.marks == "bos-eos" else "[CLS] and [SEP] tokens"
        raise BadInput(f"a backbone must mark inputs with {wanted}; {name} has none")
    return Marks(cls_id, sep_id, pad_id or 0)


def _first(*ids: int | None) -> int | None:
    return next((some for some in ids if some is not None), None)
