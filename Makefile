# Every target works from a fresh clone on Debian with Python 3.11 or later, and again at no cost.
# An active virtual environment is used as it is; otherwise .venv is made.

PYTHON ?= python3
ifdef VIRTUAL_ENV
BIN := $(VIRTUAL_ENV)/bin
else
BIN := $(CURDIR)/.venv/bin
endif
STAMP := $(dir $(BIN)).cuvil-setup

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow vectors clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(STAMP)  ## virtual environment, packages, and the compiler's C libraries

# The stamp lies in the virtual environment: a new environment or a changed pyproject.toml installs again.
$(STAMP): pyproject.toml scripts/system-packages.sh
	@sh scripts/system-packages.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv $(CURDIR)/.venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/cuvil setup
	@touch $@

demo: setup  ## build, run and verify the shipped demonstration model
	$(BIN)/cuvil demo

test: setup  ## style, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m 'not slow'

test-slow: setup  ## the exhaustive tests that `make test` leaves out
	$(BIN)/pytest -m slow

vectors: setup  ## compute the expected bits of the arithmetic again and compare them with the committed file
	$(BIN)/python -m evidence.reference.vectors --check docs/vectors/ca1.json

clean:  ## remove what the targets made inside the checkout
	rm -rf demo-output out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
