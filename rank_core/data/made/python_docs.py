"""`python-docs`: a collection generated from Python's own documentation.

A query is the summary of a docstring, its relevant passage is the body, and each document contains
one such body among bodies that answer no query. It differs slightly between Python versions, which
its content hash records.
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
from rank_core.data.folder import load_folder
from rank_core.data.made.stdlib_docstrings import DocstringPair, collect_pairs
from rank_core.data.trec import read_lines, write_lines, write_qrels, write_queries, write_run
from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.records import SPLITS, Collection
from rank_core.seeding import generator

NAME = "python-docs"
PASSAGES = "python-docs-passages"
EMBEDDED = (NAME, PASSAGES)
"""The collections that come with this package."""
RECIPE_VERSION = 2  # incremented when the code below gives another collection
SEED = 2024
MAX_BODY_WORDS = 80
NEAR_DUPLICATE = 0.75  # fraction of the shorter body's distinct words that the other body has
POOL_SHARE = 0.45  # of the pairs, whose bodies are distractors and answer no query
SPLIT_SHARES = {"train": 0.4, "dev": 0.1, "test": 0.5}  # of the other pairs
FIRST_POSITION = 100  # minimum number of words before a relevant passage
MAX_LENGTH = 240  # words of a document
MIN_PAIRS = 300  # with fewer, the interpreter has no docstrings
POOL = "pool"
PASSAGE = ("passage_id", "summary", "body", "split", "doc_id")


class Query(NamedTuple):
    """A query pair with its ids in the collection."""

    query_id: str
    doc_id: str
    split: str
    pair: DocstringPair


def load_python_docs(name: str = NAME) -> Collection:
    """The collection of this interpreter's standard library, generated on first use in seconds."""
    return dataclasses.replace(load_folder(_folder()), name=name)


def load_passages(name: str = PASSAGES) -> Collection:
    """The docstrings' bodies as a collection of passages, a source for `far-relevant`: bodies of
    queries answer their own summary, those of the pool answer nothing."""
    source = _folder()
    folder = cached_directory(
        "collections", f"{PASSAGES}-{source.name}", lambda folder: _build_passages(folder, source)
    )
    return dataclasses.replace(load_folder(folder), name=name)


def training_passages() -> list[tuple[str, str]]:
    """(summary, body) pairs that a backbone may be trained on: of the train split and the
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
    """Writes the collection in the layout of `load_folder`, with its passages and spans."""
    cut = ((pair, " ".join(pair.body.split()[:MAX_BODY_WORDS])) for pair in collect_pairs())
    pairs = without_near_duplicates([pair._replace(body=body) for pair, body in cut])
    if len(pairs) < MIN_PAIRS:
        raise BadInput(
            f"{NAME} needs an interpreter with docstrings; {sys.executable} has {len(pairs)} "
            f"usable ones, and {MIN_PAIRS} are needed"
        )
    pool, queries = assign_roles(pairs)
    documents, spans = _documents(queries, [pair.body for pair in pool])
    rows = ({"doc_id": doc_id, "text": documents[doc_id]} for doc_id in sorted(documents))
    _write_jsonl(folder / "docs.jsonl.gz", rows)
    _write_jsonl(folder / "spans.jsonl.gz", spans)
    places: list[tuple[DocstringPair, str, str | None]] = [(pair, POOL, None) for pair in pool]
    places += [(query.pair, query.split, query.doc_id) for query in queries]
    passages = (
        dict(zip(PASSAGE, (pair.name, pair.summary, pair.body, split, doc_id), strict=True))
        for pair, split, doc_id in places
    )
    _write_jsonl(folder / "passages.jsonl.gz", passages)
    for split in SPLITS:
        of_split = [query for query in queries if query.split == split]
        texts = {query.query_id: query.pair.summary for query in of_split}
        _write_judged(folder / split, texts, {query.query_id: query.doc_id for query in of_split})
        run = first_stage.Bm25Index(documents).run(texts)
        write_run(folder / split / f"bm25.top{first_stage.DEPTH}.run.gz", run, tag="bm25")


def without_near_duplicates(pairs: Sequence[DocstringPair]) -> list[DocstringPair]:
    """The pairs whose body is not a near duplicate of an earlier one.

    Docstrings repeat each other with small changes (`bytes.find` and `bytearray.find`); an answer
    among the distractors would make judgments wrong. Two bodies are near duplicates if the other
    has a fraction `NEAR_DUPLICATE` of the shorter one's distinct words, also when one contains the
    other.
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
    """(pairs whose bodies are distractors, queries of all splits), by a seeded shuffle."""
    shuffled = [pairs[number] for number in generator(SEED, NAME, "roles").permutation(len(pairs))]
    num_queries = len(pairs) - round(POOL_SHARE * len(pairs))
    rest, pool = shuffled[:num_queries], shuffled[num_queries:]
    # Document numbers must not depend on queries, because ties are broken by doc_id.
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
    """The document of each query, and the position of its relevant passage."""
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
    """A document that contains `relevant`, and the number of words before it.

    Distractors in random order fill the document up to at least `first_position` words before the
    relevant passage, and after it up to `max_length` words, where the last one is cut. None is used
    twice. Only a relevant passage that does not fit makes a document longer. Raises `BadInput` for
    too few distractors.
    """
    order = iter(rng.permutation(len(distractors)))
    before: list[str] = []
    offset = 0
    while offset < first_position:
        number = next(order, None)
        if number is None:
            raise BadInput(
                f"the distractors have {offset} words in all, fewer than "
                f"first_position={first_position}"
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


def _build_passages(folder: Path, source: Path) -> None:
    records = _read_jsonl(source / "passages.jsonl.gz")
    rows = ({"doc_id": record["passage_id"], "text": record["body"]} for record in records)
    _write_jsonl(folder / "docs.jsonl.gz", rows)
    for split in SPLITS:
        of_split = {f"q-{r['doc_id']}": r for r in records if r["split"] == split}
        queries = {query_id: record["summary"] for query_id, record in of_split.items()}
        answers = {query_id: record["passage_id"] for query_id, record in of_split.items()}
        _write_judged(folder / split, queries, answers)


def _write_judged(folder: Path, queries: Mapping[str, str], answers: Mapping[str, str]) -> None:
    """Writes a split's queries, each with its only relevant document."""
    folder.mkdir()
    write_queries(folder / "queries.tsv", queries)
    write_qrels(folder / "qrels.trec", {name: {answer: 1} for name, answer in answers.items()})


def _write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    write_lines(path, (json.dumps(record, ensure_ascii=False) for record in records))


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [parsed_json(line) for _, line in read_lines(path)]
