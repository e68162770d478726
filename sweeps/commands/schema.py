"""JSON schemas of the files that people write, from the declarations that read them:
`ranksweep settings --json-schema`.

A schema says what a file may hold as far as one value decides it: keys, types, choices, ranges.
What several values decide together is checked when the file is read, as `--dry-run` does.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rank_core.data.load import COLLECTIONS
from rank_core.files import SCHEMA
from rank_core.models import MODELS
from rank_core.own_code import announced
from rank_core.ranking.interpolation import NORMALISATIONS
from rank_core.settings.checks import RULES, Interval
from rank_core.settings.config import Setting, declared_settings
from sweeps.plan.flags import MOST_SEEDS, SEARCH_FLAGS, Flag
from sweeps.plan.options import MOST_POINTS
from sweeps.plan.profiles import PROFILES
from sweeps.plan.reference import Reference
from sweeps.plan.search_options import SEARCHES
from sweeps.plan.search_space import RANGE
from sweeps.plan.toml_sweep import KEYS, REQUIRED
from sweeps.report.chunking_file import FORMAT as CHUNKING_FORMAT
from sweeps.report.chunking_file import ChunkingFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
TYPES: Mapping[type, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
}
TEXTS: Schema = {"type": "array", "items": TYPES[str]}
OWN_CODE: Schema = {"type": "string", "pattern": r"^[^:\s]+:[^:\s]+$"}
"""A user's code, `module:name`."""
SETTINGS: Schema = {"$ref": "#/$defs/settings"}
"""Tables of settings."""


def schema_text(name: str) -> str:
    """The schema of one of `SCHEMAS`, as the text of a JSON file."""
    return json.dumps({SCHEMA: DIALECT, **SCHEMAS[name]()}, indent=1, ensure_ascii=False)


def _sweep() -> Schema:
    """The schema of a sweep in a TOML file."""
    shapes: dict[str, Schema] = {
        "name": _filled("string"),
        "question": _filled("string"),
        "baseline": SETTINGS | {"minProperties": 1},
        "base": SETTINGS | {"minProperties": 1},
        "grid": _tables(_list_of),
        "points": {"type": "array", "items": SETTINGS, "maxItems": MOST_POINTS},
        "ranges": _tables(_range) | {"minProperties": 1},
        "search": {"anyOf": [{"enum": [*SEARCHES]}, _search_table()]},
        "seeds": {"anyOf": [_between(Interval(1, MOST_SEEDS), int), _seed_list()]},
        "profile": {"enum": [*PROFILES]},
        "reference": _record(Reference),
    }
    values = {setting.name: _value(setting) for setting in declared_settings()}
    swept = ("grid", "points", "ranges")
    return {
        "title": "A sweep of ranksweep",
        "type": "object",
        "properties": {key: {"description": KEYS[key][1], **shapes[key]} for key in KEYS},
        "required": [*REQUIRED],
        "anyOf": [{"required": [key]} for key in swept],
        "not": {"required": ["grid", "points"]},
        "additionalProperties": False,
        "$defs": values | {"settings": _tables(_named)},
    }


def _serving() -> Schema:
    """The schema of `serving.json`."""
    from rank_core.export import served
    from rank_core.export.serving import FORMAT

    sizes = {f"chunking.{name}": name for name in served.SIZES}
    places = sizes | {"evaluation.depth": "depth"}
    declared = {places[s.name]: _value(s) for s in declared_settings() if s.name in places}
    choices = {"of": served.SCORES, "normalise": [*NORMALISATIONS]}

    def shape(keys: Mapping[str, Any]) -> Schema:
        shapes = {
            key: shape(kind) if isinstance(kind, Mapping) else dict(TYPES[kind])
            for key, kind in keys.items()
        }
        shapes |= {key: declared[key] for key in shapes if key in declared}
        shapes |= {key: {"enum": [*choices[key]]} for key in shapes if key in choices}
        needed = [key for key in keys if key not in served.OPTIONAL]
        return _closed(shapes) | {"required": needed}

    whole = shape(served.KEYS)
    whole["properties"]["format"] = {"const": FORMAT}
    mixture = whole["properties"][served.EMPTY]
    mixture["properties"]["alpha"] = _between(Interval(0, 1), float)
    whole["properties"][served.EMPTY] = {"anyOf": [{"type": "null"}, mixture]}
    return {"title": "How ranksweep serves a reranker", **whole}


def _chunking() -> Schema:
    """The schema of `chunking.json`."""
    whole = _record(ChunkingFile)
    whole["properties"]["format"] = {"const": CHUNKING_FORMAT}
    whole["properties"][SCHEMA] = TYPES[str]
    return {"title": "The chunk size that ranksweep found for an index", **whole}


SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "sweep": _sweep,
    "serving": _serving,
    "chunking": _chunking,
}
"""{kind of file: its schema}"""


def _tables(shape: Callable[[Setting], Schema | None]) -> Schema:
    """Settings as TOML holds them: `[chunking]` with `window`, or the dotted name as one key.
    `shape` is the schema of a setting's value, None for a setting that cannot stand there."""
    whole: dict[str, Schema] = {}
    for setting in declared_settings():
        section, _, leaf = setting.name.rpartition(".")
        shaped = shape(setting)
        if setting.name == "seed" or shaped is None:  # seeds are a key of their own
            continue
        whole[setting.name] = shaped
        if section:
            whole.setdefault(section, _closed({}))["properties"][leaf] = shaped
    return _closed(whole)


def _value(setting: Setting) -> Schema:
    """The schema of a setting's value."""
    about = {"description": setting.text}
    if setting.kind == tuple[str, ...]:
        return TEXTS | about
    names = {"model.name": MODELS, "collection": COLLECTIONS}.get(setting.name)
    if setting.name == "model.name":
        known = [*MODELS, *announced("model")]
        return {"anyOf": [{"enum": known}, OWN_CODE]} | about
    if names:  # folders and expressions are collections too: the names are suggestions
        return TYPES[str] | {"examples": [*names]} | about
    if isinstance(setting.rule, tuple):
        choices: Schema = {"enum": [*setting.rule]}
        return ({"anyOf": [choices, OWN_CODE]} if setting.accepts_code else choices) | about
    if setting.rule:
        return _between(RULES[setting.rule], setting.kind) | about
    return TYPES[setting.kind] | about


def _named(setting: Setting) -> Schema:
    """The same by its name, which stands once in a schema."""
    return {"$ref": f"#/$defs/{setting.name}"}


def _list_of(setting: Setting) -> Schema:
    """A list of a setting's values, of a grid."""
    return {"type": "array", "items": _named(setting), "minItems": 1}


def _range(setting: Setting) -> Schema | None:
    """A range of a setting's numbers, which is a text."""
    if setting.kind not in (int, float):
        return None
    return {"type": "string", "pattern": f"^{RANGE.pattern}$"}


def _between(interval: Interval, kind: type) -> Schema:
    """A number of an interval."""
    ends = {
        "exclusiveMinimum" if interval.open_low else "minimum": interval.low,
        "exclusiveMaximum" if interval.open_high else "maximum": interval.high,
    }
    return TYPES[kind] | {name: end for name, end in ends.items() if math.isfinite(end)}


def _filled(kind: str) -> Schema:
    return {"type": kind, "minLength": 1}


def _closed(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _seed_list() -> Schema:
    """Different seeds."""
    most = {"minItems": 1, "maxItems": MOST_SEEDS}
    return {"type": "array", "items": TYPES[int], "uniqueItems": True, **most}


def _search_table() -> Schema:
    """The table `search`: its flags."""

    def shape(flag: Flag) -> Schema:
        if flag.name == "search":
            return {"enum": [*SEARCHES], "description": flag.help}
        ends = Interval(flag.least, flag.most, open_low=flag.inside, open_high=flag.inside)
        return _between(ends, flag.kind) | {"description": flag.help}

    return _closed({key: shape(flag) for key, flag in SEARCH_FLAGS.items()})


def _record(kind: Any) -> Schema:
    """The schema of a table that is read into a dataclass."""
    hints = get_type_hints(kind)
    required = [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]
    return _closed({field.name: _hinted(hints[field.name]) for field in fields(kind)}) | {
        "required": required
    }


def _hinted(hint: Any) -> Schema:
    """The schema of a field's type."""
    if is_dataclass(hint):
        return _record(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return {
            "anyOf": [{"type": "null"} if part is NoneType else _hinted(part) for part in inner]
        }
    if origin is None:
        return dict(TYPES[hint])
    if issubclass(origin, Mapping):
        if inner[1] is Any:  # of settings, whose types differ
            return dict(SETTINGS)
        return {"type": "object", "additionalProperties": _hinted(inner[1])}
    assert issubclass(origin, Sequence)
    return {"type": "array", "items": _hinted(inner[0])}
