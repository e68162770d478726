"""The tokenizer of small backbones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rank_core.testing.tokenizer import train_tokenizer

ROOT = Path(__file__).parents[3]
TEXTS = ["The heron waits by the harbour.", "Lanterns, lanterns at the harbour!", "a slate roof"]
VOCABULARY = """
import json, sys
from rank_core.testing.tokenizer import train_tokenizer
print(train_tokenizer(json.loads(sys.argv[1]), 70).backend_tokenizer.to_str())
"""


def test_words_are_read_without_their_endings_on_demand():
    tokenizer = train_tokenizer(TEXTS, 200, stems=True)
    assert tokenizer.tokenize("harbours") == tokenizer.tokenize("Harbour") == ["harbour"]
    assert tokenizer.tokenize("slates, slated, slating") == [*("slat", ",") * 2, "slat"]
    assert tokenizer.tokenize("the") == ["the"]  # three letters would not be left


@pytest.mark.slow
def test_every_process_learns_the_same_vocabulary():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", VOCABULARY, json.dumps(TEXTS)],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(2)
    }
    assert len(outputs) == 1
