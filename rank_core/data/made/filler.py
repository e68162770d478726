"""Generated English for Needle and Passkey: facts to ask for, and sentences to bury them in."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

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


class Fact(NamedTuple):
    """A sentence that only one document has, and the question it answers."""

    statement: str
    question: str


def facts(task: str, rng: np.random.Generator, numbers: Sequence[int]) -> list[Fact]:
    """The facts of these numbers, each of another person; `rng` deals out people and values."""
    people = rng.permutation(len(FIRST_NAMES) * len(LAST_NAMES))
    values = rng.integers(0, 2**31, size=len(people))
    tell = _needle if task == "needle" else _passkey
    return [tell(_person(int(people[n])), int(values[n])) for n in numbers]


def needle_filler(rng: np.random.Generator) -> Iterator[str]:
    """Endless varied sentences that name no person."""
    sizes = [len(part) for part in (_SUBJECTS, _VERBS, _OBJECTS, _ENDINGS)]
    while True:
        for subject, verb, thing, ending in rng.integers(sizes, size=(256, 4)).tolist():
            sentence = f"{_SUBJECTS[subject]} {_VERBS[verb]} {_OBJECTS[thing]}{_ENDINGS[ending]}."
            yield sentence[0].upper() + sentence[1:]


def passkey_filler(rng: np.random.Generator) -> Iterator[str]:
    """The same few sentences over and over, from a random one on."""
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
