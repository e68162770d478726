"""The token store of a large collection: building it once, and reading documents in random order.

Documents are made on the fly: words of a made lexicon (common ones far more often), about 300
tokens each. With --tokens-only a stand-in for the tokenizer hands out made token ids, which leaves
the store's own share of the work. Answers are compared with what was put in.
Run:
python -m tests.benchmarks.token_store [--documents N] [--tokens-only] [--folder DIR] [--json FILE]
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rank_core.chunking.token_store import TokenStore, open_token_store

LEXICON, VOCABULARY = 20_000, 3000
FACTOR = 2654435761  # odd: multiplying by it shuffles the numbers below 2**32
POOL = 1 << 20
CHECKED = 1000

Context = multiprocessing.get_context("spawn")
_barrier: Any = None  # where the readers of one measurement meet; each process has its own


class Made(Mapping[str, str]):
    """`num` documents that exist only while someone looks at them; their ids are in no order."""

    def __init__(self, num: int, text: Callable[[int], str]) -> None:
        self.num, self.text = num, text

    def __iter__(self) -> Iterator[str]:
        return map(doc_id, range(self.num))

    def __getitem__(self, name: str) -> str:
        number = int(name[1:]) * pow(FACTOR, -1, 1 << 32) % (1 << 32)
        if number >= self.num:
            raise KeyError(name)
        return self.text(number)

    def __len__(self) -> int:
        return self.num


def doc_id(number: int) -> str:
    """The id of a document by its place in the collection."""
    return f"D{number * FACTOR % (1 << 32)}"


class Words:
    """Texts of words whose frequency falls with their rank, as in real text."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        letters = np.array(list("etaoinshrdlucmfwypvbgk"))
        sizes = rng.integers(2, 11, LEXICON)
        self.lexicon = np.array(["".join(rng.choice(letters, size)) for size in sizes])

    def __call__(self, number: int) -> str:
        rng = np.random.default_rng(number)
        ranks = LEXICON ** rng.random(rng.integers(60, 341))
        return " ".join(self.lexicon[ranks.astype(np.int64) - 1].tolist())

    def tokenizer(self) -> Any:
        """The embedded backbone's tokenizer, with a vocabulary drawn from these texts."""
        from rank_core.encoders.tiny import train_tokenizer

        return train_tokenizer([self(number) for number in range(500)], VOCABULARY)


class HandedOut:
    """A tokenizer's place taken: text i becomes the i-th list of made token ids."""

    def __init__(self) -> None:
        self.pool: list[int] = np.random.default_rng(2).integers(5, VOCABULARY, POOL).tolist()

    @property
    def backend_tokenizer(self) -> "HandedOut":
        return self

    def to_str(self) -> str:
        """Its state, which names the store."""
        return '{"truncation": null, "padding": null, "model": "made token ids"}'

    def get_vocab(self) -> dict[str, int]:
        """All it may give."""
        return {str(token): token for token in range(VOCABULARY)}

    def tokens(self, number: int) -> list[int]:
        """100 to 500 token ids."""
        start = number * FACTOR % (POOL - 500)
        return self.pool[start : start + 100 + number * 7919 % 401]

    def __call__(self, texts: list[str], **settings: object) -> dict[str, list[list[int]]]:
        return {"input_ids": [self.tokens(int(text)) for text in texts]}


class Built(NamedTuple):
    """What a build took."""

    folder: Path
    seconds: float
    peak_gb: float


class Reading(NamedTuple):
    """What one process measured."""

    open_ms: float
    own_mb: float  # memory of its own that the open store and its look-ups cost
    documents_per_second: float


def build(num: int, tokens_only: bool) -> Built:
    """Builds the store in a process of its own."""
    with Context.Pool(1) as pool:
        return pool.apply(_build, (num, tokens_only))


def _build(num: int, tokens_only: bool) -> Built:
    words = None if tokens_only else Words()
    tokenizer = HandedOut() if words is None else words.tokenizer()
    start = time.perf_counter()
    store = open_token_store(
        Made(num, words or str), content_hash=f"made {num}", tokenizer=tokenizer
    )
    seconds = time.perf_counter() - start
    return Built(store.folder, seconds, _memory("VmHWM") / 1e6)


def read(folder: Path, num: int, processes: int, look_ups: int, check: bool) -> list[Reading]:
    """Random look-ups by some processes that start together."""
    barrier = Context.Barrier(processes)
    with Context.Pool(processes, initializer=_meet_at, initargs=(barrier,)) as pool:
        tasks = [(folder, num, look_ups, seed, check) for seed in range(processes)]
        return pool.starmap(_read, tasks, chunksize=1)


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _read(folder: Path, num: int, look_ups: int, seed: int, check: bool) -> Reading:
    numbers = np.random.default_rng(seed).integers(num, size=look_ups).tolist()
    names = list(map(doc_id, numbers))
    before = _memory("RssAnon")
    start = time.perf_counter()
    store = TokenStore(folder)
    opened = time.perf_counter() - start
    _barrier.wait()
    start = time.perf_counter()
    tokens = 0
    for name in names:
        tokens += len(store[name])
    seconds = time.perf_counter() - start
    own = _memory("RssAnon") - before
    if check:
        made = HandedOut()
        for number, name in zip(numbers[:CHECKED], names[:CHECKED], strict=True):
            assert store[name].tolist() == made.tokens(number), name
    assert tokens > 0 and doc_id(num) not in store
    return Reading(opened * 1e3, own / 1e3, look_ups / seconds)


def _memory(field: str) -> int:
    """A line of this process's memory figures, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def evict(folder: Path) -> None:
    """Asks the kernel to forget the files, as if the machine had just started."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(num: int, look_ups: int, cold_look_ups: int, tokens_only: bool) -> list[dict[str, str]]:
    """Builds, reads and deletes one store; a row per figure."""
    built = build(num, tokens_only)
    try:
        sizes = [path.stat().st_size for path in built.folder.iterdir()]
        tokens = int(TokenStore(built.folder).lengths().sum())
        [alone] = read(built.folder, num, 1, look_ups, tokens_only)
        four = read(built.folder, num, 4, look_ups, tokens_only)
        evict(built.folder)
        [cold] = read(built.folder, num, 1, cold_look_ups, tokens_only)
    finally:
        shutil.rmtree(built.folder)
    rates = [reading.documents_per_second for reading in four]
    figures = {
        "documents": f"{num:,} of {tokens / num:.0f} tokens",
        "built from": "token ids" if tokens_only else "texts",
        "build": f"{built.seconds:.1f} s, {num / built.seconds:,.0f} documents/s",
        "peak memory of the build": f"{built.peak_gb:.2f} GB",
        "on disk": f"{sum(sizes) / 1e9:.2f} GB",
        "open": f"{alone.open_ms:.1f} ms",
        "one process": f"{alone.documents_per_second:,.0f} documents/s",
        "its own memory": f"{alone.own_mb:.1f} MB",
        "four at once, each": f"{min(rates):,.0f} to {max(rates):,.0f} documents/s",
        "one process, nothing in memory": f"{cold.documents_per_second:,.0f} documents/s",
    }
    return [{"what": name, "figure": figure} for name, figure in figures.items()]


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--documents", type=int, default=3_000_000)
    flags.add_argument("--look-ups", type=int, default=200_000, help="of one process")
    flags.add_argument("--cold-look-ups", type=int, default=10_000, help="with nothing in memory")
    flags.add_argument("--tokens-only", action="store_true", help="leave tokenising out")
    flags.add_argument("--folder", type=Path, help="where the store is made and deleted again")
    flags.add_argument("--json", type=Path, help="write the figures here")
    arguments = flags.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as cache:
        os.environ["RANKSWEEP_CACHE"] = cache  # the processes started here inherit it
        rows = measure(
            arguments.documents, arguments.look_ups, arguments.cold_look_ups, arguments.tokens_only
        )
    from tests.benchmarks.workload import machine, print_table, save

    print(machine())
    print_table(rows)
    save(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
