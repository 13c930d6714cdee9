# SPDX-License-Identifier: Apache-2.0
.DEFAULT_GOAL := help
.PHONY: help demo test test-torch lint docs docs-serve stubs sanitize fuzz p4 bench baseline simulate clean
OUT ?= out/demo
NOW := $(shell date +%s)
STUBGEN = .venv/bin/python -m nanobind.stubgen -q -r -m railweave._native -m railweave._rigs
export NO_MKDOCS_2_WARNING = 1

help: ## say what can be made
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1	\2/' | expand -t 20

demo: ## set up this machine, then train a model on four Mininet hosts over three rails
	@./bootstrap run
	@$(AS_ROOT) .venv/bin/railweave demo --out $(OUT) --since $(NOW)

test: ## set up this machine, then run every test that it can run
	@./bootstrap test
	@$(AS_ROOT) .venv/bin/python -m pytest -n 2 --dist loadgroup --max-worker-restart=0

lint: ## check format, style and types
	@./bootstrap lint
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/clang-format --dry-run --Werror $$(git ls-files 'native/*.cpp' '*.hpp')
	@rm -rf build/stubs && $(STUBGEN) -O build/stubs
	diff -r build/stubs/_native railweave/_native && diff -r build/stubs/_rigs railweave/_rigs || \
	    { echo "the native modules' type stubs are old: make stubs"; exit 1; }
	.venv/bin/mypy

docs: ## write the documentation site into build/site
	@./bootstrap docs
	.venv/bin/mkdocs build
	@echo "the site: build/site/index.html"

docs-serve: ## show the documentation site on this machine, and follow changes
	@./bootstrap docs
	.venv/bin/mkdocs serve

stubs: ## write the type stubs of the native modules, after a change of their bindings
	@./bootstrap lint
	rm -rf railweave/_native railweave/_rigs && $(STUBGEN) -O railweave

# The sanitized modules live in an environment of its own, which borrows the packages of .venv. Python itself leaks at exit.
sanitize: ## run the unit and protocol tests on native modules built with ASan and UBSan
	@./bootstrap test
	@.venv/bin/python -m venv --without-pip build/sanitized
	@ls -d $(CURDIR)/.venv/lib/python3*/site-packages > $$(ls -d build/sanitized/lib/python3*/site-packages)/borrowed.pth
	.venv/bin/python -m pip install -q --no-deps --no-build-isolation --upgrade --target $$(ls -d build/sanitized/lib/python3*/site-packages) \
	    -C build-dir=build/sanitize -C cmake.define.RAILWEAVE_SANITIZE=ON -C cmake.define.RAILWEAVE_RIGS=ON .
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONSAFEPATH=1 \
	    build/sanitized/bin/python -m pytest -q -n 2 --dist loadgroup tests/unit tests/protocol

fuzz: ## run every fuzz target for SECONDS (default 5), with libFuzzer if clang is there
	@./bootstrap test
	.venv/bin/python native/fuzz/run.py --seconds $(or $(SECONDS),5)

p4: ## compile the P4 programs with p4c into p4src/build and benchmarks/p4/build
	@./bootstrap run
	.venv/bin/python -m railweave.p4src.compile
	.venv/bin/python -m railweave.benchmarks.programs

bench: ## hold a short set of ratios against the committed baseline: what has moved
	@./bootstrap baseline
	@$(AS_ROOT) .venv/bin/railweave bench ratios

baseline: ## install what experiments compare railweave with: PyTorch (for Gloo) into .venv, Open MPI
	@./bootstrap baseline

simulate: ## install ns-3 into .venv, for figures with up to 1,024 hosts (69 MB)
	@./bootstrap simulate

test-torch: ## run PyTorch's own distributed tests, those that Gloo can run, on railweave
	@./bootstrap baseline
	.venv/bin/python tests/torch_suite.py $(TESTS)

clean: ## remove what was built and installed in this folder; results in out/ stay
	rm -rf $(addprefix build/,native native.log programs fuzz site stubs sanitize sanitized) build/cp3*
	@rmdir build 2>/dev/null || true
	@if [ -e .venv/stamps/made ]; then rm -rf .venv; else rm -f .venv/stamps/programs; fi
	@if [ -e .venv ]; then echo ".venv stays: ./bootstrap has not made it"; fi

# Network namespaces need root; an ordinary user's commands go through sudo.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
