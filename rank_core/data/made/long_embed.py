"""LongEmbed's two synthetic tasks, Needle and Passkey, with a text generator of our own.

Construction of Zhu et al., "LongEmbed: extending embedding models for long context retrieval"
(2024), section 3: for each of eight lengths, 50 queries and 100 documents; a document is filler
with one fact somewhere in it, and differs from the others in that fact. Lengths are words at white
space. `needle` has all eight lengths, `needle-1024` one of any length. All documents of the same
length are candidates, in a random order.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rank_core.cache import cached_directory
from rank_core.data.local import SPLITS, load_folder
from rank_core.data.made.filler import facts, needle_filler, passkey_filler
from rank_core.data.trec import write_lines, write_qrels, write_queries, write_run
from rank_core.errors import BadInput
from rank_core.records import Collection
from rank_core.seeding import generator

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)  # words
NUM_QUERIES, NUM_DOCUMENTS = 50, 100  # of each length, in each split
MIN_LENGTH = 64
SEED = 2024
RECIPE_VERSION = 1  # raised when the code gives other texts
TASKS = ("needle", "passkey")
_NAME = re.compile(rf"({'|'.join(TASKS)})(?:-(\d+))?")


def is_task(name: str) -> bool:
    """Whether `name` is needle or passkey, with a length or without."""
    return _NAME.fullmatch(name) is not None


def load_task(name: str) -> Collection:
    """The collection `needle` or `passkey`, with or without `-LENGTH`; made on first use."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadInput(
            f"a task must be {' or '.join(TASKS)} or one of them -LENGTH, found {name!r}"
        )
    task = match[1]
    lengths = (int(match[2]),) if match[2] else LENGTHS
    if min(lengths) < MIN_LENGTH:
        raise BadInput(f"length >= {MIN_LENGTH} words must hold, got {name}")
    recipe = json.dumps([RECIPE_VERSION, task, lengths, SEED, NUM_QUERIES, NUM_DOCUMENTS])
    key = f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    folder = cached_directory("collections", key, lambda folder: _build(folder, task, lengths))
    return dataclasses.replace(load_folder(folder), name=name)


def _build(folder: Path, task: str, lengths: tuple[int, ...]) -> None:
    write_lines(folder / "docs.jsonl.gz", _documents(task, lengths))
    for split in SPLITS:
        queries: dict[str, str] = {}
        qrels: dict[str, dict[str, int]] = {}
        run: dict[str, dict[str, float]] = {}
        for length in lengths:
            names = _doc_ids(split, length)
            asked = facts(task, generator(SEED, task, "facts", length), _numbers(split))
            for number in range(NUM_QUERIES):
                query_id = f"{split}-{length}-q{number:02d}"
                queries[query_id] = asked[number].question
                qrels[query_id] = {names[number]: 1}
                order = generator(SEED, task, "order", query_id).permutation(NUM_DOCUMENTS)
                run[query_id] = {names[row]: 1 / (r + 1) for r, row in enumerate(order)}
        (folder / split).mkdir()
        write_queries(folder / split / "queries.tsv", queries)
        write_qrels(folder / split / "qrels.trec", qrels)
        write_run(folder / split / "all.run.gz", run, tag="random")


def _documents(task: str, lengths: tuple[int, ...]) -> Iterator[str]:
    filler = needle_filler if task == "needle" else passkey_filler
    for split in SPLITS:
        for length in lengths:
            told = facts(task, generator(SEED, task, "facts", length), _numbers(split))
            for doc_id, fact in zip(_doc_ids(split, length), told, strict=True):
                rng = generator(SEED, task, "document", doc_id)
                text = bury(fact.statement, filler(rng), length, rng)
                yield json.dumps({"doc_id": doc_id, "text": text})


def bury(statement: str, filler: Iterator[str], length: int, rng: np.random.Generator) -> str:
    """Exactly `length` words: filler sentences, the last one cut, with the statement at a random
    place between two of them."""
    room = length - len(statement.split())
    sentences: list[str] = []
    while room > 0:
        words = next(filler).split()[:room]
        sentences.append(" ".join(words))
        room -= len(words)
    sentences.insert(int(rng.integers(len(sentences))), statement)
    return " ".join(sentences)


def _numbers(split: str) -> range:
    """Which facts of a length belong to a split: no two splits share a person."""
    start = SPLITS.index(split) * NUM_DOCUMENTS
    return range(start, start + NUM_DOCUMENTS)


def _doc_ids(split: str, length: int) -> list[str]:
    """In another order than the queries, so that no id tells which document is relevant."""
    order = generator(SEED, "doc_ids", split, length).permutation(NUM_DOCUMENTS)
    return [f"{split}-{length}-d{number:02d}" for number in order]
