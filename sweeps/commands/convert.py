"""`ranksweep convert FILE --to FILE`: documents, judgments and runs of other tools."""

import json
from collections.abc import Sequence
from pathlib import Path

from rank_core.data.named_files import named_queries
from rank_core.data.readers import documents, ids_of_texts, judgment_rows, parse_fields, run_rows
from rank_core.data.tables import KINDS, kind_of
from rank_core.data.trec import (
    gathered_qrels,
    gathered_run,
    noted,
    write_lines,
    write_qrels,
    write_run,
)
from rank_core.errors import BadInput
from rank_core.files import is_there
from sweeps.terminal.command_line import Parser, check_writable
from sweeps.terminal.text import num_queries, numbered, say

RUN, JUDGMENTS, DOCUMENTS = (".run", ".run.gz"), (".trec", ".qrels"), (".jsonl", ".jsonl.gz")


def main(argv: Sequence[str]) -> int:
    """Write documents (--to NEW.jsonl), judgments (NEW.trec) or a run (NEW.run) of another tool as
    every command reads them: responses, bulk requests and documents of Elasticsearch or OpenSearch,
    judgments of Quepid, tables with any names. Where a file names queries by their texts, --queries
    has their ids."""
    args = parser().parse_args(argv)
    path, to = Path(args.file), Path(args.to)
    fields = parse_fields(args.fields) if args.fields else {}
    if is_there(to):
        raise BadInput(f"--to must be a new file, but {to} exists")
    if not to.name.lower().endswith((*RUN, *JUDGMENTS, *DOCUMENTS)):
        raise BadInput(f"--to must end in .jsonl, .trec or .run, got {to}")
    if not kind_of(path):
        raise BadInput(f"{path} must be a file of records, {', '.join(KINDS)}")
    check_writable("the folder of --to", to.parent)
    queries = named_queries(args.queries, None) if args.queries else {}
    if to.name.lower().endswith(DOCUMENTS):
        if args.queries:
            raise BadInput("--queries has no effect on documents, which --to NEW.jsonl writes")
        rows = {document.doc_id: document.text for document in documents(path, fields)}
        if not rows:
            raise BadInput(f"{path} has no documents")
        pairs = ({"doc_id": name, "text": text} for name, text in rows.items())
        write_lines(to, (json.dumps(pair, ensure_ascii=False) for pair in pairs))
        say(f"{to}: {numbered(len(rows), 'document')}")
    elif to.name.lower().endswith(JUDGMENTS):
        qrels = gathered_qrels(ids_of_texts(judgment_rows(path, fields), queries))
        write_qrels(to, qrels)
        count = sum(map(len, qrels.values()))
        say(f"{to}: {numbered(count, 'judgment')}, {num_queries(len(qrels))}")
    else:
        run = noted(str(path), gathered_run(ids_of_texts(run_rows(path, fields), queries)))
        write_run(to, run, tag=path.name.partition(".")[0].split()[0])
        count = sum(map(len, run.values()))
        say(f"{to}: {numbered(count, 'document')}, {num_queries(len(run))}")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep convert`."""
    parser = Parser("ranksweep convert", main.__doc__)
    add = parser.add_argument
    add("file", metavar="FILE", help="a file of records: JSON, JSON lines, CSV, TSV or Parquet")
    kinds = "the new file: .jsonl has documents, .trec judgments, .run a run"
    add("--to", required=True, metavar="NEW", help=kinds)
    add("--queries", metavar="FILE|ir:ID", help="texts of the queries that FILE names by text")
    add("--fields", metavar="THEIRS=OURS,...", help="names of its fields, as `split` takes them")
    return parser
