"""MedQuAD's passages as a collection: `python medquad_passages.py medquad medquad-far OUT`.

A training query is the question of a passage. Dev and test are those of medquad-far, over the
passages that its documents hide. A page whose subject is asked for there is searched, and gives no
training query.
"""

import argparse
import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

Judgments = dict[str, dict[str, int]]


def rows(path: Path) -> Iterable[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def queries_of(folder: Path, split: str) -> dict[str, str]:
    lines = (folder / split / "queries.tsv").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def write_split(folder: Path, queries: dict[str, str], relevance: Judgments) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "queries.tsv").write_text(
        "".join(f"{query_id}\t{text}\n" for query_id, text in queries.items()), encoding="utf-8"
    )
    (folder / "qrels.trec").write_text(
        "".join(
            f"{query_id} 0 {doc_id} {grade}\n"
            for query_id in queries
            for doc_id, grade in relevance[query_id].items()
        ),
        encoding="utf-8",
    )


def make(pages: Path, far: Path, out: Path) -> None:
    texts = {page["doc_id"]: page for page in rows(pages / "docs.jsonl.gz")}
    passages = list(rows(pages / "passages.jsonl.gz"))
    out.mkdir(parents=True, exist_ok=True)
    with gzip.open(out / "docs.jsonl.gz", "wt", encoding="utf-8") as lines:
        for passage in passages:
            text = texts[passage["doc_id"]]["text"][passage["start"] : passage["end"]]
            lines.write(json.dumps({"doc_id": passage["passage_id"], "text": text}) + "\n")

    held_out = {split: queries_of(far, split) for split in ("dev", "test")}
    sources: Judgments = defaultdict(dict)
    asked = set()
    for span in rows(far / "spans.jsonl.gz"):
        if any(span["qid"] in queries for queries in held_out.values()):
            asked.add(texts[span["src"].partition("#")[0]]["title"].casefold())
            if span["grade"]:
                sources[span["qid"]][span["src"]] = span["grade"]
    for split, queries in held_out.items():
        write_split(out / split, queries, sources)

    kept = {text.casefold() for queries in held_out.values() for text in queries.values()}
    answers: Judgments = defaultdict(dict)
    for passage in passages:
        question = " ".join(passage["question"].split())
        named = any(subject in question.casefold() for subject in asked)
        if (
            not named
            and texts[passage["doc_id"]]["title"].casefold() not in asked
            and question.casefold() not in kept
        ):
            answers[question][passage["passage_id"]] = 1
    # By hash, so that the first N training queries are a random sample of all subjects.
    drawn = sorted(answers, key=lambda text: hashlib.sha256(text.encode()).digest())
    ids = {f"p{number:05d}": text for number, text in enumerate(drawn)}
    write_split(out / "train", ids, {query_id: answers[text] for query_id, text in ids.items()})


def main(words: Sequence[str] | None = None) -> None:
    """The collection of three folders: pages and their passages, the queries, the new one."""
    parser = argparse.ArgumentParser(description="MedQuAD's passages as a collection")
    for name in ("pages", "far", "out"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args(words)
    make(args.pages, args.far, args.out)


if __name__ == "__main__":
    main()
