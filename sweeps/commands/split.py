"""`ranksweep split`: train, dev and test from one file of judgments."""

import json
import math
import shutil
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rank_core.data.folder import check_folder
from rank_core.data.folds import FEW_QUERIES, SALT, divided
from rank_core.data.named_files import named_qrels, named_queries, named_run, source_of
from rank_core.data.readers import documents, parse_fields
from rank_core.data.tables import KINDS, kind_of
from rank_core.data.trec import write_qrels, write_queries, write_run
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput, shown
from rank_core.files import new_folder, write_json
from rank_core.records import Qrels
from sweeps.plan.command_line import Parser, check_writable
from sweeps.plan.next_command import ours
from sweeps.plan.terminal import say, warn

NEEDED = {"qrels": "judgments", "queries": "their queries", "docs": "documents", "to": "new folder"}
OPTIONS = {
    "shares": "A,B,C of train, dev, test (default: 80,10,10; with --test: 90,10)",
    "test": "judgments of the test split",
    "salt": f"salt of the hash (default: {SALT})",
    "run": "first stage for all queries (default: BM25)",
    "fields": "field names, THEIRS=OURS: id=doc_id,body=text",
}


def main(argv: Sequence[str]) -> int:
    """Divide judged queries into train, dev and test, and write them as a collection. The SHA-256
    of a query's text and the salt decides its split, on every machine and with any other queries.
    Files are of any kind in docs/data.md; ir:ID is an ir_datasets id. Documents are linked."""
    parser = Parser("ranksweep split", main.__doc__)
    for name, text in (NEEDED | OPTIONS).items():
        parser.add_argument(f"--{name}", required=name in NEEDED, help=text)
    given = parser.parse_args(argv, Namespace(salt=SALT))
    folder, fields = Path(given.to).absolute(), parse_fields(given.fields) if given.fields else {}
    if folder.exists():
        raise BadInput(f"--to must be a new folder, {folder} exists")
    check_writable("--to", folder)
    qrels, queries = _judged(given.qrels, given.queries, fields)
    texts = given.test if (given.test or "").startswith("ir:") else given.queries
    of_test, test = _judged(given.test, texts, fields) if given.test else ({}, {})
    if given.test and not test:
        raise BadInput(f"--test {given.test} judges no query")
    if shared := qrels.keys() & of_test.keys():
        raise BadInput(f"--test judges query {min(shared)!r}, which --qrels judges as well")
    parts = divided(queries, _shares(given), given.salt) | ({"test": list(test)} if test else {})
    run = dict(named_run(given.run)) if given.run else {}
    with new_folder(folder) as unfinished:
        for split, ids in parts.items():
            (place := unfinished / split).mkdir()
            write_queries(place / "queries.tsv", {q: (queries | test)[q] for q in ids})
            write_qrels(place / "qrels.trec", {q: (qrels | of_test)[q] for q in ids})
            if run:
                ranked = {q: run[q] for q in ids if q in run}
                write_run(place / "first-stage.run.gz", ranked, tag="first-stage")
        _place_documents(given.docs, unfinished, fields)
        facts = ("salt", "shares", "qrels", "test")
        write_json(unfinished / "split.json", {name: vars(given)[name] for name in facts})
    try:  # as every command reads it
        check_folder(folder, fields, documents=_documents_file(given.docs, folder))
    except BadInput as error:
        shutil.rmtree(folder)
        raise BadInput(f"{error}; {folder} is not kept") from None
    named = ["--collection", str(folder), *(["--fields", given.fields] if given.fields else [])]
    sizes = ", ".join(f"{split} {len(ids)}" for split, ids in parts.items())
    say(f"{folder}: {sizes} queries\n    {ours('doctor', *named)}")
    if min(len(parts[name]) for name in ("dev", "test")) < FEW_QUERIES:
        few = f"fewer than {FEW_QUERIES} dev or test queries detect no real difference"
        warn(f"{few}: raise their --shares, or test all queries with evaluation.folds=5")
    return 0


def _judged(qrels: str, queries: str, fields: Fields) -> tuple[Qrels, dict[str, str]]:
    judged, texts = named_qrels(qrels, fields), named_queries(queries, fields)
    if lacking := [query_id for query_id in judged if query_id not in texts]:
        raise BadInput(f"{qrels} judges query {shown(lacking[0])}, which {queries} lacks")
    return judged, {query_id: text for query_id, text in texts.items() if query_id in judged}


def _shares(given: Namespace) -> dict[str, float]:
    names = ("train", "dev") if given.test else ("train", "dev", "test")
    text = given.shares if given.shares is not None else "90,10" if given.test else "80,10,10"
    with suppress(ValueError):
        shares = dict(zip(names, map(float, text.split(",")), strict=True))
        if all(0 < share < math.inf for share in shares.values()):
            return shares
    raise BadInput(f"--shares must be numbers above 0 of {', '.join(names)}, got {text!r}")


def _place_documents(docs: str, folder: Path, fields: Fields) -> None:
    """Link the documents into the collection; those of an ir_datasets id are written."""
    source, path = source_of(docs, "docs"), Path(docs).absolute()
    if source is not None:
        with (folder / "docs.jsonl").open("w", encoding="utf-8") as file:
            for doc_id, text in source.documents():
                file.write(json.dumps({"doc_id": doc_id, "text": text}, ensure_ascii=False) + "\n")
        return
    if not kind_of(path):
        raise BadInput(f"{docs} must be a file of documents, {', '.join(KINDS)} (docs/data.md)")
    next(documents(path, fields), None)  # raises for a missing file and unknown names of fields
    (folder / f"docs{kind_of(path)}").symlink_to(path)


def _documents_file(docs: str, folder: Path) -> Path:
    """The file of documents, under the name that messages should have."""
    return Path(docs).absolute() if source_of(docs, "docs") is None else folder / "docs.jsonl"
