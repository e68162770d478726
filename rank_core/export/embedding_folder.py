"""The files with which sentence-transformers reads a trained bi-encoder as an embedding model: its
modules at the top of the exported folder, prompts, similarity and lengths."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

from rank_core.encoders.any_kind import PADDED, AsItIs, vector_size
from rank_core.encoders.backbone_types import ANY, Backbone, type_of
from rank_core.encoders.backbones import ENCODER_FOLDER, load_tokenizer, own_tokenizer
from rank_core.encoders.checkpoint import CONFIG, MODULES, WEIGHTS_FILE, read_json, save_tokenizer
from rank_core.encoders.e5 import PROMPTS
from rank_core.encoders.embedder import encoder_problem
from rank_core.encoders.st_folder import (
    EMBEDS,
    MODEL_SETTINGS,
    OUR_POOLINGS,
    TRANSFORMER_SETTINGS,
)
from rank_core.export.serving import MODULES as CROSS_ENCODER_MODULES
from rank_core.files import write_json
from rank_core.models import MODELS, model_class
from rank_core.models.bi_encoder import BiEncoder

TRANSFORMER, POOLING = (own_type for _, own_type in CROSS_ENCODER_MODULES[:2])
POOLINGS = {ours: theirs for theirs, ours in OUR_POOLINGS.items()}


def of_old_exports(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a folder from before prompts were settings, when all bi-encoders had E5's."""
    kind = MODELS.get(settings["model.name"]) and model_class(settings["model.name"])
    if kind is not BiEncoder or "model.query_prompt" in settings:
        return {}
    return dict(zip(("model.query_prompt", "model.document_prompt"), PROMPTS, strict=True))


def write_embedder(folder: Path, model: BiEncoder) -> None:
    """Writes the tokenizer and the modules beside the encoder. No modules where
    sentence-transformers would read rows otherwise: with no global token, or with positions that
    are not spread."""
    facts, backbone = model.facts, model.backbone
    tokenizer = own_tokenizer(backbone.folder)
    if not facts.is_stated:
        write_rows(tokenizer, backbone)
    save_tokenizer(tokenizer, folder / ENCODER_FOLDER)
    if facts.is_stated or reads_same(model.encoder, backbone, facts.position_step):
        _write_modules(folder, model)


def reads_same(encoder: Any, backbone: Backbone, position_step: int) -> bool:
    """True where sentence-transformers gives the rows of an encoder alone the vectors that they
    have here, in batches too."""
    folder, config = backbone.folder, encoder.config
    if not isinstance(encoder, AsItIs):
        return type_of(backbone.kind).loader == "AutoModel" and position_step == 1
    if encoder.packing != PADDED or load_tokenizer(folder).pad_token_id is None:
        return False
    if config.get_text_config() is not config:  # of images too, for which it wants a processor
        return False
    stated = read_json(folder / CONFIG, dict)
    return not encoder_problem(backbone.name, folder, stated, any_kind=True)


def write_rows(tokenizer: Any, backbone: Backbone) -> None:
    """Lets a tokenizer write a text between [CLS] and [SEP]; one of any kind keeps its marks."""
    if type_of(backbone.kind) is ANY:
        return
    first, end = tokenizer.convert_ids_to_tokens([backbone.cls_id, backbone.sep_id])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {end}",
        pair=f"{first} $A {end} $B {end}",
        special_tokens=[(first, backbone.cls_id), (end, backbone.sep_id)],
    )


def _write_modules(folder: Path, model: BiEncoder) -> None:
    facts = model.facts
    modes = POOLINGS.get(model.pooling) or model.pooling.split("+")
    size = vector_size(model.encoder.config)
    pooling = {"embedding_dimension": size, "pooling_mode": modes, "include_prompt": True}
    kinds = {module.path: module.type for module in facts.modules}
    modules = [(ENCODER_FOLDER, TRANSFORMER), ("1_Pooling", POOLING)]
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / CONFIG, pooling)
    for number, (step, layer) in enumerate(
        zip(facts.steps, model.projection.layers, strict=True), start=2
    ):
        path = f"{number}_{step.kind}"
        (folder / path).mkdir()
        source = facts.folder / step.path / CONFIG
        write_json(folder / path / CONFIG, read_json(source, dict) if source.exists() else {})
        if state := {name: weight.contiguous() for name, weight in layer.state_dict().items()}:
            save_file(state, folder / path / WEIGHTS_FILE)
        modules.append((path, kinds[step.path]))
    named = enumerate(modules)
    stated = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in named]
    write_json(folder / MODULES, stated)
    write_json(
        folder / MODEL_SETTINGS,
        {
            "model_type": EMBEDS,
            "prompts": {"query": facts.query_prompt, "document": facts.document_prompt},
            "default_prompt_name": None,
            "similarity_fn_name": facts.similarity,
            **({"truncate_dim": facts.truncate_dim} if facts.truncate_dim else {}),
        },
    )
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    transformer = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": text},
        "module_output_name": "token_embeddings",
        "max_seq_length": model.limit,
    }
    write_json(folder / ENCODER_FOLDER / TRANSFORMER_SETTINGS, transformer)
