"""What computes a model's encoder: torch, or OpenVINO on a CPU. Tokens, chunks, heads and
aggregations are the same for both."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from rank_core.chunking.batches import Chunk
from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.encoders.backbone_types import ANY, Backbone, type_of
from rank_core.encoders.backbones import load_encoder
from rank_core.encoders.openvino_runtime import (
    INPUTS,
    CompiledEncoder,
    Row,
    converted,
    quantized,
    require_openvino,
    save_graph,
    saved_graph,
)
from rank_core.encoders.published_heads import is_read_whole
from rank_core.errors import BadInput
from rank_core.models import model_class, trains
from rank_core.models.ranker import Ranker
from rank_core.settings.config import TrialConfig, runtime_of
from rank_core.settings.training import INT8

CALIBRATION_ROWS, ROWS_AT_ONCE = 64, 8
"""Rows that show the ranges of activations, and how many of them are in a batch."""
PER_QUERY, PER_DOCUMENT = 4, 4
"""At most so many documents of a query and chunks of a document are among them."""


def check_runtime(config: TrialConfig, backbone: Backbone) -> None:
    """Raises `BadInput` for settings of a runtime that do not go together, where it is not
    installed, and for a model or an encoder that it does not compute."""
    precision = config.training.precision
    require_computable(runtime_of(config), precision)
    asked = f"evaluation.runtime={runtime_of(config)}"
    asked = f"training.precision={INT8}" if precision == INT8 else asked
    if config.training.num_epochs:
        raise BadInput(
            f"{asked} scores a model as it is and trains none: set training.num_epochs=0, or train "
            "in another precision and write the model with `ranksweep export --runtime openvino`"
        )
    require_runtime(config, backbone)


def require_runtime(config: TrialConfig, backbone: Backbone) -> None:
    """Raises `BadInput` where OpenVINO is not installed, and for a model or an encoder that it does
    not compute."""
    kind = model_class(config.model.name)
    if trains(kind):
        require_last_layer(kind, config.model.name)
    require_openvino(quantizes=config.training.precision == INT8)
    _require_convertible(backbone)


def require_computable(runtime: str, precision: str) -> None:
    """Raises `BadInput` for int8 by torch."""
    if precision == INT8 and runtime == "torch":
        raise BadInput(f"precision {INT8} is computed by OpenVINO: leave out runtime=torch")


def require_last_layer(kind: type[Ranker], name: str) -> None:
    """Raises `BadInput` for a model that reads more of its encoder than the last layer of rows."""
    plain = kind.encode is Ranker.encode and kind.hidden is Ranker.hidden
    if not (kind.by_chunks and plain):
        raise BadInput(
            f"OpenVINO computes the last layer of an encoder for rows; model {name} reads more of "
            "it, or in another way: use evaluation.runtime=torch"
        )


@lru_cache(maxsize=4)
def _require_convertible(backbone: Backbone) -> None:
    if type_of(backbone.kind) is ANY or is_read_whole(backbone):
        raise BadInput(
            f"backbone {backbone.name} is a {backbone.kind} that transformers computes, which "
            "OpenVINO does not: use evaluation.runtime=torch"
        )
    converted(load_encoder(backbone, 0.0), backbone.name, segments=backbone.num_segments > 1)


def encoder_precision(precision: str, autocast: torch.dtype | None) -> str:
    """The precision of OpenVINO for `training.precision` and torch's type of products."""
    return precision if precision == INT8 else "bf16" if autocast is torch.bfloat16 else "fp32"


def compiled(
    encoder: nn.Module,
    backbone: Backbone,
    precision: str,
    rows: Callable[[], Sequence[Row]],
    *,
    segments: bool = True,
    folder: Path | None = None,
) -> CompiledEncoder:
    """An encoder computed by OpenVINO: by the graph saved in `folder`, or converted here, where
    int8 asks for `rows`. Raises `BadInput` for what cannot be converted."""
    graph = saved_graph(folder, precision) if folder else None
    if graph is None:
        graph = converted(encoder, backbone.name, segments=segments and backbone.num_segments > 1)
        graph = quantized(graph, rows()) if precision == INT8 else graph
    return CompiledEncoder(graph, precision)


def write_graphs(model: Ranker, config: TrialConfig, backbone: Backbone, folder: Path) -> None:
    """Writes the graph of a ranker's encoder into its `folder`, and that in int8 where the settings
    say so, with ranges of activations from their collection."""
    segments = backbone.num_segments > 1
    graph = converted(model.eval().encoder, backbone.name, segments=segments)
    save_graph(graph, folder, "fp32")
    if config.training.precision == INT8:
        inputs = load_inputs(config.collection, config.model.backbone)
        save_graph(quantized(graph, calibration_rows(config, inputs)), folder, INT8)


def use_runtime(
    model: Ranker,
    config: TrialConfig,
    backbone: Backbone,
    autocast: torch.dtype | None,
    *,
    inputs: Inputs | None = None,
    folder: Path | None = None,
) -> None:
    """Lets the runtime of the settings compute a ranker's encoder, as it is now, from the graph in
    `folder` or with ranges of activations from the collection of `inputs`. Raises `BadInput` for
    what it does not compute, and on another device than the CPU."""
    require_computable(runtime_of(config), config.training.precision)
    if runtime_of(config) == "torch":
        return
    require_cpu(model.device)
    require_last_layer(type(model), config.model.name)
    model.compiled = compiled(
        model.encoder,
        backbone,
        encoder_precision(config.training.precision, autocast),
        lambda: calibration_rows(config, inputs) if inputs else [],
        folder=folder,
    )


def require_cpu(device: torch.device) -> None:
    """Raises `BadInput` for another device."""
    if device.type != "cpu":
        raise BadInput(f"OpenVINO computes on a CPU here, but the device is {device}")


def calibration_rows(config: TrialConfig, inputs: Inputs) -> list[Row]:
    """Rows of the first dev queries with their first candidates, as the model reads them."""
    kind = model_class(config.model.name)
    assert trains(kind)
    pairs = kind.reader(config, inputs.backbone, inputs.tokens)
    split, queries = inputs.collection.splits["dev"], inputs.query_tokens("dev")
    chunks: list[Chunk] = []
    for query_id in sorted(split.queries):
        query = queries[query_id][: config.chunking.max_query_tokens]
        for doc_id in list(split.candidates.get(query_id, ()))[:PER_QUERY]:
            chunks += pairs.chunks(query, doc_id)[:PER_DOCUMENT]
        if len(chunks) >= CALIBRATION_ROWS:
            break
    chunks = sorted(chunks[:CALIBRATION_ROWS], key=len)
    rows: list[Row] = []
    for start in range(0, len(chunks), ROWS_AT_ONCE):
        batch = pairs.layout(chunks[start : start + ROWS_AT_ONCE])
        given = (batch.input_ids_CL, batch.attention_mask_CL, batch.token_type_ids_CL)
        named = zip(INPUTS, given, strict=True)
        rows.append({name: value.long().numpy() for name, value in named if value is not None})
    return rows
