# What a fresh machine with Python 3.10 to 3.13 and make needs: every target sets up .venv by itself.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
STAMP := $(VENV)/installed.stamp
RUN := $(VENV)/bin/python
# Tried in this order; `make PYTHON=/path/to/python3.12 test` puts one first.
PYTHON ?=
CANDIDATES := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.10 python
# Processes that run tests; each file in one of them, because tests of a file share what is dear to make. They take
# files in the order of tests/conftest.py, and not those of few tests last, which may be long ones.
WORKERS ?= 2
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))

.PHONY: help setup demo bench docs test test-all lint format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make .venv and install the library in it, editable, with the development tools

$(STAMP): setup.cfg pyproject.toml
	@$(RUN) -c '$(SUITABLE)' 2>/dev/null || { \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(SUITABLE)' 2>/dev/null; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo 'no Python 3.10 to 3.13 with the venv module found (tried: $(strip $(CANDIDATES)))' >&2; \
	    echo '  fix: install one (Debian, Ubuntu: python3-venv), or name it: make PYTHON=/path/to/python3' >&2; \
	    exit 1; \
	  fi; \
	  echo "setting up $(VENV) with $$($$found --version)"; \
	  "$$found" -m venv --clear $(VENV); \
	}
	@echo 'installing tvm-ext and what it needs in $(VENV) (about 600 MB) ...'
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## ResNet-18: compile, check against onnxruntime, time against onnxruntime
	$(VENV)/bin/tvm-ext verify zoo:resnet18
	$(VENV)/bin/tvm-ext bench zoo:resnet18 --against onnxruntime

bench: $(STAMP) ## suite and ResNet-18 on this machine, into benchmarks/results/MACHINE, about a quarter of an hour
	@status=0; for script in resnet18 suite; do $(RUN) benchmarks/$$script.py || status=1; done; exit $$status

docs: $(STAMP) ## the guides and the API reference as HTML, into build/docs; warnings are errors
	$(RUN) -m sphinx -E -q -W --keep-going -c docs . build/docs
	@ln -sf README.html build/docs/index.html && echo 'open build/docs/index.html'

test: $(STAMP) ## the tests, without the long ones
	$(RUN) -m pytest $(PARALLEL) -m 'not long'

test-all: $(STAMP) ## all tests
	$(RUN) -m pytest $(PARALLEL)

lint: $(STAMP) ## ruff (rules and format) and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(STAMP) ## let ruff rewrite the sources
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean: ## remove .venv, build products and tool caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
