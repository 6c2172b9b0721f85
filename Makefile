# What a person does with this repository. Every target sets up its own environment first.
# On Windows: make and a POSIX shell, as Git brings one.
WINDOWS := $(filter Windows_NT,$(OS))
PYTHON ?= $(if $(WINDOWS),python,python3)
BIN := .venv/$(if $(WINDOWS),Scripts,bin)
# A machine with a GPU has torch's CUDA build already, which .venv has not: make test-gpu PYTHON_GPU=python3.
PYTHON_GPU ?= $(BIN)/python
# Tests in several processes, a thread each; make test WORKERS= runs them in one.
WORKERS ?= -n auto --maxprocesses 8 --dist worksteal

# Tensors are checked against the shapes of the signatures that they pass.
SHAPES := --jaxtyping-packages=nearfar.objectives,nearfar.encoder.ragged,nearfar.encoder.pooling,nearfar.encoder.heads,beartype.beartype

.PHONY: demo test test-all quick check campaign format bench test-gpu bench-gpu docs clean

demo: .venv/.done  ## the whole workflow on generated pairs, offline, in a few minutes
	$(BIN)/python -m nearfar demo --output demo

test: .venv/.done  ## one test of each kind; those on real data run where NEARFAR_DATA names a data folder
	$(BIN)/python -m pytest $(WORKERS) -m "not nightly" -rs

test-all: .venv/.done  ## every test, with shapes checked and examples drawn anew: at night and before a release
	$(BIN)/python -m pytest $(WORKERS) $(SHAPES) --hypothesis-profile free -rs

quick: .venv/.done  ## while at work: without what takes over 0.1 s, and without real data
	$(BIN)/python -m pytest $(WORKERS) $(SHAPES) -m "not long and not nightly and not realdata"

check: .venv/.done  ## what every commit must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(WORKERS) -m "not nightly" -rs

campaign: .venv/.done  ## kills, faults and malformed input on the commands that continue, in about an hour
	$(BIN)/python -m tests.campaign $(CAMPAIGN)

format: .venv/.done  ## rewrite the code in the one style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# In full, by name: make bench NAME=training (compiled_kernels, encoding, encode_file, evaluation, export, finetune, help,
# jobs, losses, mining, recipe, scaling, search, shards, side_by_side).
bench: .venv/.done  ## speed on this machine against sentence-transformers, in ten minutes; writes nothing without NAME
ifdef NAME
	$(BIN)/python benchmarks/$(NAME).py run
else
	$(BIN)/python benchmarks/training.py run --quick
	$(BIN)/python benchmarks/encoding.py run --quick
	$(BIN)/python benchmarks/losses.py run --quick
endif

# Both on what PYTHON_GPU has, without network; docs/gpu.md says what that must be. They skip where there is no GPU.
test-gpu: $(filter $(BIN)/python,$(PYTHON_GPU))  ## what a GPU computes is what the CPU does
	PYTHONPATH=src:$(PYTHONPATH) $(PYTHON_GPU) -m pytest tests/gpu -m gpu -p tests.gpu.outcome_plugin -rs -W default \
	  -o addopts="-q --strict-markers --import-mode=importlib"

bench-gpu: $(filter $(BIN)/python,$(PYTHON_GPU))  ## speed on a GPU against sentence-transformers, in nine minutes
	PYTHONPATH=src:$(PYTHONPATH) $(PYTHON_GPU) benchmarks/gpu.py run

docs: .venv/.docs  ## the documentation site in site/; fails on dead links, missing anchors and missing docstrings
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html."

$(BIN)/python: .venv/.done

clean:  ## forget the environment and what the demo made
	rm -rf .venv demo site

# torch first and pinned: left to itself, pip takes a build with gigabytes of CUDA.
.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,offline]'
	touch $@

.venv/.docs: .venv/.done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@
