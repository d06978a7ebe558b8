# Two commands matter on a fresh clone: `make run` and `make test`. Both do all of their own set-up.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v $$p && break; done)
export PATH := $(or $(PATH),/usr/local/bin:/usr/bin:/bin)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run test check guard mutations conformance page-bench bench bench-quick bench-road golden docs lock clean

help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Toolgate needs Python 3.11 or newer with venv (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python requirements/run.txt pyproject.toml
	@echo "installing locked dependencies into $(VENV) ..."
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing locked development dependencies into $(VENV) ..."
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

run: $(VENV)/.run  ## Start a development server on embedded defaults, with keys for each role
	@$(BIN)/toolgate serve --dev

test: $(VENV)/.dev  ## The test suite (under three minutes)
	$(BIN)/python -m pytest -m "not guard" -n 2 --dist worksteal $(ARGS)

check: $(VENV)/.dev  ## Lint, types, import rules, contract
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/toolgate contract check
	$(BIN)/toolgate policy lint
	$(BIN)/toolgate policy docs --check

guard: $(VENV)/.dev  ## Slower suites that hold a promise: kills, real clients, browsers
	$(BIN)/python -m pytest -m guard $(ARGS)

mutations: $(VENV)/.dev  ## Remove each guard of the road once; a named test must turn red
	$(BIN)/python scripts/mutations.py $(ARGS)

conformance: $(VENV)/.dev  ## The official conformance suite and the Inspector (needs Node with npm)
	$(BIN)/python -m scripts.conformance.run $(ARGS)

bench: $(VENV)/.dev  ## Measure against peers (builds one environment a peer under .cache/bench)
	$(BIN)/python -m benchmarks.compare $(ARGS)
	$(BIN)/python -m benchmarks.growth

bench-quick: $(VENV)/.dev  ## The same in a minute or two, without thresholds; keeps tables and numbers in build/bench
	$(BIN)/python -m benchmarks.compare --quick --out build/bench/quick.json $(ARGS)

bench-road: $(VENV)/.dev  ## What each step of the road costs, in process
	$(BIN)/python -m benchmarks.road $(ARGS)

page-bench: $(VENV)/.dev  ## Lighthouse on fresh papers (needs Node with npm and Chromium); noisy, never a gate
	$(BIN)/python -m scripts.page_bench.run $(ARGS)

golden: $(VENV)/.dev  ## Rewrite the golden audit log from two real servers
	$(BIN)/python -m tests.ledger.replay

docs: $(VENV)/.dev  ## Rewrite the generated references
	$(BIN)/python scripts/reference.py

lock: $(VENV)/.dev  ## Re-resolve the locks (hashes, no addresses)
	$(PIP) install uv
	$(BIN)/uv pip compile pyproject.toml --universal -p 3.11 --group build --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml --universal -p 3.11 --all-extras --group build --group dev --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements/dev.txt -c requirements/run.txt

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
