# Everything lives in .venv and in the node_modules folders of this checkout; nothing is installed elsewhere but the
# system packages that scripts/prerequisites names. Targets are quick when nothing has changed.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Flags of `tidewire demo` for `make run`, as in: make run DEMO="--http 127.0.0.1:9090"
DEMO ?=
STAMPS := $(VENV)/stamps
# Shuffled and chosen at random, but alike in every run, so that a change alone can break a test. Without these pytest
# takes a new order and new choices.
PYTEST := $(BIN)/pytest --randomly-seed=8 --seed 8
WORKERS ?= $(shell echo $$(( $$(nproc) * 2 )))
PAGE := src/tidewire/console/static/index.html
CLIENTS := tests/clients/node_modules/.package-lock.json
JAVA_CLIENTS := $(STAMPS)/java-clients
KAFKA := $(STAMPS)/kafka
FAYE := benchmarks/faye/node_modules/.package-lock.json
SYSTEM_TESTS := tests/browser tests/clients tests/console tests/crash tests/pipeline tests/wire

# Every test that starts a server loads the whole package: without compiled files it would be compiled each time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install web run test test-all test-unit test-system lint fmt bench proto lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

install: $(STAMPS)/prerequisites $(STAMPS)/package $(PAGE) $(CLIENTS) $(JAVA_CLIENTS) $(KAFKA) $(FAYE) ## Put everything into .venv and build the web page

run: $(STAMPS)/package $(PAGE) ## Start the demo: a server with activity, the pipeline and the page at http://localhost:8080/
	$(BIN)/tidewire demo $(DEMO)

# Lint and tests side by side, and twice as many workers as cores: many tests wait for processes, clients and timers, so
# that one worker per core would leave a third of the machine idle.
test: install ## Everything that can fail: lint and all tests
	$(MAKE) --no-print-directory -j 2 lint test-all

test-all: install
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-unit: install ## Tests that need no foreign client, crash, Spark or browser, in parallel
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not (clients or crash or spark or browser)"

test-system: install ## Tests with foreign clients, crashes, Spark and a browser, one file per worker at a time
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "clients or crash or spark or browser" $(SYSTEM_TESTS)

lint: install ## Style, types, layers, generated code and the page's types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	scripts/generate-proto --check
	cd web && npm run --silent check

fmt: install ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## Measure a change's way from REST to its subscribers, beside a bare echo server
	$(BIN)/tidewire bench path

proto: install ## Generate the protocol code from proto/
	scripts/generate-proto

lock: install ## Write requirements/*.txt and the package locks anew
	scripts/lock

web: $(PAGE) ## Build the page into src/tidewire/console/static

clean: ## Remove what install, test and run have made, except ./data
	rm -rf $(VENV) web/node_modules benchmarks/faye/node_modules tests/clients/node_modules tests/clients/java/lib tests/pipeline/kafka/lib src/tidewire/console/static
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist spark-warehouse
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What `make run` needs is less than what the tests need, and Java is not part of it.
$(STAMPS)/venv: scripts/prerequisites
	PYTHON="$(PYTHON)" scripts/prerequisites run
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS)
	touch $@

$(STAMPS)/prerequisites: scripts/prerequisites $(STAMPS)/venv
	PYTHON="$(PYTHON)" scripts/prerequisites
	touch $@

$(STAMPS)/requirements: requirements/dev.txt $(STAMPS)/venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	touch $@

# The build backend is pinned in dev.txt, so the package is built with what is there instead of a fresh download.
$(STAMPS)/package: pyproject.toml $(STAMPS)/requirements
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src/tidewire
	touch $@

WEB_SOURCES := $(wildcard web/src/* web/src/pages/*) web/build.mjs web/tsconfig.json

web/node_modules/.package-lock.json: web/package-lock.json $(STAMPS)/venv
	cd web && npm ci --loglevel=error
	touch $@

$(PAGE): web/node_modules/.package-lock.json $(WEB_SOURCES)
	cd web && npm run --silent build
	touch $@

$(CLIENTS): tests/clients/package-lock.json $(STAMPS)/prerequisites
	cd tests/clients && npm ci --loglevel=error
	touch $@

$(FAYE): benchmarks/faye/package-lock.json $(STAMPS)/prerequisites
	cd benchmarks/faye && npm ci --loglevel=error
	touch $@

$(JAVA_CLIENTS): tests/clients/java/pom.xml $(STAMPS)/prerequisites
	rm -rf tests/clients/java/lib
	mvn --quiet --batch-mode -f tests/clients/java/pom.xml dependency:copy-dependencies -DoutputDirectory=lib
	touch $@

# One Maven at a time: two would fill the same store.
$(KAFKA): tests/pipeline/kafka/pom.xml $(STAMPS)/prerequisites | $(JAVA_CLIENTS)
	rm -rf tests/pipeline/kafka/lib
	mvn --quiet --batch-mode -f tests/pipeline/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory=lib
	touch $@
