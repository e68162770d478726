"""What a folder says of the late-interaction model in it, which has a vector for each token: the
`MultiVectorEncoder` of sentence-transformers 6, and ColBERT models of PyLate, as that class reads
them. Every key is applied, or refused by its name.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken
from torch import Tensor, nn

from rank_core.encoders.backbones import (
    checkpoint_folder,
    exported_modules,
    own_tokenizer,
    saved_with,
)
from rank_core.encoders.checkpoint import CONFIG, damaged
from rank_core.encoders.embedder import Embedder, encoder_problem, named_prompt, read_trained
from rank_core.encoders.module_chain import Dense, Normalize, module_layer
from rank_core.encoders.saved_model import (
    MODEL_SETTINGS,
    MULTI_VECTOR,
    TRANSFORMER_SETTINGS,
    Module,
    SavedModel,
    Step,
)
from rank_core.encoders.st_folder import (
    EXPANSION,
    IDENTITY,
    MASK,
    OF_TOKENS,
    PYLATE,
    TOKENS,
    Unread,
    module_settings,
    read_table,
    size_in,
    transformer_settings,
)
from rank_core.errors import BadInput, shown, unknown

DIMENSIONS = 128
"""Those of the projection that an encoder alone gets (Khattab & Zaharia 2020)."""
QUERY_LENGTH = 32
"""Tokens of a query's row in PyLate, where a folder does not say (Khattab & Zaharia 2020)."""
SIMILARITIES = ("maxsim", "meanmaxsim")


class TokenModule(NamedTuple):
    """A module behind the Transformer: Dense, Normalize or MultiVectorMask."""

    kind: str
    settings: Mapping[str, Any]
    path: str | None = None  # its folder; None: there is none


class Expansion(NamedTuple):
    """The rows of queries are filled up to `length` tokens with `token`, which is compared, too."""

    length: int
    token: int
    is_fixed: bool  # a longer row is cut; False: it is left
    attended: bool  # other tokens attend to them


@dataclass(frozen=True)
class MultiVector:
    """What a folder says of its late-interaction model.

    Examples:
        >>> read_multi_vector("tiny-docs").described
        'a new projection to 128 dimensions, maxsim'
    """

    texts: Embedder  # prompts, folder, positions
    parts: tuple[TokenModule, ...]
    similarity: str = "maxsim"
    query_length: int | None = None  # tokens of a row; None: as `texts` says
    document_length: int | None = None
    expansion: Expansion | None = None
    prefixes: tuple[str, ...] = ()  # prompts of PyLate, each one token where there is one

    @property
    def mask(self) -> Mapping[str, Any]:
        """The settings of the tokens that are not compared; those of no mask without one."""
        return next((part.settings for part in self.parts if part.kind == "MultiVectorMask"), MASK)

    @property
    def has_mask(self) -> bool:
        """Without one the tokens that expand a query are compared only if they are attended to."""
        return any(part.kind == "MultiVectorMask" for part in self.parts)

    @property
    def described(self) -> str:
        """What is computed behind the encoder, in words."""
        words = []
        for part in self.parts:
            if part.kind == "Dense":
                new = "projection" if part.path is not None else "new projection"
                words.append(f"a {new} to {part.settings['out_features']} dimensions")
        words.append(self.similarity)
        if self.expansion:
            words.append(f"queries filled to {self.expansion.length} tokens")
        if number := len(self.mask["skiplist_words"]):
            tasks = " and ".join(self.mask["skiplist_tasks"])
            words.append(f"{number} tokens not compared ({tasks})")
        return ", ".join(words)

    def over(self, hidden_size: int) -> "MultiVector":
        """The same, with a new projection that reads the states of an encoder."""

        def sized(part: TokenModule) -> TokenModule:
            new = part.kind == "Dense" and part.path is None
            own = {**part.settings, "in_features": hidden_size}
            return part._replace(settings=own) if new else part

        return replace(self, parts=tuple(map(sized, self.parts)))

    def tokenizer(self) -> Any:
        """The tokenizer, of the caller's own, in which each prefix of PyLate is one token."""
        tokenizer = own_tokenizer(self.texts.encoder)
        known = {*tokenizer.added_tokens_encoder, *tokenizer.get_vocab()}
        words = [*filter(str.split, self.prefixes)]
        # "[Q] " is one token in the vocabularies of PyLate, "[unused0]" one of BERT's.
        names = (next(filter(known.__contains__, (w, w.split(None, 1)[0])), "") for w in words)
        marks = [name for name in names if name and tokenizer.tokenize(name) != [name]]
        if marks:
            special = [AddedToken(mark, normalized=False, special=True) for mark in marks]
            tokenizer.add_special_tokens({"additional_special_tokens": special})
        return tokenizer


def read_multi_vector(
    name: str, *, query_prompt: str | None = None, document_prompt: str | None = None
) -> MultiVector:
    """The late-interaction model in a folder or under a Hugging Face id, with other prompts if
    given. An encoder alone, or an embedding model, gets a projection of its tokens that is not
    trained yet. Raises `BadInput` for what is not read."""
    encoder = checkpoint_folder(name)
    saved = exported_modules(encoder) or saved_with(encoder)
    if not saved.is_multi_vector:
        texts = read_trained(name, query_prompt, document_prompt)
        sizes = {"in_features": 0, "out_features": DIMENSIONS, "bias": False}
        own = _of("Dense", **sizes, activation_function=IDENTITY, use_residual=False)
        return MultiVector(
            texts, (TokenModule("Dense", own), TokenModule("Normalize", _of("Normalize")))
        )
    try:
        found = _read(name, saved)
    except Unread as reason:
        raise BadInput(f"{name} is a late-interaction model that is not read: {reason}") from None
    given = {"query_prompt": query_prompt, "document_prompt": document_prompt}
    own = {
        key: named_prompt(name, saved, prompt)
        for key, prompt in given.items()
        if prompt is not None
    }
    return replace(found, texts=replace(found.texts, **own))


def _of(kind: str, **settings: Any) -> dict[str, Any]:
    """The settings of a module that reads and writes tokens."""
    names = {"module_input_name": TOKENS, "module_output_name": TOKENS}
    return settings | (names if kind in ("Dense", "Normalize") else {})


def _read(name: str, saved: SavedModel) -> MultiVector:
    folder, settings = saved.folder, read_table(saved.folder / MODEL_SETTINGS)
    if saved.damage:
        raise BadInput(saved.damage)
    if saved.unread:
        raise Unread(saved.unread)
    if saved.chats:
        raise Unread("its Transformer writes its rows by a chat template")
    stated = read_table(saved.encoder / CONFIG)
    if reason := encoder_problem(name, saved.encoder, stated, any_kind=True):
        raise Unread(reason)
    pylate = saved.task not in MULTI_VECTOR[:1]
    unused = ("Pooling", "Normalize") if pylate else ()  # of the model that it was trained from
    own = [module for module in saved.modules[1:] if module.kind not in unused]
    parts = [_part(folder, module, pylate=pylate) for module in own]
    if pylate:  # which writes neither of them
        words = settings.get("skiplist_words")
        usual = [*string.punctuation] if words is None else words
        parts += [_mask(folder / MODEL_SETTINGS, {"skiplist_words": usual})]
        parts += [TokenModule("Normalize", _of("Normalize"))]
    elif settings.get("skiplist_words"):
        raise Unread(f"its skiplist_words are in {MODEL_SETTINGS}, not in a MultiVectorMask")
    if not any(part.kind == "Dense" for part in parts) and not settings.get("model_type"):
        raise Unread("it has no Dense, which sentence-transformers would draw")
    prompts = dict(saved.prompts)
    prefixes = (settings.get(f"{role}_prefix") for role in ("query", "document"))
    own_facts = {
        "name": name,
        "query_prompt": prompts.get("query", ""),
        "document_prompt": prompts.get("document", ""),
        "pooling": "mean",
        "similarity": "cosine",
    }
    texts = Embedder(**vars(saved) | own_facts)
    found = MultiVector(
        texts, tuple(parts), _similarity(saved), prefixes=tuple(filter(None, prefixes))
    )
    return _with_lengths(found, _of_rows(settings) | transformer_settings(saved.encoder))


def _part(folder: Path, module: Module, *, pylate: bool) -> TokenModule:
    if module.kind == "MultiVectorMask":
        path = folder / module.path / CONFIG
        return _mask(path, read_table(path))._replace(path=module.path)
    if module.kind not in ("Dense", "Normalize"):
        known = "Transformer, Dense, Normalize, MultiVectorMask"
        raise Unread(f"its module {module} is not read; known: {known}")
    stated, settings = read_table(folder / module.path / CONFIG), module_settings(folder, module)
    usual = TOKENS if module.kind == "Dense" else settings["module_input_name"]
    takes = stated.get("module_input_name") or usual
    gives = settings["module_output_name"] or takes
    if not pylate and (takes, gives) != (TOKENS, TOKENS):  # PyLate reads tokens whatever is stated
        raise Unread(f"its module {module} makes {takes} to {gives}, not {TOKENS}")
    return TokenModule(module.kind, settings | _of(module.kind), module.path)


def _mask(path: Path, stated: Mapping[str, Any]) -> TokenModule:
    """A MultiVectorMask. Raises `BadInput` for a damaged file, `Unread` for other settings."""
    if rest := sorted(stated.keys() - MASK.keys()):
        raise Unread(f"its MultiVectorMask has the settings {', '.join(rest)}")
    settings = MASK | {key: value for key, value in stated.items() if value is not None}
    tasks = settings["skiplist_tasks"]
    settings["skiplist_tasks"] = [tasks] if isinstance(tasks, str) else tasks
    kinds = {"skiplist_words": str, "skiplist_tasks": str, "keep_only_token_ids": int}
    for key, kind in kinds.items():
        values = settings[key]
        if not isinstance(values, list | None) or not all(type(v) is kind for v in values or ()):
            raise damaged(path, f"has {key}={shown(values)}, which is no list of {kind.__name__}")
    return TokenModule("MultiVectorMask", settings)


def _similarity(saved: SavedModel) -> str:
    if saved.task not in MULTI_VECTOR[:1]:
        return "maxsim"  # PyLate writes another name for it
    stated = saved.similarity or "maxsim"
    if stated not in SIMILARITIES:
        kind = f"similarity_fn_name in {saved.folder / MODEL_SETTINGS}"
        raise unknown(kind, stated, SIMILARITIES)
    return stated


def _of_rows(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What PyLate's settings of a model say of its rows, as settings of a Transformer."""
    own = {key: settings[key] for key in OF_TOKENS if settings.get(key) is not None}
    if "query_expansion" in settings:
        return own | {"query_expansion": settings["query_expansion"]}
    if settings.keys().isdisjoint(PYLATE):
        return own
    if settings.get("do_query_expansion") is False:
        return own | {"query_expansion": None}
    attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
    length = own.pop("query_length", None) or QUERY_LENGTH
    expansion = {"strategy": "fixed", "attend": bool(attend), "length": length}
    return own | {"query_expansion": expansion}


def _with_lengths(found: MultiVector, settings: Mapping[str, Any]) -> MultiVector:
    """With the lengths and the expansion of a Transformer's settings."""
    path = found.texts.encoder / TRANSFORMER_SETTINGS
    query, document = (size_in(path, settings, f"{n}_length") for n in ("query", "document"))
    found = replace(found, query_length=query, document_length=document)
    if (stated := settings.get("query_expansion")) is None:
        return found
    if not isinstance(stated, dict) or stated.keys() - EXPANSION.keys():
        raise Unread(f"its query_expansion is {shown(stated)}")
    own = EXPANSION | stated
    length = size_in(path, own, "length")
    if own["strategy"] not in ("fixed", "min") or type(own["attend"]) is not bool or not length:
        raise Unread(f"its query_expansion is {shown(stated)}")
    if query and query < length:
        raise Unread(f"its query_length {query} is below the {length} tokens of query_expansion")
    tokenizer = found.tokenizer()
    if tokenizer.padding_side != "right":
        raise Unread("its queries are expanded on the left")
    token = tokenizer.mask_token_id
    token = tokenizer.eos_token_id if token is None else token
    if own["token"] is not None:
        token = tokenizer.get_vocab().get(own["token"])
    if token is None:
        raise Unread(f"its vocabulary has no token to expand queries with ({shown(own['token'])})")
    expansion = Expansion(length, token, own["strategy"] == "fixed", own["attend"])
    limit = length if expansion.is_fixed else query and max(query, length)
    return replace(found, expansion=expansion, query_length=limit)


class TokenLayers(nn.Module):
    """The modules behind an encoder, from its token vectors to those that are compared."""

    def __init__(self, facts: MultiVector) -> None:
        super().__init__()
        folder = facts.texts.folder
        own = [part for part in facts.parts if part.kind != "MultiVectorMask"]
        self.layers = nn.ModuleList(_layer(folder, part) for part in own)

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        for layer in self.layers:
            x = layer(x)
        return x


def _layer(folder: Path, part: TokenModule) -> nn.Module:
    if part.path is not None:
        return module_layer(folder, Step(part.kind, part.path, TOKENS, TOKENS))
    return Dense(part.settings) if part.kind == "Dense" else Normalize()


class ComparedTokens(nn.Module):
    """Which tokens of a row are compared."""

    skipped: Tensor
    kept: Tensor

    def __init__(self, facts: MultiVector) -> None:
        super().__init__()
        tokenizer, mask = facts.tokenizer(), facts.mask
        ids = (_id(tokenizer, word) for word in mask["skiplist_words"])
        self.tasks, self.restricts = (
            tuple(mask["skiplist_tasks"]),
            bool(mask["keep_only_token_ids"]),
        )
        numbers = {
            "skipped": [token for token in ids if token is not None],
            "kept": mask["keep_only_token_ids"] or [],
        }
        for name, own in numbers.items():
            self.register_buffer(name, torch.tensor(own, dtype=torch.long), persistent=False)

    def forward(self, ids_CL: Tensor, real_CL: Tensor, task: str) -> Tensor:
        """compared_CL of the tokens of rows, of which `real_CL` may be."""
        if task in self.tasks and len(self.skipped):
            real_CL = real_CL & ~torch.isin(ids_CL, self.skipped)
        if task == "document" and self.restricts:
            real_CL = real_CL & torch.isin(ids_CL, self.kept)
        return real_CL


def _id(tokenizer: Any, word: str) -> int | None:
    """The id of a word; None where it is none of the vocabulary."""
    token = tokenizer.convert_tokens_to_ids(word)
    return None if token == tokenizer.unk_token_id and word != tokenizer.unk_token else token
