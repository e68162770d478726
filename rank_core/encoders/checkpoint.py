"""All reading of a checkpoint: its JSON files, configuration, tokenizer and weights. It is data: no
code in it or named by it is run, nothing is asked, nothing is fetched, and a file that cannot be
what it should is refused by its name.

Headers are read first (`check_weights`): the sizes of weights against the configuration, without
the weights themselves.
"""

import contextlib
import copy
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto import modeling_auto

from rank_core.bounds import check_growth
from rank_core.encoders.backbone_types import TYPES
from rank_core.errors import BadInput, shown, unknown
from rank_core.files import write_json
from rank_core.parsing import Unparsed, parsed_json

T = TypeVar("T")
CONFIG, WEIGHTS_FILE, LAYOUT_FILE = "config.json", "model.safetensors", "row_layout.json"
INDEX, MODULES, ADAPTERS = f"{WEIGHTS_FILE}.index.json", "modules.json", "adapter_config.json"
TOKENIZER, TOKENIZER_SETTINGS = "tokenizer.json", "tokenizer_config.json"
VOCABULARY_FILES = (
    TOKENIZER,
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
CHECKPOINT_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
PICKLED = "pytorch_model*.bin"
FORMS = {
    TOKENIZER: dict,
    TOKENIZER_SETTINGS: dict,
    "special_tokens_map.json": dict,
    "added_tokens.json": dict,
    "vocab.json": dict,
}
"""{JSON file of a tokenizer: what it holds}."""
POINTER = b"version https://git-lfs"
FLOATS = ("F64", "F32", "F16", "BF16")
MODEL_TYPES = sorted({*TYPES} - {"jina-bert", "mosaic-bert"})
"""What config.json says of the kinds in `TYPES`; those two say bert."""
MOST_LAYERS = 1_000
_SIZE = re.compile(r"^num_|^n_|_size$|_heads$|_layers$")
_NUMBER = re.compile(r"\.\d+\.")
_LEGACY, _NOW = re.compile(r"gamma$|beta$"), {"gamma": "weight", "beta": "bias"}
"""Names of TensorFlow for the weights of a normalisation."""
_WRAPPERS = (r"^(?:(?:module|_orig_mod)\.)+", r"_orig_mod\.")
_WRAPPED = re.compile("|".join(_WRAPPERS))
"""What torch's data parallelism and `torch.compile` put before the names of a model's weights."""


def damaged(path: Path, why: str, remedy: str = "") -> BadInput:
    """The error for a file of a checkpoint."""
    return BadInput(f"{path} {why}; {remedy or 'copy or download the checkpoint again'}")


def read_json(path: Path, form: type[T]) -> T:
    """The content of a JSON file, a `form`; raises `BadInput` for any other."""
    kind = "a list" if form is list else "a table"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from None
    _require_whole(path, data)
    try:
        content = parsed_json(data)
    except Unparsed as error:
        raise damaged(path, f"is no JSON ({error.reason})") from None
    if not isinstance(content, form):
        raise damaged(path, f"must hold {kind} of JSON, got {shown(content)}")
    return content


def _require_whole(path: Path, begin: bytes) -> None:
    if begin.startswith(POINTER):
        raise damaged(
            path,
            "is a pointer of Git LFS, not the file itself",
            "run `git lfs pull` in the repository that it is from, and copy it again",
        )


def check_whole(path: Path) -> None:
    """Raises `BadInput` for a file that only points to another."""
    with path.open("rb") as file:
        _require_whole(path, file.read(len(POINTER)))


def _reason(error: BaseException) -> str:
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors, which is never run"  # torch would advise to run it
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def check_files(name: str, folder: Path) -> None:
    """Raises `BadInput` for a file that is not the file itself, and for adapters, whose encoder is
    elsewhere."""
    for pattern in (*CHECKPOINT_FILES, PICKLED):
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                check_whole(path)
    if (folder / ADAPTERS).exists():
        raise BadInput(
            f"backbone {name} holds adapters ({folder / ADAPTERS}) for an encoder that is "
            "elsewhere: merge them into it (peft's merge_and_unload) and save the whole encoder"
        )


def open_config(name: str, folder: Path) -> Any:
    """The configuration of a checkpoint. Raises `BadInput` for a folder without one, and for an
    encoder of a kind that transformers does not read texts with."""
    path = folder / CONFIG
    if not path.is_file():
        raise BadInput(
            f"backbone {name} is not a Hugging Face checkpoint ({CONFIG}, weights, tokenizer): "
            f"there is no file {path}"
        )
    stated = read_json(path, dict)
    kind = stated.get("model_type")
    if kind not in text_kinds():
        stated_kind = kind if isinstance(kind, str) else shown(kind)
        error = unknown(f"model_type of backbone {name}", stated_kind, text_kinds())
        if "auto_map" in stated:
            error = BadInput(
                f"backbone {name} is a {stated_kind}, which transformers does not have"
            )
        raise BadInput(f"{error}{_without_code(stated)} (in {path})")
    if stated.get("quantization_config"):
        raise damaged(
            path,
            f"says that the weights of backbone {name} are quantised (quantization_config)",
            "name the checkpoint that they were made from",
        )
    if str(positions := stated.get("position_embedding_type")).startswith("relative"):
        # transformers 5 ignores it, and would compute absolute ones.
        raise BadInput(f"backbone {name}: {positions} positions are not computed (in {path})")
    forms = {"architectures": list, "id2label": dict, "label2id": dict}
    for setting, form in forms.items():
        if not isinstance(stated.get(setting) or form(), form):
            wanted = {list: "list", dict: "table"}[form]
            raise damaged(path, f"has {setting}={shown(stated[setting])}, which is no {wanted}")
    if not all(isinstance(one, str) for one in stated.get("architectures") or ()):
        raise damaged(path, f"has architectures={shown(stated['architectures'])}, which are names")
    for setting, value in stated.items():
        if _SIZE.search(setting) and isinstance(value, int) and value < 0:
            raise damaged(path, f"has {setting}={value}, which is not a size")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # of any kind, from the checks of a configuration
        raise damaged(path, f"is not a configuration of a {kind} ({_reason(error)})") from None


@cache
def text_kinds() -> tuple[str, ...]:
    """The kinds that transformers loads as encoders or classifiers of texts."""
    names = ("SEQUENCE_CLASSIFICATION", "MASKED_LM", "CAUSAL_LM", "TEXT_ENCODING")
    tables = (getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES") for name in names)
    return tuple(sorted({*MODEL_TYPES, *(kind for table in tables for kind in table)}))


def architectures(stated: Mapping[str, Any]) -> list[str]:
    """The classes that a configuration names."""
    found = stated.get("architectures") or ()
    return [str(one) for one in found] if isinstance(found, list) else []


def foreign_architecture(folder: Path) -> str:
    """The class of a checkpoint that no library here has, over an encoder that is read; "" for
    others. What such a class adds to the encoder would be left out."""
    stated = read_json(folder / CONFIG, dict) if (folder / CONFIG).is_file() else {}
    biased = "alibi_starting_size" in stated or stated.get("position_embedding_type") == "alibi"
    if stated.get("model_type") not in text_kinds() or biased:  # those are computed here by kind
        return ""
    return next((name for name in architectures(stated) if name not in _classes()), "")


@cache
def _classes() -> frozenset[str]:
    """The names that transformers has; to list them takes a tenth of a second."""
    return frozenset(dir(transformers))


def _without_code(settings: Mapping[str, Any]) -> str:
    """What becomes of code that a checkpoint brings along."""
    return "; the code that it brings along (auto_map) is never run" * ("auto_map" in settings)


def open_tokenizer(folder: Path, **more: Any) -> Any:
    """The tokenizer in a folder. Raises `BadInput` for none, and for damaged files."""
    there = [folder / name for name in VOCABULARY_FILES if (folder / name).exists()]
    if not there:  # transformers would make up a tokenizer of five tokens
        raise BadInput(
            f"{folder} has no tokenizer; a backbone folder needs one of "
            f"{', '.join(VOCABULARY_FILES)}"
        )
    contents = {
        name: read_json(folder / name, form)
        for name, form in FORMS.items()
        if (folder / name).exists()
    }
    settings: Mapping[str, Any] = contents.get(TOKENIZER_SETTINGS, {})
    path = there[0]
    check_growth(folder / TOKENIZER, contents.get(TOKENIZER, {}))
    try:
        with quietly():
            tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True, **more
            )
            tokenizer("a text")
    except Exception as error:  # of any kind: of Rust, of missing keys
        if path.suffix == ".model" and find_spec("sentencepiece") is None:
            raise BadInput(
                f"{path} is read by a package that is not installed: pip install sentencepiece, or "
                f"save the tokenizer's fast form beside it, which has a {TOKENIZER}"
            ) from None
        kind = f"tokenizer_class {shown(settings.get('tokenizer_class'))}{_without_code(settings)}"
        raise damaged(path, f"is not a tokenizer ({_reason(error)}; {kind})") from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise damaged(
            path,
            f"is of a slow tokenizer ({type(tokenizer).__name__}){_without_code(settings)}",
            f"save its fast form, which has a {TOKENIZER}",
        )
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Writes a tokenizer that transformers 4 opens too, with which many servers still run: there
    the class that version 5 names by itself is unknown, and the older name is known to both."""
    tokenizer.save_pretrained(folder)
    settings = read_json(folder / TOKENIZER_SETTINGS, dict)
    if settings.get("tokenizer_class") == "TokenizersBackend":
        older = settings | {"tokenizer_class": "PreTrainedTokenizerFast"}
        write_json(folder / TOKENIZER_SETTINGS, older)


def open_model(loader: Any, folder: Path, config: Any, **more: Any) -> tuple[Any, list[str]]:
    """(model, missing weights) of a checkpoint in fp32, by a class of transformers or one of ours.
    Raises `BadInput` where sizes and weights disagree."""
    if any(map(_WRAPPED.search, shapes(str(folder), folder))):
        more["key_mapping"] = dict.fromkeys(_WRAPPERS, "")
    # Without a name for the attention, that of config.json would be taken: of a package that is
    # absent, or of code on a hub.
    more = {"attn_implementation": "eager", **more}
    try:
        with quietly():
            model, report = loader.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                local_files_only=True,
                **more,
            )
    except Exception as error:  # of any kind, from a class of transformers
        raise _no_model(folder, "and the weights beside it make no model", error) from None
    for weight, stored, sized in report["mismatched_keys"]:
        raise _other_size(folder, weight, stored, sized)
    base = f"{getattr(model, 'base_model_prefix', '')}."
    unread = (key.removeprefix(base).partition(".")[0] for key in report["unexpected_keys"])
    # Many encoders are saved with a pooler of their own, which embedding models do not use.
    model.unread_weights = tuple(sorted({*unread} - {"pooler"}))
    return model, sorted(report["missing_keys"])


def _no_model(folder: Path, why: str, error: Exception) -> BadInput:
    """The error for an encoder that its class does not make: of the checkpoint, or of this
    machine."""
    if isinstance(error, ImportError):
        needs = "needs a library that is missing or cannot be imported"
        return BadInput(f"{folder} {needs} ({_reason(error)}); install it, or install it anew")
    return damaged(folder / CONFIG, f"{why} ({_reason(error)})")


def _other_size(folder: Path, weight: str, stored: Sequence[int], sized: Sequence[int]) -> BadInput:
    return damaged(
        folder / CONFIG,
        f"and the weights beside it disagree about sizes: {weight} is stored as {tuple(stored)}, "
        f"and would be {tuple(sized)}",
    )


def without_memory(loader: Any, config: Any, **more: Any) -> nn.Module:
    """The modules of a configuration, without memory for their weights."""
    own = getattr(loader, "_from_config", None)
    make: Callable[..., nn.Module] = own or loader.from_config
    extra = {} if own else {"trust_remote_code": False}
    with torch.device("meta"), quietly():
        return make(config, attn_implementation="eager", **extra, **more)


def weight_files(name: str, folder: Path) -> list[Path]:
    """The files with the weights of a checkpoint. Raises `BadInput` where one is missing."""
    if (folder / WEIGHTS_FILE).exists():
        return [folder / WEIGHTS_FILE]
    if (path := folder / INDEX).exists():
        parts = read_json(path, dict).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise damaged(path, "must have a weight_map {weight: file}")
        for part in {*parts.values()}:
            if not isinstance(part, str) or Path(part).name != part:
                raise damaged(path, f"names {shown(part)}, which is not a file beside it")
            if not (folder / part).is_file():
                raise damaged(path, f"names {part}, which is not there")
        return [folder / part for part in sorted({*parts.values()})]
    if pickled := sorted(folder.glob(PICKLED)):
        return pickled
    raise BadInput(
        f"backbone {name} has no weights: {folder} needs {WEIGHTS_FILE} (or its parts with "
        f"{INDEX}, or {PICKLED})"
    )


def _headers(name: str, folder: Path) -> Iterator[tuple[Path, str, tuple[int, ...], str]]:
    """(file, weight, shape, type) of every weight, by the headers of safetensors files."""
    for path in weight_files(name, folder):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, "pt") as file:
                    slices = {key: file.get_slice(key) for key in file.keys()}
                    found = {k: (tuple(s.get_shape()), s.get_dtype()) for k, s in slices.items()}
            else:
                content = torch.load(path, map_location="meta", weights_only=True)
                tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)}
                found = {
                    k: (tuple(v.shape), "F32" if v.is_floating_point() else str(v.dtype))
                    for k, v in tensors.items()
                }
        except Exception as error:  # of any kind, from a damaged pickle
            raise BadInput(
                f"backbone {name}: the weights in {path} cannot be read ({_reason(error)}); copy "
                "or download the checkpoint again"
            ) from None
        if not found:
            raise damaged(path, "holds no weights")
        for key, (shape, dtype) in found.items():
            yield path, key, shape, dtype


def shapes(name: str, folder: Path) -> dict[str, tuple[int, ...]]:
    """{weight: its shape}, by the names in the files."""
    return {key: shape for _, key, shape, _ in _headers(name, folder)}


def unwrapped(key: str) -> str:
    """The name of a weight without what wraps the model."""
    return _WRAPPED.sub("", key)


def check_weights(name: str, folder: Path, loader: Any, config: Any, **more: Any) -> nn.Module:
    """The modules of a checkpoint, without memory, after a look at the headers of its weights.
    Raises `BadInput` for weights that are missing, of another size or quantised. `more` are
    arguments of the class that reads the weights."""
    stored = {}
    for path, key, shape, dtype in _headers(name, folder):
        if key.endswith((".weight", ".bias")) and dtype not in FLOATS:
            raise damaged(
                path,
                f"holds {key} as {dtype}: quantised weights are not read",
                "name the checkpoint that they were made from",
            )
        stored[_LEGACY.sub(lambda old: _NOW[old[0]], unwrapped(key))] = shape
    for setting in ("num_hidden_layers", "num_layers"):
        if getattr(config, setting, 0) > MOST_LAYERS:
            raise damaged(folder / CONFIG, f"has more than {MOST_LAYERS} layers ({setting})")
        if getattr(config, setting, 1) < 1:
            raise damaged(folder / CONFIG, f"has no layer ({setting})")
    try:
        model = without_memory(loader, config, **more)
        own = {key: tuple(weight.shape) for key, weight in model.state_dict().items()}
    except Exception as error:  # of any kind, from a class of transformers
        raise _no_model(folder, "makes no model", error) from None
    base = f"{getattr(model, 'base_model_prefix', '')}."
    there = set[str]()
    for key, shape in own.items():
        names = (key, base + key, key.removeprefix(base))
        found = next((stored[name] for name in names if name in stored), None)
        if found is not None and found != shape:
            raise _other_size(folder, key, found, shape)
        there |= {key} if found is not None else set()
    _require_counted(folder, [*own], [*stored], base)
    missing = own.keys() - there.union(*(names for names in _tied(model) if there & names))
    # Names may have changed in ways that transformers knows: it decides, where there is memory.
    numbers = [sum(p.numel() for p in model.parameters()), sum(map(math.prod, stored.values()))]
    if missing and numbers[0] <= 2 * numbers[1]:
        require_all(name, open_model(type(model), folder, copy.deepcopy(config), **more)[1])
    elif missing:
        raise damaged(
            folder / CONFIG,
            f"makes a model of {numbers[0]:,} weights, and {numbers[1]:,} are stored",
        )
    return model


def _tied(model: nn.Module) -> list[set[str]]:
    """The names of each parameter; one of several names is stored under any of them."""
    names = dict[int, set[str]]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return [*names.values()]


def _require_counted(folder: Path, own: list[str], stored: list[str], base: str) -> None:
    """Raises `BadInput` for stored weights of a layer beyond those that the configuration counts,
    which transformers leaves out. A head, whose names are no layer's, may be left out."""
    known = {key.removeprefix(base) for key in own}
    layers = {_NUMBER.sub(".N.", key) for key in known if _NUMBER.search(key)}
    beyond = (key for key in (key.removeprefix(base) for key in stored) if key not in known)
    if over := next((key for key in beyond if _NUMBER.sub(".N.", key) in layers), None):
        raise damaged(
            folder / CONFIG,
            f"counts fewer layers than the weights have, which hold {over}",
            "save a model of fewer layers with its own save_pretrained",
        )


def require_all(name: str, missing: list[str]) -> None:
    """Raises `BadInput` for missing weights."""
    if missing:
        raise BadInput(
            f"the checkpoint of {name} lacks {len(missing)} weights of its encoder, the first is "
            f"{missing[0]}"
        )


def check_finite(path: Path) -> None:
    """Raises `BadInput` for a file with weights that are not numbers, which would end any run."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                wrong = next((k for k in file.keys() if not _is_finite(file.get_tensor(k))), None)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)}
            wrong = next((k for k, v in tensors.items() if not _is_finite(v)), None)
    except Exception as error:  # of any kind, from a damaged pickle
        raise damaged(path, f"cannot be read ({_reason(error)})") from None
    if wrong is not None:
        raise damaged(path, f"has values in {wrong} that are not finite (NaN, infinite)")


def _is_finite(weight: Tensor) -> bool:
    if not weight.is_floating_point() or weight.sum(dtype=torch.float32).isfinite():
        return True  # a sum of large numbers overflows
    return bool(weight.isfinite().all())


def check_tokens(name: str, folder: Path, tokenizer: Any, rows: int | None) -> None:
    """Raises `BadInput` where a tokenizer has tokens that the encoder has no vector for, or lacks
    a tenth of those that it has."""
    if rows is None:
        return
    ids = tokenizer.get_vocab()
    token = max(ids, key=ids.__getitem__)
    if (last := ids[token]) >= rows:
        raise BadInput(
            f"backbone {name}: its tokenizer has tokens up to {last} ({shown(token)}), and its "
            f"embeddings have {rows} rows: resize them (transformers' resize_token_embeddings), or "
            f"take the tokenizer that {folder} was trained with"
        )
    if rows - last - 1 > max(64, rows / 10):
        at = next(folder / file for file in VOCABULARY_FILES if (folder / file).exists())
        raise damaged(at, f"has {last + 1} tokens; the embeddings of backbone {name}, {rows} rows")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' progress bars and its tables of unused heads."""
    logging = transformers.utils.logging
    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
