"""The files with which sentence-transformers (5.4 and later) reads an exported model: its modules
at the top of the folder, over the encoder and the tokenizer in a folder of theirs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from rank_core.encoders.backbones import ENCODER_FOLDER
from rank_core.encoders.checkpoint import CONFIG, MODULES, WEIGHTS_FILE
from rank_core.encoders.saved_model import LIBRARY, MODEL_SETTINGS, TRANSFORMER_SETTINGS
from rank_core.encoders.st_folder import OUR_POOLINGS, TOKENS
from rank_core.files import write_json

TYPES = {
    "Transformer": "base.modules.transformer.Transformer",
    "Dense": "base.modules.dense.Dense",
    "Normalize": "base.modules.normalize.Normalize",
    "Pooling": "sentence_transformer.modules.pooling.Pooling",
    "LayerNorm": "sentence_transformer.modules.layer_norm.LayerNorm",
    "Dropout": "sentence_transformer.modules.dropout.Dropout",
    "MultiVectorMask": "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
}
"""{module: its class in sentence-transformers}."""
POOLINGS = {ours: theirs for theirs, ours in OUR_POOLINGS.items()}


class ModuleFiles(NamedTuple):
    """A module behind the Transformer."""

    kind: str  # a key in `TYPES`
    settings: Mapping[str, Any]
    weights: Mapping[str, Tensor] = {}


def pooling_part(pooling: str, size: int) -> ModuleFiles:
    """The Pooling of vectors with `size` dimensions, by our name or by theirs joined by +."""
    modes = POOLINGS.get(pooling) or pooling.split("+")
    settings = {"embedding_dimension": size, "pooling_mode": modes, "include_prompt": True}
    return ModuleFiles("Pooling", settings)


def write_saved(
    folder: Path, model: Mapping[str, Any], parts: Sequence[ModuleFiles], **transformer: Any
) -> None:
    """Writes the settings of a model and of its Transformer, and the modules behind that."""
    modules = [(ENCODER_FOLDER, "Transformer")]
    for place, part in enumerate(parts, start=1):
        path = f"{place}_{part.kind}"
        (folder / path).mkdir()
        write_json(folder / path / CONFIG, dict(part.settings))
        if part.weights:
            weights = {name: weight.contiguous() for name, weight in part.weights.items()}
            save_file(weights, folder / path / WEIGHTS_FILE)
        modules.append((path, part.kind))
    stated = [
        {"idx": place, "name": str(place), "path": path, "type": f"{LIBRARY}.{TYPES[kind]}"}
        for place, (path, kind) in enumerate(modules)
    ]
    write_json(folder / MODULES, stated)
    write_json(folder / MODEL_SETTINGS, dict(model))
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    settings = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": text},
        "module_output_name": TOKENS,
    }
    write_json(folder / ENCODER_FOLDER / TRANSFORMER_SETTINGS, settings | transformer)
