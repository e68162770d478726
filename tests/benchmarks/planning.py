"""Planning of a sweep: seconds for what every cell is told about chunks, tokens and cost.

The documents have the lengths of a collection with MS MARCO's shape; their tokens are a hole in a
file, because planning reads none.
Run:
python -m tests.benchmarks.planning [--documents 3213835] [--cells 20] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from rank_core.chunking.inputs import load_inputs
from rank_core.chunking.token_store import TokenStore
from rank_core.data.disk.rows import Rows, RowsWriter, write_file, write_id_index
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import training_queries
from sweeps.plan.trial_cost import chunk_statistics, trial_cost
from tests.benchmarks.msmarco_shape import document_lengths
from tests.benchmarks.workload import show

POINTS = [
    {"chunking.window": window, "chunking.stride": max(1, int(window * share))}
    for window, share in product((32, 64, 150, 300, 477), (0.25, 0.5, 0.75, 1))
]


def token_lengths_store(folder: Path, number: int) -> TokenStore:
    """A token store of documents that have lengths and ids, but no tokens."""
    folder.mkdir()
    ids = RowsWriter(folder, "ids", np.uint8, 0)
    for start in range(0, number, 10_000):
        names = [b"D%d" % row for row in range(start, min(number, start + 10_000))]
        ids.append(np.frombuffer(b"".join(names), dtype=np.uint8), [*map(len, names)])
    ids.close()
    write_id_index(folder, Rows(folder, "ids", np.uint8, number))
    offsets = np.concatenate([[0], np.cumsum(document_lengths(number))])
    write_file(folder / "tokens.offsets", offsets)
    with (folder / "tokens.bin").open("wb") as file:
        file.truncate(2 * int(offsets[-1]))
    state = {"num_documents": number, "dtype": "uint16"}
    (folder / "store.json").write_text(json.dumps(state), encoding="ascii")
    return TokenStore(folder)


def measure(config: TrialConfig, number: int, cells: int) -> list[dict[str, str]]:
    """One row: seconds until every cell has its figures, the histogram included."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = load_inputs(config.collection, config.model.backbone)
        training_queries(inputs, config)  # kept from now on: rows of its own documents
        inputs = replace(inputs, tokens=token_lengths_store(Path(folder) / "store", number))
        start = time.perf_counter()
        for point in POINTS[:cells]:
            cell = config.override(point)
            trial_cost(cell, inputs, chunk_statistics(cell, inputs))
        seconds = time.perf_counter() - start
    return [{"documents": f"{number:,}", "cells": str(cells), "seconds": f"{seconds:.2f}"}]


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--documents", type=int, default=3_213_835)
    flags.add_argument("--cells", type=int, default=20, choices=range(1, len(POINTS) + 1))
    flags.add_argument("--collection", default="python-docs", help="whose queries and candidates")
    flags.add_argument("--backbone", default="tiny")
    flags.add_argument("--json", type=Path, help="write the figures here")
    given = flags.parse_args(argv)
    named = {"collection": given.collection, "model.backbone": given.backbone}
    rows = measure(TrialConfig().override(named), given.documents, given.cells)
    show(rows, given.json)


if __name__ == "__main__":
    main(sys.argv[1:])
