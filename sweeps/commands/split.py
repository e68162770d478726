"""`ranksweep split`: train, dev and test, or folds, from one file of judgments."""

import gzip
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rank_core.data.divide import SALT, divided, fold_parts
from rank_core.data.named_files import PREFIX, named_qrels, named_queries, named_run, source_of
from rank_core.data.readers.records import Fields, documents, kind_of, parse_fields
from rank_core.data.trec import write_qrels, write_queries
from rank_core.errors import BadInput, shown
from rank_core.files import new_folder, write_json
from rank_core.progress import reported
from rank_core.records import Qrels
from sweeps.plan.command_line import Parser, check_writable
from sweeps.plan.terminal import say

SHARES = "80,10,10"
RUN = "first-stage.run.gz"

Parts = Mapping[str, Sequence[str]]
"""{split: its query_ids}."""


def main(argv: Sequence[str]) -> int:
    """Divide judged queries into train, dev and test, or into folds, and write them as a
    collection. The SHA-256 of a query's text and the salt decides its split, on every machine and
    with any other queries. Files are of any kind in docs/data.md; ir:ID is an ir_datasets id.
    Documents are linked, not copied."""
    options = _parser().parse_args(argv)
    folder: Path = options.to.absolute()
    if folder.exists():
        raise BadInput(f"--to must be a new folder, {folder} exists; remove it or name another")
    check_writable("--to", folder)
    fields = parse_fields(options.fields) if options.fields else {}
    qrels, queries = _judged(options.qrels, options.queries, fields)
    of_test = options.test if options.test and options.test.startswith(PREFIX) else options.queries
    test = _judged(options.test, of_test, fields) if options.test else None
    if test and (shared := qrels.keys() & test[0].keys()):
        raise BadInput(f"--test judges query {min(shared)!r}, which --qrels judges as well")
    if options.folds and (options.test or options.shares):
        raise BadInput("--folds divides all queries alike and excludes --test and --shares")
    folds = _parts(options, queries, test[1] if test else None)
    all_qrels, all_queries = qrels | (test[0] if test else {}), queries | (test[1] if test else {})
    with new_folder(folder) as unfinished:
        for name, parts in folds.items():
            _write_splits(unfinished / name, parts, all_queries, all_qrels)
        homes = [unfinished / name for name in folds]
        if options.run:
            _write_runs(options.run, homes, list(folds.values()))
        _place_documents(options.docs, homes, fields)
        facts = {"salt": options.salt, "folds": options.folds, "shares": options.shares or SHARES}
        facts |= {"qrels": options.qrels, "test": options.test}
        write_json(unfinished / "split.json", facts)
    for name, parts in folds.items():
        sizes = ", ".join(f"{split} {len(ids)}" for split, ids in parts.items())
        more = f" --fields {options.fields}" if options.fields else ""
        check = f"ranksweep doctor --collection {folder / name}{more}"
        say(f"{folder / name}: {sizes} queries\n    {check}")
    return 0


def _parser() -> Parser:
    parser = Parser("ranksweep split", main.__doc__)
    add = parser.add_argument
    add("--qrels", required=True, metavar="FILE|ir:ID", help="judgments to divide")
    add("--queries", required=True, metavar="FILE|ir:ID", help="queries of the judgments")
    add("--docs", required=True, metavar="FILE|DIR|ir:ID", help="documents")
    add("--to", required=True, type=Path, metavar="DIR", help="new folder")
    add(
        "--shares",
        metavar="A,B,C",
        help=f"shares of train, dev and test (default: {SHARES}; with --test 90,10)",
    )
    add("--test", metavar="FILE|ir:ID", help="judgments of the test split")
    add(
        "--folds",
        type=int,
        metavar="N",
        help="number of folds, each a collection: DIR/fold1 .. foldN",
    )
    add("--salt", default=SALT, help="salt of the hash (default: %(default)s)")
    add("--run", metavar="FILE|ir:ID", help="first stage for all queries (default: BM25)")
    add("--fields", metavar="THEIRS=OURS,...", help="field names: id=doc_id,body=text")
    return parser


def _judged(qrels: str, queries: str, fields: Fields) -> tuple[Qrels, dict[str, str]]:
    judged, texts = named_qrels(qrels, fields), named_queries(queries, fields)
    lacking = [query_id for query_id in judged if query_id not in texts]
    if lacking:
        raise BadInput(
            f"{qrels}: a judged query must be in {queries}, {len(lacking)} of {len(judged)} are "
            f"not, such as {shown(lacking[0])}"
        )
    return judged, {query_id: text for query_id, text in texts.items() if query_id in judged}


def _parts(
    arguments: object, queries: Mapping[str, str], test: Mapping[str, str] | None
) -> dict[str, Parts]:
    """{folder: its splits}; "." where there are no folds."""
    options = vars(arguments)
    if options["folds"] is not None:
        folds = fold_parts(queries, options["folds"], options["salt"])
        return {f"fold{n}": parts for n, parts in enumerate(folds, start=1)}
    names = ("train", "dev") if test is not None else ("train", "dev", "test")
    text = options["shares"] or ("90,10" if test is not None else SHARES)
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) != len(names) or not all(0 < share < float("inf") for share in shares):
        raise BadInput(
            f"--shares must be {len(names)} numbers above 0, of {', '.join(names)}, got {text!r}"
        )
    parts = divided(queries, dict(zip(names, shares, strict=True)), options["salt"])
    return {".": parts | ({"test": list(test)} if test is not None else {})}


def _write_splits(
    folder: Path, parts: Parts, queries: Mapping[str, str], qrels: Mapping[str, dict[str, int]]
) -> None:
    for name, query_ids in parts.items():
        (folder / name).mkdir(parents=True)
        own = {query_id: queries[query_id] for query_id in query_ids}
        write_queries(folder / name / "queries.tsv", own)
        judged = {query_id: qrels[query_id] for query_id in query_ids}
        write_qrels(folder / name / "qrels.trec", judged)


def _write_runs(run: str, homes: Sequence[Path], folds: Sequence[Parts]) -> None:
    """Write the ranking of each query to the run files of its splits, with one ranking in
    memory."""
    with ExitStack() as stack:
        files: dict[str, list[gzip.GzipFile]] = {}
        for home, parts in zip(homes, folds, strict=True):
            for name, query_ids in parts.items():
                raw = stack.enter_context((home / name / RUN).open("wb"))
                # No name and time in the header: the same lines give the same bytes.
                file = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
                stack.enter_context(file)
                for query_id in query_ids:
                    files.setdefault(query_id, []).append(file)
        for query_id, scores in reported(named_run(run), run):
            lines = "".join(
                f"{query_id} Q0 {doc_id} {rank} {score!r} first-stage\n"
                for rank, (doc_id, score) in enumerate(scores.items(), start=1)
            )
            for file in files.get(query_id, ()):
                file.write(lines.encode())


def _place_documents(docs: str, homes: Sequence[Path], fields: Fields) -> None:
    """Link the documents into each collection; those of an ir_datasets id are written once."""
    source = source_of(docs, "docs")
    if source is not None:
        path = homes[0] / "docs.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for doc_id, text in reported(source.documents(), docs):
                file.write(json.dumps({"doc_id": doc_id, "text": text}, ensure_ascii=False) + "\n")
        for home in homes[1:]:
            (home / "docs.jsonl").symlink_to(Path("..") / homes[0].name / "docs.jsonl")
        return
    path = Path(docs).absolute()
    if not path.exists():
        raise BadInput(f"{docs} does not exist")
    if not path.is_dir() and not kind_of(path):
        raise BadInput(f"{docs} must be a file or folder of documents (docs/data.md)")
    next(documents(path, fields), None)  # raises for unknown names of fields
    for home in homes:
        (home / f"docs{'' if path.is_dir() else kind_of(path)}").symlink_to(path)
