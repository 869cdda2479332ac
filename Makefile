# Two commands on a fresh machine: `make up` and `make test`. They need python3, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
TEST ?=
SEED ?= 1
COUNT ?= 200
# Python keeps what it has compiled, also where the environment says otherwise: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: up test lint types layers unit soak mutants bench lock clean

up: $(VENV)/run.stamp
	$(BIN)/lightgate up $(ARGS)

$(VENV)/run.stamp: requirements/run.txt requirements/build.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# uv installs in seconds what takes pip a minute. It does not read pip's settings: where it reaches no index, pip is asked.
$(VENV)/test.stamp: $(VENV)/run.stamp requirements/test.txt .venv-uv/stamp
	.venv-uv/bin/uv -q pip install --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/test.txt || \
	  $(PIP) install --require-hashes -r requirements/test.txt
	@touch $@

.venv-uv/stamp: requirements/uv.txt
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/pip --disable-pip-version-check -q install --require-hashes -r $<
	@touch $@

define environment
$(PYTHON) -m venv --clear --without-pip $(@D)
.venv-uv/bin/uv -q pip install --python $(@D)/bin/python --require-hashes -r $< || \
  .venv-uv/bin/pip --disable-pip-version-check -q --python $(@D)/bin/python install --require-hashes -r $<
@touch $@
endef

# Each official SDK lives in its own environment: their dependencies clash with each other's and with ours.
.venv-sdk-%/stamp: requirements/sdk-%.txt .venv-uv/stamp
	$(environment)

# Frameworks and other clients that nobody here wrote; those that can share a version of the openai package share a folder.
.venv-clients-%/stamp: requirements/clients-%.txt .venv-uv/stamp
	$(environment)

# Node is a package of PyPI as well: one version everywhere, and no right to install system packages is needed.
.venv-node/stamp: requirements/node.txt .venv-uv/stamp
	$(environment)

# Agents and SDKs from npm. No install script of theirs is run.
.node-%/stamp: requirements/npm-%/package-lock.json .venv-node/stamp
	rm -rf .node-$* && mkdir .node-$* && cp requirements/npm-$*/package.json $< .node-$*
	PATH="$(CURDIR)/.venv-node/bin:$$PATH" npm --prefix .node-$* ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@

# Real engines that nobody here wrote, behind the harness and the gateway.
.venv-engine-%/stamp: requirements/engine-%.txt .venv-uv/stamp
	$(environment)

# What installs the command for a user; the tests install it with that, far from this folder.
.venv-pipx/stamp: requirements/pipx.txt .venv-uv/stamp
	$(environment)

# Ray, for load from several hosts; with our own sources beside it, as on every node of a cluster.
.venv-ray/stamp: requirements/ray.txt .venv-uv/stamp
	$(environment)
	echo "$(CURDIR)/src" > $(@D)/lib/$$(ls $(@D)/lib)/site-packages/lightgate.pth
	$(@D)/bin/python -m compileall -q -j 0 $(@D)/lib > /dev/null || true # Ray waits 15 s for a process that imports much

# What reads the files of deploy/: linters and schemas; helm comes from npm (.node-helm).
.venv-deploy/stamp: requirements/deploy.txt .venv-uv/stamp
	$(environment)

# Servers, tools and the browser that the tests start, from Debian's packages; one after the other, since they share a lock.
.debian/stamp: requirements/debian.sh
	requirements/debian.sh .debian
	@touch $@

# mypy needs one core for most of a minute: the tests have the other one meanwhile.
test: lint
	@$(MAKE) --no-print-directory -j 2 types layers unit

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

layers: $(VENV)/test.stamp
	$(BIN)/lint-imports

SDKS := $(foreach sdk,openai anthropic google langchain clouds,.venv-sdk-$(sdk)/stamp)
STRANGERS := $(foreach set,openai3 openai2,.venv-clients-$(set)/stamp) $(foreach set,agents sdks axe,.node-$(set)/stamp)

.PHONY: prepared clients
prepared: $(VENV)/test.stamp
	@$(MAKE) --no-print-directory -j 4 $(SDKS) $(STRANGERS) .venv-engine-llama/stamp .venv-engine-mlx/stamp .venv-pipx/stamp .debian/stamp \
	  .venv-deploy/stamp .node-helm/stamp

# Run every client that nobody here wrote, and write what came of it into docs/reference/clients.md.
clients: prepared
	PYTHONPATH=tests $(BIN)/python -m strangers.page

unit: prepared
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 4 $(TEST)

# Long, load-bearing proofs: the clock's error budget, the reader's and the simulator's cost.
soak: $(VENV)/test.stamp .venv-sdk-openai/stamp .debian/stamp .venv-ray/stamp
	$(BIN)/lightgate selftest
	$(BIN)/python benchmarks/reader.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/closed.py || test $$? -eq 6 # misses a limit on a busy machine, and says which
	$(BIN)/python benchmarks/verdicts.py
	$(BIN)/python benchmarks/power.py --live
	$(BIN)/python benchmarks/omission.py
	$(BIN)/python benchmarks/overhead.py || test $$? -eq 6 # misses a limit, and says which
	$(BIN)/python benchmarks/whole.py || test $$? -eq 6 # misses its limit, and says so
	$(BIN)/python benchmarks/restart.py
	$(BIN)/python benchmarks/restart.py --upgrade --reloads 2
	$(BIN)/python benchmarks/rolling.py
	$(BIN)/python benchmarks/rolling.py --restart
	$(BIN)/python benchmarks/crowd.py
	.venv-ray/bin/python benchmarks/ray_load.py
	$(BIN)/python benchmarks/batch_beside.py
	$(BIN)/python benchmarks/batch_room.py
	$(BIN)/python benchmarks/console_beside.py || test $$? -eq 7 # cannot judge on a busy machine, and says so
	$(BIN)/python benchmarks/turns.py || test $$? -eq 6 # misses its limit on a busy machine, and says so
	$(BIN)/python benchmarks/adds_up.py
	$(BIN)/python benchmarks/kill.py
	$(BIN)/python benchmarks/nodes.py || test $$? -eq 6 # waits are measured on the clock: a busy machine misses them, and says which
	$(BIN)/python benchmarks/batch_jobs.py
	$(BIN)/python benchmarks/batch_engine.py
	$(BIN)/python benchmarks/batch_engine.py --sequential --lines 1000
	$(BIN)/python benchmarks/batch_engine.py --kills 50 --lines 20000
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python benchmarks/fuzz.py
	$(BIN)/python benchmarks/ship.py || test $$? -eq 6 # misses its limit on a busy machine, and says so
	$(BIN)/python benchmarks/ship.py --postgres || test $$? -eq 6 # as above
	$(BIN)/python benchmarks/ledger_questions.py --postgres || test $$? -eq 6 # as above
	$(BIN)/python benchmarks/ledger_questions.py --attempts 1000000 || test $$? -eq 6 # as above
	$(BIN)/python benchmarks/scale_model.py
	$(BIN)/python benchmarks/scrape.py
	$(BIN)/python benchmarks/rescue.py
	$(BIN)/python benchmarks/decide.py
	$(BIN)/python benchmarks/cascade.py
	$(BIN)/python benchmarks/live.py
	$(BIN)/python benchmarks/live.py --world queue --seconds 60 --seeds 1 || test $$? -eq 6 # a queue grows on a busy machine
	$(BIN)/python benchmarks/worlds.py
	$(BIN)/python benchmarks/advise.py
	$(BIN)/python benchmarks/mutants.py

# Small defects, one at a time: do the tests notice? `make mutants SEED=2 COUNT=50`
mutants: $(VENV)/test.stamp
	$(BIN)/python benchmarks/mutants.py --seed $(SEED) --count $(COUNT)

# Pin every dependency with its hashes again; the *.in files say what is wanted.
lock: $(VENV)/test.stamp
	cd requirements && for set in build run test pipx sdk-openai sdk-anthropic sdk-google sdk-langchain sdk-clouds engine-llama engine-mlx; do \
	  ../$(BIN)/pip-compile -q --generate-hashes --strip-extras --allow-unsafe --no-header --no-emit-index-url \
	    --no-emit-trusted-host --no-emit-find-links -o $$set.txt $$set.in || exit 1; done
	$(MAKE) .venv-uv/stamp .venv-node/stamp
	cd requirements && for set in uv node clients-openai3 clients-openai2 deploy ray image; do \
	  ../.venv-uv/bin/uv -q pip compile --python-version 3.11 --generate-hashes --no-strip-extras --no-header -o $$set.txt $$set.in || exit 1; done
	for set in agents sdks helm axe; do PATH="$(CURDIR)/.venv-node/bin:$$PATH" npm --prefix requirements/npm-$$set install --package-lock-only \
	  --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund || exit 1; done

clean:
	rm -rf $(VENV) .venv-* .node-* .debian .shots .mypy_cache .ruff_cache .pytest_cache .hypothesis
