# Two commands on a fresh machine: `make quickstart` and `make test`. Both make .venv first.
PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test quick lint clean

quickstart: $(VENV)/.installed
	$(BIN)/python sweeps/window_stride.py

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest -m "(slow or ray or cluster or chaos) and not gpu"

quick: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
