"""Pairs from the standard library: the cut of one docstring, and the collection as a whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rank_core.data.made.stdlib_docstrings import DocstringPair, collect_pairs, pair_of

BODY = "one two three four five six seven eight nine ten eleven twelve"


@pytest.mark.parametrize(
    ("docstring", "pair"),
    [
        (f"Do a thing.\n\n{BODY}", ("Do a thing.", BODY)),
        (f"Do a\n    thing.\n    \n    {BODY}", ("Do a thing.", BODY)),
        (f"Do a thing.  Then {BODY}.", ("Do a thing.", f"Then {BODY}.")),
        (f"Do it, e.g. A thing.\n\n{BODY}", ("Do it, e.g. A thing.", BODY)),
        (f"find(sub[, start]) -> int\n\nDo a thing.\n\n{BODY}", ("Do a thing.", BODY)),
        (f"Do a thing.\n\n{BODY[:-7]}", None),  # 11 words are too few
        (f"Do it.\n\n{BODY}", None),  # a summary of 2 words is too short
        (f"{'long ' * 31}sentence.\n\n{BODY}", None),
        ("", None),
        ("f(x) -> y", None),
    ],
)
def test_a_docstring_is_cut_after_its_first_sentence(docstring, pair):
    assert pair_of(docstring) == pair


COLLECT = """
import json, sys
from rank_core.data.made.stdlib_docstrings import collect_pairs
before = set(sys.modules)
pairs = collect_pairs()
print(json.dumps([len(set(sys.modules) - before), pairs]))
"""


@pytest.fixture(scope="module")
def collected():
    """(how many modules a fresh interpreter imports to collect the pairs, the pairs)."""
    root, command = Path(__file__).parents[3], [sys.executable, "-c", COLLECT]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def pairs(collected):
    return [DocstringPair(*pair) for pair in collected[1]]


@pytest.mark.slow
def test_the_standard_library_gives_many_distinct_pairs(pairs):
    assert len(pairs) > 1500
    assert [pair.name for pair in pairs] == sorted({pair.name for pair in pairs})
    assert len({pair.summary.lower() for pair in pairs}) == len(pairs)
    assert len({pair.body.lower() for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert len(pair.body.split()) >= 12
        assert pair.summary == " ".join(pair.summary.split())
        assert pair.body == " ".join(pair.body.split())


@pytest.mark.slow
def test_the_pairs_do_not_depend_on_the_calling_process(pairs, monkeypatch, tmp_path):
    (tmp_path / "argparse.py").write_text('raise SystemExit("a module of the current folder")')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")  # would drop all docstrings
    assert collect_pairs() == pairs
