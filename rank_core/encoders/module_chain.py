"""Rerankers that sentence-transformers (5.4 and later) saves as a chain of modules: a Transformer,
the Pooling of a row's vectors into one, and a head of Dense, LayerNorm, Dropout and Normalize.

`modules.json` names the modules; each has a folder with its settings and weights. All but rare
poolings are computed here, and those by sentence-transformers' own module. A chain that writes a
score and cannot be read is refused by the name of its module: without it, the rest would rank at
random.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from rank_core.encoders.backbone_types import ABSENT, POOLINGS, Chain, RowLayout, Step
from rank_core.encoders.checkpoint import (
    CONFIG,
    MODULES,
    WEIGHTS_FILE,
    check_finite,
    check_whole,
    damaged,
    read_json,
)
from rank_core.errors import BadInput, not_installed, shown
from rank_core.files import write_json

VECTOR, SCORES = "sentence_embedding", "scores"
"""What Pooling writes, and what ranks."""
READ = ("Transformer", "Pooling", "Dense", "LayerNorm", "Dropout", "Normalize", "LogitScore")
LIBRARY = "sentence_transformers"
TRANSFORMER_SETTINGS, MODEL_SETTINGS = (
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
TRANSFORMER_FILES = (
    TRANSFORMER_SETTINGS,
    *(
        f"sentence_{kind}_config.json"
        for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    ),
)
"""Names of that file, in the order in which sentence-transformers tries them."""
EMBEDS = "SentenceTransformer"
"""The model_type of embedding models, and of old files without one."""
MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")
"""Those of models with a vector for each token: sentence-transformers' and PyLate's."""
SPARSE = "SparseEncoder"
"""That of models with a weight for each word of a vocabulary."""
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
"""{module of a head: its settings with their defaults; 0 where there is none}."""
MOST_MODULES = 100
CALLED, TEMPLATE = "processing_kwargs", "chat_template"
"""What a tokenizer is called with, and the part of it that a chat template gets."""
READ_SETTINGS = {"transformer_task", "modality_config", "module_output_name", "unpad_inputs"}
READ_SETTINGS |= {"max_seq_length", "do_lower_case"}
"""Keys of a Transformer's settings that are read here."""
OF_TOKENS = ("query_length", "document_length", "query_expansion")
"""Further ones, of a Transformer whose token vectors are compared."""
PYLATE = (
    *OF_TOKENS,
    *("query_prefix", "document_prefix", "do_query_expansion", "skiplist_words"),
    *("attend_to_expansion_tokens", "attend_to_mask_tokens"),
)
"""Keys of PyLate in config_sentence_transformers.json, by which sentence-transformers knows it."""
NOT_RENDERED = {
    "chat_template",
    "continue_final_message",
    "max_length",
    "padding",
    "restore_suffix",
}
NOT_RENDERED |= {"return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize"}
NOT_RENDERED |= {"tokenizer_kwargs", "truncation"}
"""Arguments of `apply_chat_template` that are no variables of the template."""
SAME_ROWS = re.compile(
    r"(model_kwargs|model_args)\.(add_pooling_layer|attn_implementation|dtype|torch_dtype)"
    rf"|{CALLED}\.(audio|image|video)\..*"
    rf"|{CALLED}\.(common|text|{TEMPLATE})\."
    r"(padding|padding_side|pad_to_multiple_of|restore_suffix|return_tensors|truncation)"
)
"""Settings with which a row of text has the same tokens and the same vectors, in fp32."""


class Module(NamedTuple):
    """A module that `modules.json` names."""

    type: str
    path: str  # its folder, relative

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self.type.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.kind} ({self.path})" if self.path else self.kind


class Unread(Exception):
    """The reason why a chain cannot be read."""


def stated_modules(folder: Path) -> list[Module]:
    """The modules of a folder, in order; none without `modules.json`. Raises `BadInput` for a file
    that is damaged, or names a folder elsewhere."""
    path = folder / MODULES
    if not path.exists():
        return []
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
        modules.append(Module(kind, place.rstrip("/")))
    return modules


def encoder_folder(folder: Path) -> Path:
    """The folder of the Transformer in a folder with modules; the folder itself without one."""
    paths = [module.path for module in stated_modules(folder) if module.kind == "Transformer"]
    return folder / paths[0] if paths else folder


def modules_folder(folder: Path, exported: str) -> Path:
    """The folder with the modules to which an encoder's folder belongs: the one above, if that
    names it and has no file `exported`; else itself."""
    above = folder.parent
    if (folder / MODULES).exists() or (above / exported).exists():
        return folder
    return above if (above / MODULES).exists() and encoder_folder(above) == folder else folder


def read_chain(folder: Path, *, causal: bool) -> Chain | None:
    """The chain of a folder with modules; None where it writes no score, or where transformers'
    classifier or the output matrix of a decoder (`causal`) is all of its head."""
    modules = stated_modules(folder)
    kinds = [module.kind for module in modules]
    settings = read_table(folder / MODEL_SETTINGS)
    dense = [module_settings(folder, m) for m in modules if m.kind == "Dense"]
    scores = any(one["module_output_name"] == SCORES for one in dense)
    scores |= settings.get("model_type") == "CrossEncoder" or "LogitScore" in kinds
    if not scores or kinds in ([], ["Transformer"]):
        return None
    if causal and kinds in (["Transformer", "LogitScore"], ["LogitScore"]):
        return None
    try:
        return _chain(folder, modules)
    except Unread as reason:
        return Chain(folder, problem=str(reason), described=", ".join(kinds))


def _chain(folder: Path, modules: list[Module]) -> Chain:
    for module in modules:
        if module.kind not in READ or not module.type.startswith(f"{LIBRARY}."):
            raise Unread(f"its module {module} is not read; known: {', '.join(READ)}")
    parts = read_parts(folder, modules, has_prompt=bool(stated_prompt(folder)))
    if SCORES not in {step.gives for step in parts.steps}:
        raise Unread(f"none of its modules ({', '.join(map(str, modules))}) writes {SCORES}")
    described = ", ".join(module.kind for module in modules[1:])
    return Chain(folder, parts.pooling, parts.steps, chats=parts.chats, described=described)


class ChainParts(NamedTuple):
    """How a chain makes a row's tokens into vectors or scores."""

    pooling: str
    steps: tuple[Step, ...]  # behind it
    chats: bool = False  # rows are written by a chat template


def read_parts(folder: Path, modules: Sequence[Module], *, has_prompt: bool) -> ChainParts:
    """The parts of a chain that is computed here. Raises `Unread` for any other, and for one that
    leaves out a prompt that texts have."""
    transformer, pooling, rest = parts_of(modules)
    chats = "message" in methods_of(folder / transformer.path)
    template_values(folder)
    mode, reads_prompt = pooling_of(folder, pooling)
    if has_prompt and not reads_prompt:
        raise Unread(f"its module {pooling} leaves out the prompt (include_prompt)")
    return ChainParts(mode, tuple(steps_of(folder, rest)), chats)


def parts_of(modules: Sequence[Module]) -> tuple[Module, Module, list[Module]]:
    """The Transformer, the Pooling and the modules behind it. Raises `Unread` for a chain of other
    parts."""
    transformer, pooling, *rest = (*modules, None, None)
    if transformer is None or transformer.kind != "Transformer":
        raise Unread(f"its first module is {transformer}, not a Transformer")
    if pooling is None or pooling.kind != "Pooling":
        raise Unread(f"its module {pooling} follows a Transformer, where Pooling is read")
    return transformer, pooling, [module for module in rest if module is not None]


def steps_of(folder: Path, modules: Sequence[Module]) -> list[Step]:
    """The modules behind a Pooling, each with what it reads and writes. Raises `Unread` for one
    that is not read there."""
    steps, known = [], {VECTOR}
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
        steps.append(Step(module.kind, module.path, takes, gives))
    return steps


def transformer_settings(folder: Path) -> dict[str, Any]:
    """The settings of the Transformer in a folder, by the first file of their names that has
    any."""
    return next(filter(None, (read_table(folder / n) for n in TRANSFORMER_FILES)), {})


def template_values(folder: Path, also: Sequence[str] = ()) -> dict[str, Any]:
    """What the Transformer of a folder, the one with its modules, gives to its chat template.
    Raises `Unread` for a setting by which sentence-transformers would read other rows; the caller
    reads those in `also`."""
    settings, read = transformer_settings(encoder_folder(folder)), READ_SETTINGS | {*also}
    rest = {name: value for name, value in settings.items() if name not in read}
    called, values = rest.get(CALLED), {}
    if isinstance(called, dict) and isinstance(own := called.get(TEMPLATE), dict):
        values = {key: value for key, value in own.items() if key not in NOT_RENDERED}
        rest[CALLED] = called | {TEMPLATE: {key: own[key] for key in own.keys() - values}}
    if found := sorted(name for name in _names(rest) if not SAME_ROWS.fullmatch(name)):
        raise Unread(f"its Transformer has the settings {', '.join(found)}")
    return values


def _names(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted name of all that is set in nested tables."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{above}{key}.")
        elif value is not None and (above or value):
            yield f"{above}{key}"


def row_problem(folder: Path) -> str:
    """Why a classifier's pairs are not the rows that sentence-transformers gives it; "" where they
    are."""
    try:
        template_values(folder)
    except Unread as reason:
        return str(reason)
    return ""


def methods_of(folder: Path) -> dict[str, Any]:
    """The kinds of input of a Transformer. Raises `Unread` for other vectors than the last
    layer's."""
    settings = transformer_settings(folder)
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise Unread(f"its Transformer gives what its Pooling cannot read (task {shown(task)})")
    output = settings.get("module_output_name", "token_embeddings")
    methods = settings.get("modality_config", {"text": {}})
    read = {"method": "forward", "method_output_name": "last_hidden_state"}
    if output != "token_embeddings" or not isinstance(methods, dict):
        raise Unread(f"its Transformer gives {shown(output)}, not token_embeddings")
    for method in methods.values():
        if not isinstance(method, dict) or not {**read, **method}.items() >= read.items():
            raise Unread(f"its Transformer gives {shown(method)}, not the last layer's vectors")
    return methods


def pooling_of(folder: Path, module: Module) -> tuple[str, bool]:
    """Our name of a pooling, those of sentence-transformers joined by + where there are several;
    and whether it reads the tokens of the prompt too."""
    settings = read_table(folder / module.path / CONFIG)
    found = settings.get("pooling_mode") or [o for k, o in OLD_POOLINGS.items() if settings.get(k)]
    modes = [found] if isinstance(found, str) else [*found] or ["mean"]
    for mode in modes:
        if mode not in (*OUR_POOLINGS, *RARE_POOLINGS):
            raise Unread(f"its module {module} has the mode {shown(mode)}")
    known = modes[0] in OUR_POOLINGS and not modes[1:]
    name = OUR_POOLINGS[modes[0]] if known else "+".join(modes)
    return name, settings.get("include_prompt") is not False


def module_settings(folder: Path, module: Module) -> dict[str, Any]:
    """The settings of a module, checked. Raises `BadInput` for a damaged file."""
    path, usual = folder / module.path / CONFIG, SETTINGS[module.kind]
    stated = read_table(path)
    for key, value in stated.items():
        if key not in usual:
            raise damaged(path, f"has the unknown key {shown(key)} of a {module.kind}")
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


def read_table(path: Path) -> dict[str, Any]:
    """The table in a JSON file; empty without a file."""
    return read_json(path, dict) if path.exists() else {}


def stated_prompt(folder: Path) -> str:
    """The text that a `CrossEncoder` writes before every query by default."""
    path = folder / MODEL_SETTINGS
    settings = read_table(path)
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if settings.get("model_type") != "CrossEncoder" or name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise damaged(path, f"has default_prompt_name={shown(name)}, which none of its prompts is")
    return prompt


class Dense(nn.Module):
    """activation(W x + b) of vectors x, with a residual connection if there is one."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        sizes = settings["in_features"], settings["out_features"]
        self.linear = nn.Linear(*sizes, bias=settings["bias"])
        self.activation = ACTIVATIONS[settings["activation_function"]]()
        self.adds, same = settings["use_residual"], sizes[0] == sizes[1]
        self.residual = nn.Linear(*sizes, bias=False) if self.adds and not same else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        out = self.activation(self.linear(x))
        return out + self.residual(x) if self.adds else out


class LayerNorm(nn.Module):
    """A layer norm, by the name that its weights have."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings["dimension"])

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        return self.norm(x)


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector per vector."""
        return normalize(x, dim=-1)


class ModuleStack(nn.Module):
    """The modules behind a Pooling: from row vectors x_XH to what `gives` names, vectors or
    scores."""

    def __init__(
        self, folder: Path, steps: Sequence[Step], *, gives: str = VECTOR, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.steps, self.gives = steps, gives
        self.layers = nn.ModuleList(module_layer(folder, step, dropout) for step in steps)

    def forward(self, x_XH: Tensor) -> Tensor:
        """One vector, or one row of scores, per vector."""
        found = {VECTOR: x_XH}
        for step, layer in zip(self.steps, self.layers, strict=True):
            found[step.gives] = layer(found[step.takes])
        return found[self.gives]


class ChainHead(ModuleStack):
    """score_X1 of row vectors x_XH, by the modules behind a chain's Pooling. Two scores are one,
    the second minus the first."""

    def __init__(self, chain: Chain, dropout: float) -> None:
        super().__init__(chain.folder, chain.steps, gives=SCORES, dropout=dropout)
        self.chain = chain

    def forward(self, x_XH: Tensor) -> Tensor:
        """One score per vector."""
        score = super().forward(x_XH)
        return score if score.shape[-1] == 1 else score[..., 1:] - score[..., :1]


def module_layer(folder: Path, step: Step, dropout: float = 0.0) -> nn.Module:
    """A module with its weights, in fp32. Raises `BadInput` where they are missing or damaged."""
    settings = module_settings(folder, Module(step.kind, step.path))
    if step.kind == "Dropout":
        return nn.Dropout(dropout)
    if step.kind == "Normalize":
        return Normalize()
    layer = (Dense if step.kind == "Dense" else LayerNorm)(settings)
    path = folder / step.path / WEIGHTS_FILE
    if not path.exists():
        path = folder / step.path / "pytorch_model.bin"
    if not path.is_file():
        raise BadInput(
            f"{path.with_name(WEIGHTS_FILE)} is missing: it has the weights of a {step.kind}"
        )
    check_whole(path)
    check_finite(path)
    try:
        if path.name == WEIGHTS_FILE:
            weights = load_file(path)
        else:
            weights = torch.load(path, map_location="cpu", weights_only=True)
        layer.load_state_dict(weights)
    except Exception as error:  # of any kind, from a damaged pickle
        reason = (str(error).strip() or type(error).__name__).replace("\n", " ")
        raise damaged(path, f"does not hold the weights of a {step.kind} ({reason})") from None
    return layer.float()


def load_chain_head(chain: Chain, hidden_size: int, dropout: float) -> ChainHead:
    """The head of a chain over an encoder of `hidden_size`, in fp32. Raises `BadInput` for weights
    of other sizes, and for more than two scores."""
    head = ChainHead(chain, dropout)
    size = hidden_size * len(chain.pooling.split("+"))
    try:
        with torch.inference_mode():
            scores = head.eval()(torch.zeros(1, size)).shape[-1]
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise damaged(
            chain.folder / MODULES, f"names modules that do not fit each other ({reason})"
        ) from None
    if scores != 1:
        raise damaged(
            chain.folder / MODULES, f"gives {scores + 1} scores; a ranking head has one, or two"
        )
    return head.train()


def other_task(folder: Path) -> str:
    """Why the modules of a folder give no vectors of texts, in words; "" where they may."""
    kind = read_table(folder / MODEL_SETTINGS).get("model_type") or EMBEDS
    if kind == SPARSE:
        stated = f"model_type in {folder / MODEL_SETTINGS}"
        return f"is a {kind} ({stated}), whose weights of words (SPLADE) are not computed here"
    if kind != EMBEDS:
        return f"is a {shown(kind)} (model_type in {folder / MODEL_SETTINGS})"
    scores = [module for module in stated_modules(folder) if module.kind == "LogitScore"]
    return f"is a reranker (its module {scores[0]} gives scores)" if scores else ""


def gives_vectors(folder: Path) -> bool:
    """True for a folder with the modules of an embedding model."""
    return bool(stated_modules(folder)) and not other_task(folder)


def is_multi_vector(folder: Path) -> bool:
    """True for a folder with the modules of a `MultiVectorEncoder`, or of PyLate."""
    settings = read_table(folder / MODEL_SETTINGS)
    kind = settings.get("model_type") or EMBEDS
    named = kind in MULTI_VECTOR or (kind == EMBEDS and not settings.keys().isdisjoint(PYLATE))
    return named and bool(stated_modules(folder))


def module_folders(folder: Path) -> list[Path]:
    """The folders of all modules but those in `folder` itself."""
    return [folder / module.path for module in stated_modules(folder) if module.path]


def save_modules(source: Path, folder: Path, head: ChainHead | None = None) -> None:
    """Writes the modules of `source`, with the weights of a trained head, beside an encoder and its
    tokenizer in `folder`, as sentence-transformers reads them; nothing without modules."""
    if not (modules := stated_modules(source)):
        return
    places = [{"path": "" if m.kind == "Transformer" else m.path} for m in modules]
    stated = zip(read_json(source / MODULES, list), places, strict=True)
    write_json(folder / MODULES, [old | place for old, place in stated])
    copied = [(source, MODEL_SETTINGS, folder)]
    copied += [(encoder_folder(source), TRANSFORMER_SETTINGS, folder)]
    copied += [(source / m.path, CONFIG, folder / m.path) for m in modules if m.path]
    for place, name, to in copied:
        to.mkdir(parents=True, exist_ok=True)
        if (place / name).exists() and not (to / name).exists():
            write_json(to / name, read_json(place / name, dict))
    for step, layer in zip(head.chain.steps, head.layers, strict=True) if head else ():
        if state := {n: w.contiguous() for n, w in layer.state_dict().items()}:
            save_file(state, folder / step.path / WEIGHTS_FILE)


def require_library(pooling: str) -> None:
    """Raises `BadInput` for a pooling of sentence-transformers where that is not installed."""
    if pooling not in POOLINGS and find_spec(LIBRARY) is None:
        raise not_installed(f"sentence-transformers, which computes the pooling {pooling},", "st")


def marks_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that a tokenizer writes before and behind a single text."""
    row = tokenizer("a")
    ids, places = row["input_ids"], row.sequence_ids(0)
    first, last = places.index(0), len(places) - places[::-1].index(0)
    return tuple(ids[:first]), tuple(ids[last:])


def pair_layout(tokenizer: Any, num_segments: int) -> RowLayout:
    """The tokens that a tokenizer writes around the two texts of a pair, none where it writes none.
    Raises `Unread` where a row here cannot have them."""
    row = tokenizer("a", "a")
    ids, places = row["input_ids"], row.sequence_ids(0)
    if 0 not in places or 1 not in places:
        raise Unread("its tokenizer writes no pairs")
    query, text = places.index(0), places.index(1)
    ends = [len(places) - places[::-1].index(part) for part in (0, 1)]
    parts = (tuple(ids[:query]), tuple(ids[ends[0] : text]), tuple(ids[ends[1] :]))
    expected = [0] * text + [1] * (len(ids) - text)
    if num_segments > 1 and row.get("token_type_ids") != expected:
        raise Unread("its tokenizer does not mark the text as the second segment (token_type_ids)")
    prefix, middle, suffix = (part or (ABSENT,) for part in parts)
    return RowLayout(prefix, middle, suffix)
