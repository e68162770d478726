"""How far the scores of a reranker move on its way in and out, over every layout and backbone.

    python -m tests.benchmarks.ways_out [--kinds KIND ...] [--only in|out] [--json FILE]

In: rerankers that sentence-transformers saves, read here, against its own `CrossEncoder.predict`.
Out: models trained here, exported and read in three ways, against the trial's scores: by
`Reranker.load`, as a backbone, and as a backbone after sentence-transformers loaded and saved it.
The models are small and their weights random; a difference is that of two scores of one text.
Needs `pip install -e '.[serve]'`.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers

from rank_core.export.reranker import Reranker
from tests.benchmarks.bars import Bar, Section
from tests.contracts import test_ways_out as laws
from tests.rank_core.encoders import test_module_chain as layouts
from tests.rank_core.encoders.test_published_heads import config_of, forget, scores

MOST = 1e-5
"""The largest difference that the laws allow."""


def read(kinds: Sequence[str]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(layout, kind, {way: largest difference}) of what the library saved."""
    for kind, saved, more in [
        *((kind, layouts.saved_encoders, ()) for kind in layouts.KINDS),
        *((kind, layouts.saved_decoders, ({},)) for kind in layouts.DECODERS),
        *((kind, layouts.saved_decoders, (layouts.PROMPTS,)) for kind in layouts.DECODERS),
    ]:
        if kinds and kind not in kinds:
            continue
        with tempfile.TemporaryDirectory() as place:
            for name, folder in saved(kind, sentence_transformers, Path(place), *more):
                forget()
                expected = layouts.their_scores(folder, sentence_transformers)
                found = scores(config_of(str(folder), "firstp"))
                prompt = ", prompt" if any(more) else ""
                yield name + prompt, kind, {"read": _largest(found - expected)}


def left(kinds: Sequence[str]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(head, kind, {way: largest difference}) of what was trained here."""
    for kind, head in (case.values for case in laws.CASES):
        if kinds and kind not in kinds:
            continue
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            expected, exported = laws.trained(kind, head, place)
            loaded = laws.scores(Reranker.load(exported, device="cpu", precision="fp32"))
            ways = {"Reranker.load": loaded, "backbone": laws.as_it_is(exported)}
            if (kind, head) in laws.READ_BY_THE_LIBRARY:
                again = laws.saved_again(exported, place / "again", sentence_transformers)
                ways |= {"saved again": laws.as_it_is(again)} if again else {}
            yield head, kind, {way: _largest(found - expected) for way, found in ways.items()}


def _largest(difference: Any) -> float:
    return float(np.abs(np.asarray(difference)).max())


def table(title: str, found: Iterator[tuple[str, str, dict[str, float]]]) -> Section:
    """The largest difference of each layout and way, and of how many kinds of backbone."""
    values: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for layout, kind, ways in found:
        for way, value in ways.items():
            values[layout][way][kind] = value
    columns = list(dict.fromkeys(way for ways in values.values() for way in ways))
    rows = [
        [layout, *(_cell(ways.get(way, {})) for way in columns)] for layout, ways in values.items()
    ]
    largest = max(
        value for ways in values.values() for of in ways.values() for value in of.values()
    )
    bar = Bar(f"no score moves by more than {MOST:g}", f"{largest:.1e}", largest <= MOST)
    return Section(title, ("layout", *columns), rows, [bar])


def _cell(values: dict[str, float]) -> str:
    return f"{max(values.values()):.1e} of {len(values)}" if values else "-"


def main(argv: Sequence[str]) -> int:
    """Print both tables; 1 if a score moves."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    flags.add_argument("--kinds", nargs="+", default=[], help="backbones (default: all)")
    flags.add_argument("--only", choices=["in", "out"], help="one table instead of both")
    flags.add_argument("--json", type=Path, metavar="FILE", help="also write the tables here")
    args = flags.parse_args(argv)
    tables = {
        "in": ("Read as the library saved them", read),
        "out": ("Trained and read again", left),
    }
    done = []
    for name, (title, found) in tables.items():
        if args.only in (None, name):
            done.append(table(title, found(args.kinds)))
            print(done[-1].markdown(), flush=True)
    if args.json is not None:
        content = [{"title": s.title, "columns": s.columns, "rows": s.rows} for s in done]
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(not all(bar.ok for section in done for bar in section.bars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
