"""Documents, queries, judgments and training texts of files of records, under the field names in
common use (`vocabulary`), or the text files of queries and judgments. One record at a time is in
memory."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVarTuple

from rank_core.data.tables import KINDS, TABS, Record, frame_records, kind_of, records
from rank_core.data.trec import (
    described,
    dictionary_rows,
    gathered_qrels,
    gathered_queries,
    gathered_run,
    grade_of,
    identifier,
    iter_run,
    noted,
    qrels_lines,
    query_lines,
    rank_of,
    read_lines,
    score_of,
    unicode_text,
)
from rank_core.data.vocabulary import (
    CLUSTER,
    DOCUMENT,
    FIELD_NAMES,
    FOLD,
    JUDGMENT,
    PAIRS,
    QUERY,
    RANKED,
    UNUSED,
    Fields,
    Reading,
    Schema,
    with_field,
)
from rank_core.errors import BadInput, shown
from rank_core.notes import say
from rank_core.records import Qrels, Run

if TYPE_CHECKING:
    import pandas as pd

_Placed = Iterable[tuple[str, Record]]


class Document(NamedTuple):
    """A document with its place; `text` starts with the title, `untitled` does not."""

    place: str
    doc_id: str
    text: str
    untitled: str
    is_blank_titled: bool = False  # it has a title of nothing but white space


def documents(path: Path, fields: Fields) -> Iterator[Document]:
    """The documents of a file of records. The text may be empty."""
    reading = Reading(str(path), DOCUMENT, fields)
    for place, record in records(path, "corpus"):
        yield _document(place, record, reading, fields)
    reading.end()


def _document(place: str, record: Record, reading: Reading, fields: Fields) -> Document:
    found = reading.found(place, record)
    doc_id = identifier(place, "doc_id", record[reading.required(place, found, "doc_id", record)])
    return Document(place, doc_id, *_titled(place, record, reading, found, fields))


def _titled(
    place: str,
    record: Record,
    reading: Reading,
    found: Mapping[str, tuple[str, ...]],
    fields: Fields,
) -> tuple[str, str, bool]:
    """(text with the title, text without it, whether its title is blank) of a document. A blank
    title is none: a line break before the text would be a token of many tokenizers."""
    name = reading.required(place, found, "text", record)
    text = _text(place, record, name)
    [key] = found.get("title", ("",))
    # Pyserini's `contents` includes the title.
    is_titled = name != "contents" or "title" in fields.values()
    if not (is_titled and key) or record[key] is None:
        return text, text, False
    title = _text(place, record, key)
    return (f"{title}\n{text}", text, False) if title.strip() else (text, text, True)


def queries_of(path: Path, fields: Fields | None) -> dict[str, str]:
    """{query_id: text}, in file order."""
    if not has_names(path, QUERY, fields):
        return gathered_queries(query_lines(path))
    return gathered_queries(_queries(records(path, "queries"), str(path), fields))


def _queries(
    placed: _Placed, source: str, fields: Fields | None
) -> Iterator[tuple[str, object, str]]:
    reading = Reading(source, QUERY, fields)
    for place, record in placed:
        found = reading.found(place, record)
        query_id = record[reading.required(place, found, "query_id", record)]
        name = reading.required(place, found, "text", record)
        yield place, query_id, _text(place, record, name)
    reading.end()


GroupRow = tuple[str, str, str | None]
"""(place, id, group), where the group is None if the record has none."""


def group_rows(path: Path, fields: Fields) -> Iterator[GroupRow]:
    """The `group` of each query of a file; none of a file without names of fields."""
    return labels(path, "group", QUERY, fields) if has_names(path, QUERY, fields) else iter(())


def labels(path: Path, field: str, schema: Schema, fields: Fields) -> Iterator[GroupRow]:
    """A field of each record, in any name it has, as the group of the record's id: the first field
    of the schema. A missing field and null are None."""
    return labels_of(records(path), str(path), field, schema, fields)


def labels_of(
    placed: "_Placed", source: str, field: str, schema: Schema, fields: Fields
) -> Iterator[GroupRow]:
    """The same of records."""
    key = next(iter(schema.names))
    reading = Reading(source, with_field(schema, field), fields)
    for place, record in placed:
        found = reading.found(place, record)
        name = identifier(place, key, record[reading.required(place, found, key, record)])
        yield place, name, _label(place, record, found, field)


def _label(
    place: str, record: Record, found: Mapping[str, tuple[str, ...]], field: str
) -> str | None:
    """The value of a field, a text or a whole number; None where it is missing or null."""
    [name] = found.get(field, ("",))
    value = record[name] if name else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return value if isinstance(value, str) else identifier(place, name, value)


def gathered_groups(rows: Iterable[GroupRow], what: str = "group") -> dict[str, str]:
    """{query_id: group}; empty if no query has one. Raises `BadInput` for a query with two groups,
    and where only some have one."""
    groups: dict[str, str] = {}
    without = ""
    for place, query_id, group in rows:
        if group is None:
            without = without or place
        elif not group.strip():
            raise BadInput(f"{place}: the {what} of query {shown(query_id)} is empty")
        elif groups.setdefault(query_id, group) != group:
            raise BadInput(f"{place}: query {shown(query_id)} has two {what}s")
    if groups and without:
        raise BadInput(f"{without}: a query must have a {what} where other queries have one")
    return groups


def judgment_rows(
    path: Path, fields: Fields | None
) -> Iterator[tuple[str, object, object, object]]:
    """(place, query_id, doc_id, relevance) of each judgment."""
    if has_names(path, JUDGMENT, fields):
        return _judgments(records(path, "relevant_docs"), str(path), fields)
    return qrels_lines(path)


def _judgments(
    placed: _Placed, source: str, fields: Fields | None
) -> Iterator[tuple[str, object, object, object]]:
    reading, grades = Reading(source, JUDGMENT, fields), _grades(fields or {})
    listed = LISTED in (fields or {}).values()
    for place, record in placed:
        found = reading.found(place, record)
        query_id, doc_id = (
            reading.required(place, found, one, record) for one in ("query_id", "doc_id")
        )
        value = 1
        if not listed:
            name = reading.required(place, found, "relevance", record)
            value = grades.of(place, record[name], name, reading)
        elif "relevance" in found:
            raise BadInput(
                f"{place}: --fields {LISTED} is for files without grades, and this one has "
                f"{found['relevance'][0]}"
            )
        yield place, record[query_id], record[doc_id], value
    reading.end()


def qrels_of(path: Path, fields: Fields | None, queries: Mapping[str, str] | None = None) -> Qrels:
    """All judgments of a file, in its order, which may name `queries` by their texts."""
    return gathered_qrels(ids_of_texts(judgment_rows(path, fields), queries or {}))


def frame_qrels(frame: "pd.DataFrame", where: str = "the judgments") -> Qrels:
    """The judgments of a data frame, under the rules and names of files."""
    return gathered_qrels(_judgments(frame_records(frame, where), where, None))


def dictionary_qrels(table: Mapping[Any, Any], where: str = "the judgments") -> Qrels:
    """The judgments of {query_id: {doc_id: relevance}}, under the rules of files."""
    return gathered_qrels(dictionary_rows(table, where, "judgments"))


def run_of(path: Path, fields: Fields | None = None) -> Iterator[tuple[str, dict[str, float]]]:
    """(query_id, {doc_id: score}) of a TREC run, or of a table with the columns query_id, doc_id,
    score and perhaps rank."""
    if has_names(path, RANKED, fields):
        yield from _run(records(path), str(path), fields).items()
    else:
        yield from iter_run(path)


def _run(placed: _Placed, source: str, fields: Fields | None = None) -> Run:
    return noted(source, gathered_run(_run_rows(placed, source, fields)))


def run_rows(
    path: Path, fields: Fields | None = None
) -> Iterator[tuple[str, object, object, object, float]]:
    """(place, query_id, doc_id, score, rank) of each record of a table."""
    return _run_rows(records(path), str(path), fields)


def _run_rows(
    placed: _Placed, source: str, fields: Fields | None
) -> Iterator[tuple[str, object, object, object, float]]:
    reading = Reading(source, RANKED, fields)
    for place, record in placed:
        found = reading.found(place, record)
        query_id, doc_id, score = (
            record[reading.required(place, found, one, record)]
            for one in ("query_id", "doc_id", "score")
        )
        rank = rank_of(place, record[found["rank"][0]]) if "rank" in found else 0.0
        yield place, query_id, doc_id, score, rank
    reading.end()


Row = TypeVarTuple("Row")


def ids_of_texts(
    rows: Iterable[tuple[str, object, *Row]], queries: Mapping[str, str]
) -> Iterator[tuple[str, object, *Row]]:
    """The rows (place, query, ...) with the id of a query where a file names it by its text, as
    Quepid and logs of clicks do. Raises `BadInput` for a text of two ids."""
    ids: dict[str, list[str]] = {}
    for query_id, text in queries.items():
        ids.setdefault(" ".join(text.split()).casefold(), []).append(query_id)
    for row in rows:
        place, query = row[0], row[1]
        if isinstance(query, str) and query not in queries:
            named = ids.get(" ".join(query.split()).casefold(), [])
            if len(named) > 1:
                raise BadInput(
                    f"{place}: {shown(query)} is the text of {len(named)} queries, {named[0]} and "
                    f"{named[1]}; name it by its id"
                )
            query = named[0] if named else query
        yield (place, query, *row[2:])


def frame_run(frame: "pd.DataFrame", where: str = "the run") -> Run:
    """The run of a data frame, under the rules and names of files."""
    return _run(frame_records(frame, where), where)


def frame_documents(frame: "pd.DataFrame", where: str = "the documents") -> dict[str, str]:
    """{doc_id: text} of a data frame, under the rules and names of files."""
    reading, texts = Reading(where, DOCUMENT, None), dict[str, str]()
    for place, record in frame_records(frame, where):
        document = _document(place, record, reading, {})
        if document.doc_id in texts:
            raise BadInput(f"{place}: duplicate doc_id {shown(document.doc_id)}")
        texts[document.doc_id] = document.text
    reading.end()
    return texts


def frame_queries(frame: "pd.DataFrame", where: str = "the queries") -> dict[str, str]:
    """{query_id: text} of a data frame, under the rules and names of files."""
    return gathered_queries(_queries(frame_records(frame, where), where, None))


def is_pairs(path: Path, fields: Fields | None = None) -> bool:
    """True for a file of records whose first one has a query with texts."""
    if not has_names(path, PAIRS, fields):
        return False
    _, first = next(records(path), ("", {}))
    return bool({"pos", "judged"} & Reading(str(path), PAIRS, fields).names(first).keys())


def has_names(path: Path, schema: Schema, fields: Fields | None) -> bool:
    """True for a file whose records have named fields: of a TSV file, if its first line has names
    of the ids of a schema."""
    if not kind_of(path, TABS):
        return bool(kind_of(path, KINDS))
    _, line = next(read_lines(path), (0, ""))
    # A TSV file of texts and one with names differ in their first line alone.
    header: Record = dict.fromkeys((name.strip(' "') for name in line.split("\t")), "")
    found = Reading(str(path), schema, fields).names(header)
    return found.keys() >= _HEADER[schema]


_HEADER: dict[Schema, set[str]] = {
    DOCUMENT: {"doc_id", "text"},
    QUERY: {"query_id", "text"},
    CLUSTER: {"query_id", "group"},
    FOLD: {"query_id", "fold"},
    JUDGMENT: {"query_id", "doc_id"},
    RANKED: {"query_id", "doc_id"},
    PAIRS: {"query"},
}
"""{schema: the fields by which a line of names is known}."""


class Passage(NamedTuple):
    """A text of a line of pairs; its id is the file's, or the hash of the text. The grade of a text
    that is not judged is None."""

    doc_id: str
    text: str
    untitled: str
    grade: int | None
    score: float | None = None  # a teacher's


class Pairs(NamedTuple):
    """A query with texts, judged or not; those without a grade above 0 are not relevant."""

    place: str
    query_id: str
    query: str
    passages: list[Passage]
    group: str | None = None


def pairs_of(path: Path, fields: Fields) -> Iterator[Pairs]:
    """The lines of a file of queries with relevant and other texts (`vocabulary.PAIRS`). Texts are
    strings, or objects with an id and a text. A query without an id is named by the file and the
    hash of its text, so that lines with the same query are one query."""
    if kind_of(path, TABS) and not has_names(path, PAIRS, fields):
        raise BadInput(
            f"{path}:1: the first line must have the names of the columns, such as query, positive "
            "and negative"
        )
    stem = path.name.partition(".")[0]
    reading = _PairReading(Reading(str(path), PAIRS, fields), str(path), stem, fields)
    for place, record in records(path):
        if line := reading.line(place, record):
            yield line
    reading.end(path)


class _PairReading:
    """The reading of the lines of one file of pairs."""

    def __init__(self, line_fields: Reading, source: str, stem: str, fields: Fields) -> None:
        self.line_fields, self._stem, self._fields = line_fields, stem, fields
        self.text_fields = Reading(f"{source}, texts", DOCUMENT, fields)
        self._grades = _grades(fields)
        self._empty_texts, self._empty_lines = 0, list[str]()

    def end(self, path: Path) -> None:
        """Lists what was not read, once for each source."""
        self.line_fields.end()
        self.text_fields.end()
        if self._empty_texts:
            say(f"{path}: {self._empty_texts:,} empty texts are left out")
        if lines := self._empty_lines:
            say(
                f"{path}: {len(lines):,} lines without a query or a relevant text are left out, "
                f"the first is {lines[0]}"
            )

    def line(self, place: str, record: Record) -> Pairs | None:
        """The query and the texts of a line; None without a query or a text to be judged."""
        found = self.line_fields.found(place, record)
        name = self.line_fields.required(place, found, "query", record)
        query = _text(place, {name: _content(place, name, record[name])}, name)
        query_id = _hashed(self._stem, query)
        if "query_id" in found:
            query_id = identifier(place, "query_id", record[found["query_id"][0]])
        graded = self._graded(place, record, found)
        others = self._passages(place, record, "neg", found.get("neg", ()))
        scores = self._scores(place, record, found, len(graded), len(others))
        texts = [
            passage._replace(score=s) for passage, s in zip([*graded, *others], scores, strict=True)
        ]
        passages = [passage for passage in texts if passage.text.strip()]
        self._empty_texts += len(texts) - len(passages)
        if not query.strip() or not any(passage.text.strip() for passage in graded):
            self._empty_lines.append(place)
            return None
        return Pairs(place, query_id, query, passages, _label(place, record, found, "group"))

    def _graded(
        self, place: str, record: Record, found: Mapping[str, tuple[str, ...]]
    ) -> list[Passage]:
        """The relevant texts of a line, or those that its label judges."""
        if "pos" in found and "judged" in found:
            raise BadInput(
                f"{place}: {found['pos'][0]} and {found['judged'][0]} both have texts, of which "
                f"only one is read; name the other by --fields {found['judged'][0]}={UNUSED}"
            )
        kind = "pos" if "pos" in found else "judged"
        texts = self._passages(place, record, kind, found.get(kind, ()))
        [label] = found.get("relevance", ("",))
        if kind == "judged" and texts and not label:
            [name] = found["judged"]
            raise BadInput(
                f"{place}: {name} must come with a label (relevance, label or score), found "
                f"{shown(list(record))}; if each text is relevant, --fields {name}=pos"
            )
        if not texts and kind in found:
            return []
        if not texts:
            raise BadInput(
                f"{place}: a query must have a text in pos, found {shown(list(record))}; name "
                "others by --fields THEIRS=pos"
            )
        if not label or self._teaches(label, record, found):
            return [text._replace(grade=1) for text in texts]
        if "neg" in found:
            raise BadInput(
                f"{place}: {label} beside {found['neg'][0]} has no known meaning: texts in "
                f"{found[kind][0]} are relevant, and the others are not; --fields {label}={UNUSED} "
                "reads the line without it; pos_scores and neg_scores are a teacher's"
            )
        values = record[label] if isinstance(record[label], list) else [record[label]]
        if len(values) != len(texts):
            raise BadInput(
                f"{place}: {label} must have a grade for each of the {len(texts)} texts in "
                f"{found[kind][0]}, found {len(values)}"
            )
        grades = [self._grades.of(place, value, label, self.line_fields) for value in values]
        return [text._replace(grade=grade) for text, grade in zip(texts, grades, strict=True)]

    def _teaches(self, label: str, record: Record, found: Mapping[str, tuple[str, ...]]) -> bool:
        """True for the list of scores that sentence-transformers writes beside mined negatives."""
        return "neg" in found and "score" in label.lower() and isinstance(record[label], list)

    def _scores(
        self,
        place: str,
        record: Record,
        found: Mapping[str, tuple[str, ...]],
        num_graded: int,
        num_others: int,
    ) -> list[float | None]:
        """A teacher's scores of all texts, None where there are none."""
        [label] = found.get("relevance", ("",))
        if label and self._teaches(label, record, found):
            return _numbers(place, label, record[label], num_graded + num_others)
        scores: list[float | None] = []
        for kind, number in (("pos_scores", num_graded), ("neg_scores", num_others)):
            given = record[found[kind][0]] if kind in found else None
            scores += _numbers(place, kind, given, number) if given else [None] * number
        return scores

    def _passages(
        self, place: str, record: Record, kind: str, names: tuple[str, ...]
    ) -> list[Passage]:
        passages = []
        for name in names:
            given = record[name]
            if given is None or (given == "" and (kind == "neg" or len(names) > 1)):
                continue  # an n-tuple with fewer texts
            for text in given if isinstance(given, list) else [given]:
                whole = untitled = ""
                doc_id = None
                if isinstance(text, dict):
                    found = self.text_fields.found(place, text)
                    whole, untitled, _ = _titled(place, text, self.text_fields, found, self._fields)
                    if "doc_id" in found:
                        doc_id = identifier(place, "doc_id", text[found["doc_id"][0]])
                else:
                    whole = untitled = _text(place, {name: _content(place, name, text)}, name)
                passages.append(
                    Passage(doc_id or _hashed(self._stem, whole), whole, untitled, None)
                )
        return passages


def _content(place: str, name: str, value: Any) -> Any:
    """The text of a list with one message of a chat, as ms-swift has queries and documents; other
    values as they are."""
    if not isinstance(value, list):
        return value
    if len(value) != 1 or not isinstance(value[0], dict) or "content" not in value[0]:
        raise BadInput(
            f'{place}: {name} must be texts, or each one message, [{{"role": "user", "content": '
            f"TEXT}}], found {shown(value)}; a system message is not part of a text"
        )
    return value[0]["content"]


def _numbers(place: str, name: str, given: Any, number: int) -> list[float | None]:
    """A teacher's scores; None for a text that it has not scored."""
    if not isinstance(given, list) or len(given) != number:
        raise BadInput(f"{place}: {name} must be numbers, one for each of {number} texts")
    law = f"{name} must be numbers: a score"
    for score in given:
        if isinstance(score, str):
            raise BadInput(f"{place}: {law} must be a finite number, found {score!r}")
    return [None if score is None else score_of(place, score, law) for score in given]


def _hashed(stem: str, text: str) -> str:
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


LISTED = "doc_id:relevant"
"""What --fields calls the documents of a file that lists the relevant ones, without grades."""


@dataclass(frozen=True)
class _Grades:
    """How grades are read, as --fields says: from a least score of a relevant text on, or by
    words."""

    least: float | None = None
    words: Mapping[str, int] | None = None

    def of(self, place: str, value: object, name: str, reading: Reading) -> int:
        """A grade; of a score, 1 if it is not below the least score of a relevant text."""
        if self.least is not None:
            return int(score_of(place, value, name) >= self.least)
        if self.words is not None:
            if not isinstance(value, str) or value.strip() not in self.words:
                raise BadInput(
                    f"{place}: --fields {name}=relevance:WORD=GRADE,... must have a grade for each "
                    f"word, found {described(value)}; it has {', '.join(self.words)}"
                )
            return self.words[value.strip()]
        word = value.strip() if isinstance(value, str) else ""
        if word[:1].isalpha():
            hint = reading.remedy(f"{name}=relevance:{word}=1 gives words grades", "write numbers")
        else:
            limit = f"{name}=relevance:0.5 makes grades of scores, 1 from 0.5 on"
            hint = reading.remedy(limit, "round it, or make 1 and 0 of scores by a limit of yours")
        return grade_of(place, value, name, f"; {hint}")


def _grades(fields: Fields) -> _Grades:
    """The grades that --fields describes."""
    for ours in fields.values():
        name, _, text = ours.partition(":")
        if name == "relevance" and "=" in text:
            pairs = (pair.rpartition("=") for pair in text.split(","))
            return _Grades(words={word: int(grade) for word, _, grade in pairs})
        if name == "relevance" and text:
            return _Grades(least=float(text))
    return _Grades()


def parse_fields(text: str) -> dict[str, str]:
    """{their name: our name} from `theirs=ours,...`; raises `BadInput` for anything else."""
    fields: dict[str, str] = {}
    for word in text.split(","):
        theirs, _, ours = (part.strip() for part in word.partition("="))
        name, colon, least = ours.partition(":")
        last = next(reversed(fields), "")
        if _is_grade(ours) and theirs and "=" in fields.get(last, ""):
            fields[last] += f",{theirs}={ours}"  # another word of relevance:WORD=GRADE
            continue
        label, _, grade = least.partition("=")
        by_word = bool(label) and _is_grade(grade)
        known = not colon or ours == LISTED
        known = known or (name == "relevance" and (_is_number(least) or by_word))
        if not theirs or name not in FIELD_NAMES or theirs in fields or not known:
            raise BadInput(
                f"--fields must be written THEIRS=OURS,..., each once, with OURS one of "
                f"{', '.join(FIELD_NAMES)} (or relevance:LIMIT for scores, relevance:WORD=GRADE "
                f"for words, {LISTED} for lists of relevant documents); got {shown(word)}"
            )
        if {*theirs} & {*"|()"} or not theirs.isprintable():
            raise BadInput(
                "--fields cannot name a field with | ( ) or a line break, which an expression of a "
                f"collection cannot hold, got {shown(theirs)}: rename it in the file"
            )
        fields[theirs] = ours
    return fields


def _is_grade(text: str) -> bool:
    return text.lstrip("+-").isdecimal() and text.isascii() and len(text) < 8


def _is_number(text: str) -> bool:
    try:
        score_of("", text)
    except BadInput:
        return False
    return True


def _text(place: str, record: Record, field: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        raise BadInput(f"{place}: {field} must be a string, found {described(value)}")
    return unicode_text(place, field, value)
