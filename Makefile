# `make run` and `make test` are the whole set-up; see README.md.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: run test test-slurm bench docs install lint types format clean
.DEFAULT_GOAL := run

install: $(READY)

$(READY): pyproject.toml envs/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e '.[cpu,dev,slurm]'
	touch $@

run: $(READY)
	snakemake
	@echo "The report: $$(granularity config report)"

test: $(READY)
	pytest -m "not slurm" -n logical --maxprocesses 8 --dist worksteal

test-slurm: $(READY)
	pytest -m slurm

bench: $(READY)
	python benchmarks/run.py

docs: $(READY)
	python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -e '.[docs]'
	mkdocs build --strict

lint: $(READY)
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/Snakefile rules
	snakemake --lint

types: $(READY)
	mypy

format: $(READY)
	ruff check --fix .
	ruff format .
	snakefmt Snakefile workflow/Snakefile rules

clean:
	rm -rf $(VENV) results .snakemake
