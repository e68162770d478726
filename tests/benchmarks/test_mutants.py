"""Mutants and planted faults change what they say they change, and are found again elsewhere."""

from tests.benchmarks.mutants import FAULTS, MUTANTS, faulty, load, standing

SOURCE = '''
def shares(values, *, least=1):
    """A docstring."""
    total = sum(values)
    if total < least and values:
        raise ValueError("no share")
    elif not values:
        return []
    return [value / total for value in values]
'''


def _row(statement, changed):
    facts = {"file": "a.py", "inside": "shares", "nth": 1}
    return facts | {"statement": statement, "changed": changed}


def test_one_statement_is_replaced():
    changed = faulty(SOURCE, _row("if not values:", "if values:"))
    assert changed == SOURCE.replace("elif not values", "elif values")
    whole = "def shares(values, *, least=2):"
    changed = faulty(SOURCE, _row(whole.replace("2", "1"), whole))
    assert changed == SOURCE.replace("least=1", "least=2")


def test_a_statement_is_found_in_another_file_but_not_where_it_is_gone_or_in_another_function():
    row = _row("total = sum(values)", "total = None")
    assert standing({"a.py": SOURCE, "b.py": SOURCE}, row) == "a.py"
    assert standing({"a.py": "", "b.py": SOURCE}, row) == "b.py"
    assert standing({"a.py": "", "b.py": SOURCE.replace("shares", "parts")}, row) is None
    assert faulty(SOURCE.replace("sum", "max"), row) is None
    assert faulty("a = 1\na = 1\n", {"search": "a = 1", "replace": "a = 2"}) is None
    assert len(load(MUTANTS)) == 400 and len(load(FAULTS)) >= 60
