# make train   set everything up and train A2C+SIL on Key-Door-Treasure
# make test    set everything up, lint, check types and run all tests
# make campaign   attack the command line for half an hour and print what failed (docs/campaign.md)
# make audit   check the installed packages for known vulnerabilities and list them in build/sbom.json
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test campaign audit install lint format clean

train: install
	$(BIN)/sil train

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

campaign: install
	PYTHONPATH=tests $(BIN)/python -m campaign

audit: install .venv-audit/installed
	mkdir -p build
	.venv-audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-file build/sbom.json $(BIN)/python
	PIPAPI_PYTHON_LOCATION=$(abspath $(BIN)/python) .venv-audit/bin/python tools/audit.py

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

.venv-audit/installed: pyproject.toml
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --upgrade pip
	.venv-audit/bin/python -m pip install --quiet --group audit
	touch $@

clean:
	rm -rf .venv .venv-audit build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
