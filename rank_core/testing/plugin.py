"""The contract tests of one model, as `ranksweep check` runs them."""

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rank_core.errors import BadInput
from rank_core.lines import put
from rank_core.models import model_class
from rank_core.models.ranker import Ranker

LAWS = Path(__file__).with_name("test_model.py")


class Contract:
    """A pytest plugin: the laws for the model of a name, and a printed line for each."""

    def __init__(self, name: str) -> None:
        self.name, self.count, self.broken = name, 0, 0
        self.meanings: dict[str, str] = {}  # of the laws, by their ids

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Parametrises the laws by the model."""
        if "name" in metafunc.fixturenames:
            metafunc.parametrize("name", [self.name], scope="module")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Reads what a law means."""
        meaning = getattr(item, "function", item).__doc__ or ""
        self.meanings[item.nodeid] = " ".join(meaning.split())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Prints what a law found: one line, and for a broken law its meaning and the error."""
        if report.when != "call" and report.passed:
            return
        law = report.location[2].partition("[")[0].removeprefix("test_").replace("_", " ")
        self.count += 1
        self.broken += report.failed
        longrepr: Any = report.longrepr
        if report.failed:
            crash = longrepr.reprcrash
            put(f"broken   {law}")
            put(textwrap.indent(textwrap.fill(self.meanings[report.nodeid], 70), " " * 9))
            put(f"         {crash.path}:{crash.lineno}")
            lines = [line for line in crash.message.splitlines() if line.strip()]
            put("\n".join(f"         {line}" for line in lines[:4]))
        elif report.skipped:
            put(f"skipped  {law}: {longrepr[2].removeprefix('Skipped: ')}")
        else:
            put(f"ok       {law}")


def check(name: str) -> Contract:
    """Runs the laws of `test_model.py` on a model, a registered one or `module:Class`, and prints
    what they find. Raises `BadInput` for a model that has no weights, or is none."""
    if not issubclass(model_class(name), Ranker):
        raise BadInput(
            f"model {name} has no weights, and the contract tests are for trained rankers"
        )
    contract = Contract(name)
    # Neither settings nor plugins of the reader's own tests.
    alone = ["-c", os.devnull, "--rootdir", ".", "--disable-plugin-autoload", "-W", "ignore"]
    alone += ["-p", "no:cacheprovider", "-p", "no:terminal"]
    pytest.main([*alone, str(LAWS)], plugins=[contract])
    return contract
