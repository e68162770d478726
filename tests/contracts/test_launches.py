"""Launches of a BERT of 12 layers on a GPU: few over a flat row of tokens, whatever its size."""

import shutil

import pytest
from transformers import BertConfig, BertModel

from rank_core.testing.tokenizer import train_tokenizer
from tests.contracts.fake_cuda.library import compile_library, lines_of

MOST = {"scoring": 150, "training": 450}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the fake device needs g++"),
]


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    """{over a flat row: {phase: kinds of its launches}} of MaxP in calls of 6 rows."""
    folder = tmp_path_factory.mktemp("twelve-layers")
    tokenizer = train_tokenizer(["one word and another"], 100)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=12, **sizes)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    words = (str(folder), "maxp", "--", "1000")
    lines = lines_of(compile_library(folder), "tests.contracts.fake_cuda.trace", *words)
    return {
        line["flat"]: {
            phase: [kind for _, kind, _, _ in steps if kind != "copy"]
            for phase, steps in line["kernels"].items()
        }
        for line in lines
    }


@pytest.mark.parametrize("phase", MOST)
def test_a_flat_row_takes_few_launches(phase, launches):
    flat, padded = len(launches[True][phase]), len(launches[False][phase])
    print(f"{phase}: {padded} launches over padded rows, {flat} over a flat row")
    assert 12 * 6 < flat <= MOST[phase] < padded


def test_products_and_attention_are_those_of_twelve_layers(launches):
    scoring = launches[True]["scoring"]
    # Four of a layer, queries of [CLS] apart in the last, the head.
    assert scoring.count("product") == 12 * 4 + 1 + 1
    assert scoring.count("attention") == 12
