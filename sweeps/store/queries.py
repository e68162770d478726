"""`queries/SPLIT.jsonl` of a sweep: what its tests need to know of the reported queries beside
their judgments. The texts themselves are not there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.parsing import parsed_json

QUERIES = "queries"
_FIELDS = ("text", "group", "cluster", "position")


@dataclass(frozen=True)
class QueryFacts:
    """{query_id: fact} each; empty where it is not known."""

    text: Mapping[str, str] = field(default_factory=dict)  # `text_key`
    group: Mapping[str, str] = field(default_factory=dict)  # of the collection
    cluster: Mapping[str, str] = field(default_factory=dict)  # with --clusters of the sweep
    position: Mapping[str, str] = field(default_factory=dict)
    """Tokens before the first relevant text, where the collection says where that is."""

    def lines(self) -> str:
        """The content of the file."""
        rows = (
            {"query_id": query_id}
            | {name: own[query_id] for name in _FIELDS if query_id in (own := getattr(self, name))}
            for query_id in self.text
        )
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def text_key(text: str) -> str:
    """A hash of a query's text: equal for texts that differ in case and white space alone."""
    return sha256(" ".join(text.casefold().split()).encode()).hexdigest()


def read_query_facts(folder: Path, split: str) -> QueryFacts:
    """What a sweep's folder has; nothing in one of an older version."""
    path = folder / QUERIES / f"{split}.jsonl"
    if not path.is_file():
        return QueryFacts()
    try:
        rows = [parsed_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found = {
            name: {str(row["query_id"]): str(row[name]) for row in rows if name in row}
            for name in _FIELDS
        }
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path} must be as the sweep's command wrote it: {error}") from None
    return QueryFacts(**found)
