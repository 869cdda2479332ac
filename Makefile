# Two commands on a fresh machine: `make up` and `make test`. They need python3, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
TEST ?=

.PHONY: up test lint types layers unit soak bench lock clean

up: $(VENV)/run.stamp
	$(BIN)/lightgate up $(ARGS)

$(VENV)/run.stamp: requirements/run.txt requirements/build.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp requirements/test.txt
	$(PIP) install --require-hashes -r requirements/test.txt
	@touch $@

# Each official SDK lives in its own environment: their dependencies clash with each other's and with ours.
.venv-sdk-%/stamp: requirements/sdk-%.txt
	$(PYTHON) -m venv .venv-sdk-$*
	.venv-sdk-$*/bin/pip --disable-pip-version-check -q install --require-hashes -r $<
	@touch $@

# Real engines that nobody here wrote, behind the harness and the gateway.
.venv-engine-%/stamp: requirements/engine-%.txt
	$(PYTHON) -m venv .venv-engine-$*
	.venv-engine-$*/bin/pip --disable-pip-version-check -q install --require-hashes -r $<
	@touch $@

# What installs the command for a user; the tests install it with that, far from this folder.
.venv-pipx/stamp: requirements/pipx.txt
	$(PYTHON) -m venv .venv-pipx
	.venv-pipx/bin/pip --disable-pip-version-check -q install --require-hashes -r $<
	@touch $@

test: lint types layers unit

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

layers: $(VENV)/test.stamp
	$(BIN)/lint-imports

SDKS := .venv-sdk-openai/stamp .venv-sdk-anthropic/stamp .venv-sdk-google/stamp .venv-sdk-langchain/stamp .venv-sdk-clouds/stamp

unit: $(VENV)/test.stamp $(SDKS) .venv-engine-llama/stamp .venv-engine-mlx/stamp .venv-pipx/stamp
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TEST)

# Long, load-bearing proofs: the clock's error budget, the reader's and the simulator's cost.
soak: $(VENV)/test.stamp
	$(BIN)/lightgate selftest
	$(BIN)/python benchmarks/reader.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/verdicts.py
	$(BIN)/python benchmarks/omission.py
	$(BIN)/python benchmarks/overhead.py || test $$? -eq 6 # misses a limit, and says which
	$(BIN)/python benchmarks/whole.py || test $$? -eq 6 # misses its limit, and says so
	$(BIN)/python benchmarks/restart.py
	$(BIN)/python benchmarks/crowd.py || test $$? -eq 6 # misses its limit on a busy machine, and says so
	$(BIN)/python benchmarks/adds_up.py
	$(BIN)/python benchmarks/kill.py
	$(BIN)/python benchmarks/ship.py || test $$? -eq 6 # misses its limit on a busy machine, and says so
	$(BIN)/python benchmarks/rescue.py
	$(BIN)/python benchmarks/decide.py
	$(BIN)/python benchmarks/cascade.py
	$(BIN)/python benchmarks/live.py

# Pin every dependency with its hashes again; the *.in files say what is wanted.
lock: $(VENV)/test.stamp
	cd requirements && for set in build run test pipx sdk-openai sdk-anthropic sdk-google sdk-langchain sdk-clouds engine-llama engine-mlx; do \
	  ../$(BIN)/pip-compile -q --generate-hashes --strip-extras --allow-unsafe --no-header --no-emit-index-url \
	    --no-emit-trusted-host --no-emit-find-links -o $$set.txt $$set.in || exit 1; done

clean:
	rm -rf $(VENV) .venv-pipx .venv-sdk-* .venv-engine-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
