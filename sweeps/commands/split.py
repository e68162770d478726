"""`ranksweep split`: train, dev and test from one file of judgments."""

import gzip
import json
import math
import shutil
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rank_core.data.folder import DECLARED, check_folder, declared_language
from rank_core.data.folds import FEW_QUERIES, SALT, divided
from rank_core.data.groups import read_groups
from rank_core.data.named_files import named_qrels, named_queries, named_run, source_of
from rank_core.data.overlap import KEEP_APART, Seen, seen_in_training, shared_texts
from rank_core.data.readers import documents, parse_fields
from rank_core.data.spans import spans_beside
from rank_core.data.store import DocumentStore
from rank_core.data.tables import KINDS, kind_of
from rank_core.data.trec import write_lines, write_qrels, write_queries, write_run
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput, shown
from rank_core.files import new_folder, write_json
from rank_core.records import Qrels, Run
from sweeps.plan.next_command import our_command
from sweeps.terminal.command_line import Parser, check_writable
from sweeps.terminal.text import numbered, say, warn

NEEDED = {
    "qrels": "judgments",
    "queries": "texts of the judged queries",
    "docs": "documents",
    "to": "a new folder",
}
OPTIONS = {
    "shares": "shares A,B,C of train, dev and test (default: 80,10,10; with --test: 90,10); for a "
    "question that trains nothing 0,50,50, or 0,0,100",
    "test": "judgments of the test split",
    "group": "a field, or a file of lines `query TAB group`: a group stays in one split (doc_id: "
    "queries that share a document)",
    "salt": f"salt of the hash (default: {SALT})",
    "run": "run of the first stage for all queries (default: BM25)",
    "fields": "field names in the files, THEIRS=OURS: id=doc_id,body=text",
}
KEPT = ("salt", "shares", "qrels", "test", "group", "run", "fields")
"""The options that split.json records."""


@dataclass(frozen=True)
class JudgedQueries:
    """JudgedQueries queries, with their groups if --group is given."""

    qrels: Qrels
    queries: dict[str, str]
    groups: dict[str, str]

    def part(self, ids: Iterable[str]) -> "JudgedQueries":
        """Some of the queries, in this order."""
        names = list(ids)
        return JudgedQueries(
            {name: self.qrels[name] for name in names},
            {name: self.queries[name] for name in names},
            {name: self.groups[name] for name in names} if self.groups else {},
        )


def main(argv: Sequence[str]) -> int:
    """Divide judged queries into train, dev and test, and write them as a collection. The SHA-256
    of a query's text, or of its group, and the salt decides its split, on every machine and with
    any other queries. Files are of any kind in docs/data.md; ir:ID is an ir_datasets id. Documents
    are linked; with --fields they are written under the standard names. Spans of relevant text
    beside them (spans.jsonl.gz) are linked too."""
    args = parser().parse_args(argv, Namespace(salt=SALT))
    folder, fields = Path(args.to).absolute(), parse_fields(args.fields) if args.fields else {}
    if folder.exists():
        raise BadInput(f"--to must be a new folder, but {folder} exists")
    check_writable("--to", folder)
    parts = _parts(args, fields)
    runs = _runs(args.run, parts, fields) if args.run else {}
    with new_folder(folder) as unfinished:
        for split, judged in parts.items():
            (place := unfinished / split).mkdir()
            _write_queries(place, judged)
            write_qrels(place / "qrels.trec", judged.qrels)
            if split in runs:
                write_run(place / "first-stage.run.gz", runs[split], tag="first-stage")
        _place_documents(args.docs, unfinished, fields)
        if spans := _spans(args.docs):
            (unfinished / spans.name).symlink_to(spans)
        if language := _language(args.docs):
            write_json(unfinished / DECLARED, {"language": language})
        write_json(unfinished / "split.json", {name: vars(args)[name] for name in KEPT})
    try:  # as every command reads it
        [placed] = folder.glob("docs.*")
        named = Path(args.docs).absolute() if placed.is_symlink() else placed
        known = check_folder(folder, {}, documents=named)
        for split, run in _of_known(runs, known, args.run).items():
            write_run(folder / split / "first-stage.run.gz", run, tag="first-stage")
    except BadInput as error:
        shutil.rmtree(folder)
        raise BadInput(f"{error}; {folder} is not kept") from None
    sizes = ", ".join(f"{split} {_size(judged)}" for split, judged in parts.items())
    say(f"{folder}: {sizes} queries")
    _say_what_is_shared(parts)
    say(f"    {our_command('doctor', '--collection', str(folder))}")
    tested = [name for name in ("dev", "test") if name in parts]
    if min(len(parts[name].queries) for name in tested) < FEW_QUERIES:
        few = f"fewer than {FEW_QUERIES} {' or '.join(tested)} queries detect no real difference"
        folds = ", or test all queries with evaluation.folds=5" if "train" in parts else ""
        warn(f"{few}: raise their --shares{folds or ', or judge more queries'}")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep split`."""
    parser = Parser("ranksweep split", main.__doc__)
    for name, text in (NEEDED | OPTIONS).items():
        parser.add_argument(f"--{name}", required=name in NEEDED, help=text)
    return parser


def _parts(args: Namespace, fields: Fields) -> dict[str, JudgedQueries]:
    """The judged queries of each split."""
    qrels, queries = _judged(args.qrels, args.queries, fields)
    texts = args.test if (args.test or "").startswith("ir:") else args.queries
    of_test, test = _judged(args.test, texts, fields) if args.test else ({}, {})
    if args.test and not test:
        raise BadInput(f"--test {args.test} judges no query")
    if shared := qrels.keys() & of_test.keys():
        raise BadInput(f"--test judges query {min(shared)!r}, which --qrels judges as well")
    groups: dict[str, str] = {}
    if args.group is not None:
        sources = dict.fromkeys((args.queries, texts))
        groups = read_groups(
            args.group, queries=[*sources], docs=args.docs, qrels=qrels | of_test, fields=fields
        )
        queries = _apart(queries, {groups[query_id] for query_id in test}, groups)
    parts = divided(queries, _shares(args), args.salt, groups)
    whole = JudgedQueries(qrels | of_test, queries | test, groups)
    parts |= {"test": [*test]} if test else {}
    found = {split: whole.part(ids) for split, ids in parts.items()}
    for split, part in found.items():
        if not any(grade > 0 for judged in part.qrels.values() for grade in judged.values()):
            raise BadInput(
                f"none of the {len(part.queries):,} queries of {split} has a relevant document "
                "(relevance above 0); use larger --shares or another --salt"
                + (", or smaller groups" if groups else "")
            )
    return found


def _judged(qrels: str, queries: str, fields: Fields) -> tuple[Qrels, dict[str, str]]:
    texts = named_queries(queries, fields)
    judged = named_qrels(qrels, fields, texts)
    if lacking := [query_id for query_id in judged if query_id not in texts]:
        raise BadInput(f"{qrels} judges query {shown(lacking[0])}, which is not in {queries}")
    return judged, {query_id: text for query_id, text in texts.items() if query_id in judged}


def _apart(
    queries: dict[str, str], tested: Collection[str], groups: Mapping[str, str]
) -> dict[str, str]:
    """The queries without those of groups that --test has, which no other split may have."""
    kept = {query_id: text for query_id, text in queries.items() if groups[query_id] not in tested}
    if less := len(queries) - len(kept):
        of_all = f"{less:,} of {len(queries):,} queries of --qrels"
        warn(f"{of_all} are left out: --test has their group")
    return kept


def _runs(run: str, parts: Mapping[str, JudgedQueries], fields: Fields) -> dict[str, Run]:
    """The candidates of each split with queries that the run ranks; says which it does not rank,
    and refuses a run that ranks none."""
    ranked = dict(named_run(run, fields))
    runs = {s: {q: ranked[q] for q in part.queries if q in ranked} for s, part in parts.items()}
    if not any(runs.values()):
        asked = next(iter(next(iter(parts.values())).queries))
        others = f"; it has queries such as {shown(next(iter(ranked)))}" if ranked else ""
        raise BadInput(
            f"--run {run} ranks none of the queries of --qrels, such as {shown(asked)}{others}"
        )
    for split, part in parts.items():
        less = len(part.queries) - len(runs[split])
        if less and runs[split]:
            warn(f"--run does not rank {less:,} of {len(part.queries):,} {split} queries")
        elif less:
            warn(f"--run ranks no query of {split}: BM25 over all documents ranks them instead")
    return {split: of_split for split, of_split in runs.items() if of_split}


def _of_known(runs: Mapping[str, Run], known: DocumentStore, source: str) -> dict[str, Run]:
    """The runs with documents that --docs lacks, without these: an index is often newer than a
    dump. Most of them missing is another mistake."""
    lost: dict[str, None] = {}
    changed, pairs = dict[str, Run](), 0
    for split, run in runs.items():
        kept = {q: {d: s for d, s in scores.items() if d in known} for q, scores in run.items()}
        lost |= {d: None for scores in run.values() for d in scores if d not in known}
        pairs += sum(map(len, kept.values()))
        if sum(map(len, kept.values())) < sum(map(len, run.values())):
            changed[split] = kept
        if not any(kept.values()):
            raise BadInput(f"--run {source}: no document of {split} is in --docs")
    number = sum(len(scores) for run in runs.values() for scores in run.values())
    if 2 * pairs < number:
        raise BadInput(
            f"--run {source}: --docs lacks most of its documents, such as {next(iter(lost))}: are "
            "they of one index?"
        )
    if lost:
        warn(
            f"--run: {number - pairs:,} of {number:,} candidates are left out, as --docs lacks "
            f"their documents, such as {next(iter(lost))}"
        )
    return changed


def _write_queries(place: Path, judged: JudgedQueries) -> None:
    """The queries, with their groups as JSON lines."""
    if not judged.groups:
        write_queries(place / "queries.tsv", judged.queries)
        return
    rows = (
        {"query_id": name, "text": " ".join(text.split()), "group": judged.groups[name]}
        for name, text in judged.queries.items()
    )
    write_lines(place / "queries.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))


def _size(judged: JudgedQueries) -> str:
    groups = len({*judged.groups.values()})
    return f"{len(judged.queries):,}" + (f" ({numbered(groups, 'group')})" if groups else "")


def _say_what_is_shared(parts: Mapping[str, JudgedQueries]) -> None:
    """Says what dev and test share with training, if there is any: relevant documents, and texts of
    queries."""
    high = list[Seen]()
    for name in ("dev", "test") if "train" in parts else ():
        seen = seen_in_training(parts["train"].qrels, parts[name].qrels, name)
        say(f"    {seen.text}")
        high += [seen] if seen.is_high else []
    if high:
        names = " and ".join(seen.split for seen in high)
        warn(f"many relevant documents of {names} are also relevant in training: {KEEP_APART}")
    for name, earlier, same in shared_texts({s: part.queries for s, part in parts.items()}):
        warn(f"{len(same):,} {name} queries have the text of a {earlier} query, such as {same[0]}")


def _shares(args: Namespace) -> dict[str, float]:
    names = ("train", "dev") if args.test else ("train", "dev", "test")
    text = args.shares if args.shares is not None else "90,10" if args.test else "80,10,10"
    with suppress(ValueError, StopIteration):
        numbers = [float(word) for word in text.split(",")]
        shares = dict(zip(names, numbers, strict=True))
        # Without training no train, without a choice no dev: zeros stand before all others.
        first = next(place for place, share in enumerate(numbers) if share)
        if all(0 < share < math.inf for share in numbers[first:]):
            return {name: share for name, share in shares.items() if share}
    raise BadInput(
        f"--shares must be numbers above 0 of {', '.join(names)}, or 0 for the first of them where "
        f"nothing is trained, got {text!r}"
    )


def _language(docs: str) -> str:
    """The language that an ir_datasets id has, or that the folder of the documents declares."""
    source = source_of(docs, "docs")
    return source.language if source else declared_language(Path(docs).absolute().parent)


def _spans(docs: str) -> Path | None:
    """The file of spans beside a file of documents."""
    return None if source_of(docs, "docs") else spans_beside(Path(docs).absolute().parent)


def _place_documents(docs: str, folder: Path, fields: Fields) -> None:
    """Link the documents into the collection. Those of an ir_datasets id, and those under other
    names of fields, are written: nothing has to remember the names then."""
    source, path = source_of(docs, "docs"), Path(docs).absolute()
    kind = "" if source else kind_of(path)
    if source is None and not kind:
        raise BadInput(f"{docs} must be a file of documents, {', '.join(KINDS)} (docs/data.md)")
    if source is None and not fields:
        next(documents(path, fields), None)  # raises for unknown names of fields
        (folder / f"docs{kind}").symlink_to(path)
        return
    pairs = (
        source.documents()
        if source
        else ((document.doc_id, document.text) for document in documents(path, fields))
    )
    zipped = kind.endswith(".gz")
    opened = gzip.open if zipped else open
    with opened(folder / f"docs.jsonl{'.gz' * zipped}", "wt", encoding="utf-8") as file:
        for doc_id, text in pairs:
            file.write(json.dumps({"doc_id": doc_id, "text": text}, ensure_ascii=False) + "\n")
