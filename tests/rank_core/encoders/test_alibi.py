"""The ALiBi encoder: slopes, biases, a second implementation, Jina's and MosaicBERT's names."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import gelu, layer_norm
from torch.testing import assert_close

from rank_core.encoders.alibi import AlibiConfig, AlibiEncoder, slopes
from rank_core.encoders.backbones import load_encoder, load_tokenizer, resolve_backbone

SIZES = {
    "vocab_size": 150,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
JINA = SIZES | {"model_type": "bert", "position_embedding_type": "alibi"}
MOSAIC = SIZES | {"model_type": "bert", "alibi_starting_size": 64}


@pytest.fixture(scope="module")
def weights():
    """Random weights under Jina's names."""
    generator = torch.Generator().manual_seed(2)
    state = AlibiEncoder(AlibiConfig("jina-bert", **SIZES)).state_dict()
    return {
        name: torch.randn(weight.shape, generator=generator) * 0.3 + name.endswith("orm.weight")
        for name, weight in state.items()
    }


@pytest.fixture
def saved(tmp_path, backbone):
    """Writes a checkpoint and reads its encoder."""

    def build(config, weights):
        save_file(weights, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(config))
        load_tokenizer(backbone.folder).save_pretrained(tmp_path)
        return resolve_backbone(str(tmp_path))

    return build


def test_slopes_halve_for_eight_heads_and_are_interleaved_for_twelve():
    eight = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert slopes(8) == eight
    # Four more: every other one of sixteen heads, 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
    assert slopes(12) == pytest.approx([*eight, *(2 ** -(i + 0.5) for i in range(4))])


def by_hand(weights, ids, segments):
    """The encoder's output for one row, head by head and without any of its code."""

    def norm(x, name):
        return layer_norm(x, (16,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = norm(
        x + weights["embeddings.token_type_embeddings.weight"][segments], "embeddings.LayerNorm"
    )
    places = torch.arange(len(ids)).float()
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        parts = {p: linear(x, f"{layer}.attention.self.{p}") for p in ("query", "key", "value")}
        heads = []
        for head, slope in enumerate((1 / 4, 1 / 16, 1 / 64, 1 / 256)):
            q, k, v = (parts[p][:, 4 * head : 4 * head + 4] for p in ("query", "key", "value"))
            score = q @ k.T / 2 - slope * (places[:, None] - places).abs()
            heads.append(score.softmax(-1) @ v)
        context = linear(torch.cat(heads, dim=-1), f"{layer}.attention.output.dense")
        x = norm(context + x, f"{layer}.attention.output.LayerNorm")
        both = linear(x, f"{layer}.mlp.gated_layers")
        inner = linear(gelu(both[:, :24]) * both[:, 24:], f"{layer}.mlp.wo")
        x = norm(inner + x, f"{layer}.mlp.layernorm")
    return x


def read(encoder, ids, segments):
    batch = {"input_ids": ids[None], "token_type_ids": segments[None]}
    with torch.inference_mode():
        return encoder(**batch, attention_mask=torch.ones_like(ids[None])).last_hidden_state[0]


def test_a_jina_checkpoint_computes_what_its_architecture_says(weights, saved):
    backbone = saved(JINA, weights)
    assert (backbone.pooling, backbone.num_segments) == ("mean", 2)
    assert backbone.max_input_tokens == 32_768
    encoder = load_encoder(backbone, 0.1).eval()
    ids = torch.randint(5, 150, (13,), generator=torch.Generator().manual_seed(1))
    segments = (torch.arange(13) > 4).long()
    assert_close(
        read(encoder, ids, segments), by_hand(weights, ids, segments), atol=1e-5, rtol=1e-5
    )


def test_a_mosaic_checkpoint_of_the_same_weights_gives_the_same_output(weights, saved):
    joint = {"bert.pooler.dense.weight": torch.zeros(16, 16)}  # and a head's, which are not read
    for name, weight in weights.items():
        if ".self.query." in name:
            parts = [weights[name.replace("query", p)] for p in ("query", "key", "value")]
            joint["bert." + name.replace("query", "Wqkv")] = torch.cat(parts)
        elif ".self." not in name:
            joint["bert." + name] = weight
    backbone = saved(MOSAIC, joint)
    assert backbone.pooling == "cls"
    encoder = load_encoder(backbone, 0.0).eval()
    ids, segments = torch.arange(5, 25), torch.zeros(20, dtype=torch.long)
    assert_close(
        read(encoder, ids, segments), by_hand(weights, ids, segments), atol=1e-5, rtol=1e-5
    )
