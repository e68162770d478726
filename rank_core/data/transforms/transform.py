"""The interface of transforms: settings, and a pure function from a collection to a collection."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from rank_core.data.store import Splits
from rank_core.own_code import PACKAGES, source_hash
from rank_core.records import Collection, Split

Value = TypeVar("Value")


class Transform(Protocol):
    """A frozen dataclass of settings; equal settings give equal collections."""

    name: ClassVar[str]
    version: ClassVar[int]  # incremented when the same settings give another collection
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(self, **settings: Any) -> None: ...

    def __call__(self, collection: Collection) -> Collection:
        """The transformed collection; the given one does not change."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Computed(Mapping[str, Value]):
    """A mapping with the keys of another, whose values are computed on access."""

    of: Mapping[str, Any]
    value: Callable[[str], Value]

    def __getitem__(self, key: str) -> Value:
        return self.value(key)

    def __contains__(self, key: object) -> bool:
        return key in self.of

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)


def derived(
    source: Collection,
    transform: Transform,
    *,
    documents: Mapping[str, str] | None = None,
    splits: Mapping[str, Split] | None = None,
    depends_on: str = "",
    first_stage: str = "",
) -> Collection:
    """The result of a transform, with its own name and content hash; other fields default to the
    source's."""
    name = f"{source.name}|{spelled(transform)}"
    return Collection(
        name=name,
        content_hash=derived_hash(source, transform, depends_on),
        documents=source.documents if documents is None else documents,
        splits=source.splits if splits is None else Splits(name, dict(splits)),
        first_stage=first_stage or source.first_stage,
        unranked=source.unranked if documents is None else 0,
        language=source.language,
        leaves_own_out=source.leaves_own_out,
    )


def derived_hash(source: Collection, transform: Transform, depends_on: str = "") -> str:
    """16 hex digits over the source's contents, the transform and `depends_on`, anything else that
    affects the result, such as a first stage. The source code of a user's transform is included.
    Settings that a transform names in `OF_DEPENDS_ON` count by `depends_on` alone.
    """
    kind = type(transform)
    settings = dataclasses.asdict(transform)
    for name in getattr(kind, "OF_DEPENDS_ON", ()):
        del settings[name]
    recipe = [transform.name, transform.version, settings, depends_on]
    if kind.__module__.partition(".")[0] not in PACKAGES:
        recipe.append(source_hash(f"{kind.__module__}:{kind.__qualname__}"))
    text = json.dumps([source.content_hash, *recipe], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def spelled(transform: Transform) -> str:
    """`debias(seed=1,parts=3)`: the seed, and settings that are not at their defaults."""
    written = ",".join(
        f"{field.name}={str(value).lower() if isinstance(value, bool) else value}"
        for field in dataclasses.fields(transform)
        if (value := getattr(transform, field.name)) != field.default or field.name == "seed"
    )
    return f"{transform.name}({written})"
