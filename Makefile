# Two commands set up everything by themselves and are safe to repeat: make run, make test.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Only files whose hashes are in requirements/; no source archives, which would bring tools of their own to build them.
LOCKED := install -q --require-hashes --no-deps --only-binary :all:
TIDY := 2>&1 | { grep -v '^WARNING: Location' || true; }
LOCK := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
AUDIT := $(BIN)/pip-audit --strict --progress-spinner off --disable-pip $(SERVICE)
LISTS := src/mlagentbench/runtimes
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help run test check format prepare prove audit soak fuzz bench gallery lock audit-packages bubblewrap chromium clean

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

run: .venv/installed bubblewrap  ## set up, let the tuner work on house-price, print the verdict
	@$(BIN)/mlagentbench run house-price --agent tuner --steps 24

test: .venv/installed-dev bubblewrap chromium  ## set up, then run the tests
	@$(BIN)/mlagentbench prepare house-price BabyLM & data=0; $(BIN)/mlagentbench prepare --data-only || data=$$?; wait $$! && exit $$data
	@echo "make: running the tests"
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

check: .venv/installed-dev  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --no-error-summary benchmarks/*.py
	@MYPYPATH=tests/servers $(BIN)/mypy --no-error-summary -p benchmarks.soak
	@for task in src/mlagentbench/tasks/*/; do $(BIN)/mypy --no-error-summary $$task*.py || exit 1; done

format: .venv/installed-dev  ## put the code into its form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: .venv/installed bubblewrap  ## measure what the harness itself costs
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/batch.py
	@$(BIN)/python benchmarks/anytime.py
	@$(BIN)/python benchmarks/report.py
	@if $(BIN)/python -c "import ray" 2>/dev/null; then $(BIN)/python benchmarks/cluster.py; fi

gallery: .venv/installed-dev bubblewrap chromium prepare  ## prove, let a small local model work on all tasks, make the pictures of docs/guides/reports.md; two hours
	@$(BIN)/python benchmarks/prove.py --out runs/prove
	@$(BIN)/mlagentbench batch benchmarks/gallery.toml --out runs/gallery
	@$(BIN)/python benchmarks/gallery.py runs/prove runs/gallery --grade-steps

prove: .venv/installed bubblewrap prepare  ## run floor, baseline, tuner and reference on every task, print the table
	@$(BIN)/python benchmarks/prove.py

audit: .venv/installed bubblewrap prepare  ## let scripted cheaters loose on every task, print what they gained
	@$(BIN)/mlagentbench audit

soak: .venv/installed bubblewrap  ## kill, starve and mislead 2,000 runs, check that nothing is lost or left; ten minutes
	@$(BIN)/python -m benchmarks.soak

fuzz: .venv/installed-dev bubblewrap  ## a million damaged inputs for whatever reads what others wrote; ten minutes
	@$(BIN)/mlagentbench prepare house-price
	@$(BIN)/python tests/fuzz

prepare: .venv/installed bubblewrap  ## download and split the data of all tasks, build their runtimes
	@$(BIN)/mlagentbench prepare

bubblewrap:
	@command -v bwrap >/dev/null || { echo "make: installing bubblewrap, which isolates agents"; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq bubblewrap >/dev/null; }

chromium:
	@command -v chromium >/dev/null || { echo "make: installing chromium, in which pages are tested"; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "make: making the virtual environment .venv"
	@$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml requirements/run.txt
	@echo "make: installing mlagentbench into .venv"
	@$(PIP) $(LOCKED) -r requirements/run.txt $(TIDY)
	@$(PIP) install -q --no-deps --no-build-isolation -e . $(TIDY)
	@$(BIN)/mlagentbench --help >/dev/null && touch $@

.venv/installed-dev: .venv/installed requirements/dev.txt
	@echo "make: installing the tools for development"
	@$(PIP) $(LOCKED) -r requirements/dev.txt $(TIDY)
	@$(BIN)/python -c 'import pytest, mypy' && touch $@

.venv/bin/uv:  # whatever pyproject.toml says by now
	@$(MAKE) .venv/installed-dev

lock: .venv/bin/uv  ## write the hashes of all packages; UPGRADE=--upgrade takes the newest ones
	@$(LOCK) $(UPGRADE) pyproject.toml --group build --extra dev -o requirements/dev.txt
	@$(LOCK) pyproject.toml --group build -c requirements/dev.txt -o requirements/run.txt
	@for list in $(LISTS)/*.txt; do \
	  $(LOCK) --no-deps --no-emit-package torch $$list -o $(LISTS)/locked/$$(basename $$list) || exit 1; done

audit-packages: .venv/installed-dev  ## look all locked packages up among known vulnerabilities; needs the network
	@$(AUDIT) --require-hashes -r requirements/dev.txt
	@$(AUDIT) --no-deps $(patsubst %,-r %,$(wildcard $(LISTS)/*.txt))  # it passes over what a list includes

clean:  ## remove the virtual environment
	rm -rf .venv
