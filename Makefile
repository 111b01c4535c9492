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
.PHONY: help setup demo test test-slow test-bits test-triton test-reproducible bench vectors conformance test-fuzz test-registry test-registry-fuzz test-clients sushi test-sushi test-examples gpu-evidence clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

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
	$(BIN)/pytest -m 'not slow' -n 2 --dist loadfile

test-slow: setup  ## the exhaustive tests that `make test` leaves out
	$(BIN)/pytest -m slow

# What to time or compare: names of the zoo or ONNX files, all of the zoo if empty. RESULTS is outside git.
MODELS ?=
THREADS ?= 1
RUNS ?= 15
RESULTS ?= benchmarks/results
BENCH_STAMP := $(STAMP)-bench

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

bench: $(BENCH_STAMP)  ## time the zoo beside other runtimes; prints the table, writes RESULTS (benchmarks/results)
	@mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks.bench $(MODELS) --threads $(THREADS) --runs $(RUNS) \
	  --json $(RESULTS)/bench-$(THREADS).json --picture $(RESULTS)/bench-$(THREADS).png

test-bits: $(BENCH_STAMP)  ## one sha256 of the zoo's outputs over instruction sets, threads and processors
	@mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks.bits $(MODELS) --json $(RESULTS)/bits.json

gpu-evidence: $(BENCH_STAMP)  ## on a machine with an NVIDIA GPU: bits, times and memory of GPU engines (docs/gpu.md)
	$(BIN)/python -m benchmarks.gpu_evidence $(GPU_OPTIONS) --out $(RESULTS)/gpu_evidence.json

test-triton: $(STAMP)  ## Triton kernels compiled and inspected, without a GPU (installs Triton, 190 MB)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,triton]'
	$(BIN)/pytest tests/triton

test-reproducible: $(BENCH_STAMP)  ## 20 varied rebuilds of the demonstration model and of ResNet-18, one digest each
	$(BIN)/python -m benchmarks.reproducible

vectors: setup  ## compute the expected bits of the arithmetic again and compare them with the committed file
	$(BIN)/python -m evidence.reference.vectors --check docs/vectors/ca1.json

conformance: setup  ## ONNX's own node tests through compiled engines; fails when one passes no more
	$(BIN)/cuvil conformance --baseline evidence/data/onnx_node_passing.txt

test-fuzz: $(BENCH_STAMP)  ## 10,000 mutations of valid models through the importer, 500 of them as engines
	$(BIN)/python tests/fuzz/fuzz_campaign.py --mutations 10000 --compiled 500

test-clients: setup  ## FHIR clients as published: fhirpy, fhir-pyrate and fhir-kit-client (needs node 20 and npm)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,clients]'
	CUVIL_CLIENTS=all $(BIN)/pytest tests/registry/clients

# MINUTES and SEED say how long and which.
MINUTES ?= 10
SEED ?= 1
test-registry: setup  ## the FHIR registry on SQLite and on a PostgreSQL of its own (Debian package postgresql)
	CUVIL_TEST_POSTGRESQL=1 $(BIN)/pytest -m 'not slow' tests/registry
	CUVIL_TEST_POSTGRESQL=1 $(BIN)/pytest -m slow tests/registry/test_registry_store.py

test-registry-fuzz: setup  ## the FHIR registry for ten minutes under requests made from the R5 definitions and broken
	$(BIN)/python tests/fuzz/registry_fuzz.py --minutes $(MINUTES) --seed $(SEED)

sushi: setup  ## compile the registry's definitions (fhir_registry/fsh) with fsh-sushi; needs npm
	$(BIN)/python scripts/sushi.py --write

test-sushi: setup  ## compare what SUSHI makes of them with what is committed and served; needs npm
	$(BIN)/python scripts/sushi.py --check

test-examples: setup  ## the registry's validator on the official FHIR R5 examples; needs npm
	$(BIN)/python scripts/r5_examples.py
	$(BIN)/python scripts/r5_profiles.py

clean:  ## remove what the targets made inside the checkout
	rm -rf demo-output out benchmarks/results build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
