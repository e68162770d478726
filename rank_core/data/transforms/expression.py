"""Expressions of transformed collections: `BASE|NAME(SETTING=VALUE,...)|NAME...`, left to right.

An example is `python-docs|debias(seed=1)`; brackets may be omitted if all settings are at their
defaults. Quote it in a shell. NAME is one of `TRANSFORMS`, or `module:Class`. A base may be
`DIR|fields(THEIRS=OURS,...)`: a folder, and the meaning of its files' field names.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, get_type_hints

from rank_core.data.readers import parse_fields
from rank_core.data.store import Splits
from rank_core.data.transforms.transform import Transform
from rank_core.data.trec import in_rank_order
from rank_core.errors import BadInput, unknown
from rank_core.own_code import guarded, load, path_of, portable
from rank_core.records import Collection
from rank_core.settings.checks import BOOLEANS, TYPE_NAMES

TRANSFORMS: dict[str, str] = {
    "far-relevant": "rank_core.data.transforms.far_relevant:FarRelevant",
    "first-stage": "rank_core.data.transforms.first_stage:FirstStage",
    "debias": "rank_core.data.transforms.debias:Debias",
    "deep": "rank_core.data.transforms.judgments:Deep",
    "shallow": "rank_core.data.transforms.judgments:Shallow",
    "test-set": "rank_core.data.transforms.test_set:AsTestSet",
}
"""{name: module and class}, imported on first use."""

Step = tuple[str, dict[str, Any]]
"""(name of a transform, its given settings)."""

FORM = "BASE|NAME(SETTING=VALUE,...)|..."
_STEP = re.compile(r"\s*(?P<name>[\w.:-]+)\s*(?:\((?P<settings>[^()]*)\)\s*)?")
_TOKENIZER = re.compile(r"([|(,]\s*tokenizer\s*=\s*)([^,()|]*[^,()|\s])")
_FIELDS = re.compile(r"\s*fields\s*\(([^()]*)\)\s*(?=\||$)")


def parse_collection_expression(text: str) -> tuple[str, list[Step]]:
    """(name of the base, its transforms with parsed settings); a plain name has no transforms.
    Raises `BadInput` for invalid names, settings and values, before any collection is loaded."""
    base = base_of(text)
    steps = text.split("|")[1 + base.count("|") :]
    if steps and not base.strip():
        raise BadInput(f"a collection expression must be {FORM}; {text!r} has no BASE")
    parsed: list[Step] = []
    for name, settings in (_parse_step(step, text) for step in steps):
        transform = make_transform(name, settings)
        parsed.append((name, {setting: getattr(transform, setting) for setting in settings}))
    return base.strip() if steps else base, parsed


def apply_transforms(collection: Collection, steps: Sequence[Step]) -> Collection:
    """The collection after all transforms, applied in order."""
    for name, settings in steps:
        before, transform = collection, make_transform(name, settings)
        with nullcontext() if name in TRANSFORMS else guarded(f"transform {name}"):
            collection = transform(before)
        if not isinstance(collection, Collection) or collection.content_hash == before.content_hash:
            raise BadInput(
                f"transform {name} must return a Collection with its own content_hash, as from "
                "`derived` in rank_core.data.transforms.transform"
            )
        if name not in TRANSFORMS:
            collection = _ranked(collection)
    return collection


def _ranked(collection: Collection) -> Collection:
    """The collection with its candidates in rank order, as those that are read from disk are."""
    splits = {
        name: replace(
            split, candidates={q: in_rank_order(ranked) for q, ranked in candidates.items()}
        )
        if isinstance(candidates := split.candidates, dict)
        else split
        for name, split in collection.splits.items()
    }
    return replace(collection, splits=Splits(collection.name, splits))


def transform_class(name: str) -> type[Transform]:
    """The class of a transform; raises `BadInput` for unknown names and invalid classes."""
    transform: type[Transform] = load("transform", path_of("transform", name, TRANSFORMS))
    if not dataclasses.is_dataclass(transform) or not hasattr(transform, "version"):
        raise BadInput(
            f"transform {name} must be a frozen dataclass with name, version and __call__, got "
            f"{transform!r}"
        )
    return transform


def make_transform(name: str, settings: Mapping[str, Any]) -> Transform:
    """The transform of this name, with defaults for settings that are not given."""
    kind = transform_class(name)
    types = get_type_hints(kind)
    known = {field.name: types[field.name] for field in dataclasses.fields(kind) if field.init}
    for setting in settings:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known)
    for field in dataclasses.fields(kind):
        if field.name not in settings and field.default is dataclasses.MISSING:
            raise BadInput(f"{name} needs {field.name}: {name}({field.name}=...)")
    parsed = {
        setting: _parse_value(f"{setting} of {name}", value, known[setting])
        for setting, value in settings.items()
    }
    return kind(**parsed)


def portable_steps(text: str) -> str:
    """The expression with transforms under names that every process knows."""
    base, *steps = text.split("|")
    for at, step in enumerate(steps):
        if at or not _FIELDS.match(step):
            name = _STEP.fullmatch(step)["name"]  # type: ignore[index]  # already parsed
            steps[at] = step.replace(name, portable("transform", name, TRANSFORMS), 1)
    return "|".join([base, *steps])


def base_of(text: str) -> str:
    """The base of an expression, unchecked; a plain name is its own base."""
    name, bar, steps = text.partition("|")
    fields = _FIELDS.match(steps)
    return f"{name.strip()}|{fields[0].strip()}" if fields else name.strip() if bar else text


def folder_and_fields(base: str) -> tuple[str, str]:
    """The folder of a base, and its `THEIRS=OURS,...`, empty if there are none."""
    name, _, step = base.partition("|")
    fields = _FIELDS.match(step)
    return (name.strip(), fields[1].strip()) if fields else (base, "")


def fields_of(text: str) -> dict[str, str]:
    """{their name: our name} of the folder of an expression; empty without `fields(...)`."""
    _, fields = folder_and_fields(base_of(text))
    return parse_fields(fields) if fields else {}


def with_folder(text: str, folder: str) -> str:
    """The expression with another base name, such as a folder's absolute path."""
    _, bar, steps = text.partition("|")
    return f"{folder}{bar}{steps}"


def with_absolute_tokenizers(text: str, start: str) -> str:
    """The expression with the folders of `tokenizer=DIR` as absolute paths."""

    def absolute(match: re.Match[str]) -> str:
        path = os.path.abspath(os.path.join(start, os.path.expanduser(match[2])))
        return match[1] + (path if os.path.exists(path) else match[2])

    return _TOKENIZER.sub(absolute, text)


def with_fields(text: str, fields: str) -> str:
    """The expression with `fields(...)` after the folder."""
    name, bar, steps = text.partition("|")
    return f"{name}|fields({fields}){bar}{steps}"


def _parse_step(step: str, text: str) -> tuple[str, dict[str, str]]:
    match = _STEP.fullmatch(step)
    if match is None:
        raise BadInput(f"a collection expression must be {FORM}; {step!r} in {text!r} is not")
    settings: dict[str, str] = {}
    for word in filter(str.strip, (match["settings"] or "").split(",")):
        setting, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not setting or not value:
            raise BadInput(f"a setting must be SETTING=VALUE, got {word!r} in {step!r}")
        if setting in settings:
            raise BadInput(f"{setting} is given twice in {step!r}")
        settings[setting] = value
    return match["name"], settings


def _parse_value(what: str, value: Any, kind: Any) -> Any:
    """`value` as `kind`; values from a command line are texts."""
    if kind is bool and isinstance(value, str):
        if value.lower() not in BOOLEANS:
            raise BadInput(f"{what} must be {TYPE_NAMES[bool]}, got {value!r}")
        return BOOLEANS[value.lower()]
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise BadInput(f"{what} must be {TYPE_NAMES[kind]}, got {value!r}") from None
