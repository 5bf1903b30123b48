# Set-up is a virtual environment in .venv and pip with constraints.txt. It is done once for what a
# target needs (`demo` less, the others all) and again when what an installation is made from changes.
#
#   make PYTHON=python3.13 test      another interpreter
#   make demo ARGS=--exit            arguments for what the target runs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
ARGS ?=
# Processes that run tests: one more than two cores, since tests of processes wait half of the time.
JOBS ?= 3
# How many faults, and which, for `chaos`.
CYCLES ?= 50
SEED ?= 1
# Simulated seconds, for `sim`.
SIM_SECONDS ?= 2000
# The first interpreter that is new enough; empty when there is none.
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$candidate; break; fi; done)
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt
SOURCES := $(shell find src -name '*.py')
# What an installation is made from, beside the sources that it finds in the tree.
INSTALLED := pyproject.toml constraints.txt hatch_build.py hatch_readme.py src/dragoman/spark/batches/records.c

# The broker refuses to run without its assertions.
export PYTHONOPTIMIZE =
# Tests start hundreds of processes, which would each compile what they import.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help
help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- set-up

define make_venv
	@if [ -z "$(PYTHON)" ]; then \
		echo "make: Python 3.11 or newer is needed and none was found" \
			"(PYTHON=/path/to/python names one)" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
		"make: Python 3.11 or newer is needed; $(PYTHON) is %d.%d" % v[:2])'
	@if [ ! -x $(1)/bin/pip ]; then \
		rm -rf $(1); \
		echo "setting up $(1) with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv $(1) || { rm -rf $(1); \
			echo "make: $(PYTHON) cannot make virtual environments" \
				"(Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }; fi
endef

$(VENV)/demo.stamp: $(INSTALLED)
	$(call make_venv,$(VENV))
	@echo "installing what the broker and the demo need (Spark is large: this takes minutes)"
	@$(BIN)/pip install $(PIP_FLAGS) --editable '.[demo,cdc,pipelines,console]'
	@touch $@

$(VENV)/dev.stamp: $(INSTALLED)
	$(call make_venv,$(VENV))
	@echo "installing what development needs"
	@$(BIN)/pip install $(PIP_FLAGS) --editable '.[dev]'
	@touch $(VENV)/demo.stamp $@

# ---- the two commands

.PHONY: demo
demo: $(VENV)/demo.stamp ## run the main job; ARGS=--exit ends by itself
	@$(BIN)/python examples/demo $(ARGS)

.PHONY: test
test: lint layers types unit ## lint, layer rules, types and tests: what CI runs

# ---- its parts

.PHONY: lint
lint: $(VENV)/dev.stamp ## ruff: rules and format
	$(BIN)/ruff check src tests docs examples
	$(BIN)/ruff format --check src tests docs examples

.PHONY: layers
layers: $(VENV)/dev.stamp ## import-linter: which layer may know which
	$(BIN)/lint-imports --no-cache

.PHONY: types
types: $(VENV)/dev.stamp ## mypy, strict, for Linux and for macOS
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src

.PHONY: unit
unit: $(VENV)/dev.stamp ## pytest in JOBS processes; ARGS="-k name" picks tests
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/python -m pytest \
		--numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder $(ARGS)

.PHONY: coverage
coverage: $(VENV)/dev.stamp ## branch coverage of the tests
	HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered $(ARGS)

.PHONY: format
format: $(VENV)/dev.stamp ## let ruff rewrite what it can
	$(BIN)/ruff check --fix src tests docs examples
	$(BIN)/ruff format src tests docs examples

.PHONY: docs
docs: $(VENV)/dev.stamp ## write anew the tables and the picture that repeat the code
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/diagram.py
	$(BIN)/python docs/configuration_page.py
	$(BIN)/python docs/http_operations.py
	$(BIN)/python docs/testing_kit.py
	$(BIN)/python docs/cli_page.py
	PYTHONPATH=tests $(BIN)/python -m command_line.page
	$(BIN)/python tests/interop/page.py

.PHONY: site
site: $(VENV)/dev.stamp ## the documentation as a site in build/site, with all links checked
	PYTHONPATH=docs $(BIN)/python -m website build/site

# ---- run by hand

.PHONY: interop
interop: $(VENV)/dev.stamp ## clients that others wrote; ARGS="java --only KIP-848" picks
	PYTHONPATH=tests $(BIN)/python tests/interop/run.py $(ARGS)

.PHONY: interop-logins
interop-logins: $(VENV)/dev.stamp ## what stock clients report when they are refused; ARGS="kafka --only token"
	PYTHONPATH=tests $(BIN)/python tests/interop/logins.py $(ARGS)

.PHONY: bench
bench: $(BENCH_VENV)/bench.stamp ## benchmarks on the installed wheel; ARGS=--quick
	PYTHONPATH=tests $(BENCH_VENV)/bin/python tests/benchmarks/run.py $(ARGS)

$(BENCH_VENV)/bench.stamp: $(INSTALLED) README.md $(SOURCES)
	$(call make_venv,$(BENCH_VENV))
	@rm -rf build/bench
	@$(BENCH_VENV)/bin/pip wheel --quiet --disable-pip-version-check --no-deps -w build/bench .
	@$(BENCH_VENV)/bin/pip install $(PIP_FLAGS) --force-reinstall --no-deps build/bench/*.whl
	@$(BENCH_VENV)/bin/pip install $(PIP_FLAGS) "$$(echo build/bench/*.whl)[bench]"
	@touch $@

.PHONY: bench-versions
bench-versions: $(VENV)/dev.stamp ## CPU per record, start and memory of two versions; BEFORE=SRC_DIR ARGS="--only kafka"
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/versions.py --before $(BEFORE) $(ARGS)

.PHONY: metrics-cost
metrics-cost: $(VENV)/dev.stamp ## scrapes and counting with 10,000 partitions and 200 groups; BEFORE=SRC_DIR compares
	PYTHONPATH=tests:tests/benchmarks $(BIN)/python tests/benchmarks/metrics_cost.py $(if $(BEFORE),--before $(BEFORE)) $(ARGS)

.PHONY: cdc-torture
cdc-torture: $(VENV)/dev.stamp ## a captured database under load, kills and restarts, against pg_recvlogical; ARGS="--seed 2"
	PYTHONPATH=tests:examples $(BIN)/python -m cdc_torture.run $(ARGS)

.PHONY: postgres-releases
postgres-releases: $(VENV)/dev.stamp ## tests of captures with other releases of PostgreSQL, from npm; ARGS=14
	PYTHONPATH=examples $(BIN)/python tests/interop/postgres_releases.py $(ARGS)

.PHONY: failover
failover: $(VENV)/dev.stamp ## how long no writes are taken when a leader goes; ARGS="--rounds 5 kill"
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/failover.py $(ARGS)

.PHONY: console-tail
console-tail: $(VENV)/dev.stamp ## what a live tail through the console costs a node, beside a consumer; ARGS="--rounds 3"
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/console_tail.py $(ARGS)

.PHONY: idle-cluster
idle-cluster: $(VENV)/dev.stamp ## CPU and memory of three nodes that do nothing
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/idle_cluster.py

.PHONY: sim
sim: $(VENV)/dev.stamp ## power cuts, broken quorums and clusters under faults in simulation, and mutants; SIM_SECONDS=100000
	PYTHONPATH=tests $(BIN)/python -m power_cuts.survey --mutants $(ARGS)
	PYTHONPATH=tests $(BIN)/python -m simulation.raft.survey --mutants --seconds $(SIM_SECONDS)
	PYTHONPATH=tests $(BIN)/python -m simulation.replication.survey --mutants --seconds $(SIM_SECONDS)
	PYTHONPATH=tests $(BIN)/python -m simulation.cluster.survey --mutants --seconds $(SIM_SECONDS)

.PHONY: soak
soak: $(VENV)/dev.stamp ## long runs: kill -9 under load, then power cuts
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -m soak --timeout=7200 -s
	PYTHONPATH=tests $(BIN)/python -m power_cuts.survey --mutants --cuts 10000 $(ARGS)

.PHONY: chaos
chaos: $(VENV)/dev.stamp ## three real nodes under load, kills, pauses and cuts; CYCLES=500 SEED=1 ARGS="--quorum etcd" or "--before SRC_DIR"; again to continue
	PYTHONPATH=tests $(BIN)/python -m chaos.run --cycles $(CYCLES) --seed $(SEED) --totals build/chaos.json $(ARGS)

.PHONY: lockdown
lockdown: $(VENV)/dev.stamp ## three open nodes of the release before are locked under load; BEFORE=SRC_DIR SEED=1
	PYTHONPATH=tests $(BIN)/python -m lockdown.run --before $(BEFORE) --seed $(SEED) $(ARGS)

.PHONY: attack
attack: $(VENV)/dev.stamp ## clients that mean harm, beside good ones; ARGS="--only frames --nodes 1"
	PYTHONPATH=tests $(BIN)/python -m attack.run $(ARGS)

.PHONY: deploy-check
deploy-check: $(VENV)/dev.stamp ## the wheel in empty environments, and what deploy/ holds; ARGS="chart unit" picks; BEFORE=SRC_DIR for upgrades
	BEFORE=$(BEFORE) PYTHONPATH=tests:examples $(BIN)/python -m deploy_check.run $(ARGS)

.PHONY: browser
browser: $(VENV)/dev.stamp ## hostile web pages, and the console's, in Chromium; needs Chromium and npm
	PYTHONPATH=tests $(BIN)/python -m browser.run
	PYTHONPATH=tests $(BIN)/python -m browser.records
	PYTHONPATH=tests:examples $(BIN)/python -m browser.console_all $(ARGS)

.PHONY: damage
damage: $(VENV)/dev.stamp ## two hundred damaged data directories; ARGS="--images 1000 --seed 7"
	PYTHONPATH=tests $(BIN)/python -m damage.run $(ARGS)

.PHONY: golden
golden: $(VENV)/dev.stamp ## what two versions answer to the same requests; ARGS="--before SRC_DIR --after src"
	PYTHONPATH=tests $(BIN)/python -m golden.compare $(ARGS)

.PHONY: measures
measures: $(VENV)/dev.stamp ## size, import cycles, callbacks and names of the code; ARGS=--list
	PYTHONPATH=tests $(BIN)/python -m measures $(ARGS)

# ---- upkeep

.PHONY: constraints
constraints: ## the newest versions that fit, as constraints.txt
	@rm -rf build/constraints && mkdir -p build
	$(call make_venv,build/constraints)
	@build/constraints/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@{ sed -n '/^#/p' constraints.txt; build/constraints/bin/pip freeze --exclude-editable \
		| tr 'A-Z_' 'a-z-' | sort; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/constraints

.PHONY: clean
clean: ## remove everything that make made
	rm -rf $(VENV) $(BENCH_VENV) build dist .mypy_cache .ruff_cache .hypothesis .coverage
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
