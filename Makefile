# `make demo` and `make test` set everything up on a fresh machine, then run.
PYTHON ?= python3
BIN := .venv/bin
# Two OpenMP threads on two cores can collapse to a crawl; small networks want one.
export OMP_NUM_THREADS ?= 1
# Without the bytecode of the last time, each process of the tests compiles what it imports: ten seconds a run.
unexport PYTHONDONTWRITEBYTECODE
SEED ?= 0

.PHONY: setup demo test pytest test-slow test-gpu test-cluster soak bench lint format clean

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "pip>=25.1" torch hatchling
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	touch $@

demo: setup
	$(BIN)/surelabel demo

# Both at once: mypy has one process, and takes most of a minute the first time.
test: setup
	$(MAKE) --jobs 2 lint pytest

pytest: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu and not ray"

test-slow: setup
	$(BIN)/python -m pytest -m slow

# On a machine with a CUDA device; about four minutes.
test-gpu: setup
	$(BIN)/python -m pytest -m gpu

# Workers and drivers that are killed, with Ray, torchrun and neither, and an object store; under five minutes.
test-cluster: .venv-cluster/.installed
	.venv-cluster/bin/python -m pytest -m ray
	.venv-cluster/bin/python -m pytest tests/cluster -m "slow and not ray"

.venv-cluster/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-cluster
	.venv-cluster/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "pip>=25.1" torch hatchling
	.venv-cluster/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[ray]" --group dev --group cluster
	touch $@

# Kills, generated inputs and damaged run folders, counted in results/reliability.csv; at most 40 minutes on two cores.
soak: setup
	PYTHONPATH=tests $(BIN)/python -m soak --seed $(SEED) --results results/reliability.csv; found=$$?; \
	$(BIN)/python experiments/update_documents.py && exit $$found

# Training and labeling beside a plain and a published-like way, in one run; rows in results/bench.csv.
bench: setup
	$(BIN)/python -m benchmarks --results results/bench.csv

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-cluster .mypy_cache .pytest_cache .ruff_cache
