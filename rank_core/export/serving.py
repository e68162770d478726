"""`serving.json`: how a server cuts documents for a reranker and puts the scores of their chunks
together.

The same file beside an exported model, as the answer of `ranksweep run serving`, and read by
`Reranker.serve`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import resolve_backbone, tokenizer_hash
from rank_core.errors import BadInput
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.ranking.interpolation import FirstStageMix
from rank_core.settings.config import TrialConfig

FILE, FORMAT = "serving.json", 1
AGGREGATIONS = {
    "firstp": "first",
    "longp": "first",
    "maxp": "max",
    "sump": "sum",
    "avgp": "mean",
    "kmax-avgp": "mean of the best k",
}
"""{model: how it puts chunk scores together}."""


def served_model(backbone: Backbone) -> dict[str, str]:
    """The name of a model and the hashes of its contents and its tokenizer."""
    path = Path(backbone.name)
    return {
        "name": path.name if path.exists() else backbone.name,
        "content_hash": backbone.content_hash,
        "tokenizer_hash": tokenizer_hash(backbone),
    }


def serving_setting(
    config: TrialConfig, model: Mapping[str, str], first_stage: FirstStageMix | None = None
) -> dict[str, Any]:
    """The content of `serving.json` for a `served_model` that scores chunks; `first_stage` is the
    weight of an interpolated system. Sizes are in tokens of the model's own tokenizer."""
    chunking, name = config.chunking, config.model.name
    k = (config.model.k or KMaxAvgP.DEFAULT_K) if name == "kmax-avgp" else 0
    return {
        "format": FORMAT,
        "model": dict(model),
        "window": chunking.window,
        "stride": chunking.stride,
        "max_query_tokens": chunking.max_query_tokens,
        "max_document_tokens": chunking.max_document_tokens,
        "max_chunks": 1 if AGGREGATIONS[name] == "first" else chunking.max_chunks,
        "aggregation": {
            "name": name,
            "is": AGGREGATIONS[name],
            "k": k,
            "of": config.model.chunk_scores or "logit",
        },
        "depth": config.evaluation.depth,
        "interpolation": asdict(first_stage) if first_stage else None,
    }


def served_config(model: str, path: Path | str) -> tuple[TrialConfig, FirstStageMix | None]:
    """The settings with which the reranker `model` (a folder or a Hugging Face id) is served, and
    the weight of the first stage. Raises `BadInput` for a file of another tokenizer, in whose
    tokens its sizes are."""
    backbone = resolve_backbone(model)
    setting = _read(Path(path))
    own, stated = tokenizer_hash(backbone), setting["model"]["tokenizer_hash"]
    if own != stated:
        raise BadInput(
            f"{path} counts in tokens of {setting['model']['name']} (tokenizer {stated}); {model} "
            f"has another tokenizer ({own}): `ranksweep run serving` makes its own file"
        )
    how = setting["aggregation"]
    sizes = ("window", "stride", "max_query_tokens", "max_document_tokens", "max_chunks")
    first = AGGREGATIONS[how["name"]] == "first"
    values: dict[str, Any] = {f"chunking.{name}": setting[name] for name in sizes}
    if first:
        values |= {"chunking.stride": setting["window"], "chunking.max_chunks": 0}
    values |= {"model.name": how["name"], "model.backbone": model, "training.num_epochs": 0}
    if how["name"] == "kmax-avgp":
        values["model.k"] = how["k"]
    if how["of"] != "logit":
        values["model.chunk_scores"] = how["of"]
    mix = setting["interpolation"]
    return TrialConfig().override(values), FirstStageMix(**mix) if mix else None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        setting = json.loads(path.read_text(encoding="utf-8"))
        if setting["format"] == FORMAT and setting["aggregation"]["name"] in AGGREGATIONS:
            return dict(setting)
        found = "another format"
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = type(error).__name__
    raise BadInput(f"{path} must be a {FILE} as `ranksweep run serving` writes it, got {found}")
