"""Every kind of classifier that transformers has, as a reranker: a small checkpoint of each with
random weights, its scores here, and those of sentence-transformers' `CrossEncoder`.

    python -m tests.benchmarks.kinds [KIND ...]

The reference reads pairs one by one: in batches some kinds of it read their padding.
"""

import argparse
import inspect
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)
from transformers.models.auto import modeling_auto

from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import TrialConfig
from tests.benchmarks.workload import print_table, save

KINDS = tuple(modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(60))]
WIDTHS = "hidden_size d_model n_embd emb_dim embedding_size entity_emb_size dim d_latents"
WIDTHS += " true_hidden_size intra_bottleneck_size word_embed_proj_dim attention_hidden_size"
INNER = "intermediate_size d_ff ffn_dim n_inner encoder_ffn_dim decoder_ffn_dim dff hidden_dim"
LAYERS = "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers"
HEADS = "num_attention_heads num_heads n_head n_heads encoder_attention_heads"
HEADS += " decoder_attention_heads num_key_value_heads"
HEAD_SIZES = "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim kv_lora_rank q_lora_rank"
LENGTHS = "max_position_embeddings n_positions max_seq_len"
EXPERTS = "num_experts num_local_experts n_routed_experts"
SMALL: dict[str, Any] = {
    **dict.fromkeys(WIDTHS.split(), 16),
    **dict.fromkeys(INNER.split(), 24),
    **dict.fromkeys([*LAYERS.split(), *HEADS.split()], 2),
    **dict.fromkeys(LENGTHS.split(), 96),
    **dict.fromkeys(EXPERTS.split(), 4),
    **dict.fromkeys(HEAD_SIZES.split(), 8),
    **{"vocab_size": len(WORDS), "type_vocab_size": 2},
    **{"num_experts_per_tok": 2, "moe_intermediate_size": 8, "entity_vocab_size": 8},
}
"""Sizes of every kind that has a setting of that name."""
MARKS = {
    **{"bos_token_id": 0, "cls_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    **{"sep_token_id": 2, "decoder_start_token_id": 2, "num_labels": 1},
}
_LONG = {"axial_pos_embds": False, "attn_layers": ["local", "local"], "attention_head_size": 8}
_CROSS = {"num_self_attention_heads": 2, "num_cross_attention_heads": 2, "num_latents": 8}
MORE: dict[str, dict[str, Any]] = {
    "funnel": {"block_sizes": [1, 1], "n_head": 2, "d_head": 8, "d_inner": 24},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "layoutlmv3": {"coordinate_size": 3, "shape_size": 2},
    "lilt": {"hidden_size": 24},
    "perceiver": _CROSS | {"num_self_attends_per_block": 2},
    "reformer": _LONG | {"feed_forward_size": 24, "local_attn_chunk_length": 8},
    "xmod": {"default_language": "en_XX"},
    "mistral4": {"num_key_value_heads": 2, "head_dim": 16, "qk_rope_head_dim": 8},
}
LACKS = {
    "falcon": ["head_dim"],
    "funnel": ["num_hidden_layers", "num_layers"],
    "xlnet": ["max_position_embeddings"],
}
"""Settings that kinds need beside these."""
WITHOUT_MARKS = "bloom ctrl falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj mpt openai-gpt".split()
WITHOUT_MARKS += "phi qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text starcoder2".split()
"""Decoders whose published tokenizers write no special tokens."""
ENDS = ("mt5", "t5", "umt5", "longt5")
"""Kinds whose tokenizers write a token behind each text and none before."""
QUERIES = ("w1 w2 w3", "w4", "w40 w41 w2 w5 w6")
DOCUMENTS = (
    "w7 w8 w9 w10",
    " ".join(f"w{i}" for i in range(5, 45)),
    "w9",
    " ".join(f"w{i % 50}" for i in range(20, 76, 2)),
)
WINDOW, STRIDE = 12, 8


class Read(NamedTuple):
    """A kind's checkpoint as a reranker."""

    kind: str
    refused: str = ""  # why it is not read
    difference: float = 0.0  # the largest, of a score
    packing: str = ""  # which rows share a pass


def small_config(kind: str) -> Any:
    """The configuration of a kind with small sizes, and those of its parts."""
    usual = AutoConfig.for_model(kind)
    sizes = _small(usual) | MARKS | MORE.get(kind, {})
    for name in LACKS.get(kind, ()):
        sizes.pop(name, None)
    return AutoConfig.for_model(kind, **sizes)


def _small(config: Any) -> dict[str, Any]:
    own = {name: size for name, size in SMALL.items() if hasattr(config, name)}
    for name in config.sub_configs:
        if (part := getattr(config, name, None)) is not None:
            shrunk = _small(part) | {"model_type": part.model_type}
            own[name] = shrunk | {n: v for n, v in MARKS.items() if hasattr(part, n)}
    return own


def write_tokenizer(kind: str, folder: Path, *, segments: bool, decoder: bool) -> None:
    """A tokenizer of words, with the special tokens that tokenizers of the kind write."""
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    text = int(segments)
    single, pair = "<s> $A </s>", f"<s> $A </s> $B:{text} </s>:{text}"
    if kind in WITHOUT_MARKS:
        single, pair = "$A", "$A $B"
    elif kind in ENDS:
        single, pair = "$A </s>", "$A </s> $B </s>"
    elif decoder:
        single, pair = "<s> $A", "<s> $A <s> $B"
    special = [("<s>", 0), ("</s>", 2)]
    words.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=special)
    names = ["input_ids", *["token_type_ids"] * segments, "attention_mask"]
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    if not decoder and kind not in ENDS:
        marks |= {"cls_token": "<s>", "sep_token": "</s>"}
    made = PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=names, **marks)
    made.save_pretrained(folder)


def write_classifier(kind: str, folder: Path) -> None:
    """A classifier of a kind, with random weights by which every token affects the score."""
    _write(AutoModelForSequenceClassification, kind, folder)


def write_encoder(kind: str, folder: Path) -> None:
    """An encoder of a kind with random weights, and nothing that says how it is read."""
    _write(AutoModel, kind, folder)


def _write(loader: Any, kind: str, folder: Path) -> None:
    config = small_config(kind)
    model = loader.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.25, generator=generator)
    model.save_pretrained(folder)
    segments = (getattr(config, "type_vocab_size", 0) or 0) > 1
    decoders = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    encoders = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    decoder = kind in decoders and kind not in encoders and not config.is_encoder_decoder
    write_tokenizer(kind, folder, segments=segments, decoder=decoder)


def scores_here(
    folder: Path, queries: Sequence[str], documents: Sequence[str], name: str
) -> Mapping[str, Any]:
    """s_QN of documents by a model over the checkpoint in a folder, and its encoder."""
    settings = {"model.name": name, "model.backbone": str(folder), "training.num_epochs": 0}
    settings |= {"chunking.window": WINDOW, "chunking.stride": STRIDE}
    settings |= {"chunking.max_query_tokens": 8, "model.dropout": 0.0}
    config = TrialConfig().override(settings)
    backbone = resolve_backbone(str(folder))
    check_model(config, backbone)
    model = build_model(config, backbone, init_seed=1).eval()
    ids = {f"w{i}": i + 4 for i in range(60)}
    tokens = {d: np.array([ids[w] for w in d.split()], np.int32) for d in documents}
    reader = model_class(name).reader(config, backbone, tokens)  # type: ignore[union-attr,arg-type]
    asked = [np.array([ids[w] for w in query.split()], np.int32) for query in queries]
    with torch.inference_mode():
        batch = reader.collate([reader.chunks(query, d) for query in asked for d in documents])
        score_QN = model(batch).view(len(queries), len(documents))
        return {"scores": score_QN, "encoder": model.encoder}


Scorer = Callable[[Path], Callable[[tuple[str, str]], float]]


def own_class(folder: Path) -> Callable[[tuple[str, str]], float]:
    """The score of a pair by the class of transformers and the checkpoint's tokenizer."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    takes = inspect.signature(model.forward).parameters

    def score(pair: tuple[str, str]) -> float:
        row = tokenizer(*pair, return_tensors="pt")
        with torch.inference_mode():
            return float(model(**{name: x for name, x in row.items() if name in takes}).logits)

    return score


def cross_encoder(folder: Path) -> Callable[[tuple[str, str]], float]:
    """The score of a pair by sentence-transformers; by the class of transformers for kinds of
    images and texts, of which sentence-transformers wants a processor of images."""
    from sentence_transformers import CrossEncoder

    try:
        theirs = CrossEncoder(str(folder), activation_fn=torch.nn.Identity(), device="cpu")
    except OSError:
        return own_class(folder)
    return lambda pair: float(theirs.predict([pair])[0])


def windows(document: str) -> list[str]:
    """The windows of a document."""
    words = document.split()
    starts = range(0, max(1, len(words) - WINDOW + STRIDE), STRIDE)
    return [" ".join(words[start : start + WINDOW]) for start in starts]


def compared(kind: str, folder: Path, score_by: Scorer = cross_encoder) -> Read:
    """A kind's scores here beside those of another reader of pairs: MaxP over windows."""
    try:
        write_classifier(kind, folder)
    except Exception as error:  # of any kind, from a class of transformers
        return Read(kind, f"no small checkpoint: {type(error).__name__}: {_line(error)}")
    try:
        found = scores_here(folder, QUERIES, DOCUMENTS, "maxp")
    except BadInput as error:
        return Read(kind, _line(error))
    largest, theirs = 0.0, score_by(folder)
    for query, scores in zip(QUERIES, found["scores"].tolist(), strict=True):
        for document, score in zip(DOCUMENTS, scores, strict=True):
            pairs = [(query, window) for window in windows(document)]
            best = max(map(theirs, pairs))
            largest = max(largest, abs(best - score))
    return Read(kind, "", largest, getattr(found["encoder"], "packing", "fast"))


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def every(kinds: Sequence[str]) -> Iterator[Read]:
    """The kinds, one after the other."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                yield compared(kind, Path(folder))
            except Exception as error:  # of any kind: of the reference, or a fault here
                yield Read(kind, f"FAULT {type(error).__name__}: {_line(error)}")


def main(argv: Sequence[str]) -> None:
    """Prints a line for each kind, and the table of all."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("kinds", nargs="*", metavar="KIND", help="such as t5; all by default")
    words.add_argument("--json", type=Path, help="where to write the numbers")
    args = words.parse_args(argv)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    results = []
    for read in every(args.kinds or KINDS):
        results.append(read)
        line = read.refused or f"{read.difference:.1e} {read.packing}"
        print(f"{read.kind:24}", line, flush=True)
    there = [read for read in results if not read.refused]
    most = max((read.difference for read in there), default=0.0)
    row = {"kinds": f"{len(results)}", "read": f"{len(there)}", "largest difference": f"{most:.1e}"}
    print()
    print_table([row])
    save(args.json, {"kinds": [read._asdict() for read in results]})


if __name__ == "__main__":
    main(sys.argv[1:])
