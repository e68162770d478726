import json
from dataclasses import asdict

import pytest

from rank_core.errors import BadInput
from rank_core.llm.ledger import Answer, AnswerCache, Ledger, Totals

BOUGHT = Answer("[2] > [1]", input_tokens=100, output_tokens=7, cost=0.25, retries=2, seconds=1.5)
KEPT = Answer("[1] > [2]", input_tokens=50, output_tokens=3, cost=0.125, cached=True)
DIGEST = "ab" * 32


def test_spent_and_saved_costs_are_separate():
    ledger = Ledger()
    ledger.record(BOUGHT, repaired=False)
    ledger.record(KEPT, repaired=True)
    ledger.record(Answer("", metered=False), repaired=True)
    assert asdict(ledger.totals) == {
        "calls": 2,
        "cached_calls": 1,
        "unmetered_calls": 1,
        "repaired_answers": 2,
        "retries": 2,
        "input_tokens": 100,
        "output_tokens": 7,
        "cost": 0.25,
        "spared_input_tokens": 50,
        "spared_output_tokens": 3,
        "spared_cost": 0.125,
        "seconds": 1.5,
    }


def test_a_resumed_ledger_starts_from_what_was_spent_before(tmp_path):
    path = tmp_path / "new" / "ledger.jsonl"
    first = Ledger(path)
    first.record(BOUGHT, repaired=True, query_id="q1")
    first.record(KEPT, repaired=False, query_id="q2")
    resumed = Ledger(path)
    assert resumed.totals == first.totals != Totals()
    resumed.record(BOUGHT, repaired=False)
    assert Ledger(path).totals.calls == 2


@pytest.mark.parametrize("whole_lines", [0, 1])
def test_an_incomplete_last_line_is_dropped(tmp_path, whole_lines):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for _ in range(whole_lines + 1):
        ledger.record(BOUGHT, repaired=False)
    path.write_bytes(path.read_bytes()[:-5])
    resumed = Ledger(path)
    assert resumed.totals.calls == whole_lines
    resumed.record(KEPT, repaired=False)
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == whole_lines + 1


@pytest.mark.parametrize("line", ["nonsense", "{}", "[1]", '{"repaired": 1}'])
def test_a_foreign_line_is_named_by_file_and_number(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    Ledger(path).record(BOUGHT, repaired=False)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadInput, match=r"ledger\.jsonl:2 "):
        Ledger(path)


def test_the_ledger_does_not_repeat_the_text_of_an_answer(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path).record(BOUGHT, repaired=False, query_id="q1")
    assert "[2] > [1]" not in path.read_text()


def test_a_cached_answer_is_marked_as_cached(tmp_path):
    cache = AnswerCache(tmp_path)
    assert cache.get(DIGEST) is None
    cache.put(DIGEST, BOUGHT)
    assert cache.get(DIGEST) == Answer("[2] > [1]", input_tokens=100, output_tokens=7, cached=True)
    assert cache.get("cd" * 32) is None
    cache.put(DIGEST, KEPT)
    found = cache.get(DIGEST)
    assert found is not None
    assert found.text == KEPT.text


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"text": "a"}', "\x00"])
def test_a_damaged_file_is_requested_again_and_replaced(tmp_path, caplog, content):
    cache = AnswerCache(tmp_path)
    cache.put(DIGEST, BOUGHT)
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    path.write_text(content)
    assert cache.get(DIGEST) is None
    assert str(path) in caplog.text
    cache.put(DIGEST, BOUGHT)
    assert cache.get(DIGEST) is not None


def test_an_interrupted_write_leaves_nothing_behind(tmp_path):
    cache = AnswerCache(tmp_path)
    with pytest.raises(TypeError):
        cache.put(DIGEST, Answer(object()))  # type: ignore[arg-type]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
