# Two commands matter on a fresh clone: `make run` and `make test`. Both do all of their own set-up.
# PYTHON=3.12 (or a path) chooses an interpreter, with an environment of its own (.venv-3.12); without it: .venv, from the newest.
PYTHON :=
VERSIONS := 3.11 3.12 3.13
# Test processes: one more than a small machine has cores, because a test waits for other processes for a fifth of its time.
WORKERS := 3
export PATH := $(or $(PATH),/usr/local/bin:/usr/bin:/bin)
VENV := .venv$(addprefix -,$(subst python,,$(notdir $(PYTHON))))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CANNOT_INSTALL = test -w . || echo "this clone is not yours to write; put environment and home elsewhere: \
make run VENV=\$$HOME/toolgate-env ARGS=\"--home \$$HOME/toolgate-dev\"" >&2; exit 1

# How many failed tests a gate repeats, once, each alone; it names those that then pass. Empty: none.
REPEAT :=
PYTEST = $(BIN)/python -m $(if $(REPEAT),scripts.suite --most $(REPEAT) --,pytest)
# pytest ends with 5 when nothing was selected: ARGS may name tests of one kind only.
OR_NONE = $(if $(ARGS),|| test $$? -eq 5)

.DEFAULT_GOAL := help
.PHONY: help run test test-all environments check notice guard search rough upstreams mutations mutants conformance clients fail-closed dry-build tokens page-bench governance-bench bench bench-quick bench-against bench-road measures pictures golden docs package lock clean

help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@python="$$(sh scripts/find_python.sh $(PYTHON))" && set -x && "$$python" -m venv "$(VENV)" || { $(CANNOT_INSTALL); }

$(VENV)/.run: $(BIN)/python requirements/run.txt pyproject.toml
	@echo "installing locked dependencies into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/run.txt || { $(CANNOT_INSTALL); }
	@$(PIP) install --no-deps --no-build-isolation -e . || { $(CANNOT_INSTALL); }
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing locked development dependencies into $(VENV) ..."
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

run: $(VENV)/.run  ## Start a development server on embedded defaults, with keys for each role
	@$(BIN)/toolgate serve --dev $(ARGS) || { code=$$?; echo "flags of toolgate serve go into ARGS: make run ARGS='--port 0 --home DIR'" >&2; exit $$code; }

test: $(VENV)/.dev  ## The test suite (under three minutes)
	$(PYTEST) -m "not guard" -n $(WORKERS) --dist worksteal $(ARGS)

test-all:  ## The test suite on every Python we support (or VERSIONS="3.12 3.13"); a missing one fails by name
	@for version in $(VERSIONS); do sh scripts/find_python.sh $$version >/dev/null || exit 1; done
	@for version in $(VERSIONS); do $(MAKE) --no-print-directory test PYTHON=$$version || exit 1; done

environments:  ## What `make test-all` would install first
	@for version in $(VERSIONS); do $(MAKE) --no-print-directory .venv-$$version/.dev PYTHON=$$version || exit 1; done

check: $(VENV)/.dev  ## Lint, types, import rules, contract
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/toolgate contract check
	$(BIN)/toolgate policy lint
	$(BIN)/toolgate policy docs --check

notice: $(VENV)/.dev  ## Was all that is gone since the last release announced by it, two weeks ago?
	$(BIN)/python scripts/notice.py

guard: $(VENV)/.dev  ## Slower suites that hold a promise: kills, real clients, browsers, installations
	@$(BIN)/python -m scripts.upstreams.install || echo "without them the suite of real MCP servers is skipped" >&2
	$(PYTEST) -m "guard and not alone" -n $(WORKERS) --dist loadfile $(ARGS) $(OR_NONE)
	$(PYTEST) -m "guard and alone" $(ARGS) $(OR_NONE)
	@$(if $(ARGS),,$(MAKE) --no-print-directory search)

search: $(VENV)/.dev  ## Property tests with more cases, from a new seed (SEED=N repeats one)
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); echo "random search: make search SEED=$$seed repeats it"; \
	TOOLGATE_SEED=$$seed TOOLGATE_DIFFERENTIAL=100000 $(PYTEST) -m "hypothesis or search" -n 2 --dist worksteal \
	--timeout 300 --hypothesis-profile search --hypothesis-seed $$seed $(ARGS)

rough: $(VENV)/.dev  ## Hostile load of every kind, 1 to 1000 connections, with a table of numbers (about ten minutes)
	ROUGH=long $(BIN)/python -m pytest -m guard tests/rough $(ARGS)

upstreams: $(VENV)/.dev  ## MCP servers that nobody here wrote, through the gate, and the hostile ones (needs Node with npm)
	$(BIN)/python -m scripts.upstreams.install
	TOOLGATE_REQUIRE=upstreams $(BIN)/python -m pytest tests/upstreams $(ARGS)

mutations: $(VENV)/.dev  ## Remove each guard of the road once; a named test must turn red
	$(BIN)/python scripts/mutations.py $(ARGS)

mutants: $(VENV)/.dev  ## Mutation testing of the gate with cosmic-ray: ARGS="--module floor --take 40" takes minutes, all of it hours on a busy machine
	$(BIN)/python -m scripts.mutants.run $(ARGS)

conformance: $(VENV)/.dev  ## The official conformance suite and the Inspector (needs Node with npm)
	$(BIN)/python -m scripts.conformance.run $(ARGS)

clients: $(VENV)/.dev  ## Try the agent libraries and programs that people use, and write docs/reference/clients.md (needs Node with npm)
	$(BIN)/python -m scripts.clients.run $(ARGS)

fail-closed: $(VENV)/.dev  ## Break what a server depends on, and write docs/reference/fail-closed.md from what is seen
	FAIL_CLOSED=write $(BIN)/python -m pytest -q tests/gate/shared/test_fail_closed.py tests/fail_closed

dry-build: $(VENV)/.run  ## Run every step of deploy/Containerfile in a scratch directory: there need be no container engine
	$(BIN)/python -m scripts.dry_build

tokens: $(VENV)/.dev  ## What a model pays for our list of tools, beside two well-known servers (needs Node with npm)
	$(BIN)/python -m scripts.clients.tokens $(ARGS)

bench: $(VENV)/.dev  ## Measure against peers (builds one environment a peer under .cache/bench)
	$(BIN)/python -m benchmarks.compare $(ARGS)
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.upstreams
	$(BIN)/python -m benchmarks.tools

bench-quick: $(VENV)/.dev  ## The same in a minute or two, without thresholds; keeps tables and numbers in build/bench
	$(BIN)/python -m benchmarks.compare --quick --out build/bench/quick.json $(ARGS)

bench-against: $(VENV)/.dev  ## This tree beside an older commit of it: make bench-against COMMIT=HEAD~5
	$(BIN)/python -m benchmarks.compare --against "$(or $(COMMIT),HEAD)" $(ARGS)

bench-road: $(VENV)/.dev  ## What each step of the road costs, in process
	$(BIN)/python -m benchmarks.road $(ARGS)

measures: $(VENV)/.dev  ## How the code is built, in numbers, beside starlette, httpx and sigstore (ARGS=--ours: with the places)
	$(BIN)/python scripts/measures.py $(ARGS)

governance-bench: $(VENV)/.dev  ## Precision and recall of the governance rules on their corpus, beside zizmor's
	$(BIN)/python -m benchmarks.governance $(ARGS)

page-bench: $(VENV)/.dev  ## Lighthouse on fresh papers (needs Node with npm and Chromium); noisy, never a gate
	$(BIN)/python -m scripts.page_bench.run $(ARGS)

pictures: $(VENV)/.dev  ## Take the README's pictures of the console again (needs Chromium)
	PICTURES=docs $(BIN)/python -m pytest -q -n0 -m guard tests/console/pages/test_pictures.py

golden: $(VENV)/.dev  ## Rewrite the golden audit log from two real servers
	$(BIN)/python -m tests.ledger.replay

docs: $(VENV)/.dev  ## Rewrite the generated references
	$(BIN)/python scripts/reference.py

package: $(VENV)/.run  ## Build the sdist and the wheel into dist/
	$(BIN)/python -m hatchling build -t sdist -t wheel

lock: $(VENV)/.dev  ## Re-resolve the locks (hashes, no addresses)
	$(PIP) install uv
	$(BIN)/uv pip compile pyproject.toml --universal -p 3.11 --group build --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml --universal -p 3.11 --extra zizmor --group build --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements/action.txt -c requirements/run.txt
	$(BIN)/uv pip compile pyproject.toml --universal -p 3.11 --extra postgres --extra redis --extra nats --extra metrics --extra otel --extra rules --group build --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements/serve.txt -c requirements/run.txt -c requirements/dev.txt
	$(BIN)/uv pip compile pyproject.toml --universal -p 3.11 --all-extras --group build --group dev --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements/dev.txt -c requirements/run.txt

clean:  ## Remove the virtual environment and caches
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
