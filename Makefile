# Each target works alone on a machine with Python 3.10 or newer and PyPI.
PYTHON ?= python3
VENV ?= .venv
# of pytest; three workers keep two cores busy, since many tests wait
ARGS ?= -n 3
BIN := $(VENV)/bin
# what an environment was made for: another pyproject or another Python makes it anew
KEY := $(shell { cat pyproject.toml setup.cfg setup.py tests/lowest.txt tests/constraints.txt; $(PYTHON) -VV; } | cksum | cut -d' ' -f1)
# what to install in which environment: by uv, in a tenth of pip's time; where that cannot be had or finds less than pip, by pip
install = { $(1)/bin/python -m pip install --quiet uv && $(1)/bin/python -m uv pip install --quiet $(2); } \
	|| $(1)/bin/python -m pip install --quiet --no-compile $(2)
# a part of the suite that touches every dependency, for the lowest versions that are allowed
LOWEST := tests/seeds tests/text/test_maths.py tests/data tests/gallery/test_cards.py tests/trained/test_bradley_terry.py \
	tests/reward/test_registry.py tests/engine/test_store.py tests/cli/test_evaluate.py tests/cli/test_catalogue.py \
	tests/serve/test_formats.py tests/serve/test_server_process.py tests/evaluation/test_store.py tests/integrations/test_scoring.py

# what every Python runs: what has depended on one before
EVERYWHERE := tests/golden/test_readers.py tests/golden/test_engine.py tests/integrations/test_adapters.py
# the other contracts and golden files, of which the oldest Python runs one half and the newest the other
OLDEST := tests/golden tests/model/test_call.py tests/cli/test_every_command.py
NEWEST := tests/golden/test_rules.py tests/model/test_call.py tests/gallery/test_registry_contract.py tests/graders/test_settings.py tests/benchmarks/test_contract.py \
	tests/golden/test_reports.py
MUTANTS ?= -n 400
# which runners `make golden` runs
ONLY ?= tests/golden

.PHONY: help demo test test-long test-all golden mutants pythons lowest check site lock format clean

help:  ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.run-$(KEY):
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.dev-$(KEY): $(VENV)/.run-$(KEY)
	$(call install,$(VENV),-e '.[dev]' -c tests/constraints.txt)
	@touch $@

$(VENV)-lowest/.done-$(KEY): tests/lowest.txt
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(call install,$(VENV)-lowest,-r tests/lowest.txt sacrebleu hypothesis openpyxl \
		fastapi==0.115 "uvicorn[standard]==0.30" sqlalchemy==2.0.30 prometheus-client==0.20 "psycopg[binary]==3.2.1" \
		pytest pytest-timeout pytest-xdist)
	@touch $@

demo: $(VENV)/.run-$(KEY)  ## Train the embedded reward model and compare rewards on the built-in benchmark; no key needed
	$(BIN)/rm-gallery demo

test: $(VENV)/.dev-$(KEY)  ## Run the tests that are not long, in a few minutes
	$(BIN)/python -m pytest -m "not long" $(ARGS)

test-long: $(VENV)/.dev-$(KEY)  ## Run the long ones, and the whole products of which `make test` runs a choice
	RM_GALLERY_PRODUCT=full $(BIN)/python -m pytest -m long $(ARGS)

test-all: $(VENV)/.dev-$(KEY)  ## Run all tests
	RM_GALLERY_PRODUCT=full $(BIN)/python -m pytest $(ARGS)

golden: $(VENV)/.dev-$(KEY)  ## Write the golden files anew from the library as it is, and show what changed; ONLY=tests/golden/test_rules.py for one runner
	RM_GALLERY_GOLDEN=write $(BIN)/python -m pytest -q $(ONLY)
	git add --intent-to-add tests/golden
	git --no-pager diff --stat -p -- tests/golden

mutants: $(VENV)/.dev-$(KEY)  ## Change the package in 400 places, one at a time, and list what the nearest tests do not notice
	$(BIN)/python -m pip install --quiet -e '.[mutants]' -c tests/constraints.txt
	$(BIN)/python -m tools.mutants record --workers 3
	$(BIN)/python -m tools.mutants run --jobs 2 $(MUTANTS)

$(VENV)-3.%/.done-$(KEY):
	python=$$(python3.$* -c "import sys; print(sys.executable)" 2>/dev/null || ls -d $$HOME/.pyenv/versions/3.$*.*/bin/python | tail -n 1) && \
		$$python -m venv --clear $(VENV)-3.$*
	$(call install,$(VENV)-3.$*,-e '.[dev]' -c tests/constraints.txt)
	@touch $@

python-3.%: $(VENV)-3.%/.done-$(KEY)
	$(VENV)-3.$*/bin/python -W error -m tools.imports
	$(if $(filter 12,$*),,$(VENV)-3.$*/bin/mypy --python-version 3.$* --cache-dir .mypy_cache/3.$* rm_gallery)
	$(VENV)-3.$*/bin/python -m pytest -q -p no:cacheprovider $(EVERYWHERE) $(if $(filter 10,$*),$(OLDEST)) $(if $(filter 13,$*),$(NEWEST)) $(ARGS)

pythons: python-3.10 python-3.12 python-3.13  ## Import, type-check and run contracts on the other Pythons

lowest: $(VENV)-lowest/.done-$(KEY)  ## Run a part of the tests with the lowest versions that pyproject.toml allows
	PYTHONPATH=. $(VENV)-lowest/bin/python -m pytest -q -p no:cacheprovider -W ignore::DeprecationWarning $(LOWEST) $(ARGS)

check: $(VENV)/.dev-$(KEY)  ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.house --check

$(VENV)/.docs-$(KEY): $(VENV)/.run-$(KEY)
	$(call install,$(VENV),-e '.[docs]' -c tests/constraints.txt)
	@touch $@

site: $(VENV)/.docs-$(KEY)  ## Build the documentation into site/, and look for dead links
	$(BIN)/python -m tools.site_pages pages build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python -m tools.site_pages check site
	@echo 'python -m http.server --directory site shows it, with search'

lock: $(VENV)/.dev-$(KEY)  ## Renew the exact versions in tests/constraints.txt
	$(BIN)/python -m pip install --quiet uv
	head -n 1 tests/constraints.txt > tests/constraints.new
	grep '^torch==' tests/constraints.txt > tests/torch.new  # its build without CUDA is asked for by its exact version
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra mutants --extra hf --extra train --extra ray --extra docs --constraints tests/torch.new \
		--universal --python-version 3.10 --no-python-downloads --no-header --no-annotate --upgrade --quiet \
		| grep -vE '^(nvidia|cuda|triton)' >> tests/constraints.new
	rm tests/torch.new
	mv tests/constraints.new tests/constraints.txt

format: $(VENV)/.dev-$(KEY)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove what the other targets made
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-3.* .mutants build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
