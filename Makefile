# What a person does with this repository. Every target sets up its own environment first.
# On Windows: make and a POSIX shell, as Git brings one.
WINDOWS := $(filter Windows_NT,$(OS))
PYTHON ?= $(if $(WINDOWS),python,python3)
BIN := .venv/$(if $(WINDOWS),Scripts,bin)

.PHONY: demo test check format bench clean

demo: .venv/.done  ## the main job, offline, in a few minutes: train, prove, search
	$(BIN)/python -m nearfar.demo --output demo

test: .venv/.done  ## all tests; those on real data run where NEARFAR_DATA names a data folder
	$(BIN)/python -m pytest

check: .venv/.done  ## what every commit must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: .venv/.done  ## rewrite the code in the one style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# In full, by name: make bench NAME=training (compiled_kernels, encoding, encode_file, evaluation, finetune, losses,
# scaling, side_by_side).
bench: .venv/.done  ## speed on this machine against sentence-transformers, in ten minutes; writes nothing without NAME
ifdef NAME
	$(BIN)/python benchmarks/$(NAME).py run
else
	$(BIN)/python benchmarks/training.py run --quick
	$(BIN)/python benchmarks/encoding.py run --quick
	$(BIN)/python benchmarks/losses.py run --quick
endif

clean:  ## forget the environment and what the demo made
	rm -rf .venv demo

# torch first and pinned: left to itself, pip takes a build with gigabytes of CUDA.
.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,offline]'
	touch $@
