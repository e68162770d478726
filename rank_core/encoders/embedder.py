"""What a folder says of the embedding model in it: prompts, pooling, modules behind it, similarity
and lengths, in the layout of sentence-transformers.

A folder without `modules.json` is an encoder whose token vectors are averaged, as
sentence-transformers reads it. What the paths here do not compute is left to that library
(`Embedder.library` says why); a module that it does not have is refused by its name.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from rank_core.encoders.backbone_types import ANY, NO_TABLE, TYPES, Backbone, Step, kind_of, type_of
from rank_core.encoders.backbones import (
    EXPORT_FILE,
    checkpoint_folder,
    content_hash,
    exported_modules,
    load_config,
    load_tokenizer,
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
from rank_core.encoders.module_chain import (
    LIBRARY,
    MODEL_SETTINGS,
    TRANSFORMER_SETTINGS,
    ChainParts,
    Module,
    ModuleStack,
    Unread,
    encoder_folder,
    gives_vectors,
    module_folders,
    modules_folder,
    other_task,
    read_parts,
    read_table,
    stated_modules,
    transformer_settings,
)
from rank_core.errors import BadInput, shown, unknown

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
LIBRARY_MODULES = (
    *("Transformer", "Pooling", "Dense", "LayerNorm", "Dropout", "Normalize", "Router", "Asym"),
    *("StaticEmbedding", "WordEmbeddings", "WordWeights", "BoW", "CNN", "LSTM"),
    "WeightedLayerPooling",
)
"""Modules of sentence-transformers from texts to vectors."""
KINDS = tuple(name for name, kind in TYPES.items() if kind.loader in ("AutoModel", "AlibiEncoder"))
"""Encoders that read texts here as sentence-transformers has them read; the others have an
attention of ours, for queries with their documents."""
READ_KEYS = {"__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"}
READ_KEYS |= {"truncate_dim", "requirements"}
"""Keys of config_sentence_transformers.json that sentence-transformers reads."""


@dataclass(frozen=True)
class Embedder:
    """What a folder says of its embedding model.

    Examples:
        >>> read_embedder("tiny-docs").pooling
        'mean'
    """

    name: str
    folder: Path  # with modules.json, if there is one
    query_prompt: str
    document_prompt: str
    pooling: str  # one of POOLINGS, or modes of sentence-transformers joined by +; "": unread
    similarity: str  # one of SIMILARITIES
    steps: tuple[Step, ...] = ()  # behind the pooling
    truncate_dim: int | None = None  # dimensions that are kept; None: all
    max_length: int | None = None  # tokens of a row; None: as tokenizer and encoder say
    unread: str = ""  # why the chain is not computed here; "": it is
    library: str = ""  # why sentence-transformers computes chain or encoder; "": it does not
    own_code: str = ""  # the modules whose code the folder brings along; "": none
    needs_code: bool = False  # it cannot be read without that code
    is_stated: bool = False  # modules.json says how vectors are made
    described: str = ""  # the chain in words
    position_step: int = 1  # distance of the positions of short rows
    notes: tuple[str, ...] = ()  # what a plan says about the reading, in sentences

    @property
    def ends_normalised(self) -> bool:
        """True where vectors have length 1, unless dimensions are cut."""
        return bool(self.steps) and self.steps[-1].kind == "Normalize" and not self.truncate_dim

    @property
    def stated_settings(self) -> dict[str, Any]:
        """The settings that stand for prompts and dimensions; 0: all."""
        return {
            "model.query_prompt": self.query_prompt,
            "model.document_prompt": self.document_prompt,
            "model.truncate_dim": self.truncate_dim or 0,
        }

    def content_hash(self) -> str:
        """16 hex digits that identify the weights, the configuration and the tokenizer."""
        folders = {self.folder: None, encoder_folder(self.folder): None}
        for folder in module_folders(self.folder):
            folders |= dict.fromkeys([folder, *filter(Path.is_dir, folder.rglob("*"))])
        facts = asdict(self)
        for key in ("name", "folder", "described", "notes", "unread", "library"):
            del facts[key]
        if self.position_step == 1:
            del facts["position_step"]  # all other vectors keep their hash
        for folder in [*folders]:
            folders |= dict.fromkeys(_base_of(folder))
        parts = [content_hash(folder) for folder in sorted(folders)]
        text = json.dumps([parts, facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def library_backbone(name: str, problem: BadInput) -> Backbone:
    """What cutting and naming need of an embedding model that sentence-transformers alone reads,
    with the `problem` for which it is no backbone here. Raises it for anything else."""
    try:
        facts = read_embedder(name)
    except BadInput as error:
        there = Path(name).is_dir() and stated_modules(_modules_of(checkpoint_folder(name)))
        raise (error if there else problem) from None
    if not facts.library:
        raise problem
    stated = read_table(encoder_folder(facts.folder) / CONFIG)
    limit = stated.get("max_position_embeddings")
    return Backbone(
        name=name,
        kind="",
        folder=_tokenizer_folder(facts.folder),
        content_hash=facts.content_hash(),
        max_input_tokens=facts.max_length or (limit if isinstance(limit, int) else NO_TABLE),
        num_segments=0,
        cls_id=0,
        sep_id=0,
        pad_id=0,
        pooling="mean",
        problem=str(problem),
    )


def _tokenizer_folder(folder: Path) -> Path:
    """The folder of the first module that has a tokenizer."""
    places = [folder / module.path for module in stated_modules(folder)] or [folder]
    found = (
        p for p in [encoder_folder(folder), *places] for n in VOCABULARY_FILES if (p / n).exists()
    )
    return next(found, folder)


def read_trained(name: str, query_prompt: str | None, document_prompt: str | None) -> Embedder:
    """The same of an encoder from which a bi-encoder is trained: of a reranker the encoder alone,
    whose token vectors are averaged. Raises `BadInput` for modules that are not computed here."""
    folder = _modules_of(checkpoint_folder(name))
    if _other_task(folder):
        return Embedder(
            name,
            folder,
            query_prompt or "",
            document_prompt or "",
            pooling="mean",
            similarity="cosine",
            position_step=_position_step(name, folder),
        )
    facts = read_embedder(name, query_prompt=query_prompt, document_prompt=document_prompt)
    if facts.unread:
        raise BadInput(
            f"{name} is an embedding model that is not trained here: {facts.unread}. For retrieval "
            "sentence-transformers computes its vectors"
        )
    return facts


def _modules_of(encoder: Path) -> Path:
    """The folder with the modules of an embedding model, in which an encoder's folder is; else the
    encoder's."""
    above = exported_modules(encoder)
    if above is not None and gives_vectors(above):
        return above
    return modules_folder(encoder, EXPORT_FILE)


def position_steps(name: str) -> tuple[int, int]:
    """(the distance of the positions of short rows, the one for which the number of positions alone
    would speak) of an embedding model."""
    folder = _modules_of(checkpoint_folder(name))
    return _position_step(name, folder), _extension(folder)


def _position_step(name: str, folder: Path) -> int:
    """Above 1 for E5-Base-4k by its name, and for a model of separate texts that was exported with
    spread positions: without the modules by which sentence-transformers would read others."""
    above = folder.parent / EXPORT_FILE
    exported = read_json(above, dict).get("settings") if above.is_file() else None
    names = ("bi-encoder", "late-interaction")
    trained = isinstance(exported, dict) and exported.get("model.name") in names
    return _extension(folder) if trained or e5_name(name, folder) == EXTENDED else 1


def _extension(folder: Path) -> int:
    """How many times the original positions of BERT the table of an encoder without modules has."""
    stated = read_table(folder / CONFIG)
    biased = "alibi_starting_size" in stated or stated.get("position_embedding_type") == "alibi"
    if stated_modules(folder) or stated.get("model_type") != "bert" or biased:
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
    folder = _modules_of(checkpoint_folder(name))
    settings = read_table(folder / MODEL_SETTINGS)
    modules = stated_modules(folder)
    if other := _other_task(folder):
        raise BadInput(f"{name} {other}; an embedding model gives one vector for a text")
    _require_known(name, folder, modules)
    prompts, notes = _prompts(name, folder, settings)
    own = (
        prompts[0] if query_prompt is None else query_prompt,
        prompts[1] if document_prompt is None else document_prompt,
    )
    facts = Embedder(
        name=name,
        folder=folder,
        query_prompt=own[0],
        document_prompt=own[1],
        pooling="",
        similarity=_similarity(folder, settings),
        truncate_dim=_size(folder / MODEL_SETTINGS, settings, "truncate_dim"),
        is_stated=bool(modules),
        position_step=_position_step(name, folder),
        notes=tuple(notes),
    )
    return _with_chain(facts, modules) if modules else _without_modules(facts)


def _other_task(folder: Path) -> str:
    """Why a checkpoint gives no vectors of texts, in words; "" for one that may."""
    adapters = encoder_folder(folder) / ADAPTERS
    task = read_json(adapters, dict).get("task_type") if adapters.exists() else None
    if task not in (None, "FEATURE_EXTRACTION", "CAUSAL_LM"):
        return f"has adapters of the task {shown(task)} (in {adapters})"
    if stated_modules(folder):
        return other_task(folder)
    if (folder / EXPORT_FILE).exists() or (folder.parent / EXPORT_FILE).exists():
        return f"is an exported reranker ({EXPORT_FILE})"
    if foreign := foreign_architecture(folder):
        return f"is a {foreign} (in {folder / CONFIG}), which transformers does not have"
    own = [one for one in _architectures(folder) if one.endswith("ForSequenceClassification")]
    return f"is a {own[0]} (in {folder / CONFIG}), which scores or classifies texts" if own else ""


def _require_known(name: str, folder: Path, modules: list[Module]) -> None:
    """Raises `BadInput` for a module that sentence-transformers has no vectors from."""
    for module in modules:
        if module.type.startswith(f"{LIBRARY}.") and module.kind not in LIBRARY_MODULES:
            raise BadInput(
                f"{name}: its module {module} ({module.type} in {folder / MODULES}) is not read; "
                f"known: {', '.join(LIBRARY_MODULES)}"
            )


def _architectures(folder: Path) -> list[str]:
    return architectures(read_table(folder / CONFIG))


def _without_modules(facts: Embedder) -> Embedder:
    """The facts of a folder without modules: the mean of the token vectors, of a language model the
    last one, as sentence-transformers reads it."""
    stated = read_table(facts.folder / CONFIG)
    last = any(one.endswith("ForCausalLM") for one in _architectures(facts.folder)[:1])
    pooling = "last" if last and stated.get("is_causal") is not False else "mean"
    vectors = "mean of the token vectors" if pooling == "mean" else "vector of the last token"
    reason = encoder_problem(facts.name, facts.folder, stated)
    if not reason and load_tokenizer(facts.folder).chat_template:
        reason = "its tokenizer has a chat template"
    return replace(facts, pooling=pooling, library=reason, **_code(stated), described=vectors)


def _with_chain(facts: Embedder, modules: list[Module]) -> Embedder:
    """The facts with those of a chain of modules: computed here, or why not."""
    described = ", ".join(map(str, modules))
    foreign = [str(module) for module in modules if not module.type.startswith(f"{LIBRARY}.")]
    if foreign:
        reason = f"the code of its module {foreign[0]} is not of sentence-transformers"
        code = " and ".join(foreign)
        return replace(
            facts,
            unread=reason,
            library=reason,
            own_code=code,
            needs_code=True,
            described=described,
        )
    encoder = encoder_folder(facts.folder)
    stated = read_table(encoder / CONFIG)
    parts, unread = ChainParts("", ()), ""
    has_prompt = bool(facts.query_prompt or facts.document_prompt)
    try:
        found = read_parts(facts.folder, modules, has_prompt=has_prompt)
        if found.chats:
            raise Unread("its Transformer writes its rows by a chat template")
        parts, reason = found, encoder_problem(facts.name, encoder, stated)
    except Unread as problem:
        unread = reason = str(problem)
    length = _size(encoder / TRANSFORMER_SETTINGS, transformer_settings(encoder), "max_seq_length")
    return replace(
        facts,
        pooling=parts.pooling,
        steps=parts.steps,
        max_length=length,
        unread=unread,
        library=reason,
        **_code(stated),
        described=described,
    )


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


def _prompts(
    name: str, folder: Path, settings: Mapping[str, Any]
) -> tuple[tuple[str, str], list[str]]:
    """((before queries, before documents), notes): those that `encode_query` and `encode_document`
    take, named query and document; of E5 without any prompt those of its model card."""
    path = folder / MODEL_SETTINGS
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise damaged(path, f"has prompts={shown(prompts)}, which is not a table {{name: text}}")
    for key, prompt in prompts.items():
        if not isinstance(prompt, str | None):
            raise damaged(path, f"has the prompt {key}={shown(prompt)}, which is not a text")
    default = settings.get("default_prompt_name")
    if default is not None and default not in {"query", "document", *prompts}:
        raise damaged(path, f"has default_prompt_name={shown(default)}, which none of prompts is")
    stated = {key: prompt for key, prompt in prompts.items() if prompt}
    notes = []
    if unread := sorted(settings.keys() - READ_KEYS):
        notes.append(f"Not read, as in sentence-transformers: {', '.join(unread)} in {path.name}.")
    if not stated and (e5 := e5_name(name, folder)):
        notes.append(f"It is {e5}, whose prompts are in its model card alone.")
        if (step := _position_step(name, folder)) > 1:
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


def _similarity(folder: Path, settings: Mapping[str, Any]) -> str:
    found = settings.get("similarity_fn_name")
    if found is None:
        return "cosine"
    if found not in SIMILARITIES:
        kind = f"similarity_fn_name in {folder / MODEL_SETTINGS}"
        raise unknown(kind, found if isinstance(found, str) else shown(found), SIMILARITIES)
    return str(found)


def _size(path: Path, settings: Mapping[str, Any], key: str) -> int | None:
    value = settings.get(key)
    if value is not None and (type(value) is not int or value < 1):
        raise damaged(path, f"has {key}={shown(value)}, which is not a size")
    return value


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
