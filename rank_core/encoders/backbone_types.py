"""The kinds of encoders that have a fast path or positions of their own, with their properties;
`any_kind` reads the others.

A kind is the `model_type` in a checkpoint's config.json, except for encoders with attention biases
instead of positions (ALiBi), whose checkpoints say "bert".
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rank_core.encoders.saved_model import SavedModel
from rank_core.errors import BadInput, unknown

POOLINGS = ("cls", "mean", "last")
"""Row poolings: the first token's vector, the mean over all tokens, the last token's vector."""

NO_TABLE = 32_768
"""Tokens of a row for encoders with relative positions, which only memory limits."""

NAMED_PROMPT = "@"
"""The mark before the name of a prompt in config_sentence_transformers.json, in place of its text;
twice before a text that begins with it."""

MASKED = ("hidden_dropout_prob", "attention_probs_dropout_prob")
MODERN = ("embedding_dropout", "attention_dropout", "mlp_dropout")


ABSENT = -1
"""The only token of an empty part of a layout; rows are closed up over it."""


class RowLayout(NamedTuple):
    """The tokens of a row before the query, between query and text, and behind the text. A part
    without tokens is (ABSENT,). A space that belongs to the first word of query or text is
    tokenised with it."""

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    before_query: str = ""
    before_text: str = ""

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """Prefix, middle and suffix."""
        return self[:3]

    @property
    def num_tokens(self) -> int:
        """The tokens of a row that are neither of the query nor of the text."""
        return sum(token != ABSENT for part in self.tokens for token in part)

    @property
    def has_gaps(self) -> bool:
        """True where a part has no tokens."""
        return any(ABSENT in part for part in self.tokens)


@dataclass(frozen=True)
class Backbone:
    """An encoder's files, and the facts that chunking needs.

    Examples:
        >>> from rank_core.encoders.backbones import resolve_backbone
        >>> backbone = resolve_backbone("tiny-docs")
        >>> backbone.max_window(max_query_tokens=32)
        96
    """

    name: str
    kind: str  # a key in `TYPES`, or another model_type of transformers
    folder: Path
    content_hash: str
    max_input_tokens: int  # with query and special tokens
    num_segments: int  # number of segments; 0: no token_type_ids
    cls_id: int
    sep_id: int
    pad_id: int
    pooling: str  # default row pooling, one of POOLINGS
    trained_head: str = ""  # what the checkpoint has beside the encoder to score or classify
    own_layout: RowLayout | None = None  # of a reranker; None: [CLS] query [SEP] text [SEP]
    head_pooling: str = ""  # what its trained head or ranking head reads; "": as `pooling`
    chain: SavedModel | None = None  # with a head that sentence-transformers saved as modules
    problem: str = ""  # why no encoder is read here; then only sentence-transformers reads it

    def max_window(self, max_query_tokens: int) -> int:
        """The longest chunk that fits with the longest query: [CLS] query [SEP] chunk [SEP]."""
        return self.max_input_tokens - max_query_tokens - self.layout.num_tokens

    @property
    def layout(self) -> RowLayout:
        """The tokens around query and text."""
        return self.own_layout or RowLayout((self.cls_id,), (self.sep_id,), (self.sep_id,))

    def row_pooling(self, asked: str) -> str:
        """The row pooling `asked` by `model.pool`, the encoder's own if empty; raises `BadInput`
        for unknown ones."""
        pooling = asked or self.pooling
        if pooling not in POOLINGS:
            raise unknown("model.pool", pooling, POOLINGS)
        return pooling


@dataclass(frozen=True)
class BackboneType:
    """The properties of one kind of encoder."""

    # table: `max_position_embeddings` tokens; after-padding: positions start at pad_token_id + 1,
    # so there are fewer; blocks: as table, in whole blocks; none: NO_TABLE; any: as the encoder's
    # modules say (`any_kind`).
    positions: str
    dropouts: tuple[str, ...]  # names of dropout rates in its config
    pooling: str = "cls"  # one of POOLINGS
    # bos-eos: rows start with bos, their parts end with eos; any: either, or no marks.
    marks: str = "cls-sep"
    segments: bool = False  # has token_type_ids
    # plain: ours on CPUs, torch's fused kernel elsewhere; sdpa: the fused kernel, needed by
    # windows, where padding attends to no token; eager: the only one in transformers.
    attention: str = "plain"
    pooler: bool = False  # builds a pooler by default, which is unused here
    loader: str = "AutoModel"  # a class of transformers, or one of ours (backbones._loader)
    causal: bool = False  # tokens attend only to earlier tokens
    fixed: tuple[str, ...] = ()  # parameters that are not trained


DECODER = BackboneType(
    "table",
    ("attention_dropout",),
    pooling="last",
    marks="bos-eos",
    attention="sdpa",
    causal=True,
)
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
    "gemma": DECODER,
    "mistral": DECODER,
    "modernbert": BackboneType("table", MODERN, attention="sdpa"),
    "mosaic-bert": BackboneType("none", (), segments=True, loader="AlibiEncoder"),
    "mpnet": BackboneType("after-padding", MASKED, attention="eager", pooler=True),
    "qwen2": DECODER,
    "qwen3": DECODER,
    "roberta": BackboneType("after-padding", MASKED, segments=True, pooler=True),
    "roformer": BackboneType(
        "table", MASKED, segments=True, attention="eager", fixed=("encoder.embed_positions.weight",)
    ),
    "xlm-roberta": BackboneType("after-padding", MASKED, segments=True, pooler=True),
}


OWN_FIRST_TOKEN = ("camembert", "electra", "mpnet", "roberta", "xlm-roberta")
"""Kinds whose classifier takes the first token of a row itself."""
SPLIT_HEADS = ("albert", "bert", "deberta-v2", "distilbert", "modernbert", *OWN_FIRST_TOKEN)
"""Kinds whose classifier is read as an encoder and a head; others are read whole (`any_kind`)."""
ANY = BackboneType("any", (), pooling="mean", marks="any", loader="any")
"""All other kinds of encoders and classifiers (`any_kind`), read as transformers reads them."""


def type_of(kind: str) -> BackboneType:
    """The properties of a kind."""
    return TYPES.get(kind, ANY)


def kind_of(config: Any) -> str:
    """The kind of a checkpoint's configuration: its `model_type`, or the name in `TYPES`."""
    if config.model_type == "bert":
        # https://huggingface.co/mosaicml/mosaic-bert-base-seqlen-2048 and
        # https://huggingface.co/jinaai/jina-embeddings-v2-base-en are BERT by name only.
        if hasattr(config, "alibi_starting_size"):
            return "mosaic-bert"
        if getattr(config, "position_embedding_type", None) == "alibi":
            return "jina-bert"
    return str(config.model_type)


def backbone_type(config: Any) -> BackboneType:
    """The properties of a configuration's kind."""
    return type_of(kind_of(config))


def max_input_tokens(kind: BackboneType, config: Any) -> int:
    """The maximum number of tokens in a row, with query and special tokens."""
    if kind.positions == "none":
        return NO_TABLE
    limit = int(config.max_position_embeddings)
    if kind.positions == "after-padding":
        return limit - config.pad_token_id - 1
    if kind.positions == "blocks":
        return limit - limit % int(config.block_size)
    return limit


def marks_of(name: str, kind: BackboneType, tokenizer: Any) -> tuple[int, int, int]:
    """The special token ids of every row of the backbone `name`: first, after the query and at the
    end, padding. For decoders, which have neither [CLS] nor [SEP], bos (or eos) starts a row, and
    eos ends its parts and pads if there is no padding token."""
    ids = [[tokenizer.cls_token_id], [tokenizer.sep_token_id], [tokenizer.pad_token_id]]
    if kind.marks in ("bos-eos", "any"):
        ids[0].append(tokenizer.bos_token_id)
        ids = [[*choices, tokenizer.eos_token_id] for choices in ids]
    first = [next((i for i in choices if i is not None), None) for choices in ids]
    cls_id, sep_id, pad_id = first
    if kind.marks == "any":  # a classifier's tokenizer may write none
        cls_id, sep_id = cls_id or 0, sep_id or 0
    if cls_id is None or sep_id is None:
        raise BadInput(
            f"backbone {name} has no special tokens for rows; it needs [CLS] and [SEP], a decoder "
            "bos or eos"
        )
    return cls_id, sep_id, pad_id or 0
