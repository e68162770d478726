"""A made collection folder with the shape of the MS MARCO documents, of any size, from a seed.

By default: 3,213,835 documents, 300,000 training queries, 5,193 of dev and 43 of test (TREC DL
2019), 100 candidates each, one document judged relevant, which is a candidate of four queries in
five. Lengths are log-normal with a mean of about 1,200 words and a median of 670: the mean that
papers on long documents give for this collection, in word pieces (the spread is an assumption).
Words are drawn from a made lexicon with Zipf's frequencies. Written as it is drawn, so that memory
does not grow with the collection.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MEDIAN_WORDS, SPREAD = 670, 1.08  # of the log-normal; mean = median * exp(spread ** 2 / 2)
MOST_WORDS = 100_000
LEXICON = 50_000
AT_ONCE = 1_000  # documents or queries drawn together


class Shape(NamedTuple):
    """The numbers of a collection."""

    documents: int = 3_213_835
    train: int = 300_000
    dev: int = 5_193
    test: int = 43
    candidates: int = 100


def document_lengths(number: int, seed: int = 1) -> NDArray[np.int64]:
    """Words of each document."""
    rng = np.random.default_rng([seed, 1])
    words = MEDIAN_WORDS * np.exp(SPREAD * rng.standard_normal(number))
    return np.clip(words, 5, MOST_WORDS).astype(np.int64)


def write_shape(folder: Path, shape: Shape, seed: int = 1) -> Path:
    """A folder that `--collection` takes."""
    folder.mkdir(parents=True)
    with (folder / "docs.jsonl").open("w", encoding="ascii") as file:
        for row, text in enumerate(texts_of(shape, seed)):
            file.write(json.dumps({"doc_id": _doc_id(row), "text": text}) + "\n")
    for number, split in enumerate(("train", "dev", "test")):
        _write_split(folder / split, getattr(shape, split), shape, seed=[seed, 2, number])
    return folder


@cache
def lexicon() -> NDArray[np.str_]:
    """Made words, the commonest first."""
    rng = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    return np.array(["".join(rng.choice(letters, size)) for size in rng.integers(2, 9, LEXICON)])


def texts_of(shape: Shape, seed: int) -> Iterator[str]:
    """The text of each document."""
    rng, words = np.random.default_rng([seed, 3]), lexicon()
    lengths = document_lengths(shape.documents, seed)
    for start in range(0, shape.documents, AT_ONCE):
        of_batch = lengths[start : start + AT_ONCE]
        drawn = words[_ranks(rng, int(of_batch.sum()))]
        for part in np.split(drawn, np.cumsum(of_batch)[:-1]):
            yield " ".join(part.tolist())


def _write_split(folder: Path, queries: int, shape: Shape, seed: list[int]) -> None:
    rng, words = np.random.default_rng(seed), lexicon()
    folder.mkdir()
    names = ("queries.tsv", "qrels.trec", "first.run")
    files = [(folder / name).open("w", encoding="ascii") for name in names]
    scores = [f"{rank} {100 - rank / 10:.1f} made" for rank in range(1, shape.candidates + 1)]
    step = max(1, shape.documents // (shape.candidates + 1))
    for number in range(queries):
        query_id = f"{folder.name}{number}"
        # Distinct, in no order, and found without a permutation of all documents.
        found = rng.integers(shape.documents) + step * rng.permutation(shape.candidates)
        found = found % shape.documents
        relevant = found[rng.integers(shape.candidates)]
        if rng.random() >= 0.8:
            relevant = (found[0] + step // 2) % shape.documents
        files[0].write(f"{query_id}\t{' '.join(words[_ranks(rng, 6)].tolist())}\n")
        files[1].write(f"{query_id} 0 {_doc_id(relevant)} 1\n")
        ranked = zip(found.tolist(), scores, strict=True)
        files[2].writelines(f"{query_id} Q0 {_doc_id(row)} {rest}\n" for row, rest in ranked)
    for file in files:
        file.close()


def _ranks(rng: np.random.Generator, number: int) -> NDArray[np.int64]:
    """Places in the lexicon, each as likely as one over itself."""
    return (LEXICON ** rng.random(number)).astype(np.int64) - 1


def _doc_id(row: int) -> str:
    return f"D{row * 2654435761 % (1 << 32)}"  # in no order
