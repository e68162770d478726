"""The made collection has the shape that it promises, and the same bytes for the same seed."""

import numpy as np

from rank_core.data.load import load_collection
from tests.benchmarks.msmarco_shape import Shape, document_lengths, write_shape

SMALL = Shape(documents=60, train=30, dev=3, test=2, candidates=7)


def test_a_made_folder_is_a_collection_of_its_shape(tmp_path):
    folder = write_shape(tmp_path / "first", SMALL)
    collection = load_collection(str(folder))
    assert len(collection.documents) == SMALL.documents
    assert {name: len(split.queries) for name, split in collection.splits.items()} == {
        "train": 30,
        "dev": 3,
        "test": 2,
    }
    train = collection.splits["train"]
    assert all(len(train.candidates[query_id]) == 7 for query_id in train.queries)
    found = [train.candidates[q].keys() >= judged.keys() for q, judged in train.qrels.items()]
    assert 0.5 < np.mean(found) < 1
    again = write_shape(tmp_path / "again", SMALL)
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert path.read_bytes() == (again / path.relative_to(folder)).read_bytes()


def test_lengths_have_the_mean_and_median_of_the_docstring():
    lengths = document_lengths(200_000)
    assert 1150 < lengths.mean() < 1250 and 650 < np.median(lengths) < 690
    scaled = Shape().scaled(0.001)
    assert scaled == Shape(documents=3214, train=300, dev=5, test=43, candidates=100)
