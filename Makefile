PYTHON ?= python3
VENV := .venv/bin
BUILDER ?= docker
TARGETS ?= operator manager engine
IMAGES ?= operator manager engine-cpu
VERSION = $(shell $(PYTHON) -m hack.version)
DEMO := $(VENV)/python -m hack.demo
PURE_TESTS := tests/zones tests/contract tests/operator
QUICK := -q -x -m "not controlplane and not engine" --numprocesses=3 --dist=loadgroup $(or $(ARGS),$(PURE_TESTS))
SIDE_BY_SIDE := --numprocesses=4 --dist=loadgroup --no-loadscope-reorder --durations=15
LOCK := $(VENV)/uv pip compile --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo demo-fleet up down test test-rest test-all quick quick-pythons lint format test-older test-newer vllm-changes test-deep conformance manifests-test monitoring-test mutate audit e2e node-up node-down \
  simulate soak bench-operator soak-operator soak-attacks bench-alerts generate version policy-names shipped crd-reference metrics-page unsupported-page features-page parsers-page manager-api monitoring chart screenshots \
  lock docs docs-links push freeze release clean ready check python older newer kubernetes

help:
	@echo 'The first `make demo` or `make test` takes 10 to 25 minutes (about 5 GB of Python packages, a build of'
	@echo 'Kubernetes, side by side); later ones find it all in place. Both bring everything that they need.'
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-16s%s\n", $$1, $$2}' Makefile

##@ Start here

demo: ready ## demonstrate zones on real components; MODEL=smollm2 uses a real chat model
	@$(DEMO) run $(if $(MODEL),--model $(MODEL))

demo-fleet: python kubernetes ## demonstrate engines that share their tenants' caches through a KV-cache manager
	@PYTHONPATH=operator:runtime $(VENV)/python -m hack.fleet

up: ready ## start a cluster to try things out, and print what to try; TIERS=1 adds tiers in CPU memory and on a disk
	@$(DEMO) up $(if $(MODEL),--model $(MODEL)) $(if $(TIERS),--tiers)

down: python ## stop what `make up` started
	@$(DEMO) down

test: python kubernetes ## all tests of pure logic, and tests of each real part, in parallel; ARGS go to pytest, such as a file's name
	@$(VENV)/python -m pytest $(or $(ARGS),$(SIDE_BY_SIDE) -m "not thorough")

test-rest: python kubernetes ## the tests that `make test` leaves out; tests/thorough.txt lists their files
	@$(VENV)/python -m pytest $(SIDE_BY_SIDE) -m thorough

test-all: test test-rest ## all tests, then each further group of the GPU bench on CPU engines: ten minutes more
	@$(VENV)/python -m pytest tests/bench/test_gpu_groups.py

##@ Check a change

quick: python ## quick checks, in under a minute: style, types, import rules, and the tests of pure logic
	@$(VENV)/ruff check
	@$(VENV)/mypy
	@found=$$($(VENV)/lint-imports) || { echo "$$found"; exit 1; }
	@HYPOTHESIS_PROFILE=quick $(VENV)/python -m pytest $(QUICK)

quick-pythons: python ## the tests of make quick with each other installed Python of 3.11, 3.12 and 3.13
	@HYPOTHESIS_PROFILE=quick $(VENV)/python -m hack.other_pythons $(QUICK)

lint: python ## format, style, types, import rules and dead code
	@$(VENV)/ruff format --check
	@$(VENV)/ruff check
	@$(VENV)/mypy
	@$(VENV)/lint-imports
	@$(VENV)/vulture

format: python ## format, and fix what ruff can fix
	@$(VENV)/ruff format
	@$(VENV)/ruff check --fix

test-older: older ## the tests of engine and frontend, and conformance, with the oldest vLLM that is supported; ARGS go to pytest
	@.venv-older/bin/python -m pytest tests/engine tests/frontend tests/conformance $(ARGS)

test-newer: newer ## what runs without a GPU of the newest vLLM, before it has a build for CPUs; ARGS go to pytest
	@VLLM_TARGET_DEVICE=cpu .venv-newer/bin/python -m pytest -m "not compiled and not engine and not flagged_engine" $(or $(ARGS),tests/engine tests/frontend tests/conformance)

vllm-changes: newer ## list the newest vLLM's changes in what zones extend, call, import, route or refuse
	@$(VENV)/python -m hack.vllm_changes $(ARGS)

test-deep: python ## zone core and scheduler under 10,000 random histories each, parsers under as many texts, half a minute of atheris, five minutes of requests over HTTP; ARGS go to pytest
	@HYPOTHESIS_PROFILE=deep $(VENV)/python -m pytest tests/zones tests/engine/histories tests/engine/test_long_answers.py tests/parsers $(ARGS)
	@$(VENV)/python -m tests.parsers.fuzz
	@$(VENV)/python -m tests.frontend.fuzzing --seconds 300

conformance: python ## vLLM's own tests of its scheduler core, with its classes and with ours; ARGS go to pytest
	@$(VENV)/python -m hack.conformance $(ARGS)

manifests-test: python kubernetes ## manifests and chart: equal, by schema, by a real API server, by checkov; ARGS go to pytest
	@$(VENV)/python -m pytest tests/manifests $(ARGS)

monitoring-test: python ## the rules by promtool, with a summary
	@promtool=$$($(VENV)/python -m hack.debian promtool) && \
	  $$promtool check rules manifests/monitoring/rules.yaml && $$promtool test rules tests/monitoring/rules/*.yaml

mutate: python ## mutation tests of the zone core: list the changes that no test noticed
	@$(VENV)/python -m hack.mutate $(ARGS)

##@ A real node

audit: python ## known vulnerabilities of the locked packages, by pip-audit; fails if no source answers
	@$(VENV)/python -m hack.audit $(ARGS)

e2e: python ## the product as shipped, on a real node (needs root) or on the cluster of KUBECONFIG; ARGS go to pytest
	@$(VENV)/python -m hack.e2e $(ARGS)

node-up: python ## start a Kubernetes of one node to try things out (needs root), and print how to reach its network
	@$(VENV)/python -m hack.node up

node-down: python ## stop it and remove all of it
	@$(VENV)/python -m hack.node down

##@ Measure

simulate: python ## 100,000 requests of 200 tenants through the zone core; ARGS go to the simulator
	@$(VENV)/python -m bench.simulator --requests 100000 --tenants 200 $(ARGS)

soak: python ## the zone core for 7 days of virtual time: nothing that it keeps may grow; ARGS go to the bench
	@$(VENV)/python -m bench.soak --days 7 --zones 1000 $(ARGS)

bench-operator: python kubernetes ## the operator with thousands of zones, against its budgets; ARGS go to the bench
	@$(VENV)/python -m bench.operator $(ARGS)

soak-operator: python kubernetes ## the operator for half an hour among engines that lie and in a bad network; ARGS go to the soak
	@PYTHONPATH=operator:runtime $(VENV)/python -m bench.operator.soak $(ARGS)

soak-attacks: python kubernetes ## two replicas of the operator for half an hour under all attacks at once; ARGS go to the soak
	@PYTHONPATH=operator:runtime $(VENV)/python -m bench.operator.attacks $(ARGS)

bench-alerts: python ## where the alerts' thresholds are from: simulated days, with and without a flood
	@$(VENV)/python -m bench.alerts $(ARGS)

##@ Regenerate files

generate: python ## all except pictures, locks and measurements, in the order of their dependencies
	@$(MAKE) --no-print-directory version policy-names shipped crd-reference metrics-page unsupported-page features-page manager-api monitoring chart

version: python # into the files that repeat what pyproject.toml says
	@$(VENV)/python -m hack.version --write

policy-names: python # into the CRDs and the contract, from the registry of eviction policies
	@PYTHONPATH=operator:runtime $(VENV)/python -m hack.generate.policy_names

shipped: python ## write again what `kubectl tenantzone doctor` compares a cluster with
	@$(VENV)/python -m hack.generate.shipped

crd-reference: python ## write docs/reference/resources.md again from crds/
	@$(VENV)/python -m hack.generate.crd_reference

metrics-page: python ## write docs/metrics.md again from what the code declares
	@$(VENV)/python -m hack.generate.metrics_page

unsupported-page: python ## write docs/unsupported.md again from what the code refuses
	@$(VENV)/python -m hack.generate.unsupported_page

features-page: python ## write docs/features.md again from what the tests say that they show
	@$(VENV)/python -m hack.generate.features_page

parsers-page: python ## measure vLLM's answer parsers for about 15 minutes, and write docs/parsers.md again
	@PYTHONPATH=operator:runtime $(VENV)/python -m hack.generate.parsers_page

manager-api: python ## write the KV-cache manager's OpenAPI description and gRPC messages again
	@PYTHONPATH=operator:runtime $(VENV)/python -m hack.generate.manager_api

monitoring: python ## write manifests/monitoring again; RUNBOOKS=URL says where the alerts' runbooks are found
	@$(VENV)/python -m hack.monitoring $(if $(RUNBOOKS),--runbooks $(RUNBOOKS))

chart: python ## write again what manifests/chart has from crds/ and the other manifests
	@$(VENV)/python -m hack.manifests

screenshots: ready ## take the pictures of the operator's page again, in docs/images/
	@$(VENV)/python -m hack.generate.screenshots

lock: python ## write requirements/ again from pyproject.toml; ARGS=--upgrade takes newer versions
	$(LOCK) pyproject.toml --extra cpu --extra operator --extra dev --override requirements/overrides.txt --universal -o requirements/dev.txt
	@cp requirements/dev.txt requirements/older.txt # the same versions, but for what the older vLLM needs otherwise
	$(LOCK) pyproject.toml --extra cpu --extra operator --extra dev --override requirements/overrides.txt --override requirements/older.in --universal -o requirements/older.txt
	$(LOCK) requirements/older-source.in --no-deps -o requirements/older-source.txt
	$(LOCK) requirements/newer.in --no-deps -o requirements/newer.txt
	$(LOCK) pyproject.toml --extra operator --universal -o requirements/operator.txt
	$(LOCK) pyproject.toml --extra manager --universal -o requirements/manager.txt
	$(LOCK) pyproject.toml --extra cpu --override requirements/overrides.txt --universal -o requirements/cpu.txt
	$(LOCK) pyproject.toml --extra gpu --python-platform x86_64-manylinux_2_28 -o requirements/gpu.txt
	$(LOCK) requirements/logic.in --universal -o requirements/logic.txt
	$(LOCK) requirements/engine.in --universal -o requirements/engine.txt
	$(LOCK) requirements/build.in --universal -o requirements/build.txt
	$(LOCK) requirements/checkov.in --universal -o requirements/checkov.txt
	$(LOCK) requirements/envoy.in --universal -o requirements/envoy.txt
	$(LOCK) requirements/litellm.in --universal -o requirements/litellm.txt
	$(LOCK) requirements/audit.in --universal -o requirements/audit.txt
	$(LOCK) requirements/atheris.in --universal -o requirements/atheris.txt
	$(LOCK) requirements/pictures.in --no-deps -o requirements/pictures.txt
	$(LOCK) requirements/mooncake.in --no-deps -o requirements/mooncake.txt
	$(LOCK) requirements/kvwarden.in --universal -o requirements/kvwarden.txt

##@ Documentation

docs: python ## build the documentation as a site, in build/docs; a link that leads nowhere is an error
	@$(VENV)/sphinx-build -W --keep-going -d build/doctrees docs build/docs

docs-links: python ## check over the network that the documentation's external links work
	@$(VENV)/sphinx-build -b linkcheck -d build/doctrees docs build/docs-links

##@ Release

push: ## build images with docker (or BUILDER) and push them to REGISTRY=registry.example/team; TARGETS says which
	@test -n "$(REGISTRY)" || { echo 'say where to: make push REGISTRY=registry.example/team' >&2; exit 2; }
	@for target in $(TARGETS); do \
	  image="$(REGISTRY)/tenantzone-$$target:$(VERSION)"; \
	  echo "images     | building and pushing $$image"; \
	  $(BUILDER) build --target "$$target" --build-arg "REVISION=$$(git describe --always --dirty --abbrev=40 --exclude='*')" --tag "$$image" . || exit 1; \
	  $(BUILDER) push "$$image" || exit 1; \
	done

freeze: python ## keep crds/ as the schemas of this version, in crds/released
	@$(VENV)/python -m hack.release freeze

release: python ## wheel, chart, SBOM, images and checksums of the last commit, in dist; IMAGES="operator" builds that one only
	@$(VENV)/python -m hack.release build --images $(IMAGES)

##@ Tidy up

clean: ## remove what was made in this folder; the caches that other clones use stay
	rm -rf .venv .venv-older .venv-newer .demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .mutation build dist *.egg-info

# A cluster that KUBECONFIG names is used as it is.
ready: check
	@$(MAKE) --no-print-directory -j2 python $(if $(KUBECONFIG),,kubernetes)

check:
	@$(PYTHON) -m hack.bootstrap --check

python: check
	@$(PYTHON) -m hack.bootstrap

older: check
	@$(PYTHON) -m hack.bootstrap --older

newer: python
	@$(PYTHON) -m hack.bootstrap --newer

kubernetes: check
	@$(PYTHON) -m hack.controlplane build >/dev/null
