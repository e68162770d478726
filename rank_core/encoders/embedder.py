"""What a folder says of the embedding model in it: prompts, pooling, modules behind it, similarity
and lengths, in the layout of sentence-transformers.

A folder without `modules.json` is an encoder whose token vectors are averaged, as
sentence-transformers reads it. What the paths here do not compute is left to that library
(`Embedder.library` says why); a module that it does not have is refused by its name.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from rank_core.encoders.backbone_types import (
    ANY,
    NAMED_PROMPT,
    NO_TABLE,
    TYPES,
    Backbone,
    kind_of,
    type_of,
)
from rank_core.encoders.backbones import (
    EXPORT_FILE,
    checkpoint_folder,
    classifier_of,
    content_hash,
    exported_modules,
    load_config,
    load_tokenizer,
    saved_with,
)
from rank_core.encoders.checkpoint import (
    ADAPTERS,
    CONFIG,
    MODEL_TYPES,
    MODULES,
    VOCABULARY_FILES,
    architectures,
    damaged,
    foreign_architecture,
    read_json,
    text_kinds,
)
from rank_core.encoders.e5 import EXTENDED, ORIGINAL_POSITIONS, e5_name
from rank_core.encoders.e5 import PROMPTS as E5_PROMPTS
from rank_core.encoders.module_chain import ModuleStack
from rank_core.encoders.saved_model import MODEL_SETTINGS, SavedModel
from rank_core.encoders.st_folder import read_table
from rank_core.encoders.t5_rerankers import KINDS as GENERATORS
from rank_core.errors import BadInput, shown, unknown

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
LIBRARY_MODULES = (
    *("Transformer", "Pooling", "Dense", "LayerNorm", "Dropout", "Normalize", "Router", "Asym"),
    *("StaticEmbedding", "WordWeights", "CNN", "LSTM", "WeightedLayerPooling"),
)
"""Modules of sentence-transformers from texts to vectors, but for those with a tokenizer of their
own (WordEmbeddings, BoW), by whose tokens no document is cut."""
KINDS = tuple(name for name, kind in TYPES.items() if kind.loader in ("AutoModel", "AlibiEncoder"))
"""Encoders that read texts here as sentence-transformers has them read; the others have an
attention of ours, for queries with their documents."""
HASHED = (
    *("query_prompt", "document_prompt", "pooling", "similarity", "steps", "truncate_dim"),
    *("max_length", "own_code", "needs_code", "is_stated"),
)
"""Facts that decide the vector of a text, beside the files."""


@dataclass(frozen=True)
class Embedder(SavedModel):
    """What a folder says of its embedding model, and how it is read.

    Examples:
        >>> read_embedder("tiny-docs").pooling
        'mean'
    """

    name: str = ""
    query_prompt: str = ""
    document_prompt: str = ""
    library: str = ""  # why sentence-transformers computes chain or encoder; "": it does not
    own_code: str = ""  # the modules whose code the folder brings along; "": none
    needs_code: bool = False  # it cannot be read without that code
    position_step: int = 1  # distance of the positions of short rows
    encoder_alone: bool = False  # its modules are of another task, and not computed

    @property
    def is_stated(self) -> bool:
        """True where `modules.json` says how vectors are made."""
        return super().is_stated and not self.encoder_alone

    @property
    def ends_normalised(self) -> bool:
        """True where vectors have length 1, unless dimensions are cut."""
        return bool(self.steps) and self.steps[-1].kind == "Normalize" and not self.truncate_dim

    @property
    def described(self) -> str:
        """How a text becomes a vector, in words."""
        if self.is_stated:
            return super().described
        last = "vector of the last token"
        return last if self.pooling == "last" else "mean of the token vectors"

    @property
    def stated_settings(self) -> dict[str, Any]:
        """The settings that stand for prompts and dimensions; 0: all."""
        return {
            "model.query_prompt": prompt_setting(self.query_prompt),
            "model.document_prompt": prompt_setting(self.document_prompt),
            "model.truncate_dim": self.truncate_dim or 0,
        }

    def content_hash(self) -> str:
        """16 hex digits that identify the weights, the configuration and the tokenizer."""
        return self.content_hashes()[0]

    def content_hashes(self) -> tuple[str, str]:
        """(`content_hash`, the same of all that decides the vectors of documents before dimensions
        are cut)."""
        folders = dict.fromkeys((self.folder, self.encoder))
        for folder in self.module_folders:
            folders |= dict.fromkeys([folder, *filter(Path.is_dir, folder.rglob("*"))])
        for folder in [*folders]:
            folders |= dict.fromkeys(_base_of(folder))
        parts = [content_hash(folder) for folder in sorted(folders)]
        of_documents = replace(self, query_prompt="", truncate_dim=None)
        return self._hash(parts), of_documents._hash(parts)

    def _hash(self, parts: list[str]) -> str:
        facts = {name: getattr(self, name) for name in HASHED}
        if self.position_step > 1:  # all other vectors keep their hash
            facts["position_step"] = self.position_step
        text = json.dumps([parts, facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def library_backbone(name: str, problem: BadInput) -> Backbone:
    """What cutting and naming need of an embedding model that sentence-transformers alone reads,
    with the `problem` for which it is no backbone here. Raises it for anything else."""
    try:
        facts = read_embedder(name)
    except BadInput as error:
        there = Path(name).is_dir() and _saved(checkpoint_folder(name)).is_stated
        raise (error if there else problem) from None
    if not facts.library:
        raise problem
    limit = read_table(facts.encoder / CONFIG).get("max_position_embeddings")
    return Backbone(
        name=name,
        kind="",
        folder=_tokenizer_folder(facts),
        content_hash=facts.content_hash(),
        max_input_tokens=facts.max_length or (limit if isinstance(limit, int) else NO_TABLE),
        num_segments=0,
        cls_id=0,
        sep_id=0,
        pad_id=0,
        pooling="mean",
        problem=str(problem),
    )


def _tokenizer_folder(saved: SavedModel) -> Path:
    """The folder of the first module, or of one within it, that has a tokenizer."""
    places = [saved.encoder, *saved.module_folders]
    found = (place for place in places for name in VOCABULARY_FILES if (place / name).exists())
    return next(found, saved.folder)


def read_trained(name: str, query_prompt: str | None, document_prompt: str | None) -> Embedder:
    """The same of an encoder from which a bi-encoder is trained: of a reranker the encoder alone,
    whose token vectors are averaged. Raises `BadInput` for modules that are not computed here."""
    saved = _saved(checkpoint_folder(name))
    if _other_task(name, saved):
        own = {
            "name": name,
            "query_prompt": named_prompt(name, saved, query_prompt or ""),
            "document_prompt": named_prompt(name, saved, document_prompt or ""),
            "pooling": "mean",
            "steps": (),
            "similarity": "cosine",
            "position_step": _position_step(name, saved),
            "encoder_alone": True,
        }
        return Embedder(**vars(saved) | own)
    facts = read_embedder(name, query_prompt=query_prompt, document_prompt=document_prompt)
    if facts.unread:
        raise BadInput(
            f"{name} is an embedding model that is not trained here: {facts.unread}. For retrieval "
            "sentence-transformers computes its vectors"
        )
    return facts


def _saved(encoder: Path) -> SavedModel:
    """What the folder says in which the encoder of an embedding model is."""
    above = exported_modules(encoder)
    return above if above is not None and above.gives_vectors else saved_with(encoder)


def position_steps(name: str) -> tuple[int, int]:
    """(the distance of the positions of short rows, the one for which the number of positions alone
    would speak) of an embedding model."""
    saved = _saved(checkpoint_folder(name))
    return _position_step(name, saved), _extension(saved)


def _position_step(name: str, saved: SavedModel) -> int:
    """Above 1 for E5-Base-4k by its name, and for a model of separate texts that was exported with
    spread positions: without the modules by which sentence-transformers would read others."""
    above = saved.folder.parent / EXPORT_FILE
    exported = read_json(above, dict).get("settings") if above.is_file() else None
    names = ("bi-encoder", "late-interaction")
    trained = isinstance(exported, dict) and exported.get("model.name") in names
    return _extension(saved) if trained or e5_name(name, saved.folder) == EXTENDED else 1


def _extension(saved: SavedModel) -> int:
    """How many times the original positions of BERT the table of an encoder without modules has."""
    stated = read_table(saved.folder / CONFIG)
    biased = "alibi_starting_size" in stated or stated.get("position_embedding_type") == "alibi"
    if saved.is_stated or stated.get("model_type") != "bert" or biased:
        return 1
    number = stated.get("max_position_embeddings")
    return max(1, number // ORIGINAL_POSITIONS) if isinstance(number, int) else 1


def _base_of(folder: Path) -> list[Path]:
    """The folder of the encoder that adapters in a folder are for; none without adapters."""
    if not (folder / ADAPTERS).exists():
        return []
    base = read_json(folder / ADAPTERS, dict).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise damaged(folder / ADAPTERS, "must name the encoder as base_model_name_or_path")
    return [checkpoint_folder(base)]


def read_embedder(
    name: str, *, query_prompt: str | None = None, document_prompt: str | None = None
) -> Embedder:
    """The embedding model in a folder or under a Hugging Face id, with other prompts if given.
    Raises `BadInput` for a reranker, for a module that nothing reads, and for damaged files."""
    saved = _saved(checkpoint_folder(name))
    if other := _other_task(name, saved):
        raise BadInput(f"{name} {other}; an embedding model gives one vector for a text")
    _require_known(name, saved)
    if saved.damage:
        raise BadInput(saved.damage)
    prompts, notes = _prompts(name, saved)
    query, document = (
        stated if prompt is None else named_prompt(name, saved, prompt)
        for stated, prompt in zip(prompts, (query_prompt, document_prompt), strict=True)
    )
    own = {
        "name": name,
        "query_prompt": query,
        "document_prompt": document,
        "similarity": _similarity(saved),
        "position_step": _position_step(name, saved),
        "notes": (*saved.notes, *notes),
    }
    facts = Embedder(**vars(saved) | own)
    return _with_chain(facts) if saved.is_stated else _without_modules(facts)


def _other_task(name: str, saved: SavedModel) -> str:
    """Why a checkpoint gives no vectors of texts, in words; "" for one that may."""
    folder, adapters = saved.folder, saved.encoder / ADAPTERS
    task = read_json(adapters, dict).get("task_type") if adapters.exists() else None
    if task not in (None, "FEATURE_EXTRACTION", "CAUSAL_LM"):
        return f"has adapters of the task {shown(task)} (in {adapters})"
    if saved.is_stated:
        return saved.other_task
    if (folder / EXPORT_FILE).exists() or (folder.parent / EXPORT_FILE).exists():
        return f"is an exported reranker ({EXPORT_FILE})"
    if foreign := foreign_architecture(folder):
        return f"is a {foreign} (in {folder / CONFIG}), which transformers does not have"
    named = (one for one in _architectures(folder) if one.endswith("ForSequenceClassification"))
    own = next(named, "")
    if not own and read_table(folder / CONFIG).get("model_type") in GENERATORS:
        own = classifier_of(load_config(name, folder))
    return f"is a {own} (in {folder / CONFIG}), which scores or classifies texts" if own else ""


def _require_known(name: str, saved: SavedModel) -> None:
    """Raises `BadInput` for a module that sentence-transformers has no vectors from."""
    for module in saved.modules:
        if module.of_library and module.kind not in LIBRARY_MODULES:
            raise BadInput(
                f"{name}: its module {module} ({module.type} in {saved.folder / MODULES}) is not "
                f"read; known: {', '.join(LIBRARY_MODULES)}"
            )


def _architectures(folder: Path) -> list[str]:
    return architectures(read_table(folder / CONFIG))


def _without_modules(facts: Embedder) -> Embedder:
    """The facts of a folder without modules: the mean of the token vectors, of a language model the
    last one, as sentence-transformers reads it."""
    stated = read_table(facts.folder / CONFIG)
    last = any(one.endswith("ForCausalLM") for one in _architectures(facts.folder)[:1])
    pooling = "last" if last and stated.get("is_causal") is not False else "mean"
    reason = encoder_problem(facts.name, facts.folder, stated)
    if not reason and load_tokenizer(facts.folder).chat_template:
        reason = "its tokenizer has a chat template"
    return replace(facts, pooling=pooling, library=reason, max_length=None, **_code(stated))


def _with_chain(facts: Embedder) -> Embedder:
    """The facts with the reason why a chain of modules is not computed here."""
    if foreign := [str(module) for module in facts.modules if not module.of_library]:
        code: dict[str, Any] = {"own_code": " and ".join(foreign), "needs_code": True}
        return replace(facts, library=facts.unread, max_length=None, **code)
    stated = read_table(facts.encoder / CONFIG)
    problem = facts.problem(has_prompt=bool(facts.query_prompt or facts.document_prompt))
    if not problem and facts.chats:
        problem = "its Transformer writes its rows by a chat template"
    if problem:
        facts = replace(facts, unread=problem, pooling="", steps=())
    reason = problem or encoder_problem(facts.name, facts.encoder, stated)
    return replace(facts, library=reason, **_code(stated))


def encoder_problem(
    name: str, folder: Path, stated: Mapping[str, Any], *, any_kind: bool = False
) -> str:
    """Why an encoder of texts is not computed here, or is not computed here as
    sentence-transformers computes it, where `any_kind` is read as it is; "" where it is."""
    kind = stated.get("model_type")
    if (folder / ADAPTERS).exists():
        return "it has adapters for an encoder elsewhere"
    if kind not in (text_kinds() if any_kind else MODEL_TYPES):
        return f"its encoder is a {shown(kind)}"
    known = kind_of(load_config(name, folder))
    if known not in KINDS and type_of(known) is not ANY:
        return f"a {known} reads rows of query and document here"
    tokenizer = load_tokenizer(folder)
    if any(tokenizer("a text").get("token_type_ids", ())):
        return "its tokenizer gives a text other segments than the first"
    if tokenizer.padding_side != "right" and not type_of(known).causal:
        return "its rows are padded on the left"
    return ""


def _code(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Whether an encoder brings its code along, and is of no kind that transformers has."""
    if "auto_map" not in stated:
        return {}
    return {"own_code": "its encoder", "needs_code": stated.get("model_type") not in CONFIG_MAPPING}


def _prompts(name: str, saved: SavedModel) -> tuple[tuple[str, str], list[str]]:
    """((before queries, before documents), notes): those that `encode_query` and `encode_document`
    take, named query and document; of E5 without any prompt those of its model card."""
    stated = {key: prompt for key, prompt in saved.prompts if prompt}
    notes = list[str]()
    if not stated and (e5 := e5_name(name, saved.folder)):
        notes.append(f"It is {e5}, whose prompts are in its model card alone.")
        if (step := _position_step(name, saved)) > 1:
            notes.append(
                f"The positions of rows of at most {ORIGINAL_POSITIONS} tokens are multiples of "
                f"{step}."
            )
        return E5_PROMPTS, notes
    if others := sorted(stated.keys() - {"query", "document"}):
        notes.append(
            f"Its prompts {', '.join(others)} are not used, as in encode_query and "
            "encode_document; model.query_prompt and model.document_prompt set others."
        )
    return (stated.get("query", ""), stated.get("document", "")), notes


def _similarity(saved: SavedModel) -> str:
    stated = saved.similarity or "cosine"
    if stated not in SIMILARITIES:
        kind = f"similarity_fn_name in {saved.folder / MODEL_SETTINGS}"
        raise unknown(kind, stated, SIMILARITIES)
    return stated


def prompt_setting(text: str) -> str:
    """The setting that `named_prompt` reads as a text."""
    return NAMED_PROMPT + text if text.startswith(NAMED_PROMPT) else text


def named_prompt(name: str, saved: SavedModel, prompt: str) -> str:
    """A prompt that is given: `@NAME` is the one of this name in the folder, `@@text` a text that
    begins with @, any other text itself. Raises `BadInput` for an unknown name."""
    if not prompt.startswith(NAMED_PROMPT):
        return prompt
    prompts = dict(saved.prompts)
    key = prompt.removeprefix(NAMED_PROMPT)
    if key.startswith(NAMED_PROMPT):
        return key
    if key not in prompts:
        known = f"known: {', '.join(sorted(prompts))}" if prompts else "its folder names none"
        raise BadInput(f"{name} has no prompt of the name {shown(key)} ({prompt}); {known}")
    return prompts[key]


def width_behind(facts: Embedder, modules: ModuleStack, hidden_size: int, pooling: str) -> int:
    """The dimensions of the vectors that modules give for those of an encoder. Raises `BadInput`
    for modules that do not fit."""
    size = hidden_size * len(pooling.split("+"))
    try:
        with torch.inference_mode():
            return int(modules(torch.zeros(1, size)).shape[1])
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"{facts.name}: its modules ({facts.described}) do not fit each other, or the {size} "
            f"dimensions of the pooling ({reason})"
        ) from None


def kept_dimensions(facts: Embedder, width: int) -> int:
    """The dimensions that are kept of `width`. Raises `BadInput` for more than there are."""
    number = facts.truncate_dim
    if number is None:
        return width
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= width:
        raise BadInput(
            f"truncate_dim must be from 1 to {width}, the dimensions of {facts.name}, got "
            f"{shown(number)}"
        )
    return number
