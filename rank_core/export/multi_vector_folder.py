"""The files with which sentence-transformers reads a late-interaction model as its
`MultiVectorEncoder`: its modules at the top of the exported folder, prompts, lengths, and the
tokens that are compared."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from rank_core.encoders.backbones import ENCODER_FOLDER
from rank_core.encoders.checkpoint import CONFIG, MODULES, WEIGHTS_FILE, save_tokenizer
from rank_core.encoders.st_folder import MODEL_SETTINGS, MULTI_VECTOR, TRANSFORMER_SETTINGS
from rank_core.export.embedding_folder import reads_same, write_rows
from rank_core.export.serving import MODULES as CROSS_ENCODER_MODULES
from rank_core.files import write_json
from rank_core.models.late_interaction import ColBert

TRANSFORMER = CROSS_ENCODER_MODULES[0][1]
TYPE = {
    "Dense": CROSS_ENCODER_MODULES[2][1],
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask."
    "MultiVectorMask",
}


def write_multi_vector(folder: Path, model: ColBert) -> None:
    """Writes the tokenizer and the modules beside the encoder; no modules where
    sentence-transformers would read rows otherwise, as for a bi-encoder."""
    facts, backbone = model.facts, model.backbone
    tokenizer = facts.tokenizer()
    if not facts.texts.is_stated:
        write_rows(tokenizer, backbone)
    save_tokenizer(tokenizer, folder / ENCODER_FOLDER)
    same = reads_same(model.encoder, backbone, facts.texts.position_step)
    if not (facts.texts.is_stated or same):
        return
    modules = [(ENCODER_FOLDER, TRANSFORMER), *_write_parts(folder, model)]
    stated = [
        {"idx": place, "name": str(place), "path": path, "type": kind}
        for place, (path, kind) in enumerate(modules)
    ]
    write_json(folder / MODULES, stated)
    whole = {
        "model_type": MULTI_VECTOR[0],
        "prompts": {"query": facts.texts.query_prompt, "document": facts.texts.document_prompt},
        "default_prompt_name": None,
        "similarity_fn_name": facts.similarity,
    }
    write_json(folder / MODEL_SETTINGS, whole)
    write_json(folder / ENCODER_FOLDER / TRANSFORMER_SETTINGS, _transformer(model, tokenizer))


def _write_parts(folder: Path, model: ColBert) -> list[tuple[str, str]]:
    """The (path, type) of each module behind the Transformer."""
    layers, written = iter(model.head.layers), []
    for place, part in enumerate(model.facts.parts, start=1):
        path = f"{place}_{part.kind}"
        (folder / path).mkdir()
        write_json(folder / path / CONFIG, dict(part.settings))
        layer = next(layers) if part.kind != "MultiVectorMask" else None
        if layer is not None and (state := layer.state_dict()):
            weights = {name: weight.contiguous() for name, weight in state.items()}
            save_file(weights, folder / path / WEIGHTS_FILE)
        written.append((path, TYPE[part.kind]))
    return written


def _transformer(model: ColBert, tokenizer: Any) -> dict[str, Any]:
    """The settings of the Transformer."""
    facts = model.facts
    settings: dict[str, Any] = {
        "transformer_task": "feature-extraction",
        "modality_config": {
            "text": {"method": "forward", "method_output_name": "last_hidden_state"}
        },
        "module_output_name": "token_embeddings",
        "max_seq_length": model.text_end.limit,
    }
    lengths = {"query_length": facts.query_length, "document_length": facts.document_length}
    settings |= {name: length for name, length in lengths.items() if length}
    if added := facts.expansion:
        settings["query_expansion"] = {
            "strategy": "fixed" if added.is_fixed else "min",
            "attend": added.attended,
            "token": tokenizer.convert_ids_to_tokens(added.token),
            "length": added.length,
        }
    return settings
