# Two commands for a fresh machine with python3, make and a package index: make demo, make test.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Bytecode is kept, whatever the shell says: each process would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-oldest wheel lint benchmarks clean

demo: .venv/user
	$(BIN)/dpfit demo

test: .venv/dev lint
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"
	$(BIN)/python -O -m pytest -q tests/faults/test_error_classes.py -k "Guards or Sensitivity or Budget"

test-slow: .venv/dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

# The fast suite on the oldest release of each dependency that pyproject.toml allows.
test-oldest: .venv-oldest/dev
	.venv-oldest/bin/python -m pytest -n auto --dist worksteal -m "not slow"

# A wheel, tried alone on every Python that this machine has and the wheel allows.
wheel: .venv/dev
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python tools/check_wheel.py dist/dpfit-*.whl

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
	$(BIN)/python benchmarks/quantiles.py
	$(BIN)/python benchmarks/weak_spots.py
	$(BIN)/python benchmarks/wine_asap.py
	$(BIN)/python benchmarks/sparse.py
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/printed_schedules.py
	$(BIN)/python benchmarks/streams.py
	$(BIN)/python benchmarks/users.py
	$(BIN)/python benchmarks/nonconvex.py
	$(BIN)/python benchmarks/robust.py
	$(BIN)/python benchmarks/bounded.py
	$(BIN)/python benchmarks/start.py

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

.venv/user: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	touch $@

.venv/dev: .venv/python pyproject.toml constraints.txt
	$(INSTALL) --editable ".[dev]"
	touch $@ .venv/user

.venv-oldest/dev: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints-oldest.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-oldest dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
