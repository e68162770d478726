"""Mutants and planted faults change what they say they change, and are found again elsewhere."""

import ast

import pytest

from tests.benchmarks.mutants import FAULTS, MUTANTS, changes_of, draw, faulty, load

SOURCE = '''
def shares(values, *, least=1):
    """A docstring."""
    total = sum(values)
    if total < least and values:
        raise ValueError("no share")
    elif not values:
        return []
    print(total, flush=True)
    return [value / total for value in values]
'''
STATEMENTS = {
    "def shares(values, *, least=1):": {"least=2", "least=0"},
    "if total < least and values:": {"<=", ">", "or", "not (total < least and values)"},
    "raise ValueError('no share')": {"pass"},
    "print(total, flush=True)": set(),
    "return [value / total for value in values]": {"*", "None"},
}


def _row(statement, changed, **facts):
    return {"inside": "shares", "nth": 1, "statement": statement, "changed": changed} | facts


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_has_its_changes(statement):
    text = f"{statement} pass" if statement.endswith(":") else statement
    changes = [text for texts in changes_of(ast.parse(text).body[0]).values() for text in texts]
    for part in STATEMENTS[statement]:
        assert any(part in text for text in changes), part
    assert statement not in changes and bool(changes) == bool(STATEMENTS[statement])


def test_one_statement_is_replaced():
    changed, lines = faulty(SOURCE, _row("if not values:", "if values:"))
    assert changed == SOURCE.replace("elif not values", "elif values") and list(lines) == [7]
    whole = "def shares(values, *, least=2):"
    changed, lines = faulty(SOURCE, _row(whole.replace("2", "1"), whole))
    assert changed.count("least=2") == 1 and list(lines) == list(range(2, 11))


def test_a_statement_is_found_in_another_function_but_not_where_it_is_gone():
    row = _row("total = sum(values)", "total = None")
    assert "total = None" in faulty(SOURCE.replace("shares", "parts"), row)[0]
    assert faulty(SOURCE.replace("sum", "max"), row) is None
    assert faulty("a = 1\na = 1\n", {"search": "a = 1", "replace": "a = 2"}) is None


def test_the_draw_is_repeatable_and_takes_each_statement_once(tmp_path):
    room = tmp_path / "rank_core" / "stats"
    room.mkdir(parents=True)
    (room / "shares.py").write_text(SOURCE)
    rows = draw(tmp_path, 5, seed=1)
    assert rows == draw(tmp_path, 5, seed=1) and len(rows) == 5
    assert len({row["statement"] for row in rows}) == 5
    assert all(faulty(SOURCE, row)[0] != SOURCE for row in rows)


def test_the_committed_lists_are_whole():
    assert len(load(MUTANTS)) == 400 and len(load(FAULTS)) >= 60
