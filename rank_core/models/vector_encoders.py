"""Encoders over vectors instead of words, [C, SEP, vectors, SEP, ...], whose output at C is used:
the aggregators of PARADE."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from rank_core.encoders.attention import use_own_attention
from rank_core.encoders.backbone_types import Backbone, kind_of
from rank_core.encoders.backbones import load_encoder, resolve_backbone
from rank_core.encoders.flat_rows import rows_of_lengths
from rank_core.encoders.packed import flat_states, packs, products
from rank_core.errors import BadInput

READERS = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
)
"""Model types that accept input vectors and attend in both directions."""

RANDOM_POSITIONS = 512


class Part(NamedTuple):
    """N vectors per document (or per chunk), with padding masked."""

    x_BNH: Tensor
    mask_BN: Tensor
    segment: int
    counts: tuple[int, ...] = ()  # of the real ones, if known on the host


def random_body(hidden: int, num_layers: int, num_heads: int, dropout: float) -> nn.Module:
    """A BERT with random weights and no word embeddings."""
    config = transformers.BertConfig(
        vocab_size=1,
        hidden_size=hidden,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=RANDOM_POSITIONS,
    )
    body = transformers.BertModel(config, add_pooling_layer=False)
    use_own_attention(body, plain=False)
    return without_words(body)


def pretrained_body(setting: str, name: str, dropout: float) -> nn.Module:
    """The encoder `name` without word embeddings; `setting` is named in errors."""
    return without_words(load_encoder(vector_reader(setting, name), dropout))


def vector_reader(setting: str, name: str) -> Backbone:
    """The files of the encoder `name`; raises `BadInput` if it does not accept input vectors."""
    backbone = resolve_backbone(name)
    kind = kind_of(transformers.AutoConfig.from_pretrained(backbone.folder))
    if kind not in READERS:
        raise BadInput(
            f"{setting} must be an encoder that accepts input vectors, one of "
            f"{', '.join(READERS)}; {name} is a {kind}"
        )
    return backbone


def without_words(body: nn.Module) -> nn.Module:
    """`body` without its word embeddings, which would be unused."""
    body.set_input_embeddings(nn.Identity())  # type: ignore[operator]
    return body


def most_vectors(setting: str, name: str) -> int:
    """The number of positions of the encoder `name`, or of a random one for an empty name."""
    return vector_reader(setting, name).max_input_tokens if name else RANDOM_POSITIONS


def input_size(body: nn.Module) -> int:
    """The size of a body's input vectors, which may be smaller than its hidden size."""
    config: Any = body.config
    return int(getattr(config, "embedding_size", config.hidden_size))


def output_size(body: nn.Module) -> int:
    """The size of a body's output vectors."""
    config: Any = body.config
    return int(config.hidden_size)


def random_special(body: nn.Module, number: int = 2) -> nn.Parameter:
    """C and SEP (2, H), or C alone (1, H), drawn from N(0, 1) / sqrt(H)."""
    size = input_size(body)
    return nn.Parameter(torch.randn(number, size) / size**0.5)


def projection(from_size: int, to_size: int) -> nn.Module:
    """A linear map with Xavier weights, or the identity for equal sizes."""
    if from_size == to_size:
        return nn.Identity()
    linear = nn.Linear(from_size, to_size)
    nn.init.xavier_uniform_(linear.weight)
    return linear


def read_first(
    body: nn.Module, special_SH: Tensor, parts: Sequence[Part], *, in_place: bool = False
) -> Tensor:
    """out_BH: the output at C, the first position, over [C, SEP, part, SEP, ..., part, SEP].
    `special_SH` is C and SEP, C alone, or empty.

    Padding is moved to the end, so that positions do not depend on the batch; with `in_place` it
    stays where it is and is masked.
    """
    x_BTH, mask_BT, segment_BT = pack(special_SH, parts, in_place=in_place)
    config: Any = body.config
    segments = getattr(config, "type_vocab_size", 0) > 1
    if not in_place and all(part.counts for part in parts) and packs(body, products(x_BTH.device)):
        seps = max(0, len(special_SH) - 1)
        special = len(special_SH) + seps * len(parts)
        lengths = [special + sum(counts) for counts in zip(*(p.counts for p in parts), strict=True)]
        flat = rows_of_lengths(lengths, x_BTH.shape[1]).to(x_BTH.device)
        own = segment_BT if segments else None
        [first_B1H] = flat_states(body, x_BTH, flat, segments_CL=own, cls_alone=True)
        return first_B1H[:, 0]
    extra = {"token_type_ids": segment_BT} if segments else {}
    output = body(inputs_embeds=x_BTH, attention_mask=mask_BT.long(), **extra)
    return output.last_hidden_state[:, 0]


def pack(
    special_SH: Tensor, parts: Sequence[Part], *, in_place: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(x_BTH, mask_BT, segment_BT) of the sequence, with padding at the end or `in_place`. C and
    all SEP have segment 0."""
    num_rows = len(parts[0].x_BNH)
    c, sep = (
        Part(special.expand(num_rows, -1, -1), parts[0].mask_BN.new_ones(num_rows, len(special)), 0)
        for special in special_SH.to(parts[0].x_BNH.dtype).tensor_split([1])
    )
    pieces = [c, sep]
    for part in parts:
        pieces += [part, sep]
    x_BTH = torch.cat([piece.x_BNH for piece in pieces], dim=1)
    mask_BT = torch.cat([piece.mask_BN for piece in pieces], dim=1)
    segment_BT = torch.cat([piece.mask_BN.long() * piece.segment for piece in pieces], dim=1)
    if in_place:
        return x_BTH, mask_BT, segment_BT
    order_BT = (~mask_BT).byte().argsort(dim=1, stable=True)
    x_BTH = x_BTH.gather(1, order_BT[:, :, None].expand_as(x_BTH))
    return x_BTH, mask_BT.gather(1, order_BT), segment_BT.gather(1, order_BT)
