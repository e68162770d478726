"""The names of fields that files, data frames and dictionaries have for one thing, and what a
reader does with all other fields: those that may change the meaning are refused, the rest is listed
once."""

import dataclasses
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from rank_core.data.tables import Record
from rank_core.errors import BadInput, shown
from rank_core.notes import say

Fields = Mapping[str, str]
"""{name of a field in a file: its name here}, for names that are not known."""

UNUSED = "unused"
"""The name here of a field that a user does not want to be read."""
LABELS = (
    "relevance",
    "label",
    "labels",
    "score",
    "scores",
    "grade",
    "grades",
    "rel",
    "gold",
    "rating",
)
DOC_IDS = ("doc_id", "docid", "docno", "document_id", "corpus-id", "pid", "passage_id")
QUERY_IDS = ("query_id", "query-id", "qid", "q_id", "topic_id")
SENSITIVE = frozenset(
    "label labels score scores grade grades relevance relevances relevant irrelevant rel rels "
    "rating ratings gain gains gold target targets similarity margin margins teacher weight "
    "weights positive positives pos negative negatives neg negs hard distractor distractors "
    "rejected judgment judgments judgement judgements judged".split()
)
"""Words in the name of a field that tell what is relevant, by how much, or how much it counts."""

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, eq=False)
class Schema:
    """The fields of a kind of record. `names` are those in use for each field, `last` those that
    count where a record has no other. Of several names of a `joined` field, or of one name with
    different numbers at its end, all are read."""

    names: Mapping[str, tuple[str, ...]]
    last: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    joined: tuple[str, ...] = ()
    numbered: tuple[str, ...] = ()
    renamed_alone: bool = False  # a field that --fields names has no other names
    is_judged: bool = False  # a field that is not read could change what is relevant


DOCUMENT = Schema(
    {
        "doc_id": (*DOC_IDS, "_id", "id"),
        "text": ("text", "contents", "content"),
        "title": ("title",),
    },
    renamed_alone=True,
)
QUERY = Schema(
    {
        "query_id": (*QUERY_IDS, "_id", "id", "topic"),
        "text": ("text", "query", "question", "query_text", "contents"),
        "group": ("group",),
    }
)
CLUSTER = Schema(
    {
        "query_id": (*QUERY_IDS, "_id", "id", "topic", "query"),
        "group": ("cluster", "cluster_id", "group"),
        "text": ("text",),
    }
)
FOLD = Schema({"query_id": QUERY.names["query_id"], "fold": ("fold", "fold_id"), "text": ("text",)})
JUDGMENT = Schema(
    {"query_id": (*QUERY_IDS, "topic"), "doc_id": DOC_IDS, "relevance": LABELS},
    last={"query_id": ("query",)},
    is_judged=True,
)
RANKED = Schema(
    {
        "query_id": (*QUERY_IDS, "topic"),
        "doc_id": DOC_IDS,
        "score": ("score",),
        "rank": ("rank",),
    },
    last={"query_id": ("query",)},
)
PAIRS = Schema(
    {
        "query": (
            "query", "anchor", "question", "query_text", "sentence1", "sentence_A", "messages",
        ),
        "query_id": (*QUERY_IDS, "_id", "id"),
        "pos": (
            "pos", "positive", "positives", "positive_passages", "positive_ctxs",
            "relevant_passages", "answer", "response", "positive_messages",
        ),
        "neg": (
            "neg", "negative", "negatives", "negative_passages", "negative_ctxs", "hard_neg",
            "hard_negative", "hard_negatives", "hard_negative_passages", "hard_negative_ctxs",
            "rejected_response", "negative_messages",
        ),
        "judged": (
            "passage", "passages", "document", "documents", "doc", "docs", "text", "texts",
            "sentence2", "sentence_B",
        ),
        "relevance": LABELS,
        "pos_scores": ("pos_scores", "positive_scores"),
        "neg_scores": ("neg_scores", "negative_scores"),
        "group": ("group",),
    },
    last={"query": ("text",)},
    joined=("neg",),
    numbered=("pos", "neg"),
    is_judged=True,
)  # fmt: skip
"""A query with texts: those in `pos` are relevant, those in `neg` are not, and of those in `judged`
only the `relevance` tells. The names are those of sentence-transformers (triplets, n-tuples,
labelled pairs and lists), FlagEmbedding, Tevatron, MLDR, DPR, MTEB, Cohere and ms-swift."""

_CONVERTED = {JUDGMENT: ".trec", RANKED: ".run"}
"""{schema: the ending of the file that `ranksweep convert` writes of it}."""

FIELD_NAMES = (
    "doc_id",
    "text",
    "title",
    "query_id",
    "relevance",
    "query",
    "pos",
    "neg",
    "group",
    UNUSED,
)
"""What --fields may call a field."""


class Reading:
    """The fields of the records of one source, which are found under their names in use or those of
    `--fields`; `fields` is None where a caller has no such flag."""

    def __init__(self, source: str, schema: Schema, fields: Fields | None) -> None:
        self._source, self._schema, self._has_flag = source, schema, fields is not None
        given = fields or {}
        self._renamed = tuple((name, field.partition(":")[0]) for name, field in given.items())
        self._unread: dict[str, None] = {}

    def remedy(self, flag: str, otherwise: str) -> str:
        """What a message advises: a value of `--fields`; for a command without the flag something
        else, or the command that has it."""
        if self._has_flag:
            return f"--fields {flag}"
        if not (kind := _CONVERTED.get(self._schema)) or not os.path.isfile(self._source):
            return otherwise
        to = f"{shlex.quote(self._source)} --to NEW{kind} --fields ..."
        return f"{otherwise}; in `ranksweep convert {to}`, {flag}"

    def required(
        self, place: str, found: Mapping[str, tuple[str, ...]], field: str, record: Record
    ) -> str:
        """The name of a field in a record. Raises `BadInput` where it is missing."""
        if field not in found:
            known = f"its names are {', '.join(self._schema.names[field])}"
            flag = f"THEIRS={field} gives it another name"
            if passed_over := _named(record, self._schema.names[field], False):
                flag = f"{passed_over[0]}={field} reads that one, too"
            raise BadInput(
                f"{place}: a record must have {field}, found {shown(list(record))}; "
                f"{self.remedy(flag, known)}"
            )
        return found[field][0]

    def names(self, keys: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """{field: its names} among these, unchecked."""
        return _layout(self._schema, self._renamed, tuple(keys))[0]

    def found(self, place: str, record: Record) -> dict[str, tuple[str, ...]]:
        """{field: its names in a record}, several only where each is to be read. Raises `BadInput`
        for two names with different values, and for a field that may change the meaning."""
        many, unread = _layout(self._schema, self._renamed, tuple(record))
        found: dict[str, tuple[str, ...]] = {}
        for field, names in many.items():
            if len(names) > 1 and not self._joins(field, names):
                given = [name for name in names if record[name] not in (None, "")] or [names[0]]
                if other := next((n for n in given if record[n] != record[given[0]]), None):
                    raise BadInput(
                        f"{place}: {given[0]} and {other} are both names of {field} and differ; "
                        f"{self.remedy(f'{other}={UNUSED} reads one alone', 'remove one of them')}"
                    )
                names = (given[0],)
            found[field] = names
        for name in unread:
            if self._schema.is_judged and _is_sensitive(name):
                flag = f"{name}=OURS, with OURS one of {', '.join(FIELD_NAMES)}"
                raise BadInput(
                    f"{place}: the field {shown(name)} may say what is relevant and is not read; "
                    f"remove it, or {self.remedy(flag, 'rename it')}"
                )
            self._unread[name] = None
        return found

    def _joins(self, field: str, names: tuple[str, ...]) -> bool:
        bases = {_plain(name).rstrip("0123456789") for name in names}
        return field in self._schema.joined or (field in self._schema.numbered and len(bases) == 1)

    def end(self) -> None:
        """Lists the fields that were never read, once for each source."""
        names = sorted(filter(str.strip, self._unread))
        if names:
            listed = ", ".join(names[:10])
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            say(f"{self._source}: fields that are not read: {listed}{more}")


def with_field(schema: Schema, field: str) -> Schema:
    """The schema with one more field, under its own name alone."""
    if field in schema.names:
        return schema
    names = {
        other: tuple(name for name in known if _plain(name) != _plain(field))
        for other, known in schema.names.items()
    }
    return replace(schema, names=names | {field: (field,)})


@lru_cache(maxsize=1000)
def _layout(
    schema: Schema, renamed: tuple[tuple[str, str], ...], keys: tuple[str, ...]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """({field: its names among the keys}, the other keys)."""
    given = {name: field for name, field in renamed if name in keys}
    free = [key for key in keys if key not in given]
    lower = [key.lower() for key in keys]
    if "docno" in lower and "docno" in schema.names.get("doc_id", ()):
        # PyTerrier's frames have the number of a document in its index beside it.
        free = [key for key in free if key.lower() != "docid"]
    found: dict[str, tuple[str, ...]] = {}
    for field in schema.names:
        if matches := tuple(theirs for theirs, name in given.items() if name == field):
            found[field] = matches
        elif schema.renamed_alone and any(name == field for _, name in renamed):
            continue  # --fields is about documents first; queries may have other names
        elif matches := _named(free, schema.names[field], field in schema.numbered):
            found[field] = matches
    for field, names in schema.last.items():
        if field not in found and (matches := _named(free, names, False)):
            found[field] = matches
            found = {
                other: left
                if other == field
                else tuple(name for name in left if name not in matches)
                for other, left in found.items()
            }
    found = {field: names for field, names in found.items() if names}
    read = {name for names in found.values() for name in names}
    read |= set(keys) - set(given) - set(free)
    unused = {name for name, field in given.items() if field == UNUSED}
    return found, tuple(key for key in keys if key not in read and key not in unused)


def _named(keys: Iterable[str], names: tuple[str, ...], numbered: bool) -> tuple[str, ...]:
    """The keys that are one of these names in any spelling, in the order of the names, then of the
    numbers at their ends."""
    places = {_plain(name): place for place, name in enumerate(names)}
    ranked: list[tuple[int, int, str]] = []
    for key in keys:
        plain = _plain(key)
        base = plain.rstrip("0123456789") if numbered and plain not in places else plain
        if base in places:
            ranked.append((places[base], int(plain[len(base) :] or 0), key))
    return tuple(key for *_, key in sorted(ranked))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _is_sensitive(name: str) -> bool:
    return not SENSITIVE.isdisjoint(word.lower() for word in _WORDS.findall(name))
