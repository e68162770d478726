"""BERT with distance biases (ALiBi) instead of positions, and gated feed-forward layers: the
architecture of jina-embeddings-v2 (Günther et al. 2023) and MosaicBERT (Portes et al. 2023).

transformers has neither, and their checkpoints bring their own code. This module reads the weights
by name and runs none of that code.
"""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutput

from rank_core.encoders.checkpoint import CONFIG, damaged, shapes, unwrapped
from rank_core.errors import BadInput, unknown

GATES = {"geglu": "gelu", "reglu": "relu"}
"""{Jina's name of a gated layer: the gate's activation}."""


@dataclass(frozen=True)
class AlibiConfig:
    """The sizes of an encoder, named as in transformers."""

    kind: str  # jina-bert or mosaic-bert
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    type_vocab_size: int
    layer_norm_eps: float
    activation: str = "gelu"

    @property
    def model_type(self) -> str:
        """The encoder's kind in `TYPES`."""
        return self.kind

    @classmethod
    def of(cls, kind: str, config: Any) -> "AlibiConfig":
        """The sizes from a checkpoint's configuration; raises `BadInput` for unknown gates."""
        gate = getattr(config, "feed_forward_type", "geglu")
        if gate not in GATES:
            raise unknown("feed_forward_type of an ALiBi encoder", gate, GATES)
        sizes = {name.name: getattr(config, name.name) for name in fields(cls)[1:-1]}
        return cls(kind, **sizes, activation=GATES[gate])


class AlibiEncoder(nn.Module):
    """Embeddings without positions, then layers whose attention decreases with distance."""

    slope_h: Tensor

    def __init__(self, config: AlibiConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        hidden, eps = config.hidden_size, config.layer_norm_eps
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, hidden),
                "token_type_embeddings": nn.Embedding(config.type_vocab_size, hidden),
                "LayerNorm": nn.LayerNorm(hidden, eps=eps),
            }
        )
        self.dropout = nn.Dropout(dropout)
        slope_h = torch.tensor(slopes(config.num_attention_heads))
        self.register_buffer("slope_h", slope_h, persistent=False)
        layers = nn.ModuleList(_Layer(config, dropout) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.embeddings["word_embeddings"]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        **_: Any,
    ) -> BaseModelOutput:
        """The last layer's vectors, and those of all layers if asked for."""
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        hidden_CLH = self.embeddings["word_embeddings"](input_ids)
        hidden_CLH = hidden_CLH + self.embeddings["token_type_embeddings"](token_type_ids)
        hidden_CLH = self.dropout(self.embeddings["LayerNorm"](hidden_CLH))
        device = input_ids.device
        bias = distance_bias(self.slope_h, input_ids.shape[1])
        # The largest tensor: in the precision of the products, computed once for all layers.
        if torch.is_autocast_enabled(device.type):
            bias = bias.to(torch.get_autocast_dtype(device.type))
        bias_ChLL = bias[None]
        if attention_mask is not None:
            absent = attention_mask[:, None, None, :] == 0
            bias_ChLL = bias_ChLL.masked_fill(absent, float("-inf"))
        states = [hidden_CLH]
        layers: Any = self.encoder["layer"]
        for layer in layers:
            states.append(layer(states[-1], bias_ChLL))
        return BaseModelOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )


class _Layer(nn.Module):
    """Self-attention and a gated feed-forward layer, with parameters named as in Jina's
    checkpoints."""

    def __init__(self, config: AlibiConfig, dropout: float) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = config.num_attention_heads
        own = {name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")}
        out = {"dense": nn.Linear(hidden, hidden), "LayerNorm": nn.LayerNorm(hidden, eps=eps)}
        parts = {"self": nn.ModuleDict(own), "output": nn.ModuleDict(out)}
        self.attention = nn.ModuleDict(parts)
        self.mlp = nn.ModuleDict(
            {
                "gated_layers": nn.Linear(hidden, 2 * config.intermediate_size, bias=False),
                "wo": nn.Linear(config.intermediate_size, hidden),
                "layernorm": nn.LayerNorm(hidden, eps=eps),
            }
        )
        self.activation = transformers.activations.ACT2FN[config.activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_CLH: Tensor, bias_ChLL: Tensor) -> Tensor:
        """The layer's output."""
        own: Any = self.attention["self"]
        products = [own[name](x_CLH) for name in ("query", "key", "value")]
        heads = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in products)
        query, key, value = heads
        bias, rate = bias_ChLL.to(products[0].dtype), self.dropout.p if self.training else 0.0
        context = scaled_dot_product_attention(query, key, value, bias, rate)
        output: Any = self.attention["output"]
        context_CLH = self.dropout(output["dense"](context.transpose(1, 2).flatten(2)))
        x_CLH = output["LayerNorm"](context_CLH + x_CLH)
        gate, value = self.mlp["gated_layers"](x_CLH).chunk(2, dim=-1)
        inner = self.mlp["wo"](self.dropout(self.activation(gate) * value))
        return self.mlp["layernorm"](inner + x_CLH)


def slopes(num_heads: int) -> list[float]:
    """The slope of each head's distance bias (Press et al. 2022): 2^(-8 i / n) for i = 1 .. n if n
    is a power of two; otherwise those of the next lower power, then every other one of the next
    higher."""
    power = 2 ** math.floor(math.log2(num_heads))
    own = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return own + between[: num_heads - power]


def distance_bias(slope_h: Tensor, length: int) -> Tensor:
    """bias_hLL = -slope_h |i - j|, added to attention scores."""
    place_L = torch.arange(length, device=slope_h.device)
    distance_LL = (place_L[:, None] - place_L).abs().float()
    return -slope_h[:, None, None] * distance_LL


def load_alibi(folder: Path, config: AlibiConfig, dropout: float) -> AlibiEncoder:
    """The encoder of a checkpoint folder, in fp32; raises `BadInput` for missing weights."""
    encoder = AlibiEncoder(config, dropout)
    read: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin")):
        safe = file.suffix == ".safetensors"
        read |= load_file(file) if safe else torch.load(file, map_location="cpu", weights_only=True)
    weights, expected = rename(read), encoder.state_dict()
    _require_fitting(folder, encoder, weights)
    encoder.load_state_dict({name: weights[name].float() for name in expected})
    return encoder


def check_alibi(name: str, folder: Path, config: AlibiConfig) -> "AlibiEncoder":
    """Raises `BadInput` where the headers of a checkpoint's weights do not fit its configuration;
    returns the modules, without memory."""
    stored = {key: torch.empty(size, device="meta") for key, size in shapes(name, folder).items()}
    try:
        with torch.device("meta"):
            encoder = AlibiEncoder(config)
    except Exception as error:  # sizes that make no encoder
        raise damaged(folder / CONFIG, f"makes no model ({error})") from None
    _require_fitting(folder, encoder, rename(stored))
    return encoder


def _require_fitting(folder: Path, encoder: AlibiEncoder, weights: dict[str, Tensor]) -> None:
    expected = encoder.state_dict()
    if missing := sorted(set(expected) - set(weights)):
        raise BadInput(
            f"{folder} is not a complete ALiBi checkpoint: it lacks {len(missing)} weights of the "
            f"encoder, the first is {missing[0]}"
        )
    for name, weight in expected.items():
        if weights[name].shape != weight.shape:
            raise damaged(
                folder / CONFIG,
                f"and the weights beside it disagree about sizes: {name} is stored as "
                f"{tuple(weights[name].shape)}, and would be {tuple(weight.shape)}",
            )


def rename(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's weights under the names of Jina's encoder, with MosaicBERT's joint projection
    Wqkv (3H x H) split."""
    named: dict[str, Tensor] = {}
    for name, weight in weights.items():
        short = unwrapped(name).removeprefix("bert.")
        if ".Wqkv." in short:
            for part, piece in zip(("query", "key", "value"), weight.chunk(3), strict=True):
                named[short.replace(".Wqkv.", f".{part}.")] = piece
        else:
            named[short] = weight
    return named
