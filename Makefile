# Every target sets up .venv by itself and uses it again while pyproject.toml stays as it is.

SPEC ?=
RESULTS ?= results
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# The first of these that is Python 3.10 or later makes the environment.
PYTHONS := python3 python3.13 python3.12 python3.11 python3.10

.DEFAULT_GOAL := help
.PHONY: help experiment plan test test-slow check schema validate-kryo bench-tuning soak pythons relay clean

help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo "  SPEC names a file under experiments/ or a path, for example: make experiment SPEC=quick.yaml"

experiment: $(VENV)/.installed ## Run the spec SPEC, or what is left of it, and show its table
	@test -n "$(SPEC)" || { echo "say which spec: make experiment SPEC=quick.yaml" >&2; exit 2; }
	@$(BIN)/layoutlab run "$(SPEC)" --results "$(RESULTS)"

plan: $(VENV)/.installed ## Show what a run of SPEC would do
	@test -n "$(SPEC)" || { echo "say which spec: make plan SPEC=quick.yaml" >&2; exit 2; }
	@$(BIN)/layoutlab plan "$(SPEC)" --results "$(RESULTS)"

test: $(VENV)/.installed-dev ## Lint, check types and run all tests but the slow ones
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-slow: $(VENV)/.installed-dev ## Run the slow tests (those of model building need the extra `models`)
	@$(BIN)/python -m pytest -m slow

check: $(VENV)/.installed-dev ## Format, lint and types
	@$(BIN)/ruff format --check -q . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy

schema: $(VENV)/.installed ## Write the JSON schema of specs, for editors
	@$(BIN)/layoutlab schema > experiments/spec.schema.json

validate-kryo: $(VENV)/.installed ## Compare the simulated Kryo core with published latencies (about a minute)
	@$(BIN)/python -m layoutlab.device.kryo.validate

bench-tuning: $(VENV)/.installed ## Compare the tuner with stock MetaSchedule (a quarter of an hour); options in ARGS, see ARGS=--help
	@$(BIN)/python -m benchmarks.tuning $(ARGS)

relay: $(VENV)/.installed ## Make .relay, a TVM with Relay for specs with engine: relay (needs Python 3.10 or 3.8; a minute)
	@$(BIN)/python -m layoutlab.engine.relay.provision .relay

soak: $(VENV)/.installed ## Run experiments for half an hour and look for what stays behind; options in ARGS, see ARGS=--help
	@$(BIN)/python -m benchmarks.soak $(ARGS)

pythons: ## Install and test with Python 3.10 to 3.13, as far as they are there (about 1 GB each); ARGS="3.10 3.13" for some
	@for python in $(PYTHONS); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then \
	    exec $$python benchmarks/pythons.py $(ARGS); \
	  fi; \
	done; echo "no Python 3.10 or later found (tried: $(PYTHONS))" >&2; exit 1

clean: ## Remove the environment and caches; results and records stay
	@rm -rf $(VENV) .relay .pythons build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@echo "making $(VENV)" >&2
	@for python in $(PYTHONS); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then \
	    $$python -m venv $(VENV) && exit 0; \
	    echo "$$python cannot make an environment; on Debian: apt-get install python3-venv" >&2; \
	    rm -rf $(VENV); exit 1; \
	  fi; \
	done; echo "no Python 3.10 or later found (tried: $(PYTHONS))" >&2; exit 1

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing layoutlab and what it needs into $(VENV) (about 1 GB, once)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e . >&2
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing layoutlab, what it needs and its tests' tools into $(VENV) (about 1 GB, once)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]" >&2
	@touch $(VENV)/.installed $@
