# Thin: every target creates the environment that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONPATH := $(CURDIR)/src

.PHONY: run test test-slurm lint format install docs crate-tools clean-venv

run: $(VENV)/.run-installed ## the default campaign on this machine's own devices
	snakemake --cores all

test: $(VENV)/.dev-installed crate-tools ## every check that CI runs
	$(MAKE) --no-print-directory lint
	pytest

test-slurm: $(VENV)/.dev-installed ## campaigns on a real SLURM, installed if missing (Debian, root)
	WATTSLICE_TEST_SLURM=required pytest tests/slurm

lint: $(VENV)/.dev-installed
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

format: $(VENV)/.dev-installed
	ruff check --fix .
	ruff format .
	snakefmt Snakefile workflow

docs: $(VENV)/.run-installed ## schemas and config/README.md from the models
	python -m wattslice.config.docs --write
	python -m wattslice.provenance.schema --write
	python -m wattslice.provenance.recipes --write

install: $(VENV)/.run-installed

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-installed: envs/requirements.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -r envs/requirements.txt
	touch $@

$(VENV)/.dev-installed: envs/requirements-dev.txt $(VENV)/.run-installed
	$(BIN)/python -m pip install --quiet -r envs/requirements-dev.txt
	touch $@

# Apart from the rest: they ask for older versions of some libraries.
crate-tools: $(VENV)/.crate-installed ## validator and reader of RO-Crates, for the tests

$(VENV)/.crate-installed: envs/requirements-crate.txt | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/crate
	$(VENV)/crate/bin/python -m pip install --quiet -r envs/requirements-crate.txt
	touch $@

clean-venv:
	rm -rf $(VENV)
