# make demo    the main job, on real pictures, with an accuracy at the end
# make test    everything: environment, lint, types, all tests
# make check   the quick inner loop
# make soak    the tests that draw their examples, with thousands of them: an hour or so
# make bench   benchmarks against peers, in one run
# make env     .venv with all engines and frameworks that live together

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest
INPUTS := constraints.txt pyproject.toml Makefile

.PHONY: env demo test check soak bench clean

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
	$(INSTALL) --no-deps torchvision
	@touch $@

demo: .venv/demo.done
	$(BIN)/python examples/digits.py

check: .venv/all.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

test: .venv/all.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST)

soak: .venv/all.done
	SHOAL_TEST_PROFILE=soak $(PYTEST) -m soak --timeout 0

bench: .venv/all.done
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis build dist
