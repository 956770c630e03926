# make train   set everything up and train A2C+SIL on Key-Door-Treasure
# make test    set everything up, lint, check types and run all tests
# make campaign   attack the command line for half an hour and print what failed (docs/campaign.md)
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test campaign install lint format clean

train: install
	$(BIN)/sil train

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

campaign: install
	PYTHONPATH=tests $(BIN)/python -m campaign

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
