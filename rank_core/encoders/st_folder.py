"""What a folder of sentence-transformers says of the model in it: the one reader of its files for
rerankers, embedding models and late interaction.

`modules.json` names the modules, a Transformer and what follows it; each has a folder with its
settings and weights. Every key of these files is applied, refused by its name, or listed as one
that sentence-transformers does not read either.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from rank_core.encoders.checkpoint import CONFIG, MODULES, PICKLED, damaged, read_json
from rank_core.encoders.saved_model import (
    EMBEDS,
    MODEL_SETTINGS,
    MULTI_VECTOR,
    RANKS,
    TRANSFORMER_SETTINGS,
    Module,
    SavedModel,
    Step,
    encoder_path,
    folders_of,
)
from rank_core.errors import BadInput, shown

VECTOR, SCORES, TOKENS = "sentence_embedding", "scores", "token_embeddings"
"""What Pooling writes, what ranks, and what a Transformer writes."""
TRANSFORMER_FILES = (
    TRANSFORMER_SETTINGS,
    *(
        f"sentence_{kind}_config.json"
        for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    ),
)
"""Names of that file, in the order in which sentence-transformers tries them."""
MOST_MODULES = 100

OUR_POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
"""{name in sentence-transformers: ours}."""
RARE_POOLINGS = ("max", "mean_sqrt_len_tokens", "weightedmean")
"""Poolings that sentence-transformers computes."""
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Settings of older versions, in the order in which their vectors are joined."""
ACTIVATIONS: dict[str, type[nn.Module]] = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (
        *(nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.ELU, nn.SELU),
        *(nn.LeakyReLU, nn.ReLU6, nn.Mish, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish),
    )
}
IDENTITY = "torch.nn.modules.linear.Identity"
SETTINGS: dict[str, dict[str, Any]] = {
    "Dense": {
        "in_features": 0,
        "out_features": 0,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
        "module_input_name": VECTOR,
        "module_output_name": None,
        "use_residual": False,
    },
    "LayerNorm": {"dimension": 0},
    "Dropout": {"dropout": 0.2},
    "Normalize": {"module_input_name": VECTOR, "module_output_name": None},
}
"""{module behind a Pooling: its settings with their defaults; 0 where there is none}."""
KEYS = {
    "Pooling": {"embedding_dimension", "word_embedding_dimension", "pooling_mode"}
    | {"include_prompt", *OLD_POOLINGS},
    "LogitScore": {"true_token_id", "false_token_id", "module_input_name"},
}
"""{other module: its settings}."""
OF_ALL = {"__version__", "model_type", "prompts", "default_prompt_name", "requirements"}
OF_TOKENS = ("query_length", "document_length", "query_expansion")
"""Keys of a Transformer whose token vectors are compared."""
PYLATE = (
    *OF_TOKENS,
    *("query_prefix", "document_prefix", "do_query_expansion", "skiplist_words"),
    *("attend_to_expansion_tokens", "attend_to_mask_tokens"),
)
"""Keys of PyLate in config_sentence_transformers.json, by which sentence-transformers knows it."""
MASK: dict[str, Any] = {
    "skiplist_words": [],
    "skiplist_tasks": ["document"],
    "keep_only_token_ids": None,
}
"""The settings of a MultiVectorMask with their defaults."""
EXPANSION: dict[str, Any] = {"strategy": None, "attend": False, "token": None, "length": None}
"""Those of `query_expansion`."""
MODEL_KEYS = {
    EMBEDS: OF_ALL | {"similarity_fn_name", "truncate_dim"},
    RANKS: OF_ALL | {"activation_fn", "keep_in_fp32_modules"},
    **dict.fromkeys(MULTI_VECTOR, OF_ALL | {"similarity_fn_name", *PYLATE}),
}
"""{model_type: keys of config_sentence_transformers.json that sentence-transformers reads}. The
activation of a reranker changes no ranking, and is not applied."""
TRANSFORMER_KEYS = {"transformer_task", "modality_config", "module_output_name", "unpad_inputs"}
TRANSFORMER_KEYS |= {"max_seq_length", "do_lower_case"}
CALLED, TEMPLATE = "processing_kwargs", "chat_template"
"""What a tokenizer is called with, and the part of it that a chat template gets."""
NOT_RENDERED = {
    *(TEMPLATE, "continue_final_message", "max_length", "padding", "restore_suffix"),
    *("return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize"),
    *("tokenizer_kwargs", "truncation"),
}
"""Arguments of `apply_chat_template` that are no variables of the template."""
SAME_ROWS = re.compile(
    r"(model_(kwargs|args)|tokenizer_args|processor_kwargs|config_(args|kwargs))"
    r"\.trust_remote_code"
    r"|(model_kwargs|model_args)\.(add_pooling_layer|attn_implementation|dtype|torch_dtype)"
    rf"|{CALLED}\.(audio|image|video)\..*"
    rf"|{CALLED}\.(common|text|{TEMPLATE})\."
    r"(padding|padding_side|pad_to_multiple_of|restore_suffix|return_tensors|truncation)"
)
"""Settings with which a row of text has the same tokens and the same vectors, in fp32;
sentence-transformers strips `trust_remote_code`."""


class Unread(Exception):
    """The reason why a chain cannot be read."""


def stated_modules(folder: Path) -> tuple[Module, ...]:
    """The modules of a folder, in order; none without `modules.json`. Raises `BadInput` for a file
    that is damaged, or names a folder elsewhere."""
    path = folder / MODULES
    if not path.exists():
        return ()
    if not (stated := read_json(path, list)):
        raise damaged(path, "names no modules")
    if len(stated) > MOST_MODULES:
        raise damaged(path, f"names more than {MOST_MODULES} modules")
    modules = []
    for one in stated:
        kind, place = (one.get(k) for k in ("type", "path")) if isinstance(one, dict) else (0, 0)
        if not (isinstance(kind, str) and kind):
            raise damaged(path, f"has a module without a type: {shown(one)}")
        place = "" if place is None else place
        if not isinstance(place, str) or Path(place).is_absolute() or ".." in Path(place).parts:
            raise damaged(path, f"has a module in {shown(place)}, which is not a folder beside it")
        modules.append(Module(kind, "" if Path(place) == Path() else Path(place).as_posix()))
    return tuple(modules)


def encoder_folder(folder: Path) -> Path:
    """The folder of the Transformer in a folder with modules; the folder itself without one."""
    return folder / encoder_path(stated_modules(folder))


def modules_folder(folder: Path, exported: str) -> Path:
    """The folder with the modules to which an encoder's folder belongs: the one above, if that
    names it and has no file `exported`; else itself."""
    above = folder.parent
    if (folder / MODULES).exists() or (above / exported).exists():
        return folder
    return above if (above / MODULES).exists() and encoder_folder(above) == folder else folder


def read_table(path: Path) -> dict[str, Any]:
    """The table in a JSON file; empty without a file."""
    return read_json(path, dict) if path.exists() else {}


def size_in(path: Path, settings: Mapping[str, Any], key: str) -> int | None:
    """A size that a file states; None where it states none. Raises `BadInput` for any other
    value."""
    value = settings.get(key)
    if value is not None and (type(value) is not int or value < 1):
        raise damaged(path, f"has {key}={shown(value)}, which is not a size")
    return value


def transformer_settings(encoder: Path) -> dict[str, Any]:
    """The settings of the Transformer in a folder, by the first file of their names that has
    any."""
    return next(filter(None, (read_table(encoder / n) for n in TRANSFORMER_FILES)), {})


def read_saved(folder: Path) -> SavedModel:
    """What the files in a folder say. Raises `BadInput` for one that is no table; what is damaged
    or not read beyond that is a reason in the record, as a backbone reads the encoder alone."""
    modules, path = stated_modules(folder), folder / MODEL_SETTINGS
    settings = read_table(path)
    task, similarity = (
        settings.get("model_type") or EMBEDS,
        settings.get("similarity_fn_name") or "",
    )
    if not isinstance(task, str):
        raise damaged(path, f"has model_type={shown(task)}, which is no name")
    if task == EMBEDS and any(settings.get(key) is not None for key in PYLATE):
        task = MULTI_VECTOR[1]
    transformer = transformer_settings(folder / encoder_path(modules))
    template, problem = _of_rows(transformer, OF_TOKENS if task in MULTI_VECTOR else ())
    keys = sorted(settings.keys() - MODEL_KEYS.get(task, MODEL_KEYS[EMBEDS]))
    kinds = [module.kind for module in modules]
    dense = (read_table(folder / m.path / CONFIG) for m in modules if m.kind == "Dense")
    saved = SavedModel(
        folder,
        modules,
        task,
        scores=task == RANKS
        or "LogitScore" in kinds
        or any(own.get("module_output_name") == SCORES for own in dense),
        similarity=similarity if isinstance(similarity, str) else shown(similarity),
        lowers=bool(modules and transformer.get("do_lower_case")),
        chats="Transformer" in kinds and _has_messages(transformer),
        template=template,
        row_problem=problem,
        notes=(
            *_note(f"Not read, as in sentence-transformers: {{}} in {path.name}.", keys),
            *_note("Weights that no module reads: {}.", _unread_weights(folder, modules)),
        ),
    )
    for read in (_with_length, _with_prompts, _with_dimensions, _with_chain):
        try:
            saved = read(saved, settings, transformer)
        except Unread as reason:
            saved = replace(saved, unread=str(reason))
        except BadInput as error:
            saved = replace(saved, damage=saved.damage or str(error))
    return saved


Table = Mapping[str, Any]


def _has_messages(transformer: Table) -> bool:
    """Whether sentence-transformers writes the rows of a Transformer by its chat template."""
    methods = transformer.get("modality_config")
    return isinstance(methods, dict) and "message" in methods


def _with_length(saved: SavedModel, _: Table, transformer: Table) -> SavedModel:
    path = saved.encoder / TRANSFORMER_SETTINGS
    return replace(saved, max_length=size_in(path, transformer, "max_seq_length"))


def _with_prompts(saved: SavedModel, settings: Table, _: Table) -> SavedModel:
    prompts, default = _prompts(saved.folder / MODEL_SETTINGS, settings, saved.task)
    return replace(saved, prompts=tuple(prompts.items()), default_prompt=default)


def _with_dimensions(saved: SavedModel, settings: Table, _: Table) -> SavedModel:
    if saved.task != EMBEDS:
        return saved
    path = saved.folder / MODEL_SETTINGS
    return replace(saved, truncate_dim=size_in(path, settings, "truncate_dim"))


def _note(sentence: str, names: Sequence[str]) -> tuple[str, ...]:
    return (sentence.format(", ".join(names)),) if names else ()


def _unread_weights(folder: Path, modules: Sequence[Module]) -> list[str]:
    """The folders with weights that belong to no module."""
    known = {place.relative_to(folder).parts[0] for place in folders_of(folder, modules)}
    files = (file for name in ("*.safetensors", PICKLED) for file in folder.glob(f"*/{name}"))
    return sorted({file.parent.name for file in files} - known)


def _prompts(
    path: Path, settings: Mapping[str, Any], task: str
) -> tuple[dict[str, str], str | None]:
    """({name: text} of the prompts, those of PyLate with their prefixes, the name of the
    default)."""
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict):
        raise damaged(path, f"has prompts={shown(prompts)}, which is not a table {{name: text}}")
    for key, prompt in prompts.items():
        if not isinstance(prompt, str | None):
            raise damaged(path, f"has the prompt {key}={shown(prompt)}, which is not a text")
    texts = {key: prompt or "" for key, prompt in prompts.items()}
    if task in MULTI_VECTOR:
        return texts | _prefixed(path, settings, texts), None
    known = [*prompts, *(("query", "document") if task != RANKS else ())]
    if default is not None and default not in known:
        raise damaged(
            path, f"has default_prompt_name={shown(default)}, which is not one of its prompts"
        )
    return texts, default


def _prefixed(path: Path, settings: Table, prompts: Mapping[str, str]) -> dict[str, str]:
    """The prompts of PyLate that have a prefix, each with it."""
    found = {}
    for role in ("query", "document"):
        if f"{role}_prefix" in settings:
            prefix = settings[f"{role}_prefix"] or ""
            if not isinstance(prefix, str):
                raise damaged(path, f"has {role}_prefix={shown(prefix)}, which is not a text")
            found[role] = prefix + prompts.get(role, "").removeprefix(prefix)
    return found


def _of_rows(settings: Mapping[str, Any], also: Sequence[str]) -> tuple[dict[str, Any], str]:
    """(what a Transformer gives to its chat template, the settings by which sentence-transformers
    would read other rows, in words); the caller reads those in `also`."""
    rest = {key: own for key, own in settings.items() if key not in {*TRANSFORMER_KEYS, *also}}
    called, values = rest.get(CALLED), {}
    if isinstance(called, dict) and isinstance(own := called.get(TEMPLATE), dict):
        values = {key: value for key, value in own.items() if key not in NOT_RENDERED}
        rest[CALLED] = called | {TEMPLATE: {key: own[key] for key in own.keys() - values}}
    found = sorted(name for name in _names(rest) if not SAME_ROWS.fullmatch(name))
    return values, f"its Transformer has the settings {', '.join(found)}" if found else ""


def _names(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted name of all that is set in nested tables."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{above}{key}.")
        elif value is not None and (above or value):
            yield f"{above}{key}"


def _with_chain(saved: SavedModel, _: Table, transformer: Table) -> SavedModel:
    """With what is computed behind the encoder. Raises `Unread` for what is not computed here."""
    if not saved.modules:
        return saved
    first, *rest = saved.modules
    foreign = [module for module in saved.modules if not module.of_library]
    if foreign and saved.task not in MULTI_VECTOR:
        raise Unread(f"its module {foreign[0]} is not read: its code is elsewhere")
    if first.kind != "Transformer":
        raise Unread(f"its first module is {first}, not a Transformer")
    _require_last_layer(transformer)
    if saved.row_problem:
        raise Unread(saved.row_problem)
    if saved.task in MULTI_VECTOR:  # whose modules read tokens
        return saved
    if not rest:
        raise Unread("its Transformer has no Pooling behind it")
    if rest[0].kind != "Pooling":
        raise Unread(f"its module {rest[0]} follows a Transformer, where Pooling is read")
    pooling, reads_prompt = _pooling(saved.folder, rest[0])
    steps = tuple(_steps(saved.folder, rest[1:]))
    return replace(saved, pooling=pooling, reads_prompt=reads_prompt, steps=steps)


def _require_last_layer(settings: Mapping[str, Any]) -> None:
    """Raises `Unread` where a Transformer gives other vectors than those of the last layer."""
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise Unread(f"its Transformer gives what its Pooling cannot read (task {shown(task)})")
    output = settings.get("module_output_name", TOKENS)
    methods = settings.get("modality_config", {"text": {}})
    read = {"method": "forward", "method_output_name": "last_hidden_state"}
    if output != TOKENS or not isinstance(methods, dict):
        raise Unread(f"its Transformer gives {shown(output)}, not {TOKENS}")
    for method in methods.values():
        if not isinstance(method, dict) or not {**read, **method}.items() >= read.items():
            raise Unread(f"its Transformer gives {shown(method)}, not the last layer's vectors")


def _pooling(folder: Path, module: Module) -> tuple[str, bool]:
    """Our name of a pooling, those of sentence-transformers joined by + where there are several;
    and whether it reads the tokens of the prompt too."""
    path, settings = folder / module.path / CONFIG, known_settings(folder, module)
    sizes = ("embedding_dimension", "word_embedding_dimension")
    if not any([size_in(path, settings, key) for key in sizes]):
        is_there = "states no" if path.exists() else "is missing, which states"
        raise damaged(path, f"{is_there} {sizes[0]} of a Pooling")
    found = settings.get("pooling_mode") or [o for k, o in OLD_POOLINGS.items() if settings.get(k)]
    if not isinstance(found, str | list):
        raise damaged(path, f"has pooling_mode={shown(found)}, which is no name")
    modes = [found] if isinstance(found, str) else found or ["mean"]
    for mode in modes:
        if mode not in (*OUR_POOLINGS, *RARE_POOLINGS):
            raise Unread(f"its module {module} has the mode {shown(mode)}")
    reads_prompt = settings.get("include_prompt", True)
    if not isinstance(reads_prompt, bool | None):
        why = f"has include_prompt={shown(reads_prompt)}, which is neither true nor false"
        raise damaged(path, why)
    known = modes[0] in OUR_POOLINGS and not modes[1:]
    return OUR_POOLINGS[modes[0]] if known else "+".join(modes), bool(reads_prompt)


def _steps(folder: Path, modules: Sequence[Module]) -> Iterator[Step]:
    """The modules behind a Pooling, each with what it reads and writes. Raises `Unread` for one
    that is not read there."""
    known = {VECTOR}
    for module in modules:
        if module.kind not in SETTINGS:
            raise Unread(f"its module {module} is not read behind a Pooling")
        settings = module_settings(folder, module)
        takes = settings.get("module_input_name", VECTOR)
        gives = settings.get("module_output_name") or takes
        if takes not in known:
            raise Unread(f"its module {module} reads {shown(takes)}, which no module writes")
        if (name := settings.get("activation_function")) and name not in ACTIVATIONS:
            raise Unread(
                f"its module {module} has the activation {shown(name)}; known: "
                f"{', '.join(ACTIVATIONS)}"
            )
        known.add(gives)
        yield Step(module.kind, module.path, takes, gives)


def known_settings(folder: Path, module: Module) -> dict[str, Any]:
    """The settings that the file of a module states. Raises `BadInput` for a key that the module
    does not have."""
    path = folder / module.path / CONFIG
    stated = read_table(path)
    known = SETTINGS[module.kind] if module.kind in SETTINGS else KEYS[module.kind]
    if rest := [key for key in stated if key not in known]:
        raise damaged(
            path,
            f"has the unknown key {shown(rest[0])} of a {module.kind}",
            "is it of a newer sentence-transformers? Remove the key, or upgrade ranksweep",
        )
    return stated


def module_settings(folder: Path, module: Module) -> dict[str, Any]:
    """The settings of a module behind a Pooling, checked. Raises `BadInput` for a damaged file."""
    path, usual = folder / module.path / CONFIG, SETTINGS[module.kind]
    stated = known_settings(folder, module)
    for key, value in stated.items():
        kind = type(usual[key])
        if kind is type(None):
            kind = str
        if not (type(value) is kind or (kind is float and type(value) is int) or value is None):
            raise damaged(path, f"has {key}={shown(value)}, which is no {kind.__name__}")
    settings = usual | {key: value for key, value in stated.items() if value is not None}
    for key, value in usual.items():
        if value == 0 and type(value) is int and settings[key] < 1:
            raise damaged(path, f"must have a size as {key}, got {shown(settings[key])}")
    return settings
