# Everything happens in .venv. Its stamps (.venv/.core-*, ...) say what is installed, so that a second run starts at once.
# The install is editable: Python sources are always current, and only new packages, pyproject.toml or C++ make it run again.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
TORCH ?= torch==2.13.0
TORCH_ARGS ?=
# One worker a core, whole files to each: what a file shares between its tests is made once.
WORKERS ?= -n auto --maxprocesses 8 --dist loadfile
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check $(if $(V),--verbose,--quiet)
# What an extra names, without the package itself: that would be compiled once more.
install_extra = $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"], sep="\n")' \
	> .venv/.$(1).txt && $(PIP) install --requirement .venv/.$(1).txt
COMPILES := and compiling its native kernels, which may take minutes (V=1 shows it) ...
# Runs a command that says nothing, and says every 15 s that it still runs.
patiently = @$(1) & work=$$!; trap "kill $$work" INT TERM; s=0; while kill -0 $$work 2>/dev/null; do sleep 1; s=$$((s + 1)); \
	[ $$((s % 15)) -ne 0 ] || echo "  ... $$s s"; done; wait $$work
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc -type f)
KEY := $(shell find penstock -name __init__.py | LC_ALL=C sort | cksum | cut -d' ' -f1)

.PHONY: help serve test check clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## */make \1\t/p' Makefile
	@echo "ARGS=... is passed on, for example: make serve ARGS='--port 8001'"

serve: .venv/.core-$(KEY)  ## install into .venv and serve the bundled model on port 8000
	@exec $(BIN)/penstock serve $(ARGS)

test: .venv/.test-$(KEY)  ## install what tests need and run them all (a CPU build of torch elsewhere: TORCH_ARGS='--index-url ...')
	@exec $(BIN)/python -m pytest -q $(WORKERS) $(ARGS)

check: .venv/.dev-$(KEY)  ## lint, types and architecture
	@scripts/check $(ARGS)

clean:  ## remove .venv and everything built or cached
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Penstock needs Python 3.11 or newer, but $(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>&1);" \
	    "name a newer one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.core-$(KEY): .venv/.made $(SOURCES)
	@echo "Installing Penstock into .venv $(COMPILES)"
	$(call patiently,$(PIP) install --editable .)
	@touch $@

.venv/.test-$(KEY): .venv/.core-$(KEY)
	@echo "Installing what the tests need ..."
	$(call patiently,$(PIP) install $(TORCH) $(TORCH_ARGS))
	@$(call install_extra,test)
	@touch $@

.venv/.dev-$(KEY): .venv/.core-$(KEY)
	@echo "Installing the developers' tools ..."
	@$(call install_extra,dev)
	@touch $@
