# Everything a fresh machine needs: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin
DEVICE ?= pretend

.PHONY: demo test test-oldest lint lint-release docs bench clean

# What runs the product; what checks it takes as long again to install.
.venv/runs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[train]'
	touch $@

.venv/installed: .venv/runs
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

# A separate environment, because lightly brings pytorch-lightning, hydra and torchvision with it.
.venv-bench/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install -q -c constraints.txt lightly==1.6.0 timm -e '.[train]'
	touch $@

# torch's threads wait as they do under the command, unless the user has said how.
demo: export GOMP_SPINCOUNT ?= 2500
demo: .venv/runs
	$(BIN)/python examples/demo.py --out runs/demo

# DEVICE: where the laws of tests/device are held; cuda, mps or cpu in place of the pretend accelerator.
test: .venv/installed
	DEVICE=$(DEVICE) $(BIN)/python -m pytest -n 2 --dist worksteal

# The core's tests on the oldest versions that pyproject.toml allows, without the type checks that only tests have.
.venv-oldest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install -q torch==2.6.0 numpy==2.2.0 jaxtyping==0.2.36 beartype==0.19.0 pytest==8.3.0 \
		scipy==1.15.0 safetensors==0.5.0 scikit-learn==1.6.0 pillow==11.0.0
	touch $@

test-oldest: .venv-oldest/installed
	PYTHONPATH=src .venv-oldest/bin/python -m pytest -q -o addopts=--import-mode=importlib tests/losses tests/blocks \
		tests/attach tests/latent tests/groups tests/views tests/tails tests/test_attach.py tests/test_dist.py

lint: .venv/installed lint-release
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

lint-release: .venv/installed
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

# The site, notebooks executed; a warning is an error.
docs: .venv/installed
	$(BIN)/mkdocs build --strict --quiet --site-dir site

bench: .venv-bench/installed
	.venv-bench/bin/python -m benchmarks

clean:
	rm -rf .venv .venv-bench .venv-oldest runs .mypy_cache .ruff_cache .pytest_cache
