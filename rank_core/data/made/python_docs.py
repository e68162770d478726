"""`python-docs`: a collection that is made, not downloaded, from Python's own documentation.

A query is the summary of a docstring, the relevant passage is its body, and each document buries
one body among bodies that answer no query. It differs a little between Python versions, which its
content hash records.
"""

import dataclasses
import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.folder import SPLITS, load_folder
from rank_core.data.made.stdlib_docstrings import DocstringPair, collect_pairs
from rank_core.data.trec import read_lines, write_lines, write_qrels, write_queries, write_run
from rank_core.errors import BadInput
from rank_core.records import Collection
from rank_core.seeding import generator

NAME = "python-docs"
PASSAGES = "python-docs-passages"
RECIPE_VERSION = 1  # raised when the code below gives another collection
SEED = 2024
MAX_BODY_WORDS = 80
NEAR_DUPLICATE = 0.75  # share of the shorter body's distinct words that are in the other body too
POOL_SHARE = 0.6  # of the pairs: their bodies are distractors and answer no query
SPLIT_SHARES = {"train": 0.54, "dev": 0.08, "test": 0.38}  # of the other pairs
FIRST_POSITION = 100  # words before a relevant passage, at least
MAX_LENGTH = 240  # words of a document
MIN_PAIRS = 300  # fewer mean an interpreter without docstrings
POOL = "pool"


class Query(NamedTuple):
    """A query pair with the ids it has in the collection."""

    query_id: str
    doc_id: str
    split: str
    pair: DocstringPair


def load_python_docs(name: str = NAME) -> Collection:
    """The collection of this interpreter's standard library, built at the first call (seconds)."""
    return dataclasses.replace(load_folder(_folder()), name=name)


def load_passages(name: str = PASSAGES) -> Collection:
    """The docstrings' bodies alone: each of the queries' answers its own summary, those of the pool
    answer nothing. What `far-relevant` can be made from on any machine."""
    source = _folder()
    folder = cached_directory(
        "collections", f"{PASSAGES}-{source.name}", lambda folder: _build_passages(folder, source)
    )
    return dataclasses.replace(load_folder(folder), name=name)


def training_passages() -> list[tuple[str, str]]:
    """(summary, body) pairs that a backbone may be trained on: those of the train split and of the
    distractors, never of dev or test."""
    return [
        (record["summary"], record["body"])
        for record in _read_jsonl(_folder() / "passages.jsonl.gz")
        if record["split"] in ("train", POOL)
    ]


def _folder() -> Path:
    recipe = [
        RECIPE_VERSION,
        platform.python_version(),
        sys.platform,
        first_stage.recipe(),
        [SEED, MAX_BODY_WORDS, NEAR_DUPLICATE, POOL_SHARE, SPLIT_SHARES],
        [FIRST_POSITION, MAX_LENGTH, first_stage.DEPTH, first_stage.K1, first_stage.B],
    ]
    key = f"{NAME}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]}"
    return cached_directory("collections", key, _build)


def _build(folder: Path) -> None:
    """Write the collection in the layout that `load_folder` reads, with its passages and spans."""
    pairs = without_near_duplicates(_capped(collect_pairs()))
    if len(pairs) < MIN_PAIRS:
        raise BadInput(
            f"{NAME} needs an interpreter with docstrings: at least {MIN_PAIRS} usable ones, "
            f"found {len(pairs)} in {sys.executable}"
        )
    pool, queries = assign_roles(pairs)
    documents, spans = _documents(queries, [pair.body for pair in pool])
    _write_jsonl(
        folder / "docs.jsonl.gz",
        ({"doc_id": doc_id, "text": documents[doc_id]} for doc_id in sorted(documents)),
    )
    _write_jsonl(folder / "spans.jsonl.gz", spans)
    _write_jsonl(folder / "passages.jsonl.gz", _passages(pool, queries))
    for split in SPLITS:
        (folder / split).mkdir()
        _write_split(
            folder / split, [query for query in queries if query.split == split], documents
        )


def _capped(pairs: Iterable[DocstringPair]) -> list[DocstringPair]:
    return [pair._replace(body=" ".join(pair.body.split()[:MAX_BODY_WORDS])) for pair in pairs]


def without_near_duplicates(pairs: Sequence[DocstringPair]) -> list[DocstringPair]:
    """The pairs whose body is unlike that of every pair kept before it.

    Docstrings repeat each other with a word changed or a sentence added (`bytes.find` and
    `bytearray.find`); an answer among the distractors would make the judgments wrong. Two bodies
    are alike if the shorter one has `NEAR_DUPLICATE` of its distinct words in common with the
    other, so a body that contains another counts as well.
    """
    words = [set(pair.body.lower().split()) for pair in pairs]
    column = {word: number for number, word in enumerate(sorted(set().union(*words)))}
    present_PW = np.zeros((len(pairs), len(column)), dtype=np.float32)  # P pairs, W words
    for row, of_pair in enumerate(words):
        present_PW[row, [column[word] for word in of_pair]] = 1
    shared_PP = present_PW @ present_PW.T
    size_P = present_PW.sum(axis=1)
    alike_PP = shared_PP >= NEAR_DUPLICATE * np.minimum(size_P[:, None], size_P[None, :])
    kept: list[int] = []
    for row in range(len(pairs)):
        if not alike_PP[row, kept].any():
            kept.append(row)
    return [pairs[row] for row in kept]


def assign_roles(pairs: Sequence[DocstringPair]) -> tuple[list[DocstringPair], list[Query]]:
    """(the pairs whose bodies are distractors, the queries of all splits), by a seeded shuffle."""
    shuffled = [pairs[number] for number in generator(SEED, NAME, "roles").permutation(len(pairs))]
    num_pool = round(POOL_SHARE * len(pairs))
    pool, rest = shuffled[:num_pool], shuffled[num_pool:]
    # Numbers of documents say nothing about queries: ties are broken by doc_id.
    doc_numbers = generator(SEED, NAME, "doc_ids").permutation(len(rest))
    num_train = round(SPLIT_SHARES["train"] * len(rest))
    num_dev = round(SPLIT_SHARES["dev"] * len(rest))
    names = ["train"] * num_train + ["dev"] * num_dev
    names += ["test"] * (len(rest) - len(names))
    queries = [
        Query(f"q{number:04d}", f"d{doc_numbers[number]:04d}", names[number], pair)
        for number, pair in enumerate(rest)
    ]
    return pool, queries


def _documents(
    queries: Sequence[Query], distractors: Sequence[str]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The document of each query, and where in it the relevant passage stands."""
    documents: dict[str, str] = {}
    spans: list[dict[str, Any]] = []
    for query in queries:
        documents[query.doc_id], word_start = assemble(
            query.pair.body,
            distractors,
            first_position=FIRST_POSITION,
            max_length=MAX_LENGTH,
            rng=generator(SEED, NAME, "document", query.query_id),
        )
        num_words = len(query.pair.body.split())
        ids = {"doc_id": query.doc_id, "query_id": query.query_id}
        spans.append(ids | {"word_start": word_start, "num_words": num_words})
    return documents, spans


def assemble(
    relevant: str,
    distractors: Sequence[str],
    *,
    first_position: int,
    max_length: int,
    rng: np.random.Generator,
) -> tuple[str, int]:
    """A document that holds `relevant` whole, and the number of words before it.

    Distractors in random order fill the document until at least `first_position` words stand
    before the relevant passage, and again after it up to `max_length` words; the last one is cut
    there. None is used twice. Only a relevant passage that does not fit makes a document longer.
    """
    if not relevant.split():
        raise BadInput("a relevant passage must have at least one word, found none")
    if not 0 <= first_position <= max_length:
        raise BadInput(
            "0 <= first_position <= max_length must hold, "
            f"got first_position={first_position}, max_length={max_length}"
        )
    order = iter(rng.permutation(len(distractors)))
    before: list[str] = []
    offset = 0
    while offset < first_position:
        number = next(order, None)
        if number is None:
            raise BadInput(
                "the distractors must have at least first_position words together, "
                f"got first_position={first_position} and {offset} words"
            )
        before.append(distractors[number])
        offset += len(distractors[number].split())
    after: list[str] = []
    room = max_length - offset - len(relevant.split())
    for number in order:
        if room <= 0:
            break
        words = distractors[number].split()[:room]
        after.append(" ".join(words))
        room -= len(words)
    return " ".join(part for part in (*before, relevant, *after) if part), offset


def _passages(pool: Sequence[DocstringPair], queries: Sequence[Query]) -> list[dict[str, Any]]:
    rows: list[tuple[DocstringPair, str, str | None]] = [(pair, POOL, None) for pair in pool]
    rows += [(query.pair, query.split, query.doc_id) for query in queries]
    return [
        {
            "passage_id": pair.name,
            "summary": pair.summary,
            "body": pair.body,
            "split": split,
            "doc_id": doc_id,
        }
        for pair, split, doc_id in rows
    ]


def _write_split(folder: Path, queries: Sequence[Query], documents: Mapping[str, str]) -> None:
    texts = {query.query_id: query.pair.summary for query in queries}
    run = first_stage.Bm25Index(documents).run(texts)
    write_queries(folder / "queries.tsv", texts)
    write_qrels(folder / "qrels.trec", {query.query_id: {query.doc_id: 1} for query in queries})
    write_run(folder / f"bm25.top{first_stage.DEPTH}.run.gz", run, tag="bm25")


def _build_passages(folder: Path, source: Path) -> None:
    records = _read_jsonl(source / "passages.jsonl.gz")
    _write_jsonl(
        folder / "docs.jsonl.gz",
        ({"doc_id": record["passage_id"], "text": record["body"]} for record in records),
    )
    for split in SPLITS:
        (folder / split).mkdir()
        own = {f"q-{r['doc_id']}": r for r in records if r["split"] == split}
        queries = {query_id: record["summary"] for query_id, record in own.items()}
        qrels = {query_id: {record["passage_id"]: 1} for query_id, record in own.items()}
        write_queries(folder / split / "queries.tsv", queries)
        write_qrels(folder / split / "qrels.trec", qrels)


def _write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    write_lines(path, (json.dumps(record, ensure_ascii=False) for record in records))


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in read_lines(path)]
