"""What a folder says of the embedding model in it: prompts, pooling, modules behind it, similarity
and lengths, in the layout of sentence-transformers.

A folder without `modules.json` is an encoder whose token vectors are averaged, as
sentence-transformers reads it. What the paths here do not compute is left to that library
(`Embedder.library` says why); a module that it does not have is refused by its name.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub.repocard import metadata_load

from rank_core.encoders.backbone_types import TYPES, Step, kind_of
from rank_core.encoders.backbones import (
    EXPORT_FILE,
    checkpoint_folder,
    content_hash,
    load_config,
    load_tokenizer,
)
from rank_core.encoders.checkpoint import CONFIG, MODEL_TYPES, MODULES, damaged, read_json
from rank_core.encoders.module_chain import (
    LIBRARY,
    MODEL_SETTINGS,
    TRANSFORMER_SETTINGS,
    Module,
    Unread,
    encoder_folder,
    methods_of,
    modules_folder,
    pooling_of,
    read_table,
    stated_modules,
    steps_of,
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
SIMPLE = {"transformer_task", "modality_config", "module_output_name", "unpad_inputs"}
SIMPLE |= {"max_seq_length", "do_lower_case"}
"""Keys of a Transformer's settings that are read here."""
READ_KEYS = {"__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"}
READ_KEYS |= {"truncate_dim", "requirements"}
"""Keys of config_sentence_transformers.json that sentence-transformers reads."""

E5 = tuple(
    f"{family}e5-{size}{version}"
    for family in ("", "multilingual-")
    for size in ("small", "base", "large")
    for version in ("", "-v2", "-unsupervised", "-4k")
)
"""E5 (Wang et al. 2022) in its sizes and versions, by the names in the model cards. Instruction
models of the family (e5-mistral-7b-instruct) have prompts in their folders."""
E5_PROMPTS = ("query: ", "passage: ")
"""Of the model cards of E5, before queries and before documents."""


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
    pooling: str  # one of POOLINGS, or modes of sentence-transformers joined by +; "": by library
    steps: tuple[Step, ...]  # behind the pooling
    similarity: str  # one of SIMILARITIES
    truncate_dim: int | None  # dimensions that are kept; None: all
    max_length: int | None  # stated tokens of a row; None: the tokenizer's and the encoder's
    library: str  # why sentence-transformers computes it; "": it is computed here
    own_code: str  # the modules whose code the folder brings along; "": none
    is_stated: bool  # modules.json says how vectors are made
    described: str  # the chain in words
    notes: tuple[str, ...]  # what a plan says about the reading, in sentences

    def content_hash(self) -> str:
        """16 hex digits that identify the weights, the configuration and the tokenizer."""
        folders = {self.folder: None, encoder_folder(self.folder): None}
        for module in stated_modules(self.folder):
            if module.path:
                inner = (self.folder / module.path).rglob("*")
                folders |= dict.fromkeys([self.folder / module.path, *filter(Path.is_dir, inner)])
        facts = asdict(self)
        for key in ("name", "folder", "described", "notes", "library"):
            del facts[key]
        parts = [content_hash(folder) for folder in sorted(folders)]
        text = json.dumps([parts, facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Reading(NamedTuple):
    """How a text becomes a vector; the fields of `Embedder` of the same names."""

    pooling: str = ""
    steps: tuple[Step, ...] = ()
    max_length: int | None = None
    library: str = ""
    own_code: str = ""
    described: str = ""
    notes: tuple[str, ...] = ()


def read_embedder(
    name: str, *, query_prompt: str | None = None, document_prompt: str | None = None
) -> Embedder:
    """The embedding model in a folder or under a Hugging Face id, with other prompts if given.
    Raises `BadInput` for a reranker, for a module that nothing reads, and for damaged files."""
    encoder = checkpoint_folder(name)
    folder = modules_folder(encoder, EXPORT_FILE)
    settings = read_table(folder / MODEL_SETTINGS)
    modules = stated_modules(folder)
    _require_vectors(name, folder, modules, settings)
    prompts, notes = _prompts(name, folder, settings)
    own = (
        prompts[0] if query_prompt is None else query_prompt,
        prompts[1] if document_prompt is None else document_prompt,
    )
    how = _chain(name, folder, modules, prompts=own) if modules else _alone(name, folder)
    return Embedder(
        name=name,
        folder=folder,
        query_prompt=own[0],
        document_prompt=own[1],
        similarity=_similarity(folder, settings),
        truncate_dim=_size(folder / MODEL_SETTINGS, settings, "truncate_dim"),
        is_stated=bool(modules),
        **how._asdict() | {"notes": (*how.notes, *notes)},
    )


def _require_vectors(
    name: str, folder: Path, modules: list[Module], settings: Mapping[str, Any]
) -> None:
    """Raises `BadInput` for a checkpoint that scores, and for a module that is not known."""
    kind = settings.get("model_type") or "SentenceTransformer"
    if modules and kind != "SentenceTransformer":
        raise BadInput(
            f"{name} is a {shown(kind)} (model_type in {folder / MODEL_SETTINGS}), not an "
            "embedding model, which gives one vector for a text"
        )
    for module in modules:
        if module.kind == "LogitScore":
            raise BadInput(
                f"{name} is a reranker, not an embedding model: its module {module} gives scores"
            )
        if module.type.startswith(f"{LIBRARY}.") and module.kind not in LIBRARY_MODULES:
            raise BadInput(
                f"{name}: its module {module} ({module.type} in {folder / MODULES}) is not read; "
                f"known: {', '.join(LIBRARY_MODULES)}"
            )


def _alone(name: str, folder: Path) -> _Reading:
    """A folder without modules: the mean of the token vectors, of a language model the last one, as
    sentence-transformers reads it."""
    stated = read_json(folder / CONFIG, dict) if (folder / CONFIG).is_file() else {}
    architectures = [str(one) for one in stated.get("architectures") or ()]
    if scores := [one for one in architectures if one.endswith("ForSequenceClassification")]:
        raise BadInput(
            f"{name} is a {scores[0]} (in {folder / CONFIG}), which scores or classifies texts, "
            f"and has no {MODULES}: it is no embedding model"
        )
    if (folder / EXPORT_FILE).exists():
        raise BadInput(f"{name} is an exported reranker ({EXPORT_FILE}), not an embedding model")
    last = any(one.endswith("ForCausalLM") for one in architectures[:1])
    pooling = "last" if last and stated.get("is_causal") is not False else "mean"
    vectors = "mean of the token vectors" if pooling == "mean" else "vector of the last token"
    note = f"It has no {MODULES}: a text's vector is the {vectors}."
    reason, code = _why_not(name, folder, stated)
    if not reason and load_tokenizer(folder).chat_template:
        reason = "its tokenizer has a chat template"
    return _Reading(
        pooling=pooling, library=reason, own_code=code, described=f"{vectors}", notes=(note,)
    )


def _chain(name: str, folder: Path, modules: list[Module], prompts: tuple[str, str]) -> _Reading:
    """The reading of a chain of modules: computed here, or why not."""
    described = ", ".join(map(str, modules))
    foreign = [str(module) for module in modules if not module.type.startswith(f"{LIBRARY}.")]
    if foreign:
        reason = f"the code of its module {foreign[0]} is not of sentence-transformers"
        return _Reading(library=reason, own_code=" and ".join(foreign), described=described)
    encoder = encoder_folder(folder)
    settings = transformer_settings(encoder)
    length = _size(encoder / TRANSFORMER_SETTINGS, settings, "max_seq_length")
    try:
        pooling, steps = _simple(folder, modules, settings, prompts)
        stated = read_json(encoder / CONFIG, dict) if (encoder / CONFIG).is_file() else {}
        reason, code = _why_not(name, encoder, stated)
    except Unread as problem:
        pooling, steps, reason, code = "", [], str(problem), ""
    return _Reading(
        pooling=pooling,
        steps=tuple(steps),
        max_length=length,
        library=reason,
        own_code=code,
        described=described,
    )


def _simple(
    folder: Path, modules: list[Module], settings: Mapping[str, Any], prompts: tuple[str, str]
) -> tuple[str, list[Step]]:
    """Pooling and further modules of a chain that is computed here. Raises `Unread` for others."""
    transformer, pooling, *rest = (*modules, None, None)
    if transformer is None or transformer.kind != "Transformer":
        raise Unread(f"its first module is {transformer}, not a Transformer")
    if pooling is None or pooling.kind != "Pooling":
        raise Unread(f"its module {pooling} follows a Transformer, where Pooling is read")
    if "message" in methods_of(folder / transformer.path):
        raise Unread("its Transformer writes its rows by a chat template")
    if more := sorted(key for key in settings.keys() - SIMPLE if settings[key]):
        raise Unread(f"its Transformer has the settings {', '.join(more)}")
    mode, reads_prompt = pooling_of(folder, pooling)
    if not reads_prompt and any(prompts):
        raise Unread(f"its module {pooling} leaves out the prompt (include_prompt)")
    return mode, steps_of(folder, [module for module in rest if module is not None])


def _why_not(name: str, folder: Path, stated: Mapping[str, Any]) -> tuple[str, str]:
    """(why an encoder is not computed here, the code that it needs); both empty where it is."""
    kind = stated.get("model_type")
    if kind not in MODEL_TYPES:
        code = "its encoder" if "auto_map" in stated else ""
        return f"its encoder is a {shown(kind)}", code
    if (known := kind_of(load_config(name, folder))) not in KINDS:
        return f"a {known} reads rows of query and document here", ""
    tokenizer = load_tokenizer(folder)
    row = tokenizer("a text")
    if any(row.get("token_type_ids", ())):
        return "its tokenizer gives a text other segments than the first", ""
    if tokenizer.padding_side != "right" and not TYPES[known].causal:
        return "its rows are padded on the left", ""
    return "", ""


def _prompts(
    name: str, folder: Path, settings: Mapping[str, Any]
) -> tuple[tuple[str, str], list[str]]:
    """((before queries, before documents), notes): those that `encode_query` and `encode_document`
    take, named query and document; of E5 without any prompt those of its model card."""
    path = folder / MODEL_SETTINGS
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise damaged(path, f"has prompts={shown(prompts)}, which is no table {{name: text}}")
    for key, prompt in prompts.items():
        if not isinstance(prompt, str | None):
            raise damaged(path, f"has the prompt {key}={shown(prompt)}, which is no text")
    default = settings.get("default_prompt_name")
    if default is not None and default not in {"query", "document", *prompts}:
        raise damaged(path, f"has default_prompt_name={shown(default)}, which none of prompts is")
    stated = {key: prompt for key, prompt in prompts.items() if prompt}
    notes = []
    if unread := sorted(settings.keys() - READ_KEYS):
        notes.append(f"Not read, as in sentence-transformers: {', '.join(unread)} in {path.name}.")
    if not stated and (e5 := e5_name(name, folder)):
        notes.append(f"It is {e5}, whose prompts are in its model card alone.")
        return E5_PROMPTS, notes
    if others := sorted(stated.keys() - {"query", "document"}):
        notes.append(
            f"Its prompts {', '.join(others)} are not used, as in encode_query and "
            "encode_document; model.query_prompt and model.document_prompt set others."
        )
    return (stated.get("query", ""), stated.get("document", "")), notes


def e5_name(name: str, folder: Path) -> str:
    """The model of `E5` that a folder says it holds: by the name under which its model card has the
    measurements (model-index), or by the Hugging Face id that it was asked for; "" for others. A
    folder's own name says nothing, and a model that was trained from one may have other prompts."""
    card = folder / "README.md"
    facts = metadata_load(card) if card.is_file() else None
    index = (facts or {}).get("model-index") or []
    named = [one.get("name") for one in index if isinstance(one, dict)]
    if not Path(name).exists():
        named.append(name.removeprefix("intfloat/"))
    return next((one for one in named if one in E5), "")


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
        raise damaged(path, f"has {key}={shown(value)}, which is no size")
    return value
