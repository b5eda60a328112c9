# make demo    the main job, on real pictures, with an accuracy at the end
# make test    everything: environment, lint, types, all tests
# make check   the quick inner loop
# make soak    the tests that draw their examples, with thousands of them, all cases, and the whole kill matrix: hours
# make kill-matrix  that matrix alone, and its page in docs/
# make docs    the documentation as a site, in build/docs
# make bench   benchmarks against peers, in one run
# make bench-tables  the same for tables, engines and exports
# make bench-tools   the same for the tar tools
# make bench-store   the same for objects in shared memory
# make bench-learn   the same for training
# make bench-feed    the same for batches from other processes
# make bench-view    the viewer with a million samples, in a real browser
# make pictures  the screenshots and the recording in docs/screens
# make env     .venv with all engines and frameworks that live together

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest
# Files of tests are shared out to three processes, in the order that tests/conftest.py gives them: most wait for something
# half of the time. One that crashes ends the run, because whoever took its place might wait for ever for something to do.
SHARED := --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
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

.PHONY: env demo test check soak kill-matrix docs bench bench-tables bench-tools bench-store bench-learn bench-feed bench-view pictures clean

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

check: .venv/all.done /usr/bin/chromium
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow and not long"

# The viewer is tested in a real browser. Who is not root has to install it.
/usr/bin/chromium:
	@if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium; else \
		echo "The tests of the viewer need Debian's Chromium: sudo apt-get install chromium" >&2; exit 1; fi

test: .venv/all.done /usr/bin/chromium
	$(BIN)/shoal env create vineyard mxnet bigdl horovod tensorcom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) $(SHARED) -m "not long" $(APART:%=--ignore=%)
	$(PYTEST) $(SHARED) -m "not long" $(APART)

soak: .venv/all.done
	SHOAL_TEST_PROFILE=soak $(PYTEST) -m "soak or long or hypothesis" --timeout 0

kill-matrix: .venv/all.done
	PYTHONPATH=$(CURDIR)/src:$(CURDIR)/tests $(BIN)/python -m kill_matrix --write

docs: .venv/all.done
	$(BIN)/python docs/site/build.py build/docs

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

bench-feed: .venv/all.done
	$(BIN)/shoal env create tensorcom
	$(BIN)/python -m benchmarks.feed --environment tensorcom

bench-view: .venv/all.done /usr/bin/chromium
	$(BIN)/python -m benchmarks.view

pictures: .venv/all.done /usr/bin/chromium
	$(BIN)/python docs/screens/make.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis build dist
