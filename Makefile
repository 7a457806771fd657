# Two commands for a fresh machine with python3, make and a package index: make demo, make test.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow lint benchmarks clean

demo: .venv/user
	$(BIN)/dpfit demo

test: .venv/dev lint
	$(BIN)/python -m pytest -n auto -m "not slow"
	$(BIN)/python -O -m pytest -q tests/faults

test-slow: .venv/dev
	$(BIN)/python -m pytest -n auto -m slow

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

benchmarks: .venv/dev
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/out_of_core.py
	$(BIN)/python benchmarks/queries.py
	$(BIN)/python benchmarks/epochs.py
	$(BIN)/python benchmarks/learning.py
	$(BIN)/python benchmarks/auto.py
	$(BIN)/python benchmarks/curvature.py
	$(BIN)/python benchmarks/public_data.py
	$(BIN)/python benchmarks/samplers.py
	$(BIN)/python benchmarks/chains.py
	$(BIN)/python benchmarks/slopes.py
	$(BIN)/python benchmarks/wine_asap.py

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

.venv/user: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	touch $@

.venv/dev: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable ".[dev]"
	touch $@ .venv/user

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
