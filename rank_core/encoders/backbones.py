"""Pretrained encoders: their files, properties and loading. A backbone is `tiny-docs`, a folder
with a Hugging Face checkpoint, or a Hugging Face id."""

import copy
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import transformers
from safetensors import safe_open
from tokenizers import normalizers
from tokenizers.normalizers import Lowercase
from torch import nn

from rank_core.encoders.alibi import AlibiConfig, check_alibi, load_alibi
from rank_core.encoders.any_kind import (
    SAMPLED,
    SWITCHING,
    as_it_is,
    load_any,
    loader_of,
    positions_of,
    without_pooler,
)
from rank_core.encoders.attention import use_own_attention
from rank_core.encoders.backbone_types import (
    ABSENT,
    ANY,
    SPLIT_HEADS,
    Backbone,
    BackboneType,
    RowLayout,
    backbone_type,
    kind_of,
    marks_of,
    max_input_tokens,
)
from rank_core.encoders.checkpoint import (
    CHECKPOINT_FILES,
    CONFIG,
    LAYOUT_FILE,
    MODULES,
    PICKLED,
    check_files,
    check_finite,
    check_tokens,
    check_weights,
    damaged,
    open_config,
    open_model,
    open_tokenizer,
    read_json,
    require_all,
    shapes,
    unwrapped,
    weight_files,
    without_memory,
)
from rank_core.encoders.decoder_rerankers import (
    LogitScore,
    chat_layout,
    logit_score,
    with_prompt,
    writes_pairs,
)
from rank_core.encoders.e5 import e5_name
from rank_core.encoders.hub import hub_folder
from rank_core.encoders.links import check_links
from rank_core.encoders.module_chain import pair_layout, ranking_chain
from rank_core.encoders.saved_model import MODEL_SETTINGS, SavedModel
from rank_core.encoders.shipped import RANKING_HEAD, SHIPPED, shipped_folder
from rank_core.encoders.st_folder import (
    CALLED,
    Unread,
    encoder_folder,
    modules_folder,
    read_saved,
    transformer_settings,
)
from rank_core.encoders.t5_rerankers import (
    GENERATES,
    described_answers,
    generated_answers,
    generates,
    generator_layout,
    state_answers,
)
from rank_core.errors import BadInput
from rank_core.files import kept_while_unchanged
from rank_core.parsing import parsed_json
from rank_core.units import size_text

EXPORT_FILE, ENCODER_FOLDER = "ranker.json", "encoder"
"""A file of an exported model, and its folder with encoder, tokenizer and, where chunks are scored,
the head. At the top of an export transformers would read the encoder and draw a head at random."""
HEADS = ("classifier", "pre_classifier", "classification_head", "score")
"""First words in the names of heads that score or classify a text."""
RELEVANT = re.compile("relevant|yes|true|1", re.IGNORECASE)
"""Names of a label that says relevant."""
UNNAMED = re.compile("(LABEL_)?[0-9]+")
"""Names of a label that nobody has named."""


@kept_while_unchanged(maxsize=16)
def resolve_backbone(name: str) -> Backbone:
    """The backbone called `name`. An embedded one is built on first use; a Hugging Face id is
    downloaded. Raises `BadInput` if it cannot be had or cannot be a backbone."""
    folder = checkpoint_folder(name)
    check_files(name, folder)
    config = load_config(name, folder)
    kind = backbone_type(config)
    tokenizer = load_tokenizer(folder)
    cls_id, sep_id, pad_id = marks_of(name, kind, tokenizer)
    modules = None if name in SHIPPED else _check_weights(name, folder, config)
    if modules is not None:
        check_tokens(name, folder, tokenizer, num_embeddings(modules))
    if kind.positions == "after-padding" and pad_id != config.pad_token_id:
        raise BadInput(
            f"backbone {name}: config and tokenizer disagree about the padding token, after which "
            f"a {config.model_type} numbers its positions ({config.pad_token_id} and {pad_id})"
        )
    segments = (getattr(config, "type_vocab_size", 0) or 0) if kind.segments else 0
    whole = reads_whole(config)
    if kind is ANY or whole:
        segments = 2 * any(tokenizer("a", "a").get("token_type_ids", ()))
    saved = saved_with(folder)
    trained_head = _trained_head(config, map(unwrapped, shapes(name, folder)))
    layout = usual = RowLayout((cls_id,), (sep_id,), (sep_id,))
    if chain := ranking_chain(saved, causal=kind.causal):
        behind = ", ".join(module.kind for module in chain.modules if module.kind != "Transformer")
        trained_head = f"{behind} of sentence-transformers"
        chain, layout = _chain_layout(name, chain, tokenizer, segments, layout)
    elif (score := decoder_score(name, folder, config)) is not None:
        whole = False
        trained_head, layout = trained_head or "of its output matrix", score.layout
    elif answers := generated_answers(config):
        stated = "true_token_id" in read_json(folder / CONFIG, dict)
        trained_head = described_answers(config, tokenizer, stated=stated)
        layout = generator_layout(tokenizer, answers)
    elif whole:
        layout = _own_pairs(name, tokenizer, segments, saved, usual)
    elif trained_head:
        # RoBERTa's family writes two separators in a pair.
        if tokenizer.num_special_tokens_to_add(pair=True) == 4:
            layout = RowLayout((cls_id,), (sep_id, sep_id), (sep_id,))
        layout = with_prompt(name, tokenizer, layout, saved.query_prefix)
    if (folder / LAYOUT_FILE).exists():  # of an exported model
        layout = _stated_layout(folder / LAYOUT_FILE, len(tokenizer))
    return Backbone(
        name=name,
        kind=kind_of(config),
        folder=folder,
        content_hash=_hash_with_modules(name, folder, saved, layout),
        max_input_tokens=positions_of(config, modules)
        if kind is ANY and modules is not None
        else max_input_tokens(kind, config),
        num_segments=segments,
        cls_id=cls_id,
        sep_id=sep_id,
        pad_id=pad_id,
        pooling=kind.pooling,
        trained_head=trained_head,
        own_layout=None if layout == usual else layout,
        head_pooling=_head_pooling(folder, config, chain, trained_head, read_whole=whole),
        chain=chain,
    )


def _trained_head(config: Any, parameters: Iterable[str]) -> str:
    if own := classifier_of(config):
        return own
    return next((name for name in sorted(parameters) if name.partition(".")[0] in HEADS), "")


def classifier_of(config: Any) -> str:
    """The architecture of a checkpoint that scores or classifies texts; "" for others."""
    kind = GENERATES if generated_answers(config) else "ForSequenceClassification"
    return next((str(one) for one in config.architectures or () if one.endswith(kind)), "")


def _own_pairs(
    name: str, tokenizer: Any, segments: int, saved: SavedModel, usual: RowLayout
) -> RowLayout:
    """The layout of a tokenizer's pairs; the usual one where it cannot be read, which
    `head_problem` says."""
    try:
        return with_prompt(name, tokenizer, pair_layout(tokenizer, segments), saved.query_prefix)
    except Unread:
        return usual


def reads_whole(config: Any) -> bool:
    """True for a classifier that is computed as transformers computes it (`any_kind`)."""
    kind, ours = kind_of(config), backbone_type(config).loader == "AlibiEncoder"
    return bool(classifier_of(config)) and kind not in (*SPLIT_HEADS, *SWITCHING) and not ours


def decoder_score(name: str, folder: Path, config: Any) -> LogitScore | None:
    """The score of a decoder; None for one that is not a known reranker, and for an exported one,
    which has its head beside it."""
    if not backbone_type(config).causal or (folder / RANKING_HEAD).exists():
        return None
    rows = label_rows(config) if classifier_of(config) else None
    return logit_score(name, saved_with(folder), load_tokenizer(folder), rows)


def label_rows(config: Any) -> tuple[int, int | None]:
    """The label of a classifier that says relevant, and the other of two: the second, unless the
    first is called so. Of a generator the answers, in their order."""
    if answers := generated_answers(config):
        return 0, 1 if len(answers) > 1 else None
    if config.num_labels == 1:
        return 0, None
    first, second = (str((config.id2label or {}).get(i, "")) for i in (0, 1))
    upside_down = RELEVANT.fullmatch(first) and not RELEVANT.fullmatch(second)
    return (0, 1) if upside_down else (1, 0)


def _chain_layout(
    name: str, chain: SavedModel, tokenizer: Any, segments: int, usual: RowLayout
) -> tuple[SavedModel, RowLayout]:
    """A chain, and the layout of its pairs; where there is none, a chain with the reason."""
    if chain.unread:
        return chain, usual
    if chain.chats:
        return chain, chat_layout(name, tokenizer, chain)
    try:
        layout = pair_layout(tokenizer, segments)
    except Unread as reason:
        return replace(chain, unread=str(reason)), usual
    return chain, with_prompt(name, tokenizer, layout, chain.query_prefix)


def _head_pooling(
    folder: Path, config: Any, chain: SavedModel | None, trained_head: str, *, read_whole: bool
) -> str:
    """The row pooling that the head of a checkpoint was trained with; "" where none is stated."""
    if chain is not None:
        return chain.pooling
    if (head := folder / RANKING_HEAD).exists():
        with safe_open(head, "pt") as file:
            return str((file.metadata() or {}).get("pooling", ""))
    if not trained_head:
        return ""
    if backbone_type(config).causal and not read_whole:
        return "last"
    if read_whole:
        return "cls"  # its logits are the only vector of a row
    return str(getattr(config, "classifier_pooling", "cls"))


def _hash_with_modules(name: str, folder: Path, saved: SavedModel, layout: RowLayout) -> str:
    """The hash of a checkpoint's files, with those of its modules and of its rows where they lie
    elsewhere."""
    further = [saved.folder] * (saved.folder != folder)
    known = saved.scores or saved.gives_vectors or saved.is_multi_vector
    further += saved.module_folders if known else []
    above = exported_modules(folder)
    further += above.module_folders if above else []
    parts = [content_hash(place) for place in dict.fromkeys((folder, *further))]
    if above:  # its other files are of the training
        parts.append(content_hash(above.folder, (MODULES, MODEL_SETTINGS)))
    called = transformer_settings(saved.encoder).get(CALLED) and not saved.gives_vectors
    config = load_config(name, folder)
    ranks = saved.scores or classifier_of(config)
    pairs = ranks and writes_pairs(saved) and load_tokenizer(folder).chat_template
    if layout.before_query or layout.before_text or saved.query_prefix or called or pairs:
        parts.append(json.dumps(layout))  # rows had other tokens once
    if answers := generated_answers(config):
        parts.append(json.dumps([answers, layout]))  # by a name that is in no file
    if e5 := e5_name(name, saved.folder):
        parts.append(e5)  # its prompts are in no other file
    if len(parts) == 1:
        return parts[0]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def saved_with(encoder: Path) -> SavedModel:
    """What the folder says in which an encoder's folder is, if it names that in its modules; else
    the encoder's own."""
    return read_saved(modules_folder(encoder, EXPORT_FILE))


def exported_modules(encoder: Path) -> SavedModel | None:
    """The embedding model or late interaction whose modules are in the folder of an exported model,
    to which an encoder's folder belongs; None for others."""
    above = encoder.parent
    if not ((above / EXPORT_FILE).exists() and (above / MODULES).exists()):
        return None
    saved = read_saved(above)
    vectors = saved.gives_vectors or saved.is_multi_vector
    return saved if vectors and saved.encoder == encoder else None


def _stated_layout(path: Path, num_tokens: int) -> RowLayout:
    """The layout in a file, whose parts are lists of tokens."""
    parts = read_json(path, dict)
    texts = {name: parts.pop(name, "") for name in RowLayout._fields[3:]}
    ids = [
        token for part in parts.values() for token in (part if isinstance(part, list) else [None])
    ]
    known = {token for token in ids if type(token) is int and ABSENT <= token < num_tokens}
    wrong = not all(parts.values()) or known != {*ids} or {*texts.values()} - {"", " "}
    if parts.keys() != {*RowLayout._fields[:3]} or wrong:
        fields = ", ".join(RowLayout._fields[:3])
        raise damaged(path, f"must have lists of tokens of the vocabulary: {fields}")
    prefix, middle, suffix = (tuple(parts[part]) for part in RowLayout._fields[:3])
    return RowLayout(prefix, middle, suffix, **texts)


def _check_weights(name: str, folder: Path, config: Any) -> nn.Module:
    """Raises `BadInput` for weights that do not fit the configuration, or are not numbers; returns
    the modules, without memory."""
    kind = backbone_type(config)
    modules: nn.Module
    if kind.loader == "AlibiEncoder":
        modules = check_alibi(name, folder, _alibi_config(config))
    elif kind is ANY:
        loader = loader_of(name, config, whole=bool(classifier_of(config)))
        more = without_pooler(loader, config)
        modules = check_weights(name, folder, loader, copy.deepcopy(config), **more)
    else:
        extra = {"add_pooling_layer": False} if kind.pooler else {}
        modules = check_weights(name, folder, _loader(kind), copy.deepcopy(config), **extra)
    for path in {*weight_files(name, folder), *folder.glob("*.safetensors")}:
        check_finite(path)
    return modules


def num_embeddings(modules: Any) -> int | None:
    """The number of tokens that have an embedding; None for modules without a table of them."""
    try:
        return int(modules.get_input_embeddings().weight.shape[0])
    except (AttributeError, NotImplementedError):
        return None


@kept_while_unchanged(maxsize=4)
def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a backbone's folder, shared: it must not be changed."""
    return own_tokenizer(folder)


def own_tokenizer(folder: Path, **more: Any) -> Any:
    """A tokenizer in a backbone's folder of the caller's own, which lowers texts where the settings
    of sentence-transformers beside it say so (do_lower_case)."""
    tokenizer = open_tokenizer(folder, **more)
    own = tokenizer.backend_tokenizer
    parts = _normalizers(own.normalizer)
    if saved_with(folder).lowers and not any(isinstance(one, Lowercase) for one in parts):
        own.normalizer = normalizers.Sequence([Lowercase(), *parts])
    return tokenizer


def _normalizers(normalizer: Any) -> list[Any]:
    """The parts of a normalizer; an exported tokenizer lowers texts itself."""
    if normalizer is None:
        return []
    several = isinstance(normalizer, normalizers.Sequence)
    return [*normalizer] if several else [normalizer]


def row_length(backbone: Backbone) -> int:
    """The tokens of a row that a checkpoint is read with by others: what its settings or its
    tokenizer say, within the encoder's positions."""
    stated = saved_with(backbone.folder).max_length
    length = stated or load_tokenizer(backbone.folder).model_max_length
    return int(min(length, backbone.max_input_tokens))


def tokenizer_hash(backbone: Backbone) -> str:
    """The identity of a tokenizer: of what decides which tokens a text is, not of how rows are made
    of them."""
    whole = parsed_json(load_tokenizer(backbone.folder).backend_tokenizer.to_str())
    parts = {name: whole.get(name) for name in ("normalizer", "pre_tokenizer", "model")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def described(backbone: Backbone) -> str:
    """The name of a published encoder; of a folder, whose name may say nothing, what it holds:
    `a bert encoder of 22.7 million parameters (folder model)`."""
    if not Path(backbone.name).is_dir():
        return backbone.name
    millions = num_parameters(backbone.folder) / 1e6
    size = f" of {millions:,.3g} million parameters" if millions else ""  # pickled
    return f"a {backbone.kind} encoder{size} (folder {Path(backbone.name).name})"


def license_of(backbone: Backbone) -> str:
    """The licence in the metadata of a checkpoint's card; "" without one."""
    card = backbone.folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.exists() else ""
    found = re.search(r"^license: *(\S+)$", text, re.M)
    return found[1] if found else ""


@lru_cache(maxsize=8)
def without_weights(backbone: Backbone) -> nn.Module:
    """The encoder's modules, without memory for their weights."""
    config = copy.deepcopy(load_config(backbone.name, backbone.folder))
    kind = backbone_type(config)
    if kind is ANY:
        return without_memory(loader_of(backbone.name, config, whole=False), config)
    return without_memory(getattr(transformers, kind.loader, transformers.AutoModel), config)


def _loader(kind: BackboneType) -> Any:
    """The class that reads the weights of a kind of encoder."""
    if hasattr(transformers, kind.loader):
        return getattr(transformers, kind.loader)
    from rank_core.encoders import sparse  # rare ones, with whole families of transformers

    return getattr(sparse, kind.loader)


def load_encoder(backbone: Backbone, dropout: float) -> nn.Module:
    """The pretrained encoder in fp32, with the given dropout rate everywhere and no pooler. Raises
    `BadInput` for missing weights."""
    _require_memory(backbone)
    # A copy, because transformers writes the attention implementation into it.
    config = copy.deepcopy(load_config(backbone.name, backbone.folder))
    kind = backbone_type(config)
    if kind is ANY:
        return load_as_it_is(backbone, dropout, whole=False)
    if kind.loader == "AlibiEncoder":
        return load_alibi(backbone.folder, _alibi_config(config), dropout)
    for attribute in kind.dropouts:
        setattr(config, attribute, dropout)
    config.use_cache = False  # nothing is generated
    extra = {"add_pooling_layer": False} if kind.pooler else {}
    attention = "sdpa" if kind.attention == "plain" else kind.attention
    model, missing = open_model(
        _loader(kind), backbone.folder, config, attn_implementation=attention, **extra
    )
    require_all(backbone.name, missing)
    if kind.loader == "QueryGlobalLongformer":
        model.sep_id = backbone.sep_id
    for name in kind.fixed:
        model.get_parameter(name).requires_grad_(False)
    use_own_attention(model, plain=kind.attention == "plain")
    return model


def load_as_it_is(backbone: Backbone, dropout: float, *, whole: bool) -> nn.Module:
    """The encoder, or the `whole` classifier, as transformers computes it (`any_kind`), in fp32,
    with the given dropout rate everywhere. Raises `BadInput` for missing weights, and for one that
    needs more than a text."""
    _require_memory(backbone)
    config = copy.deepcopy(load_config(backbone.name, backbone.folder))
    model, missing = load_any(backbone.name, backbone.folder, config, dropout, whole=whole)
    require_all(backbone.name, missing)
    tokenizer = load_tokenizer(backbone.folder)
    usual = sorted({*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids})
    return as_it_is(
        backbone.name,
        model,
        usual[:: max(1, len(usual) // SAMPLED)],
        backbone.layout,
        pad_id=backbone.pad_id,
        segments=backbone.num_segments > 1,
        whole=whole,
    )


def _require_memory(backbone: Backbone) -> None:
    """Raises `BadInput` for weights that this machine has no memory for."""
    needed = 4 * num_parameters(backbone.folder)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise BadInput(
            f"backbone {backbone.name} needs {size_text(needed)} in fp32; this machine has "
            f"{size_text(memory)} of memory"
        )


def _alibi_config(config: Any) -> AlibiConfig:
    return AlibiConfig.of(kind_of(config), config)


def num_parameters(folder: Path) -> int:
    """The number of weights in a checkpoint's safetensors files, by their headers; 0 for pickled
    weights."""
    number = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            number += sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())
    return number


@kept_while_unchanged(maxsize=16, folder=1)
def load_config(name: str, folder: Path) -> Any:
    """The configuration of a checkpoint, with the answers of a T5 that is a reranker; raises
    `BadInput` for a folder without one."""
    config = open_config(name, folder)
    if generates(config):
        state_answers(name, folder, config, load_tokenizer(folder).get_vocab())
    return config


def checkpoint_folder(name: str, *, copied: bool = False) -> Path:
    """The folder of the encoder called `name`, downloaded if it is a Hugging Face id that is not in
    the cache. Raises `BadInput` if it cannot be had, and for links out of it (`check_links`), also
    of weights where these are `copied`."""
    if name in SHIPPED:
        return shipped_folder(name)
    top = Path(name).resolve() if Path(name).is_dir() else hub_folder(name)
    check_links(name, top, weights=copied)
    return top / ENCODER_FOLDER if (top / EXPORT_FILE).is_file() else encoder_folder(top)


def content_hash(folder: Path, only: Sequence[str] = ()) -> str:
    """16 hex digits that identify the contents of a checkpoint's folder, or `only` of some files in
    it."""
    digest = hashlib.sha256()
    safe = any(folder.glob("*.safetensors"))
    patterns = only or (CHECKPOINT_FILES if safe else (*CHECKPOINT_FILES, PICKLED))
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
