"""LongEmbed's two synthetic tasks, Needle and Passkey, with our own text generator.

Construction of Zhu et al., "LongEmbed: extending embedding models for long context retrieval"
(2024), section 3: for each of eight lengths, 50 queries and 100 documents; a document is filler
with a unique fact at a random position. Lengths are in white-space words. `needle` has all eight
lengths, `needle-1024` a single one. All documents of a query's length are candidates, in random
order.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rank_core.cache import cached_directory
from rank_core.data.folder import SPLITS, load_folder
from rank_core.data.trec import write_lines, write_qrels, write_queries, write_run
from rank_core.errors import BadInput
from rank_core.records import Collection
from rank_core.seeding import generator

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)  # words
NUM_QUERIES, NUM_DOCUMENTS = 50, 100  # per length and split
MIN_LENGTH = 64
MAX_LENGTH = 100_000
SEED = 2024
RECIPE_VERSION = 1  # incremented when the code generates other texts
TASKS = ("needle", "passkey")
_NAME = re.compile(rf"({'|'.join(TASKS)})(?:-(\d+))?")

FIRST_NAMES = (
    "Ada Amos Anja Boris Clara Conrad Daria Edgar Elif Enzo Fiona Gregor Hanna Hugo Ines Ivan "
    "Jonas Judith Karim Katya Lars Lena Magnus Marta Nadia Nils Olga Oscar Paula Pavel Quentin "
    "Rosa Rufus Selma Simon Tessa Tomas Ulla Viktor Wanda"
).split()
LAST_NAMES = (
    "Abbott Barlow Castell Dornan Eriksen Falk Garrick Hollis Ibsen Jarvis Keller Lindqvist Mercer "
    "Norwood Okafor Pembroke Quist Ravel Sandoval Thorne Umber Vance Whitlock Yardley Zeman Ashby "
    "Brandt Colby Drummond Ellery"
).split()
COLOURS = "red blue green yellow black white silver golden purple orange brown grey".split()
OBJECTS = (
    "umbrella violin lantern suitcase telescope teapot compass ladder typewriter blanket kettle "
    "mirror barometer accordion anvil saddle"
).split()
PLACES = (
    "the boathouse|the old mill|the bell tower|the greenhouse|the wine cellar|the attic|the library"
    "|the lighthouse|the stables|the bakery|the chapel|the post office|the ferry terminal"
    "|the town archive|the observatory|the pump room"
).split("|")

PASSKEY_SENTENCES = (
    "The river keeps moving.",
    "The hills stay where they are.",
    "A cloud goes by and another one follows.",
    "We walk up the road and down again.",
    "Nothing new is to be seen here.",
)

_SUBJECTS = (
    "the council|a good editor|every founder|the second draft|an early customer|the market"
    "|a small team|the best advice|a long letter|the harbour master|an honest critic|the gardener"
    "|a patient teacher|the first winter|a careful reader|the committee|a borrowed idea|the river"
    "|an empty notebook|the night train|a slow afternoon|the workshop|a new language|the apprentice"
).split("|")
_VERBS = (
    "rarely improves|often explains|seldom repeats|slowly changes|always needs|quietly replaces"
    "|sometimes hides|never outlives|usually follows|gladly forgives|hardly notices|finally accepts"
    "|openly questions|barely survives|still resembles|gradually teaches"
).split("|")
_OBJECTS = (
    "the work of many years|what people say in public|a plan without a date|the shape of the coast"
    "|its own beginnings|the price of bread|a habit learned young|the silence after a speech"
    "|the rules of the house|a promise made in haste|the opinion of strangers"
    "|an unfinished bridge|the memory of a summer|whatever cannot be counted"
    "|the weight of a decision|a map of the valley"
).split("|")
_ENDINGS = (
    "|, although few would admit it|, and that is no accident|, at least in the beginning"
    "|, which surprised everyone|, as the older accounts agree|, whatever the season"
    "|, and so the story goes on|, even when nobody is watching|, for reasons of its own"
).split("|")


def is_task(name: str) -> bool:
    """True for needle or passkey, with or without a length."""
    return _NAME.fullmatch(name) is not None


def load_task(name: str) -> Collection:
    """The collection `needle` or `passkey`, with or without `-LENGTH`, generated on first use.
    Raises `BadInput` for other names and lengths."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadInput(
            f"a task must be {' or '.join(TASKS)}, optionally with -LENGTH, got {name!r}"
        )
    task = match[1]
    lengths = (int(match[2][:20]),) if match[2] else LENGTHS
    if not MIN_LENGTH <= min(lengths) <= max(lengths) <= MAX_LENGTH:
        raise BadInput(f"{MIN_LENGTH} <= length <= {MAX_LENGTH:,} words must hold, got {name}")
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
    position between two of them."""
    room = length - len(statement.split())
    sentences: list[str] = []
    while room > 0:
        words = next(filler).split()[:room]
        sentences.append(" ".join(words))
        room -= len(words)
    sentences.insert(int(rng.integers(len(sentences))), statement)
    return " ".join(sentences)


def _numbers(split: str) -> range:
    """The numbers of a split's facts; no two splits share a person."""
    start = SPLITS.index(split) * NUM_DOCUMENTS
    return range(start, start + NUM_DOCUMENTS)


def _doc_ids(split: str, length: int) -> list[str]:
    """The doc_ids in an order other than the queries', so that ids do not reveal relevance."""
    order = generator(SEED, "doc_ids", split, length).permutation(NUM_DOCUMENTS)
    return [f"{split}-{length}-d{number:02d}" for number in order]


class Fact(NamedTuple):
    """A sentence in only one document, and the question that it answers."""

    statement: str
    question: str


def facts(task: str, rng: np.random.Generator, numbers: Sequence[int]) -> list[Fact]:
    """The facts of these numbers, each about another person; `rng` assigns people and values."""
    people = rng.permutation(len(FIRST_NAMES) * len(LAST_NAMES))
    values = rng.integers(0, 2**31, size=len(people))
    tell = _needle if task == "needle" else _passkey
    return [tell(_person(int(people[n])), int(values[n])) for n in numbers]


def needle_filler(rng: np.random.Generator) -> Iterator[str]:
    """Endless varied sentences without names of persons."""
    sizes = [len(part) for part in (_SUBJECTS, _VERBS, _OBJECTS, _ENDINGS)]
    while True:
        for subject, verb, thing, ending in rng.integers(sizes, size=(256, 4)).tolist():
            sentence = f"{_SUBJECTS[subject]} {_VERBS[verb]} {_OBJECTS[thing]}{_ENDINGS[ending]}."
            yield sentence[0].upper() + sentence[1:]


def passkey_filler(rng: np.random.Generator) -> Iterator[str]:
    """The same few sentences repeated, starting at a random one."""
    start = int(rng.integers(len(PASSKEY_SENTENCES)))
    while True:
        yield PASSKEY_SENTENCES[start % len(PASSKEY_SENTENCES)]
        start += 1


def _person(number: int) -> str:
    first, last = divmod(number, len(LAST_NAMES))
    return f"{FIRST_NAMES[first]} {LAST_NAMES[last]}"


def _needle(person: str, value: int) -> Fact:
    value, colour = divmod(value, len(COLOURS))
    value, thing = divmod(value, len(OBJECTS))
    place = PLACES[value % len(PLACES)]
    what = f"{COLOURS[colour]} {OBJECTS[thing]}"
    return Fact(f"{person} keeps the {what} in {place}.", f"Where does {person} keep the {what}?")


def _passkey(person: str, value: int) -> Fact:
    return Fact(
        f"The passkey of {person} is {value % 100000:05d}. Remember it, {value % 100000:05d} is "
        f"the passkey of {person}.",
        f"What is the passkey of {person}?",
    )
