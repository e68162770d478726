"""Pytest plugin of the contract tests; inactive in other runs."""

import os
import sys
from typing import Any

import pytest

PACKAGE = "rank_core.testing"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> None:
    """Adds `--model` only for the contract tests, because other projects may have that option."""
    if any(PACKAGE in word for word in args):
        parser.addoption("--model", metavar="MODULE:CLASS", help="the model to test")
        if not {"", os.getcwd()} & {*sys.path}:
            sys.path.append(os.getcwd())


def pytest_generate_tests(metafunc: Any) -> None:
    """Parametrises the contract tests by the model of `--model`."""
    if metafunc.module.__name__ != f"{PACKAGE}.test_model" or "name" not in metafunc.fixturenames:
        return
    name = metafunc.config.getoption("--model")
    if not name:
        raise pytest.UsageError("--model MODULE:CLASS must name the model to test")
    metafunc.parametrize("name", [name], scope="module")
