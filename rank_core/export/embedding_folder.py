"""The files with which sentence-transformers reads a trained bi-encoder as an embedding model: its
modules at the top of the exported folder, prompts, similarity and lengths."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing

from rank_core.encoders.any_kind import PADDED, AsItIs, vector_size
from rank_core.encoders.backbone_types import ANY, NAMED_PROMPT, Backbone, type_of
from rank_core.encoders.backbones import ENCODER_FOLDER, load_tokenizer, own_tokenizer
from rank_core.encoders.checkpoint import CONFIG, read_json, save_tokenizer
from rank_core.encoders.e5 import PROMPTS
from rank_core.encoders.embedder import encoder_problem, prompt_setting
from rank_core.encoders.saved_model import EMBEDS
from rank_core.encoders.st_folder import read_table
from rank_core.export.saved_folder import ModuleFiles, pooling_part, write_saved
from rank_core.models import MODELS, model_class
from rank_core.models.bi_encoder import BiEncoder


def of_old_exports(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the prompts of older folders are as settings: E5's of all bi-encoders from before there
    were settings of them, then texts, also those that would be read as a name now."""
    kind = MODELS.get(settings["model.name"]) and model_class(settings["model.name"])
    names = ("model.query_prompt", "model.document_prompt")
    if kind is BiEncoder and names[0] not in settings:
        return dict(zip(names, PROMPTS, strict=True))
    given = {name: str(settings[name]) for name in names if name in settings}
    twice = 2 * NAMED_PROMPT
    return {n: t if t.startswith(twice) else prompt_setting(t) for n, t in given.items()}


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
    parts = [pooling_part(model.pooling, vector_size(model.encoder.config))]
    for step, layer in zip(facts.steps, model.projection.layers, strict=True):
        settings = read_table(facts.folder / step.path / CONFIG)
        parts.append(ModuleFiles(step.kind, settings, layer.state_dict()))
    whole = {
        "model_type": EMBEDS,
        "prompts": {"query": facts.query_prompt, "document": facts.document_prompt},
        "default_prompt_name": None,
        "similarity_fn_name": facts.similarity,
        **({"truncate_dim": facts.truncate_dim} if facts.truncate_dim else {}),
    }
    write_saved(folder, whole, parts, max_seq_length=model.limit)
