# make demo    the main job, on real pictures, with an accuracy at the end
# make test    everything: environment, lint, types, all tests
# make check   the quick inner loop
# make soak    the tests that draw their examples, with thousands of them: an hour or so
# make bench   benchmarks against peers, in one run
# make bench-tables  the same for tables, engines and exports
# make bench-tools   the same for the tar tools
# make bench-store   the same for objects in shared memory
# make bench-learn   the same for training
# make env     .venv with all engines and frameworks that live together

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest
# Files of tests are shared out to two processes: most wait for something half of the time.
BOTH := --numprocesses 2 --dist loadfile
# OpenVINO keeps threads of its own in whoever has imported it, and other tests fork; so these have processes of their own.
APART := tests/test_learn_openvino.py tests/test_learn_conformance.py src/shoal/learn/openvino
INPUTS := constraints.txt pyproject.toml Makefile

# The peers live in an environment of their own, outside the tree: it is large, and named after what is in it.
PEERS := constraints.txt benchmarks/constraints.txt benchmarks/peers.txt
BENCH := $(HOME)/.cache/shoal-bench/env-$(shell (pwd; cat $(PEERS)) | sha256sum | cut -c 1-12)
BENCH_INSTALL := $(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check \
	--constraint constraints.txt --constraint benchmarks/constraints.txt

MODIN := $(HOME)/.cache/shoal-bench/modin-$(shell cat benchmarks/modin.txt | sha256sum | cut -c 1-12)

TARPROC := $(HOME)/.cache/shoal-bench/tarproc-$(shell cat benchmarks/tarproc.txt | sha256sum | cut -c 1-12)

.PHONY: env demo test check soak bench bench-tables bench-tools bench-store bench-learn clean

env: .venv/all.done

# torch comes first and pinned: asked for by others, it may arrive as a build with gigabytes of CUDA.
.venv/demo.done: $(INPUTS)
	@echo "Setting up .venv for the demo"
	$(PYTHON) -m venv .venv
	$(INSTALL) "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(INSTALL) hatchling editables
	$(INSTALL) --no-build-isolation --editable ".[demo]"
	@touch $@

.venv/all.done: .venv/demo.done
	@echo "Setting up .venv with all engines and frameworks: some minutes"
	$(INSTALL) --no-build-isolation --editable ".[all,dev]"
	$(INSTALL) --no-deps torchvision tf_keras
	@touch $@

demo: .venv/demo.done
	$(BIN)/python examples/digits.py

check: .venv/all.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

test: .venv/all.done
	$(BIN)/shoal env create vineyard mxnet bigdl horovod
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) $(BOTH) $(APART:%=--ignore=%)
	$(PYTEST) $(BOTH) $(APART)

soak: .venv/all.done
	SHOAL_TEST_PROFILE=soak $(PYTEST) -m soak --timeout 0

$(BENCH)/peers.done:
	@echo "Setting up $(BENCH) with the peers: some minutes, 5 GB"
	$(PYTHON) -m venv $(BENCH)
	$(BENCH_INSTALL) "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(BENCH_INSTALL) --requirement benchmarks/peers.txt
	$(BENCH_INSTALL) --no-deps mosaicml-streaming
	$(BENCH_INSTALL) hatchling editables
	@touch $@

$(BENCH)/shoal.done: $(BENCH)/peers.done pyproject.toml Makefile
	$(BENCH_INSTALL) --no-build-isolation --editable ".[images,torch,tables]"
	@touch $@

bench: $(BENCH)/shoal.done
	$(BENCH)/bin/python -m benchmarks.run

$(MODIN)/modin.done $(TARPROC)/tarproc.done:
	@echo "Setting up $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/$(basename $(@F)).txt
	@touch $@

bench-tables: .venv/all.done $(MODIN)/modin.done
	$(BIN)/python -m benchmarks.tables --modin $(MODIN)

bench-tools: .venv/all.done $(TARPROC)/tarproc.done
	$(BIN)/python -m benchmarks.tar_tools --tarproc $(TARPROC)

bench-store: .venv/all.done
	$(BIN)/shoal env create vineyard
	$(BIN)/python -m benchmarks.shared_memory --environment vineyard

bench-learn: .venv/all.done
	$(BIN)/python -m benchmarks.training

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis build dist
