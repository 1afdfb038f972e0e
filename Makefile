# Two commands set up everything by themselves and are safe to repeat: make run, make test.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help run test check format prepare prove audit fuzz bench gallery bubblewrap chromium clean

help:  ## show this
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

run: .venv/installed bubblewrap  ## set up, let the tuner work on house-price, print the verdict
	@$(BIN)/mlagentbench run house-price --agent tuner --steps 24

test: .venv/installed-dev bubblewrap chromium  ## set up, then run the tests
	@$(BIN)/mlagentbench prepare --data-only
	@$(BIN)/mlagentbench prepare house-price BabyLM
	@echo "make: running the tests"
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

check: .venv/installed-dev  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
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

gallery: .venv/installed-dev bubblewrap chromium  ## run a batch over all tasks, make the pictures of docs/gallery.md; an hour
	@$(BIN)/mlagentbench batch benchmarks/gallery.toml --out runs/gallery
	@$(BIN)/mlagentbench batch benchmarks/gallery-local.toml --out runs/gallery-local
	@$(BIN)/python benchmarks/gallery.py runs/gallery runs/gallery-local --grade-steps

prove: .venv/installed bubblewrap prepare  ## run floor, baseline, tuner and reference on every task, print the table
	@$(BIN)/python benchmarks/prove.py

audit: .venv/installed bubblewrap prepare  ## let scripted cheaters loose on every task, print what they gained
	@$(BIN)/mlagentbench audit

fuzz: .venv/installed-dev bubblewrap  ## a million damaged inputs for whatever reads what others wrote; half an hour
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

.venv/installed: .venv/bin/python pyproject.toml
	@echo "make: installing mlagentbench into .venv"
	@$(PIP) install -q -e . 2>&1 | { grep -v '^WARNING: Location' || true; }
	@$(BIN)/mlagentbench --help >/dev/null && touch $@

.venv/installed-dev: .venv/installed
	@echo "make: installing the tools for development"
	@$(PIP) install -q -e '.[dev]' 2>&1 | { grep -v '^WARNING: Location' || true; }
	@$(BIN)/python -c 'import pytest, mypy' && touch $@

clean:  ## remove the virtual environment
	rm -rf .venv
