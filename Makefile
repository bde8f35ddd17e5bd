PYTHON ?= python3
VENV := .venv/bin
DEMO := PYTHONPATH=hack $(VENV)/python -m demo
LOCK := $(VENV)/uv pip compile --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help e2e node-up node-down demo up down test test-older conformance test-deep simulate soak mutate bench-operator soak-operator shipped metrics-page unsupported-page crd-reference chart manifests-test screenshots docs docs-links lint format lock clean check python older kubernetes ready

help: ## what there is to make
	@echo 'The first `make demo` or `make test` takes 10 to 25 minutes (about 5 GB of Python packages, a build of'
	@echo 'Kubernetes, side by side); later ones find it all in place. Both bring everything that they need.'
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s%s\n", $$1, $$2}' Makefile

e2e: python ## the product as shipped, on a real node (needs root) or on the cluster of KUBECONFIG; ARGS go to pytest
	@PYTHONPATH=hack $(VENV)/python -m e2e $(ARGS)

node-up: python ## a whole Kubernetes of one node, for playing (needs root); it says how to get into its network
	@PYTHONPATH=hack $(VENV)/python -m node up

node-down: python ## end it; nothing of it is left
	@PYTHONPATH=hack $(VENV)/python -m node down

demo: ready ## the product at work on real parts, as a story; MODEL=smollm2 tells it with a real chat model
	@$(DEMO) run $(if $(MODEL),--model $(MODEL))

up: ready ## start everything for playing, and say what to try
	@$(DEMO) up $(if $(MODEL),--model $(MODEL))

down: python ## end what `make up` started
	@$(DEMO) down

test: python kubernetes ## all tests; ARGS go to pytest
	@$(VENV)/python -m pytest $(ARGS)

test-older: older ## the tests of engine and door with the oldest vLLM that is supported; ARGS go to pytest
	@.venv-older/bin/python -m pytest tests/engine tests/door $(ARGS)

conformance: python ## vLLM's own tests of its scheduler core, with its classes and with ours; ARGS go to pytest
	@PYTHONPATH=hack $(VENV)/python -m conformance $(ARGS)

test-deep: python ## the zone core, and the scheduler around it, under 10,000 random histories each; ARGS go to pytest
	@HYPOTHESIS_PROFILE=deep $(VENV)/python -m pytest tests/zones tests/engine/histories $(ARGS)

simulate: python ## 100,000 requests of 200 tenants through the zone core; ARGS go to the simulator
	@$(VENV)/python -m bench.simulator --requests 100000 --tenants 200 $(ARGS)

soak: python ## the zone core for 7 days of virtual time: nothing that it keeps may grow; ARGS go to the bench
	@$(VENV)/python -m bench.soak --days 7 --zones 1000 $(ARGS)

mutate: python ## break the zone core on purpose, line by line, and name what no test noticed
	@$(VENV)/python hack/mutate.py $(ARGS)

bench-operator: python kubernetes ## the operator with thousands of zones, against its budgets; ARGS go to the bench
	@PYTHONPATH=hack $(VENV)/python -m bench.operator $(ARGS)

soak-operator: python kubernetes ## the operator for half an hour among engines that lie and in a bad network; ARGS go to the soak
	@PYTHONPATH=hack:operator:runtime $(VENV)/python -m bench.operator.soak $(ARGS)

shipped: python ## write again what `kubectl tenantzone doctor` compares a cluster with
	@$(VENV)/python hack/shipped.py

crd-reference: python ## write docs/reference/resources.md again from crds/
	@$(VENV)/python hack/crd_reference.py

metrics-page: python ## write docs/metrics.md again from what the code declares
	@$(VENV)/python hack/metrics_page.py

unsupported-page: python ## write docs/unsupported.md again from what the code refuses
	@PYTHONPATH=hack $(VENV)/python hack/unsupported_page.py

screenshots: ready ## take the pictures of the operator's page again, in docs/images/
	@PYTHONPATH=hack $(VENV)/python hack/screenshots.py

monitoring: python ## write manifests/monitoring again; RUNBOOKS=URL says where the alerts' runbooks are found
	@PYTHONPATH=hack $(VENV)/python -m monitoring $(if $(RUNBOOKS),--runbooks $(RUNBOOKS))

monitoring-test: python ## the rules by promtool, with a summary
	@promtool=$$(PYTHONPATH=hack $(VENV)/python -m debian promtool) && \
	  $$promtool check rules manifests/monitoring/rules.yaml && $$promtool test rules tests/monitoring/rules/*.yaml

bench-alerts: python ## where the alerts' thresholds are from: simulated days, with and without a flood
	@PYTHONPATH=hack $(VENV)/python -m bench.alerts $(ARGS)

docs: python ## build the documentation as a site, in build/docs; a link that leads nowhere is an error
	@$(VENV)/sphinx-build -W --keep-going -d build/doctrees docs build/docs

docs-links: python ## ask the network whether the pages that the documentation links to are there
	@$(VENV)/sphinx-build -b linkcheck -d build/doctrees docs build/docs-links

chart: python ## write again what manifests/chart has from crds/ and the other manifests
	@PYTHONPATH=hack $(VENV)/python -m manifests

manifests-test: python kubernetes ## manifests and chart: equal, by schema, by a real API server, by checkov; ARGS go to pytest
	@$(VENV)/python -m pytest tests/manifests $(ARGS)

lint: python ## format, style, types and import rules
	@$(VENV)/ruff format --check
	@$(VENV)/ruff check
	@$(VENV)/mypy
	@$(VENV)/lint-imports

format: python ## let ruff format and repair what it can
	@$(VENV)/ruff format
	@$(VENV)/ruff check --fix

lock: python ## write requirements/ again from pyproject.toml; ARGS=--upgrade takes newer versions
	$(LOCK) pyproject.toml --extra cpu --extra operator --extra dev --override requirements/overrides.txt --universal -o requirements/dev.txt
	@cp requirements/dev.txt requirements/older.txt # the same versions, but for what the older vLLM needs otherwise
	$(LOCK) pyproject.toml --extra cpu --extra operator --extra dev --override requirements/overrides.txt --override requirements/older.in --universal -o requirements/older.txt
	$(LOCK) pyproject.toml --extra operator --universal -o requirements/operator.txt
	$(LOCK) pyproject.toml --extra cpu --override requirements/overrides.txt --universal -o requirements/cpu.txt
	$(LOCK) pyproject.toml --extra gpu --python-platform x86_64-manylinux_2_28 -o requirements/gpu.txt
	$(LOCK) requirements/build.in --universal -o requirements/build.txt
	$(LOCK) requirements/checkov.in --universal -o requirements/checkov.txt

clean: ## remove what was made in this folder; the caches that other clones use stay
	rm -rf .venv .venv-older .demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .mutation build dist *.egg-info

# A cluster that KUBECONFIG names is used as it is.
ready: check
	@$(MAKE) --no-print-directory -j2 python $(if $(KUBECONFIG),,kubernetes)

check:
	@$(PYTHON) hack/bootstrap.py --check

python: check
	@$(PYTHON) hack/bootstrap.py

older: check
	@$(PYTHON) hack/bootstrap.py --older

kubernetes: check
	@PYTHONPATH=hack $(PYTHON) -m controlplane build >/dev/null
