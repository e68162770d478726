# Two commands on a fresh machine: `make quickstart` and `make test`. Both make .venv first.
# The first Python that runs and is new enough; a name on the PATH may be an empty shim.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin

# Four minutes that `make test` has no room for (40 in all): what the first kills, tests/chaos kills
# too; the second waits for Ray to give up. `python -m pytest -m chaos` and `-m cluster` run them.
LONG := --deselect tests/e2e/test_kill.py \
	--deselect tests/cluster/test_loopback_cluster.py::test_after_ray_down_no_process_takes_work

.PHONY: quickstart test quick lint clean

quickstart: $(VENV)/.installed
	$(BIN)/python sweeps/window_stride.py

# Each worker takes a run of neighbouring tests, so that what a file's tests share is made once; the
# sweeps that Ray tests share take minutes, so a file stays with one worker there.
SPREAD := -n auto --dist worksteal

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(SPREAD)
	$(BIN)/python -m pytest $(SPREAD) -m "slow and not ray and not cluster and not chaos and not gpu"
	$(BIN)/python -m pytest -n auto --dist loadfile -m "ray and not cluster and not chaos and not gpu"
	$(BIN)/python -m pytest -m "(cluster or chaos) and not gpu" $(LONG)

quick: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(SPREAD)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
