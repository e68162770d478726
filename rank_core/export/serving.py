"""How other programs serve an exported model: `serving.json`, and the files by which
sentence-transformers (5.4 and later) loads it as its `CrossEncoder`.

`serving.json` says how a server cuts documents for a reranker and puts the scores of their chunks
together. The same file is beside an exported model, the answer of `ranksweep run serving`, and read
by `Reranker.serve`.

A `CrossEncoder` is a transformer, the pooling of a row, and the head as a linear layer. That holds
for models with the head's score of each row [CLS] query [SEP] chunk [SEP], over an encoder of
transformers without changes: FirstP and LongP score one row, for others `serving.json` says the
rest. Both give the same score for the same tokens. A `CrossEncoder` limits the whole row: beside a
shorter query it reads a few more tokens of a long text.
https://sbert.net/docs/cross_encoder/usage/custom_models.html
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing

from rank_core.encoders.backbone_types import Backbone, RowLayout, type_of
from rank_core.encoders.backbones import (
    ENCODER_FOLDER,
    content_hash,
    own_tokenizer,
    tokenizer_hash,
)
from rank_core.encoders.checkpoint import save_tokenizer
from rank_core.encoders.saved_model import RANKS
from rank_core.encoders.st_folder import IDENTITY, SCORES, VECTOR
from rank_core.export.saved_folder import ModuleFiles, pooling_part, write_saved
from rank_core.models import model_class
from rank_core.models.passage_scores import FirstP
from rank_core.models.ranker import Ranker, draws_classifier, uses_checkpoint_head
from rank_core.ranking.interpolation import FirstStageMix
from rank_core.settings.config import TrialConfig

FILE, FORMAT = "serving.json", 1
COMPUTED = {"precision": "training.precision", "runtime": "evaluation.runtime"}
"""{key: its setting, of how scores are computed}; a file lacks it where it is auto."""


def identity(backbone: Backbone, trained: Path | None = None) -> dict[str, str]:
    """The name of a model and the hashes of its contents and its tokenizer; the contents are those
    of the folder `trained` where its weights are no longer the backbone's."""
    path = Path(backbone.name)
    return {
        "name": path.name if path.exists() else backbone.name,
        "content_hash": content_hash(trained) if trained else backbone.content_hash,
        "tokenizer_hash": tokenizer_hash(backbone),
    }


def serving_setting(
    config: TrialConfig, model: Mapping[str, str], first_stage: FirstStageMix | None = None
) -> dict[str, Any]:
    """The content of `serving.json` for a model, by its `identity`, that scores chunks;
    `first_stage` is the weight of an interpolated system. Sizes are in tokens of the model's own
    tokenizer."""
    chunking, name = config.chunking, config.model.name
    pooling = model_class(name).chunk_pooling
    first, computed = pooling == "first", config.settings()
    return {
        "format": FORMAT,
        "model": dict(model),
        "window": chunking.window,
        "stride": chunking.window if first else chunking.stride,
        "max_query_tokens": chunking.max_query_tokens,
        "max_document_tokens": chunking.max_document_tokens,
        "max_chunks": 1 if first else chunking.max_chunks,
        "aggregation": {
            "name": name,
            "is": pooling,
            "k": _counted(config),
            "of": config.model.chunk_scores or "logit",
        },
        "depth": config.evaluation.depth,
        "interpolation": asdict(first_stage) if first_stage else None,
        **{key: computed[name] for key, name in COMPUTED.items() if computed[name] != "auto"},
    }


def _counted(config: TrialConfig) -> int:
    """The number of best chunk scores that count; 0: all."""
    kind = model_class(config.model.name)
    if "k" in kind.options:
        return config.model.k or kind.DEFAULT_K
    return 1 if kind.chunk_pooling in ("first", "max") else 0


def is_cross_encoder(config: TrialConfig, backbone: Backbone) -> bool:
    """True for a cross-encoder of rows as sentence-transformers defines it, which `row_tokenizer`
    can write. Longformer and BigBird have their own attention here, and ALiBi encoders are not of
    transformers."""
    plain = type_of(backbone.kind).loader == "AutoModel"
    if not model_class(config.model.name).chunk_pooling or config.model.quirks or not plain:
        return False
    own_head = uses_checkpoint_head(FirstP, backbone, config.model.head)
    drawn = draws_classifier(backbone, config.model.head)
    return not own_head and not drawn and _is_of_marks(backbone)


def _is_of_marks(backbone: Backbone) -> bool:
    """True if nothing but special tokens is around query and text: neither a prompt nor a
    template."""
    layout, sep_id = backbone.layout, backbone.sep_id
    between = (sep_id,) * len(layout.middle)
    return layout == RowLayout((backbone.cls_id,), between, (sep_id,))


def row_tokens(config: TrialConfig, backbone: Backbone) -> int:
    """The tokens of a full row."""
    special = backbone.layout.num_tokens
    return config.chunking.max_query_tokens + config.chunking.window + special


def write_cross_encoder(
    folder: Path, config: TrialConfig, backbone: Backbone, model: Ranker
) -> None:
    """Writes modules and head, and the tokenizer beside the encoder."""
    save_tokenizer(row_tokenizer(config, backbone), folder / ENCODER_FOLDER)
    size = int(model.head.in_features)
    dense = {
        "in_features": size,
        "out_features": 1,
        "bias": True,
        "activation_function": IDENTITY,
        "module_input_name": VECTOR,
        "module_output_name": SCORES,
    }
    head = {f"linear.{name}": weight for name, weight in model.head.state_dict().items()}
    write_saved(
        folder,
        {"model_type": RANKS, "activation_fn": IDENTITY, "prompts": {}},
        [pooling_part(model.pooling, size), ModuleFiles("Dense", dense, head)],
        # Otherwise it would be initialised, with a warning, and never used.
        model_kwargs={"add_pooling_layer": False} if type_of(backbone.kind).pooler else {},
    )


def row_tokenizer(config: TrialConfig, backbone: Backbone) -> Any:
    """The backbone's tokenizer with our layout of pairs: other layouts double the separator between
    query and text, or have none."""
    names = ["input_ids", *["token_type_ids"] * (backbone.num_segments > 1), "attention_mask"]
    tokenizer = own_tokenizer(backbone.folder, model_input_names=names)
    first, end = tokenizer.convert_ids_to_tokens([backbone.cls_id, backbone.sep_id])
    text = 1 if backbone.num_segments > 1 else 0
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {end}",
        pair=f"{first} $A {' '.join([end] * len(backbone.layout.middle))} $B:{text} {end}:{text}",
        special_tokens=[(first, backbone.cls_id), (end, backbone.sep_id)],
    )
    tokenizer.model_max_length = row_tokens(config, backbone)
    tokenizer.padding_side = "right"
    return tokenizer
