# make train   set everything up and train A2C+SIL on Key-Door-Treasure
# make test    set everything up, lint, check types and run all tests
# make test-extras   run the tests of what needs heavy extras: Ray, Stable-Baselines3, ONNX, W&B, the documentation
# make docs    build the documentation site in build/docs
# make campaign   attack the command line for half an hour and print what failed (docs/campaign.md)
# make audit   check the installed packages for known vulnerabilities and list them in build/sbom.json
# make test-minimum   run the fast tests with the oldest versions that pyproject.toml allows
PYTHON ?= python3
PYTHON_MINIMUM ?= python3.11
BIN := .venv/bin

.PHONY: train test test-extras test-minimum docs campaign audit install lint format clean

train: install
	$(BIN)/sil train

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m 'not extras'

test-extras: .venv-extras/installed
	.venv-extras/bin/pytest -m extras

docs: .venv-extras/installed
	NO_MKDOCS_2_WARNING=1 .venv-extras/bin/mkdocs build --strict

campaign: install
	PYTHONPATH=tests $(BIN)/python -m campaign

test-minimum: .venv-minimum/installed
	.venv-minimum/bin/pytest -n 2 --dist worksteal -m 'not slow and not extras'

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

.venv-extras/installed: pyproject.toml
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/python -m pip install --quiet --upgrade pip
	.venv-extras/bin/python -m pip install --quiet --editable '.[test-extras]'
	touch $@

.venv-minimum/installed: pyproject.toml
	rm -rf .venv-minimum
	$(PYTHON_MINIMUM) -m venv .venv-minimum
	.venv-minimum/bin/python -m pip install --quiet --upgrade pip
	.venv-minimum/bin/python -m pip install --quiet --group minimum
	.venv-minimum/bin/uv pip install --python .venv-minimum --resolution lowest-direct --editable '.[test]'
	touch $@

.venv-audit/installed: pyproject.toml
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --upgrade pip
	.venv-audit/bin/python -m pip install --quiet --group audit
	touch $@

clean:
	rm -rf .venv .venv-extras .venv-minimum .venv-audit build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
