# What people type: `make run` and `make test`; each sets up what it needs in .venv first.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
READY := .venv/.ready
DOCS := .venv/.docs
PEERS := .venv/.peers
AOT := .venv-aot

# Times a recipe: $(call timed,what it is,command).
timed = start=$$SECONDS; echo "== $(1)"; $(2); echo "== done in $$((SECONDS - start)) s"

.PHONY: help setup run tour test test-slow lint docs format bench mutants results aot clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## build .venv with the pinned versions (about a minute, 1.5 GB)

$(READY): pyproject.toml constraints.txt .python-version
	@$(call timed,setting up .venv with the versions of constraints.txt (about a minute, 1.5 GB),\
	  python=$$(./.ci/find-python); echo "   using $$python"; \
	  if ! [ -x $(PYTHON) ] || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then \
	    rm -rf .venv; "$$python" -m venv .venv; fi; \
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; touch $@)

run: setup  ## the main job: a released model of each paper at work, one trained from nothing, one page
	@$(call timed,released models at work (about 2 minutes on two cores),$(PYTHON) -m experiments.showcase)

tour: setup  ## every experiment's quick preset, trained here, ending in one page of pictures
	@$(call timed,the tour: every experiment's quick preset (about 11 minutes on two cores),$(PYTHON) -m experiments.tour)

test: setup  ## the tests, with the annotations of kernels and papers checked (about 15 minutes on two cores)
	@$(call timed,the tests (about 15 minutes on two cores),\
	  $(PYTHON) -m pytest -n 2 --dist worksteal -p tests.typed -m 'not slow' --durations=20)

test-slow: setup  ## the tests that take more than 5 seconds each
	@$(call timed,the slow tests,$(PYTHON) -m pytest -n 2 --dist worksteal -p tests.typed -m slow --durations=20)

$(DOCS): $(READY)
	@$(call timed,adding the packages that build the pages,\
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'; touch $@)

$(PEERS): $(READY)
	@$(call timed,adding the libraries to compare with,\
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'; touch $@)

lint: setup $(DOCS)  ## style (ruff), types (pyrefly), and the pages with their links (mkdocs, into build/site)
	@$(call timed,ruff and pyrefly and mkdocs,\
	  $(PYTHON) -m ruff check .; $(PYTHON) -m ruff format --check .; $(PYTHON) -m pyrefly check; \
	  NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet)

docs: setup $(DOCS)  ## serve the pages on this machine, the tutorials executed (a few minutes, once per change)
	@NO_MKDOCS_2_WARNING=1 EXECUTE=1 $(PYTHON) -m mkdocs serve

format: setup  ## let ruff mend what it can
	@$(PYTHON) -m ruff check --fix . && $(PYTHON) -m ruff format .

bench: setup $(PEERS)  ## side-by-side measurements of speed on this machine, into results/ (about 90 minutes)
	@$(call timed,benchmarks (about 90 minutes on two cores),\
	  $(PYTHON) -m benchmarks.kernels; $(PYTHON) -m benchmarks.llrnn; \
	  $(PYTHON) -m benchmarks.boxworld; $(PYTHON) -m benchmarks.training --only=boxworld; \
	  $(PYTHON) -m benchmarks.tp_transformer; $(PYTHON) -m benchmarks.folnet; \
	  $(PYTHON) -m benchmarks.kinship; $(PYTHON) -m benchmarks.export; $(PYTHON) -m benchmarks.scaling; \
	  $(PYTHON) -m benchmarks.peers; $(PYTHON) -m benchmarks.peers.training; \
	  $(PYTHON) -m benchmarks.peers.growth; \
	  $(PYTHON) -m benchmarks.claims; \
	  $(PYTHON) -m experiments.claims --tables)

mutants: setup  ## 150 single changes to the code, which the default tests must notice (half an hour; resumes)
	@$(call timed,mutants (about half an hour on two cores),$(PYTHON) -m benchmarks.mutants)

results: setup  ## run what the claims in results/ rest on (hours; resumes; python -m experiments.claims shows progress)
	@$(call timed,the claims,$(PYTHON) -m experiments.claims --all; $(PYTHON) -m experiments.claims --tables)

$(AOT)/.ready: constraints.txt constraints-aot.txt .python-version
	@$(call timed,setting up $(AOT): compilers for TPUs and NVIDIA GPUs (about a minute, 2.5 GB),\
	  python=$$(./.ci/find-python); rm -rf $(AOT); "$$python" -m venv $(AOT); \
	  $(AOT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    -r constraints-aot.txt; touch $@)

aot: $(AOT)/.ready  ## compile every Pallas kernel for an H200 and for TPUs, with neither here (about 25 minutes)
	@$(call timed,kernels compiled for chips that are not here (about 25 minutes),$(AOT)/bin/python -m benchmarks.aot)

clean:  ## remove what setup, run, tour and the tests made; runs/ stays
	rm -rf .venv $(AOT) build showcase tour .pytest_cache .ruff_cache .hypothesis
