"""The table `reference` of a sweep's file: published values to show beside ours, and the published
sizes with which a sweep is planned before its data are there.

The references that ship are `references/NAME.toml`: `ranksweep run reference/NAME`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput, shown, unknown
from rank_core.settings.config import checked_setting
from sweeps.plan.published_tables import TABLES

PREFIX, TWIN = "reference/", "twin"
FOLDER = Path(__file__).with_name("references")


@dataclass(frozen=True)
class Size:
    """The published size of a collection."""

    documents: int  # 0: not published
    train: int = 0  # queries
    dev: int = 0
    test: int = 0


@dataclass(frozen=True)
class Encoder:
    """The published shape of a backbone."""

    tokens: int  # of an input, with query and special tokens
    layers: int
    width: int
    parameters: float  # without the embeddings


@dataclass(frozen=True)
class Published:
    """Published values of the cells with these settings, of one or several runs."""

    collection: str
    measure: str
    values: Sequence[float]
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    interval: Sequence[float] = ()  # both ends, if one is published
    differs: str = ""  # why ours is not comparable with them


@dataclass(frozen=True)
class Printed:
    """A published table whose values are shown beside those of the cells."""

    table: str  # its `source`
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """{heading: (collection, measure)} beside those that are known."""
    differs: str = ""  # why ours is not comparable with them


@dataclass(frozen=True)
class Reference:
    """What is published of an experiment; texts are for the plan's reader."""

    collections: Mapping[str, Size] = field(default_factory=dict)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    published: tuple[Published, ...] = ()  # those of `tables` among them
    tables: tuple[Printed, ...] = ()
    meaning: str = ""  # of a difference from the published values
    licence: str = ""
    data: str = ""  # where to get them
    disk: str = ""


def references() -> list[str]:
    """The names of the references that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def reference_file(name: str) -> tuple[Path, bool]:
    """The file of `reference/NAME` or `reference/NAME/twin`, and whether the twin is meant."""
    name, slash, rest = name.removeprefix(PREFIX).partition("/")
    if name not in references():
        raise unknown("reference", name, references())
    if slash and rest != TWIN:
        raise BadInput(f"{PREFIX}{name} may be followed by /{TWIN}, got /{rest}")
    return FOLDER / f"{name}.toml", rest == TWIN


def parse_reference(table: Mapping[str, Any], cells: Sequence[Mapping[str, Any]] = ()) -> Reference:
    """The table of a file whose sweep has these cells; raises `BadInput` that names what is wrong.
    Of the published `tables` that it names, the values of its cells and collections are taken."""
    tables = {name: table.get(name, {}) for name in ("collections", "encoders")}
    rows, named = table.get("published", []), table.get("tables", [])
    lists = isinstance(rows, list) and isinstance(named, list)
    if not lists or not all(isinstance(own, dict) for own in tables.values()):
        raise BadInput(
            "reference: published and tables must be lists, collections and encoders tables"
        )
    published: list[Published] = [_record(Published, row) for row in rows]
    printed: list[Printed] = [_record(Printed, row) for row in named]
    for own in printed:
        published += _of_table(own, tables["collections"], cells)
    read: dict[str, Any] = {
        "collections": {name: _record(Size, row) for name, row in tables["collections"].items()},
        "encoders": {name: _record(Encoder, row) for name, row in tables["encoders"].items()},
        "published": tuple(
            replace(own, settings={k: checked_setting(k, v) for k, v in flat(own.settings)})
            for own in published
        ),
    }
    reference: Reference = _record(Reference, {**table, **read, "tables": tuple(printed)})
    return reference


def _of_table(
    printed: Printed, collections: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]
) -> Iterator[Published]:
    """The values of a published table for these collections and cells."""
    known = {table.source: table for table in TABLES}
    if printed.table not in known:
        raise unknown("published table", printed.table, known)
    table = known[printed.table]
    columns: dict[str, Sequence[Any]] = {**table.columns, **printed.columns}
    for label, settings in table.systems():
        if not any(settings.items() <= cell.items() for cell in cells):
            continue
        for heading, value in table.cells(label).items():
            collection, measure, *trials = columns[heading]
            if collection in collections and value != "-":
                own = {**settings, **(trials[0] if trials else {})}
                differs = printed.differs
                yield Published(
                    collection, measure, [float(value)], table.source, own, differs=differs
                )


def values_text(own: Published) -> str:
    """`0.4845, 0.4872`, with the interval of a single value."""
    text = ", ".join(f"{value:.4f}" for value in own.values)
    return f"{text} [{own.interval[0]:.4f}, {own.interval[1]:.4f}]" if own.interval else text


def flat(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(dotted setting, value) of nested tables. Raises `BadInput` for a setting that is given
    twice, as `"chunking.window"` and as `window` of `chunking`."""
    found = dict[str, Any]()
    for name, value in _flat(table, ""):
        if name in found:
            raise BadInput(
                f"{name} is set twice, to {shown(found[name])} and to {shown(value)}; set it once"
            )
        found[name] = value
    return [*found.items()]


def _flat(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _record(kind: type[Any], row: Any) -> Any:
    try:
        return kind(**row)
    except TypeError:
        names = ", ".join(item.name for item in fields(kind))
        raise BadInput(f"reference: a table must have {names}, got {shown(row)}") from None
