# Every command of the project. `make quickstart` and `make test` set up what they need, once.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test test-all test-verl-0.9.0 unit lint bench docs reproduce clean

quickstart: $(VENV)/installed
	$(BIN)/python -m verl_pods_cero.quickstart

PYTEST := $(BIN)/python -m pytest -p no:benchmark

test: unit
	$(PYTEST) -m "e2e and not slow" --durations=0

test-all: unit
	$(PYTEST) -m e2e --durations=0
	$(MAKE) test-verl-0.9.0

# The same on the other verl that is supported, in an environment of its own.
test-verl-0.9.0: OLDER := .venv-verl-0.9.0
test-verl-0.9.0:
	$(MAKE) VENV=$(OLDER) $(OLDER)/installed
	$(OLDER)/bin/python -m pip install --quiet --no-deps verl==0.9.0
	$(OLDER)/bin/python -m pytest -p no:benchmark -n 2 --dist worksteal -m "not e2e"
	$(OLDER)/bin/python -m pytest -p no:benchmark -m e2e -k generates_n_and_updates_on_m

unit: $(VENV)/installed
	$(PYTEST) -n 2 --dist worksteal -m "not e2e"

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python -m pytest benchmarks --benchmark-only

docs: $(VENV)/installed
	$(BIN)/python docs/generate.py

# Hours. What is finished is kept and not made again: stop it and go on as you like.
reproduce: $(VENV)/installed
	$(BIN)/python -m benchmarks.headline
	$(BIN)/python -m benchmarks.allocation
	mkdir -p outputs docs/images/allocation
	$(BIN)/verl-pods-cero report docs/results/headline --baseline grpo --title "The headline on a CPU" --out outputs/headline.html --csv docs/results/headline.csv --figures docs/images/headline --overwrite
	for world in steep own; do $(BIN)/verl-pods-cero report docs/results/allocation/$$world --baseline uniform --title "Allocators on a CPU ($$world)" --out outputs/allocation-$$world.html --csv docs/results/allocation/$$world.csv --figures docs/images/allocation/$$world --overwrite || exit 1; done
	$(BIN)/python benchmarks/picture.py

$(VENV)/installed: requirements/torch.txt requirements/cpu.txt setup.cfg
	@$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(v not in ((3, 11), (3, 12)) and f'The pinned versions need Python 3.11 or 3.12, {sys.executable} is {v[0]}.{v[1]}. Fix: make PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements/torch.txt
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/cpu.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf $(VENV)
