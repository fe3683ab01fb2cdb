# Two commands for a stranger: `make demo` and `make test`. Everything lives in .venv; paths stay relative,
# so that a folder with a space in its name works.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
RUN := $(VENV)/bin/python
# One thread per process: the kernels are small, and pytest-xdist brings its own processes.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-all test-slow lint types docs docs-serve bench bench-paper format clean

help:
	@echo 'make demo      set up, run the main job, write demo-report.html'
	@echo 'make test      set up, lint, types, docs, tests, README code blocks'
	@echo 'make test-all  the same with the slow suites'
	@echo 'make docs      build the documentation into site/'
	@echo 'make bench     run the benchmarks (minutes); results in benchmarks/results/'
	@echo 'make bench-paper  the comparisons with the papers (hours; they resume where they stopped)'
	@echo 'make format    let ruff format and fix'
	@echo 'make clean     remove .venv and everything built'

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo 'Confide needs Python 3.11 or newer: on Debian or Ubuntu, apt-get install python3 python3-venv'; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "Python's venv module is missing: apt-get install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core
	$(RUN) -m confide demo --report demo-report.html

test: $(VENV)/.dev lint types docs
	$(RUN) -m pytest -n auto -m 'not slow'

test-slow: $(VENV)/.dev
	$(RUN) -m pytest -n auto -m slow

test-all: test test-slow

lint: $(VENV)/.dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/.dev
	$(RUN) -m pyright

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

docs-serve: $(VENV)/.dev
	$(RUN) -m mkdocs serve

bench: $(VENV)/.dev
	$(RUN) benchmarks/noise.py
	$(RUN) benchmarks/ledger.py
	$(RUN) benchmarks/reader.py
	$(RUN) benchmarks/closed_form.py
	$(RUN) benchmarks/training_classifier.py
	$(RUN) benchmarks/training_speed.py
	$(RUN) benchmarks/prediction_erm.py
	$(RUN) benchmarks/prediction_alpha.py
	$(RUN) benchmarks/prediction_speed.py
	$(RUN) benchmarks/prediction_steps.py
	$(RUN) benchmarks/prediction_chooser.py
	$(RUN) benchmarks/selection_law.py
	$(RUN) benchmarks/selection_recovery.py
	$(RUN) benchmarks/selection_speed.py
	$(RUN) benchmarks/selection_wide.py
	$(RUN) benchmarks/selection_real.py
	$(RUN) benchmarks/selection_solvers.py
	$(RUN) benchmarks/selection_coefficients.py

# Some sets of these are downloaded, and others skipped where they cannot be had.
bench-paper: $(VENV)/.dev
	$(RUN) benchmarks/training_paper.py
	$(RUN) benchmarks/prediction_paper.py
	$(RUN) benchmarks/selection_paper.py

format: $(VENV)/.dev
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf $(VENV) site dist build .pytest_cache .ruff_cache .hypothesis demo-report.html demo-ledger.db*
