"""Small collections in the formats, and at the places, in which the real ones are distributed."""

import gzip
import importlib
import json
import sys
import zipfile

ROBUST_FOLDERS = {"FBIS/FB": 492, "FR94/01/FR": 688, "FT/911/FT": 385, "LATIMES/LA": 730}


def settle_ir_datasets(home):
    """Imports ir_datasets anew, in half a second, unless it has lived in this home before: its
    objects hold the folder that was its home when it was first imported."""
    if getattr(sys.modules.get("ir_datasets"), "home_of_tests", None) != home:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ir_datasets"]:
            del sys.modules[name]
        importlib.import_module("ir_datasets").home_of_tests = home


def write(path, text):
    """Text, gzip where the name ends in .gz; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def lines(rows):
    return "".join(f"{row}\n" for row in rows)


def trec_doc(doc_id, *text):
    return lines(["<DOC>", f"<DOCNO>{doc_id}</DOCNO>", "<TEXT>", *text, "</TEXT>", "</DOC>"])


def msmarco_documents(home, num_documents=30):
    """Version 1: TREC text with url, title and body; train, dev, DL 2019, DL 2020 and DL-Hard."""
    root = home / "msmarco-document"
    write(
        root / "collection.tsv.gz",
        "".join(
            trec_doc(f"D{n}", f"https://example.org/{n}", f"Title {n}", f"body of page {n}", "end")
            for n in range(num_documents)
        ),
    )
    first_query = {"train": 100, "dev": 200, "trec-dl-2019": 915593, "trec-dl-2020": 1108100}
    for split, first in first_query.items():
        ids = [str(first + n) for n in range(3)]
        write(root / split / "queries.tsv.gz", lines(f"{q}\twhat is {q}" for q in ids))
        ranked = [(q, d) for q in ids for d in range(10)]
        rows = lines(f"{q} Q0 D{d} {d + 1} {-d - 1} Indri" for q, d in ranked)
        write(root / split / "ms.run.gz", rows)
        # Only the first two queries of a track are judged.
        name = "qrels" if "dl" in split else "qrels.gz"
        rows = lines(f"{q} 0 D{n} {2 - n}" for q in ids[:2] for n in range(3))
        # A page that the collection lacks, and a page judged twice.
        write(root / split / name, f"{rows}{ids[0]} 0 D999 1\n{ids[1]} 0 D0 1\n")
    write(root / "trec-dl-hard" / "irds_version.txt", "v2")  # else ir_datasets removes the file
    write(root / "trec-dl-hard" / "qrels", "915593 0 D4 3\n1108100 0 D5 1\n1108100 0 D6 0\n")


def robust04(home):
    """2,295 files under four sources, 250 topics, one of them (672) without a relevant document."""
    root, number = home / "disks45", 0
    for prefix, count in ROBUST_FOLDERS.items():
        for n in range(count):
            text = lines(
                [
                    "<DOC>",
                    f"<DOCNO> {prefix[:2]}-{number} </DOCNO>",
                    f"<HEADLINE> Headline {number} </HEADLINE>",
                    "<TEXT>",
                    f"<P>story{number} told in the news</P>",
                    "</TEXT>",
                    "</DOC>",
                ]
            )
            write(root / "corpus" / f"{prefix}{n:04d}", text)
            number += 1
    topics = [*range(301, 451), *range(601, 701)]
    write(
        root / "04.testset.gz",
        "".join(
            f"<top>\n\n<num> Number: {t} \n<title> story{t} \n\n<desc> Description: \nFind\nnews "
            f"about story{t}\n\n<narr> Narrative: \nwhatever\n\n</top>\n\n"
            for t in topics
        ),
    )
    # Numbers up to 491 are in FBIS, the others in the Federal Register.
    judged = [f"{t} 0 {'FB' if t < 492 else 'FR'}-{t} {int(t != 672)}" for t in topics]
    write(root / "qrels.robust2004.txt", lines(judged))


def beir(home, name, splits, num_documents=25, num_queries=2):
    """A zip of corpus.jsonl, queries.jsonl and qrels/<split>.tsv with a header line."""
    fields = {"nfcorpus": {"url": "u"}, "trec-covid": {"url": "u", "pubmed_id": "p"}}.get(name, {})
    corpus = [
        {"_id": f"MED-{n}", "title": f"Study {n}", "text": f"effect{n} seen", "metadata": fields}
        for n in range(num_documents)
    ]
    queries = [
        {"_id": f"{split}-{n}", "text": f"effect{n}", "metadata": {"url": "u"}}
        for split in splits
        for n in range(num_queries)
    ]
    path = home / "beir" / name / "source.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/corpus.jsonl", lines(map(json.dumps, corpus)))
        archive.writestr(f"{name}/queries.jsonl", lines(map(json.dumps, queries)))
        for split in splits:
            judged = [f"{split}-{n}\tMED-{n}\t{2 if n == 0 else 1}" for n in range(num_queries)]
            rows = ["query-id\tcorpus-id\tscore", *judged]
            archive.writestr(f"{name}/qrels/{split}.tsv", lines(rows))


def gov2(home):
    """Two archives of pages, Terabyte topics of three years, and Million Query topics."""
    root = home / "gov2"
    for archive in ("00", "01"):
        pages = "".join(
            f"<DOC>\n<DOCNO>GX000-{archive}-{n:07d}</DOCNO>\n<DOCHDR>\nhttp://a.gov/{n}\n"
            "HTTP/1.1 200 OK\nContent-Type: text/html\n</DOCHDR>\n<html><head><title>Page "
            f"{n}</title></head><body>text of {archive} {n}</body></html>\n</DOC>\n"
            for n in range(5)
        )
        write(root / "corpus" / "GOV2_data" / "GX000" / f"{archive}.gz", pages)
    for year, first in (("2004", 701), ("2005", 751), ("2006", 801)):
        topics = range(first, first + 4)
        write(
            root / f"trec-tb-{year}" / "queries.txt",
            "".join(
                f"<top>\n<num> Number: {t}\n<title> title{t}\n<desc> Description:\nabout {t}\n"
                "<narr> Narrative:\nx\n</top>\n"
                for t in topics
            ),
        )
        rows = [f"{t} 0 GX000-00-0000001 2\n{t} 0 GX000-01-0000009 1" for t in topics]
        write(root / f"trec-tb-{year}" / "qrels.txt", lines(rows))
    write(root / "trec-mq-2007" / "queries.txt.gz", lines(f"{t}:mq {t}" for t in range(1, 21)))
    prels = (f"{t} GX000-01-0000003 {t % 3} 1 0.5" for t in range(1, 21))
    write(root / "trec-mq-2007" / "prels", lines(prels))


def parquet(path, rows):
    import pyarrow
    from pyarrow import parquet as files

    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_table(pyarrow.Table.from_pylist(rows), path)


def bright_long(home):
    """Two documents and a query, with a document that is excluded from its evaluation."""
    ids = ["moths/Light.txt", "moths/Moon.txt"]
    docs = [{"id": i, "content": text} for i, text in zip(ids, ("moths", "the moon"), strict=True)]
    parquet(home / "bright" / "biology.long-docs.parquet", docs)
    query = {"id": "0", "query": "why do moths\nfly to light", "reasoning": "r", "gold_answer": "g"}
    query |= {"gold_ids": ["x"], "gold_ids_long": ids[:1], "excluded_ids": ids[1:]}
    names = ["Gemini-1.0_reason", "claude-3-opus_reason", "gpt4_reason", "grit_reason"]
    for name in ("", *(f"{name}." for name in (*names, "llama3-70b_reason"))):
        parquet(home / "bright" / f"biology.{name}queries.parquet", [query])


def nano_beir(home):
    """Two documents and a judged query."""
    folder = home / "nano-beir" / "scifact"
    texts = (("1", "cells"), ("2", "stars"))
    parquet(folder / "corpus.parquet", [{"_id": i, "text": text} for i, text in texts])
    parquet(folder / "queries.parquet", [{"_id": "q", "text": "which stars"}])
    parquet(folder / "qrels.parquet", [{"query-id": "q", "corpus-id": "2"}])
