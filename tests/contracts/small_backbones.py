"""A small backbone with random weights of every kind."""

import json
from collections.abc import Callable, Hashable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast, Qwen2Tokenizer

from rank_core.encoders.alibi import AlibiConfig, AlibiEncoder
from rank_core.encoders.backbone_types import TYPES, Backbone
from rank_core.encoders.backbones import resolve_backbone

WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(46))]
SMALL = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 96,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 0,
    "sep_token_id": 2,
}
DECODER = SMALL | {"head_dim": 8, "num_key_value_heads": 1}
CONFIGS = {
    "albert": SMALL | {"embedding_size": 12, "type_vocab_size": 2},
    "bert": SMALL,
    "big_bird": SMALL | {"block_size": 4, "num_random_blocks": 1},
    "camembert": SMALL | {"type_vocab_size": 1},
    "deberta-v2": SMALL
    | {  # as DeBERTa-v3
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "distilbert": {
        "vocab_size": len(WORDS),
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 24,
        "max_position_embeddings": 96,
        "pad_token_id": 1,
    },
    "electra": SMALL | {"embedding_size": 12},
    "eurobert": SMALL | {"num_key_value_heads": 2, "head_dim": 8},
    "gemma": DECODER,
    "jina-bert": {},
    "mistral": DECODER | {"sliding_window": None},
    "llama": DECODER | {"pad_token_id": None},
    "longformer": SMALL | {"attention_window": [4, 8], "type_vocab_size": 1},
    "longt5": {
        "vocab_size": len(WORDS),
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
        "local_radius": 7,
        "pad_token_id": 1,
        "eos_token_id": 2,
    },
    "modernbert": SMALL
    | {"num_hidden_layers": 3, "local_attention": 8, "global_attn_every_n_layers": 2},
    "mosaic-bert": {},
    "mpnet": SMALL,
    "qwen2": DECODER,
    "qwen3": DECODER,
    "roberta": SMALL | {"type_vocab_size": 1},
    "roformer": SMALL | {"embedding_size": 16},
    "xlm-roberta": SMALL | {"type_vocab_size": 1},
}
ALIBI = {"position_embedding_type": "alibi"}, {"alibi_starting_size": 64}


def random_weights(module: nn.Module) -> None:
    """Scales weights so that every token affects the output."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.dim() > 1:
                parameter.normal_(std=0.25, generator=generator)


def write_tokenizer(folder: Path, kind: str) -> None:
    if kind == "qwen2":  # transformers has a class of its own for it: a token per character
        characters = dict.fromkeys(["\u0120", *"w0123456789abcdefghijklmnopqrstuvxyzABCDEFGHIJK"])
        ids = {word: i for i, word in enumerate([*WORDS[:4], *characters][: len(WORDS)])}
        marks = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        Qwen2Tokenizer(vocab=ids, merges=[], **marks).save_pretrained(folder)
        return
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {
        "llama": {"bos_token": "<s>", "eos_token": "</s>"},
        "gemma": {"bos_token": "<s>", "eos_token": "</s>"},
        "mistral": {"bos_token": "<s>", "eos_token": "</s>"},
        "qwen3": {"eos_token": "</s>", "pad_token": "<pad>"},
        "longt5": {"eos_token": "</s>", "pad_token": "<pad>"},
        "eurobert": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
    }
    some = marks.get(kind, {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"})
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", **some).save_pretrained(
        folder
    )


_WRITTEN: dict[Hashable, dict[Path, bytes]] = {}


def write_again(key: Hashable, write: Callable[[Path], object], folder: Path) -> None:
    """Puts the files that `write` writes to an empty folder in place. They are made once for each
    key: to make a checkpoint takes longer than most of what is asked of it."""
    if key not in _WRITTEN:
        with TemporaryDirectory() as made:
            write(Path(made))
            files = [path for path in Path(made).rglob("*") if path.is_file()]
            _WRITTEN[key] = {path.relative_to(made): path.read_bytes() for path in files}
    for name, content in _WRITTEN[key].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def make_backbone(kind: str, folder: Path) -> Backbone:
    """Writes a backbone of two layers, or three, to the folder."""
    write_backbone(kind, folder)
    return resolve_backbone(str(folder))


def write_backbone(kind: str, folder: Path) -> None:
    """Writes it and does not read it."""
    write_again(("backbone", kind), lambda made: _make(kind, made), folder)


def _make(kind: str, folder: Path) -> None:
    write_tokenizer(folder, kind)
    if TYPES[kind].loader == "AlibiEncoder":
        sizes = {k: v for k, v in SMALL.items() if not k.endswith("token_id")}
        del sizes["max_position_embeddings"]
        sizes |= {"type_vocab_size": 2, "layer_norm_eps": 1e-12}
        encoder = AlibiEncoder(AlibiConfig(kind, **sizes))
        random_weights(encoder)
        save_file(encoder.state_dict(), folder / "model.safetensors")
        config = sizes | {"model_type": "bert"} | ALIBI[kind == "mosaic-bert"]
        (folder / "config.json").write_text(json.dumps(config))
    else:
        config = AutoConfig.for_model(kind, **CONFIGS[kind])
        loader = TYPES[kind].loader
        whole = getattr(transformers, loader, AutoModel)
        make = whole._from_config if whole is not AutoModel else whole.from_config
        encoder = make(config)
        random_weights(encoder)
        encoder.save_pretrained(folder)
