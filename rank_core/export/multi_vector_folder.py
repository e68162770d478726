"""The files with which sentence-transformers reads a late-interaction model as its
`MultiVectorEncoder`: its modules at the top of the exported folder, prompts, lengths, and the
tokens that are compared."""

from pathlib import Path
from typing import Any

from rank_core.encoders.backbones import ENCODER_FOLDER
from rank_core.encoders.checkpoint import save_tokenizer
from rank_core.encoders.saved_model import MULTI_VECTOR
from rank_core.export.embedding_folder import reads_same, write_rows
from rank_core.export.saved_folder import ModuleFiles, write_saved
from rank_core.models.late_interaction import ColBert


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
    layers = iter(model.head.layers)
    parts = [
        ModuleFiles(
            part.kind,
            part.settings,
            {} if part.kind == "MultiVectorMask" else next(layers).state_dict(),
        )
        for part in facts.parts
    ]
    whole = {
        "model_type": MULTI_VECTOR[0],
        "prompts": {"query": facts.texts.query_prompt, "document": facts.texts.document_prompt},
        "default_prompt_name": None,
        "similarity_fn_name": facts.similarity,
    }
    write_saved(folder, whole, parts, **_transformer(model, tokenizer))


def _transformer(model: ColBert, tokenizer: Any) -> dict[str, Any]:
    """The lengths of the Transformer's rows, and the tokens that queries are filled with."""
    facts = model.facts
    settings: dict[str, Any] = {"max_seq_length": model.text_end.limit}
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
