"""The reading of `serving.json`: every key decides something, or is refused."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import EXPORT_FILE, resolve_backbone, tokenizer_hash
from rank_core.errors import BadInput, shown
from rank_core.export.folder import ExportedModel, published_model, read_settings
from rank_core.export.serving import COMPUTED, FILE, FORMAT, serving_setting
from rank_core.files import SCHEMA
from rank_core.models import MODELS, model_class
from rank_core.parsing import parsed_json
from rank_core.ranking.interpolation import NORMALISATIONS, FirstStageMix
from rank_core.settings.config import TrialConfig

SIZES = ("window", "stride", "max_query_tokens", "max_document_tokens", "max_chunks")
HASHES = {"name": str, "content_hash": str, "tokenizer_hash": str}
KEYS: dict[str, Any] = {
    SCHEMA: str,
    "format": int,
    "model": HASHES,
    **dict.fromkeys(SIZES, int),
    "aggregation": {"name": str, "is": str, "k": int, "of": str},
    "depth": int,
    "interpolation": {"alpha": float, "normalise": str, "first_stage": str},
    **dict.fromkeys(COMPUTED, str),
    "measured": dict,
}
"""{key: the type of its value, or the keys below it}."""
EMPTY, MEASURED = "interpolation", "measured"
"""What is null without a first stage; what the test of the model said."""
FREE = (SCHEMA, MEASURED)
"""What no other key decides."""
OPTIONAL = (*FREE, *COMPUTED)
"""What a file may lack."""
NAMES = {int: "a whole number", float: "a finite number", str: "a text", dict: "an object"}
SCORES = ("logit", "probability")
"""What is put together: scores of chunks, or their sigmoids."""
UNSTATED = ("model.pool", "model.quirks", "chunking.overflow")
"""What an exported folder says of its model and the file does not."""


def served_model(model: str, path: Path | str) -> ExportedModel:
    """The reranker `model` (a folder or a Hugging Face id) as the file says it is served; `about`
    has what the file tells of the model and its test. Raises `BadInput` for a file of another model
    or tokenizer, for a key that is missing, unknown, given twice or has no such value, and for a
    model without a head, which would rank at random."""
    path = Path(path)
    setting = _read(path)
    if setting["format"] != FORMAT:
        raise _refused(path, "format", str(FORMAT), setting["format"])
    backbone = resolve_backbone(model)
    _require_same_model(path, setting["model"], model, backbone)
    config, mix = _config(path, setting, model)
    if (given := setting["max_query_tokens"]) >= backbone.max_input_tokens:
        rule = f"below {backbone.max_input_tokens}, the positions of {model}"
        raise _refused(path, "max_query_tokens", rule, given)
    ranker = published_model(config)
    stated = serving_setting(config, setting["model"], mix)
    free = {name: setting[name] for name in FREE if name in setting}
    _require_equal(path, setting, dict.fromkeys(COMPUTED, "auto") | stated | free)
    about = {name: setting[name] for name in ("model", MEASURED) if name in setting}
    return replace(ranker, first_stage=mix, about=about)


def _read(path: Path) -> dict[str, Any]:
    """The content of a file, with all keys of the types in `KEYS` and no others."""
    try:
        setting = parsed_json(
            path.read_text(encoding="utf-8"),
            path,
            object_pairs_hook=lambda pairs: _once(path, pairs),
            parse_constant=lambda name: math.nan,
        )
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path} must be a {FILE} as `ranksweep run serving` writes it, got "
            f"{type(error).__name__}"
        ) from None
    _require_keys(path, "", setting, KEYS)
    return dict(setting)


def _once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadInput(f"{path}: {shown(key)} occurs twice; keep one")
        found[key] = value
    return found


def _require_keys(path: Path, above: str, found: Any, keys: Mapping[str, Any]) -> None:
    if not isinstance(found, dict):
        raise _refused(path, above or "the file", "an object", found)
    for key in found.keys() - keys.keys():
        raise BadInput(f"{path}: unknown key {shown(above + key)}; known: {', '.join(keys)}")
    for key, kind in keys.items():
        name = f"{above}{key}"
        if key not in found:
            if key in OPTIONAL:
                continue
            needed = ", ".join(own for own in keys if own not in OPTIONAL)
            raise BadInput(f"{path}: {name} is missing; each of {needed} must be there")
        value = found[key]
        if isinstance(kind, dict):
            if not (key == EMPTY and value is None):
                _require_keys(path, f"{name}.", value, kind)
        elif type(value) not in ((int, float) if kind is float else (kind,)) or (
            kind is float and not math.isfinite(value)
        ):
            raise _refused(path, name, NAMES[kind], value)


def _refused(path: Path, key: str, rule: str, value: object) -> BadInput:
    return BadInput(f"{path}: {key.rstrip('.')} must be {rule}, got {shown(value)}")


def _require_same_model(
    path: Path, stated: Mapping[str, str], model: str, backbone: Backbone
) -> None:
    """Raises `BadInput` unless the file is of this model: of its contents, or of the exported
    folder that it was written into."""
    name, tokenizer = shown(stated["name"]), tokenizer_hash(backbone)
    if stated["tokenizer_hash"] != tokenizer:
        raise BadInput(
            f"{path} counts in tokens of {name} (model.tokenizer_hash "
            f"{shown(stated['tokenizer_hash'])}); {model} has another tokenizer ({tokenizer}): "
            "`ranksweep run serving` makes its own file"
        )
    own = {backbone.content_hash}
    if (Path(model) / EXPORT_FILE).is_file() and (Path(model) / FILE).is_file():
        own.add(_read(Path(model) / FILE)["model"]["content_hash"])
    if stated["content_hash"] not in own:
        raise BadInput(
            f"{path} is of {name} with the contents {shown(stated['content_hash'])} "
            f"(model.content_hash), but {model} has others ({backbone.content_hash}): it was "
            "measured with another model; `ranksweep run serving` makes a file of this one"
        )


def _config(
    path: Path, setting: Mapping[str, Any], model: str
) -> tuple[TrialConfig, FirstStageMix | None]:
    """The settings that a file stands for, and the weight of the first stage."""
    how, mix = setting["aggregation"], setting["interpolation"]
    names = [name for name in MODELS if model_class(name).chunk_pooling]
    if how["name"] not in names:
        raise _refused(path, "aggregation.name", f"one of {', '.join(names)}", how["name"])
    kind = model_class(how["name"])
    known = SCORES if "chunk_scores" in kind.options else SCORES[:1]
    if how["of"] not in known:
        rule = f"{' or '.join(known)} beside the other keys"
        raise _refused(path, "aggregation.of", rule, how["of"])
    values = {f"chunking.{name}": setting[name] for name in SIZES}
    values |= {name: setting[key] for key, name in COMPUTED.items() if key in setting}
    if kind.chunk_pooling == "first":
        values |= {"chunking.stride": setting["window"], "chunking.max_chunks": 0}
    values |= {"model.name": how["name"], "model.backbone": model, "training.num_epochs": 0}
    values["evaluation.depth"] = setting["depth"]
    if "k" in kind.options:
        values["model.k"] = how["k"]
    if how["of"] != "logit":
        values["model.chunk_scores"] = how["of"]
    if (Path(model) / EXPORT_FILE).is_file():
        settings = read_settings(model).settings()
        values |= {name: settings[name] for name in UNSTATED}
    try:
        config = TrialConfig().override(values)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if not mix:
        return config, None
    if not 0 <= mix["alpha"] <= 1:
        raise _refused(path, "interpolation.alpha", "from 0 to 1", mix["alpha"])
    if mix["normalise"] not in NORMALISATIONS:
        rule = f"one of {', '.join(NORMALISATIONS)}"
        raise _refused(path, "interpolation.normalise", rule, mix["normalise"])
    return config, FirstStageMix(**mix)


def _require_equal(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises `BadInput` for a value that the others contradict."""
    for key, value in found.items():
        if isinstance(value, dict) and key not in FREE:
            _require_equal(
                path,
                {f"{key}.{k}": v for k, v in value.items()},
                {f"{key}.{k}": v for k, v in expected[key].items()},
            )
        elif value != expected[key]:
            raise BadInput(
                f"{path}: {key} must be {shown(expected[key])} beside the other keys, got "
                f"{shown(value)}"
            )
